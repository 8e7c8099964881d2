//! Volumes: PersistentVolumes, their claims, StorageClasses and VolumeAttachments: defaults, the first phase, the default class, what may change, columns.

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_syntax::Quantity;

use super::columns::{AGE, Column, NAME, created, name, plain};
use super::filling::{set, with, with_spec};
use super::keeping::{all_but, copy};
use super::{KindRules, PLAIN};
use crate::cause::Cause;
use crate::checks::{immutable, text};
use crate::error::ApiResult;
use crate::store::state::State;

/// Annotations of a StorageClass for claims that name none, in today's and in an older form.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
/// Annotation by which claims named their class once.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) const CLAIM: KindRules = KindRules {
    default: |object| with_spec(object, |spec| set(spec, "volumeMode", json!("Filesystem"))),
    check: check_claim,
    admit: admit_claim,
    columns: CLAIM_COLUMNS,
    cells: claim_cells,
    ..PLAIN
};

pub(super) const VOLUME: KindRules = KindRules {
    default: default_volume,
    check: check_volume,
    admit: pending,
    columns: VOLUME_COLUMNS,
    cells: volume_cells,
    ..PLAIN
};

pub(super) const STORAGE_CLASS: KindRules = KindRules {
    default: default_class,
    check: check_class,
    columns: CLASS_COLUMNS,
    cells: class_cells,
    ..PLAIN
};

pub(super) const ATTACHMENT: KindRules = KindRules {
    check: |new, old, causes| {
        if let Some(old) = old {
            immutable(&new["spec"], &old["spec"], "spec", causes);
        }
    },
    columns: ATTACHMENT_COLUMNS,
    cells: attachment_cells,
    ..PLAIN
};

fn pending(_: &State, object: &mut Value) -> ApiResult<()> {
    object["status"] = json!({"phase": "Pending"});
    Ok(())
}

/// A new claim that names no class gets the default one, where there is one. An empty name is a name: of volumes without a class.
fn admit_claim(state: &State, object: &mut Value) -> ApiResult<()> {
    let names_one = object["spec"]["storageClassName"].is_string()
        || object["metadata"]["annotations"][CLASS].is_string();
    if !names_one
        && object["spec"].is_object()
        && let Some(class) = default_class_name(state)
    {
        object["spec"]["storageClassName"] = json!(class);
    }
    pending(state, object)
}

/// The name of the newest default class; of several that are as new, the first.
fn default_class_name(state: &State) -> Option<&str> {
    let classes = state.objects("storage.k8s.io", "storageclasses");
    let newest = classes.filter(|class| is_default(class)).reduce(|best, next| {
        if created_at(next) > created_at(best) {
            next
        } else {
            best
        }
    });
    newest.map(|class| text(&class["metadata"]["name"]))
}

fn is_default(class: &Value) -> bool {
    let annotations = &class["metadata"]["annotations"];
    DEFAULT_CLASS.iter().any(|key| annotations[*key] == "true")
}

/// Times of one form, which are ordered as texts.
fn created_at(object: &Value) -> &str {
    text(&object["metadata"]["creationTimestamp"])
}

fn default_volume(object: &mut Value) {
    with_spec(object, |spec| {
        set(spec, "volumeMode", json!("Filesystem"));
        set(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    });
}

fn default_class(object: &mut Value) {
    with(object, |object| {
        set(object, "reclaimPolicy", json!("Delete"));
        set(object, "volumeBindingMode", json!("Immediate"));
    });
}

/// Of a claim that was made only its volume is still to be found. One that is bound may grow, and have other attributes.
fn check_claim(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let Some(old) = old.filter(|old| old["spec"] != new["spec"]) else {
        return;
    };
    let (spec, before) = (&new["spec"], &old["spec"]);
    let mut rest = spec.clone();
    for field in ["volumeName", "storageClassName"] {
        if before[field].is_null() {
            copy(field, before, &mut rest);
        }
    }
    if old["status"]["phase"] == "Bound" {
        copy("volumeAttributesClassName", before, &mut rest);
        if let Some(requests) = rest.pointer_mut("/resources/requests") {
            copy("storage", &before["resources"]["requests"], requests);
        }
    }
    if rest != *before {
        causes.push(Cause::forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    let storage = |amounts: &Value| amounts["storage"].as_str()?.parse::<Quantity>().ok();
    let (wanted, wanted_before) = (
        storage(&spec["resources"]["requests"]),
        storage(&before["resources"]["requests"]),
    );
    if wanted < wanted_before && wanted <= storage(&old["status"]["capacity"]) {
        causes.push(Cause::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
    immutable(&spec["volumeMode"], &before["volumeMode"], "volumeMode", causes);
}

/// Fields of a volume's spec beside the one that says what it is.
const BESIDE_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn check_volume(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let Some(old) = old else { return };
    let (spec, before) = (&new["spec"], &old["spec"]);
    if all_but(spec, &BESIDE_SOURCE) != all_but(before, &BESIDE_SOURCE) {
        causes.push(Cause::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    immutable(&spec["volumeMode"], &before["volumeMode"], "volumeMode", causes);
    let affinity = &before["nodeAffinity"];
    if !affinity.is_null() && spec["nodeAffinity"] != *affinity {
        causes.push(Cause::invalid(
            "nodeAffinity",
            &spec["nodeAffinity"],
            "field is immutable, except for updating from beta label to GA",
        ));
    }
}

fn check_class(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(&new[field], &old[field], field, causes);
    }
}

const CLAIM_COLUMNS: &[Column] = &[
    NAME,
    Column("Status", "string", 0),
    Column("Volume", "string", 0),
    Column("Capacity", "string", 0),
    Column("Access Modes", "string", 0),
    Column("StorageClass", "string", 0),
    Column("VolumeAttributesClass", "string", 0),
    AGE,
    Column("VolumeMode", "string", 1),
];

fn modes(value: &Value) -> String {
    let short = |mode: &Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO".to_owned(),
        "ReadOnlyMany" => "ROX".to_owned(),
        "ReadWriteMany" => "RWX".to_owned(),
        "ReadWriteOncePod" => "RWOP".to_owned(),
        other => other.to_owned(),
    };
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(short)
        .collect::<Vec<_>>()
        .join(",")
}

fn claim_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let text = |value: &Value| json!(value.as_str().unwrap_or_default());
    let status = if object["metadata"]["deletionTimestamp"].is_null() {
        object["status"]["phase"].clone()
    } else {
        json!("Terminating")
    };
    vec![
        name(object),
        status,
        text(&object["spec"]["volumeName"]),
        text(&object["status"]["capacity"]["storage"]),
        json!(modes(&object["status"]["accessModes"])),
        text(&object["spec"]["storageClassName"]),
        json!("<unset>"),
        created(object, now),
        text(&object["spec"]["volumeMode"]),
    ]
}

const VOLUME_COLUMNS: &[Column] = &[
    NAME,
    Column("Capacity", "string", 0),
    Column("Access Modes", "string", 0),
    Column("Reclaim Policy", "string", 0),
    Column("Status", "string", 0),
    Column("Claim", "string", 0),
    Column("StorageClass", "string", 0),
    Column("VolumeAttributesClass", "string", 0),
    Column("Reason", "string", 0),
    AGE,
    Column("VolumeMode", "string", 1),
];

fn volume_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let text = |value: &Value| json!(value.as_str().unwrap_or_default());
    let claim = &object["spec"]["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", plain(&claim["namespace"]), plain(&claim["name"]))
    } else {
        String::new()
    };
    vec![
        name(object),
        text(&object["spec"]["capacity"]["storage"]),
        json!(modes(&object["spec"]["accessModes"])),
        text(&object["spec"]["persistentVolumeReclaimPolicy"]),
        text(&object["status"]["phase"]),
        json!(claim),
        text(&object["spec"]["storageClassName"]),
        json!("<unset>"),
        text(&object["status"]["reason"]),
        created(object, now),
        text(&object["spec"]["volumeMode"]),
    ]
}

const CLASS_COLUMNS: &[Column] = &[
    NAME,
    Column("Provisioner", "string", 0),
    Column("ReclaimPolicy", "string", 0),
    Column("VolumeBindingMode", "string", 0),
    Column("AllowVolumeExpansion", "string", 0),
    AGE,
];

fn class_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let shown = plain(&object["metadata"]["name"]);
    vec![
        json!(if is_default(object) {
            format!("{shown} (default)")
        } else {
            shown
        }),
        object["provisioner"].clone(),
        object["reclaimPolicy"].clone(),
        object["volumeBindingMode"].clone(),
        json!(object["allowVolumeExpansion"] == true),
        created(object, now),
    ]
}

const ATTACHMENT_COLUMNS: &[Column] = &[
    NAME,
    Column("Attacher", "string", 0),
    Column("PV", "string", 0),
    Column("Node", "string", 0),
    Column("Attached", "boolean", 0),
    AGE,
];

fn attachment_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        object["spec"]["attacher"].clone(),
        object["spec"]["source"]["persistentVolumeName"].clone(),
        object["spec"]["nodeName"].clone(),
        object["status"]["attached"].clone(),
        created(object, now),
    ]
}
