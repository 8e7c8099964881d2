//! The kubelet's configuration, which v1 has in the EC2NodeClass and earlier versions had in Provisioner and NodePool.
//!
//! A class that several pools share with different configurations becomes one class for each.

use serde_json::{Value, json};

use crate::fields::{get, set, text};
use crate::report::Notes;
use crate::{Output, World};

const CLASS: [&str; 4] = ["spec", "template", "spec", "nodeClassRef"];

/// Puts every waiting configuration into the class of its pool.
pub(crate) fn place(world: &mut World) {
    let pending = std::mem::take(&mut world.kubelets);
    let mut wanted: Vec<(usize, Value)> = Vec::new();
    for kubelet in pending {
        let mut notes = Notes::new(world.objects[kubelet.output].from);
        let mut value = kubelet.value;
        if let Some(map) = value.as_object_mut()
            && map.remove("containerRuntime").is_some()
        {
            notes.dropped(
                &format!("{}.containerRuntime", kubelet.field),
                "containerd is the only one",
            );
        }
        if value.as_object().is_some_and(serde_json::Map::is_empty) {
            world.lines.extend(notes.lines);
            continue;
        }
        let class = class_of(&world.objects[kubelet.output].object);
        let found = class.as_deref().and_then(|name| find_class(&world.objects, name));
        match (class, found) {
            (Some(name), Some(index)) => {
                let settled = (kubelet.output, index, kubelet.field);
                move_into(world, settled, &name, value.clone(), &mut wanted, &mut notes);
                wanted.push((kubelet.output, value));
            }
            (class, _) => {
                let class = class.map_or_else(
                    || "the NodeClass of the pool".to_owned(),
                    |name| format!("EC2NodeClass {name}"),
                );
                notes.manual(
                    kubelet.field,
                    format!("{class} is not among what was given: write this as its spec.kubelet: {value}"),
                );
            }
        }
        world.lines.extend(notes.lines);
    }
}

/// The class that a pool of AWS names.
fn class_of(pool: &Value) -> Option<String> {
    let class = get(pool, &CLASS)?;
    (class["group"] == "karpenter.k8s.aws").then(|| text(class, &["name"]).unwrap_or_default().to_owned())
}

fn find_class(objects: &[Output], name: &str) -> Option<usize> {
    objects.iter().position(|output| {
        output.object["kind"] == "EC2NodeClass" && text(&output.object, &["metadata", "name"]) == Some(name)
    })
}

/// Other pools that use the class, with the configuration that each is known to want.
fn others<'a>(
    world: &'a World,
    pool: usize,
    class: &'a str,
    wanted: &'a [(usize, Value)],
) -> impl Iterator<Item = Option<&'a Value>> {
    let uses = move |(index, output): (usize, &'a Output)| {
        let uses = index != pool
            && output.object["kind"] == "NodePool"
            && class_of(&output.object).as_deref() == Some(class);
        uses.then(|| {
            wanted
                .iter()
                .find(|(other, _)| *other == index)
                .map(|(_, value)| value)
        })
    };
    world.objects.iter().enumerate().filter_map(uses)
}

fn move_into(
    world: &mut World,
    (pool, class, field): (usize, usize, &str),
    name: &str,
    value: Value,
    wanted: &mut [(usize, Value)],
    notes: &mut Notes,
) {
    let own = get(&world.objects[class].object, &["spec", "kubelet"]).cloned();
    let is_shared = others(world, pool, name, wanted).any(|other| other != Some(&value));
    if own.as_ref() == Some(&value) || (own.is_none() && !is_shared) {
        let became = format!("EC2NodeClass {name} spec.kubelet");
        notes.moved(field, &became, "v1 configures the kubelet in the NodeClass");
        set(&mut world.objects[class].object, &["spec", "kubelet"], value);
        return;
    }
    let pool_name = text(&world.objects[pool].object, &["metadata", "name"])
        .unwrap_or_default()
        .to_owned();
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
    set(
        &mut world.objects[pool].object,
        &["spec", "template", "spec", "nodeClassRef", "name"],
        json!(new),
    );
    notes.changed(
        field,
        &format!("EC2NodeClass {new} spec.kubelet"),
        format!(
            "v1 configures the kubelet in the NodeClass, and {name} is used by pools with other settings: {new} is a copy of it for this pool"
        ),
    );
}
