//! The kubelet's configuration, which v1 has in the EC2NodeClass and earlier versions had in Provisioner and NodePool.
//!
//! A class that several pools share with different configurations becomes one class for each of these.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::class_ref::ClassRef;
use crate::fields::{get, remove, set, text};
use crate::report::Notes;
use crate::{Kubelet, Output, World};

const CLASS: [&str; 4] = ["spec", "template", "spec", "nodeClassRef"];

/// Where NodePools of v1beta1 had it.
const FIELD: &str = "spec.template.spec.kubelet";
/// Where Karpenter 1.0 kept that field of a NodePool of v1beta1. It launched with this, and not with what the class says.
const ANNOTATION: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
const ANNOTATION_FIELD: &str = "metadata.annotations.compatibility.karpenter.sh/v1beta1-kubelet-conversion";
/// What it kept beside it, for the way back to v1beta1.
const CLASS_ANNOTATION: &str = "compatibility.karpenter.sh/v1beta1-nodeclass-reference";

/// The settings that v1alpha5 and v1beta1 had. A class of v1 takes any setting of a kubelet, so that its schema finds no mistake.
const SETTINGS: [&str; 12] = [
    "clusterDNS",
    "cpuCFSQuota",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "kubeReserved",
    "maxPods",
    "podsPerCore",
    "systemReserved",
];

/// Takes the configuration that was in force out of a NodePool, with the field where it stood.
pub(crate) fn of_pool(pool: &mut Value, is_old: bool, notes: &mut Notes) -> Option<(&'static str, Value)> {
    let kept = of_annotation(pool, notes).map(|value| (ANNOTATION_FIELD, value));
    let own = remove(pool, &["spec", "template", "spec", "kubelet"])
        .filter(|value| !value.is_null())
        .map(|value| (FIELD, value));
    // v1beta1 read the field alone, Karpenter 1.0 the annotation alone.
    let (first, second) = if is_old { (own, kept) } else { (kept, own) };
    if let (Some((effective, _)), Some((field, value))) = (&first, &second) {
        notes.dropped(field, format!("{value} had no effect beside {effective}"));
    }
    first.or(second)
}

fn of_annotation(pool: &mut Value, notes: &mut Notes) -> Option<Value> {
    let name = text(pool, &["metadata", "name"]).unwrap_or("NAME").to_owned();
    let annotations = pool
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)?;
    let written = annotations.remove(ANNOTATION)?;
    let mut gone = vec![ANNOTATION];
    if annotations.remove(CLASS_ANNOTATION).is_some() {
        gone.push(CLASS_ANNOTATION);
    }
    if annotations.is_empty() {
        remove(pool, &["metadata", "annotations"]);
    }
    notes.dropped(
        "metadata.annotations",
        format!(
            "{}: left by Karpenter 1.0, and read by no later version; `kubectl apply` does not take away what it did not write: `kubectl annotate nodepool {name} {}-`",
            gone.join(", "),
            gone.join("- ")
        ),
    );
    let settings = written
        .as_str()
        .and_then(|settings| serde_json::from_str::<Value>(settings).ok())
        .filter(Value::is_object);
    if settings.is_none() {
        notes.unknown(
            ANNOTATION_FIELD,
            format!("expected the kubelet's settings as JSON, found {written}; they are left out"),
        );
    }
    settings
}

/// Puts every waiting configuration into the class of its pool.
pub(crate) fn place(world: &mut World) {
    let mut pending: Vec<Kubelet> = Vec::new();
    for mut kubelet in std::mem::take(&mut world.kubelets) {
        let mut notes = Notes::new(world.objects[kubelet.output].from);
        leave_out_unknown(&mut kubelet, &mut notes);
        world.lines.append(&mut notes.lines);
        if says_something(&kubelet.value) {
            pending.push(kubelet);
        }
    }
    // Known of every pool before the first is placed: pools that want the same share a class.
    let wanted: BTreeMap<usize, Value> = pending
        .iter()
        .map(|kubelet| (kubelet.output, kubelet.value.clone()))
        .collect();
    for kubelet in pending {
        let mut notes = Notes::new(world.objects[kubelet.output].from);
        place_one(world, kubelet, &wanted, &mut notes);
        world.lines.append(&mut notes.lines);
    }
}

fn leave_out_unknown(kubelet: &mut Kubelet, notes: &mut Notes) {
    let Some(map) = kubelet.value.as_object_mut() else {
        return;
    };
    if map.remove("containerRuntime").is_some() {
        notes.dropped(
            &format!("{}.containerRuntime", kubelet.field),
            "containerd is the only one",
        );
    }
    map.retain(|key, value| {
        let is_known = SETTINGS.contains(&key.as_str());
        if !is_known {
            notes.unknown(
                &format!("{}.{key}", kubelet.field),
                format!("no version of this kind has such a field; its value {value} is left out"),
            );
        }
        is_known
    });
}

fn says_something(value: &Value) -> bool {
    !value.as_object().is_some_and(Map::is_empty)
}

fn place_one(world: &mut World, kubelet: Kubelet, wanted: &BTreeMap<usize, Value>, notes: &mut Notes) {
    let pool = &world.objects[kubelet.output].object;
    let class = class_of(pool);
    let found = class.as_deref().and_then(|name| find_class(&world.objects, name));
    if let (Some(name), Some(index)) = (class, found) {
        let settled = (kubelet.output, index, kubelet.field);
        move_into(world, settled, &name, kubelet.value, wanted, notes);
    } else {
        notes.manual(kubelet.field, by_hand(pool, &kubelet.value));
    }
}

/// What to do with a configuration that has no class to go to.
fn by_hand(pool: &Value, value: &Value) -> String {
    let part = |key: &str| {
        let class = get(pool, &CLASS);
        class.and_then(|class| text(class, &[key])).unwrap_or_default()
    };
    let name = part("name");
    let (class, what) = match (part("group"), part("kind")) {
        (ClassRef::AWS_GROUP, _) => (
            format!("EC2NodeClass {name}"),
            "is not among what was given: write this as its spec.kubelet",
        ),
        (_, "") => (
            "the NodeClass of the pool".to_owned(),
            "is not among what was given: write this as its spec.kubelet",
        ),
        (_, kind) => (
            format!("{kind} {name}"),
            "has settings of its own for the kubelet: write what it has of this there",
        ),
    };
    format!("{class} {what}: {value}")
}

/// The class that a pool of AWS names.
fn class_of(pool: &Value) -> Option<String> {
    let class = get(pool, &CLASS)?;
    (class["group"] == ClassRef::AWS_GROUP).then(|| text(class, &["name"]).unwrap_or_default().to_owned())
}

fn find_class(objects: &[Output], name: &str) -> Option<usize> {
    objects.iter().position(|output| {
        output.object["kind"] == ClassRef::AWS_KIND
            && text(&output.object, &["metadata", "name"]) == Some(name)
    })
}

/// The configuration that a class without one gets: the last pool's, if every pool of the class wants one.
fn of_last_user<'a>(world: &World, class: &str, wanted: &'a BTreeMap<usize, Value>) -> Option<&'a Value> {
    let outputs = world.objects.iter().enumerate();
    let users = outputs.filter(|(_, output)| {
        output.object["kind"] == "NodePool" && class_of(&output.object).as_deref() == Some(class)
    });
    let all: Option<Vec<&Value>> = users.map(|(pool, _)| wanted.get(&pool)).collect();
    all?.last().copied()
}

fn move_into(
    world: &mut World,
    (pool, class, field): (usize, usize, &str),
    name: &str,
    value: Value,
    wanted: &BTreeMap<usize, Value>,
    notes: &mut Notes,
) {
    let own = get(&world.objects[class].object, &["spec", "kubelet"]).cloned();
    let fits = match &own {
        Some(own) => *own == value,
        None => of_last_user(world, name, wanted) == Some(&value),
    };
    if fits {
        let became = format!("EC2NodeClass {name} spec.kubelet");
        notes.moved(field, &became, "v1 configures the kubelet in the NodeClass");
        set(&mut world.objects[class].object, &["spec", "kubelet"], value);
        return;
    }
    let why = match own {
        Some(_) => "has",
        None => "is used by pools with",
    };
    let (new, whom) = match copy_with(&world.objects, class, &value) {
        Some(copy) => (copy, "pools with these"),
        None => (add_copy(world, (pool, class), name, value), "this pool"),
    };
    set(
        &mut world.objects[pool].object,
        &["spec", "template", "spec", "nodeClassRef", "name"],
        json!(new),
    );
    notes.changed(
        field,
        &format!("EC2NodeClass {new} spec.kubelet"),
        format!(
            "v1 configures the kubelet in the NodeClass, and {name} {why} other settings: {new} is a copy of it for {whom}"
        ),
    );
}

/// The copy of a class that another pool with the same configuration has got.
fn copy_with(objects: &[Output], class: usize, value: &Value) -> Option<String> {
    let copy = objects.iter().find(|output| {
        output.after == Some(class) && get(&output.object, &["spec", "kubelet"]) == Some(value)
    })?;
    text(&copy.object, &["metadata", "name"]).map(str::to_owned)
}

/// Adds a copy of a class with a configuration of its own, and says its name.
fn add_copy(world: &mut World, (pool, class): (usize, usize), name: &str, value: Value) -> String {
    let pool_name = text(&world.objects[pool].object, &["metadata", "name"]).unwrap_or_default();
    let mut new = format!("{name}-{pool_name}");
    while find_class(&world.objects, &new).is_some() {
        new.push_str("-kubelet");
    }
    let mut copy = world.objects[class].object.clone();
    copy["metadata"]["name"] = json!(new);
    set(&mut copy, &["spec", "kubelet"], value);
    let from = world.objects[class].from;
    world.objects.push(Output {
        from,
        after: Some(class),
        object: copy,
    });
    new
}
