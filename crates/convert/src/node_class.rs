//! EC2NodeClass of `karpenter.k8s.aws/v1beta1` as v1, and what all EC2NodeClasses of this crate share: images and defaults that changed.

use serde_json::{Value, json};

use crate::fields::{get, remove, set, text};
use crate::report::Notes;
use crate::{Context, World, metadata};

/// Converts one EC2NodeClass of v1beta1.
pub(crate) fn convert(mut object: Value, context: &Context, world: &mut World, notes: &mut Notes) {
    object["apiVersion"] = json!("karpenter.k8s.aws/v1");
    if let Some(meta) = remove(&mut object, &["metadata"]) {
        object["metadata"] = metadata::converted(meta, notes);
    }
    if remove(&mut object, &["status"]).is_some() {
        notes.dropped("status", "written by the controllers");
    }
    let family = remove(&mut object, &["spec", "amiFamily"]);
    match family.as_ref().and_then(Value::as_str) {
        Some(family) => images(family, "spec.amiFamily", &mut object, notes),
        None => notes.manual("spec.amiFamily", "v1beta1 needs it, and it is not there"),
    }
    keep_defaults(&mut object, notes);
    if get(&object, &["spec", "associatePublicIPAddress"]).is_none() {
        notes.changed(
            "",
            "spec.associatePublicIPAddress",
            "not written: v1beta1 set it to false where all subnets are private, v1 leaves it to the subnet; write false if a policy of your account demands it",
        );
    }
    context.identity(&mut object, notes);
    world.push(object, notes);
}

/// Families that have an alias.
const ALIASED: [&str; 5] = ["AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022"];

/// `amiFamily` with `amiSelectorTerms`: v1 needs terms, and knows an alias for the images that a family has by default.
pub(crate) fn images(family: &str, field: &str, class: &mut Value, notes: &mut Notes) {
    let has_terms = get(class, &["spec", "amiSelectorTerms"])
        .and_then(Value::as_array)
        .is_some_and(|terms| !terms.is_empty());
    match (family, has_terms) {
        (family, true) if ALIASED.contains(&family) || family == "Custom" => {
            set(class, &["spec", "amiFamily"], json!(family));
        }
        (family, false) if ALIASED.contains(&family) => {
            let alias = format!("{}@latest", family.to_lowercase());
            notes.moved(
                field,
                "spec.amiSelectorTerms",
                format!("alias {alias}: the newest image of the family, as before; a version instead of latest pins it"),
            );
            set(class, &["spec", "amiSelectorTerms"], json!([{"alias": alias}]));
        }
        ("Ubuntu", has_terms) => ubuntu(has_terms, field, class, notes),
        ("Custom", _) => {
            set(class, &["spec", "amiFamily"], json!(family));
            notes.manual(field, "Custom needs amiSelectorTerms");
        }
        (other, _) => {
            set(class, &["spec", "amiFamily"], json!(other));
            notes.manual(
                field,
                format!(
                    "{other:?} is no family of v1; expected one of {}, Custom",
                    ALIASED.join(", ")
                ),
            );
        }
    }
    match family {
        "Custom" => notes.changed(
            field,
            "spec.userData",
            "v1 expects nodes to register with the taint karpenter.sh/unregistered:NoExecute; add it to the kubelet's arguments in userData, with Custom nobody else does",
        ),
        "AL2023" => notes.changed(
            field,
            "spec.userData",
            "where userData and Karpenter's own NodeConfig set the same field, Karpenter's wins in v1; standard AL2023 images are no longer used for GPUs unless amiSelectorTerms name them",
        ),
        _ => {}
    }
}

/// Ubuntu is no family any more; its user data is that of AL2.
fn ubuntu(has_terms: bool, field: &str, class: &mut Value, notes: &mut Notes) {
    if !has_terms {
        notes.manual(
            field,
            "v1 has no family Ubuntu and finds none of its images: write amiSelectorTerms with the images of your Kubernetes version, and convert again",
        );
        return;
    }
    notes.changed(
        field,
        "spec.amiFamily",
        "AL2, whose user data is Ubuntu's; the images are those that amiSelectorTerms name",
    );
    set(class, &["spec", "amiFamily"], json!("AL2"));
    if get(class, &["spec", "blockDeviceMappings"]).is_none() {
        notes.added(
            "spec.blockDeviceMappings",
            "the volume that Ubuntu had by default; AL2's has another device name",
        );
        let volume = json!([{
            "deviceName": "/dev/sda1",
            "rootVolume": true,
            "ebs": {"encrypted": true, "volumeType": "gp3", "volumeSize": "20Gi"},
        }]);
        set(class, &["spec", "blockDeviceMappings"], volume);
    }
}

/// Writes defaults of v1alpha1 and v1beta1 that v1 has changed.
pub(crate) fn keep_defaults(class: &mut Value, notes: &mut Notes) {
    if get(class, &["spec", "metadataOptions", "httpPutResponseHopLimit"]).is_none() {
        let text_of_field = "2, which was the default; v1's is 1, so that pods that are not on the host's network cannot reach the metadata service";
        notes.added("spec.metadataOptions.httpPutResponseHopLimit", text_of_field);
        set(
            class,
            &["spec", "metadataOptions", "httpPutResponseHopLimit"],
            json!(2),
        );
    }
}

impl Context {
    /// v1 needs a role or an instance profile; earlier versions had one for the whole installation.
    pub(crate) fn identity(&self, class: &mut Value, notes: &mut Notes) {
        let has = |key: &str| text(class, &["spec", key]).is_some_and(|value| !value.is_empty());
        if has("role") || has("instanceProfile") {
            return;
        }
        // An empty string means absent.
        for key in ["role", "instanceProfile"] {
            remove(class, &["spec", key]);
        }
        let (key, value, whence) = match (&self.role, &self.instance_profile) {
            (Some(role), _) => ("role", role, "as asked for"),
            (None, Some(profile)) => (
                "instanceProfile",
                profile,
                "aws.defaultInstanceProfile of karpenter-global-settings, which v1 does not read",
            ),
            (None, None) => {
                notes.manual(
                    "spec.instanceProfile",
                    "neither role nor instanceProfile is set, and v1 has no default for the whole installation: convert with --role NAME, or with the ConfigMap karpenter-global-settings among the files",
                );
                return;
            }
        };
        notes.added(&format!("spec.{key}"), format!("{value}, {whence}"));
        set(class, &["spec", key], json!(value));
    }
}
