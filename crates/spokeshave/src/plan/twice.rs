//! Objects that are in files more than once under one kind and name, as two dumps of one cluster have them: of each the last one counts.
//!
//! Owns the note about them, and leaves out the earlier ones where nothing else keeps the last one: of pods, of what makes pods, and of NodeClasses.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use spokeshave_plan::report::some_of;

use super::dump::Dump;
use crate::text::count;

/// So many of them are named.
const NAMED: usize = 5;

/// A namespace, which may be empty, and a name.
type Name<'a> = (&'a str, &'a str);

/// Leaves out the earlier ones, and says what is there more than once.
pub(super) fn keep_last(dump: &mut Dump) -> Option<String> {
    let node_pools = of(&dump.node_pools);
    keep_last_beside(dump, node_pools)
}

/// The same where NodePools are taken as they are written, also those that cannot be read.
pub(crate) fn keep_last_written(dump: &mut Dump) -> Option<String> {
    let written = dump.written.iter().filter(|one| one.is_node_pool());
    let names: Vec<Option<&str>> = written.map(|one| Some(one.name())).collect();
    let repeated = earlier(&names)
        .into_iter()
        .filter_map(|place| Some(shown("NodePool", ("", names[place]?))));
    let repeated: Vec<String> = repeated.collect();
    keep_last_beside(dump, repeated)
}

/// `node_pools` are those that are there more than once.
fn keep_last_beside(dump: &mut Dump, node_pools: Vec<String>) -> Option<String> {
    let mut repeated: BTreeSet<String> = node_pools.into_iter().collect();
    repeated.extend(of(&dump.capacity_buffers));
    repeated.extend(of(&dump.csi_nodes));
    repeated.extend(of(&dump.daemon_sets));
    repeated.extend(of(&dump.disruption_policies));
    repeated.extend(of(&dump.disruptions));
    repeated.extend(of(&dump.namespaces));
    repeated.extend(of(&dump.node_claims));
    repeated.extend(of(&dump.node_overlays));
    repeated.extend(of(&dump.nodes));
    repeated.extend(of(&dump.persistent_volume_claims));
    repeated.extend(of(&dump.persistent_volumes));
    repeated.extend(of(&dump.pod_disruption_budgets));
    repeated.extend(of(&dump.storage_classes));
    repeated.extend(classes(dump));
    repeated.extend(pods(dump));
    repeated.extend(workloads(dump));
    let names: Vec<String> = repeated.into_iter().collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("{one} is there more than once: the last one counts")),
        several => Some(format!(
            "{} are there more than once ({}): of each the last one counts",
            count(several.len(), "object"),
            some_of(several, NAMED)
        )),
    }
}

/// Objects of a kind that are repeated; of these, the last one is kept where they are taken by their names.
fn of<K: Resource<DynamicType = ()>>(objects: &[Arc<K>]) -> Vec<String> {
    let names: Vec<Option<Name<'_>>> = objects.iter().map(|one| name(one.meta())).collect();
    let kind = K::kind(&());
    let repeated = earlier(&names).into_iter();
    repeated
        .filter_map(|place| Some(shown(&kind, names[place]?)))
        .collect()
}

fn classes(dump: &mut Dump) -> Vec<String> {
    let classes = dump.node_classes.iter();
    let names: Vec<Option<(&str, &str, &str)>> = classes
        .map(|class| Some((class.group.as_str(), class.kind.as_str(), class.name.as_str())))
        .collect();
    let places = earlier(&names);
    let repeated = places.iter().filter_map(|place| names[*place]);
    let repeated: Vec<String> = repeated.map(|(_, kind, name)| shown(kind, ("", name))).collect();
    leave_out(&mut dump.node_classes, &places);
    repeated
}

fn pods(dump: &mut Dump) -> Vec<String> {
    let names: Vec<Option<Name<'_>>> = dump.pods.iter().map(|pod| name(&pod.metadata)).collect();
    let places = earlier(&names);
    let repeated = places.iter().filter_map(|place| names[*place]);
    let repeated: Vec<String> = repeated.map(|name| shown("Pod", name)).collect();
    leave_out(&mut dump.pods, &places);
    repeated
}

fn workloads(dump: &mut Dump) -> Vec<String> {
    let names: Vec<Option<String>> = dump.workloads.iter().map(|one| Some(one.key())).collect();
    let places = earlier(&names);
    let repeated = places.iter().map(|place| dump.workloads[*place].shown());
    let repeated: Vec<String> = repeated.collect();
    leave_out(&mut dump.workloads, &places);
    repeated
}

/// The places of names that come again later. What has no name yet gets one of its own.
fn earlier<N: Ord>(names: &[Option<N>]) -> Vec<usize> {
    let mut later = BTreeSet::new();
    let mut earlier = Vec::new();
    for (place, name) in names.iter().enumerate().rev() {
        if name.as_ref().is_some_and(|name| !later.insert(name)) {
            earlier.push(place);
        }
    }
    earlier
}

fn leave_out<T>(objects: &mut Vec<T>, places: &[usize]) {
    if places.is_empty() {
        return;
    }
    let places: BTreeSet<usize> = places.iter().copied().collect();
    let mut place = 0;
    objects.retain(|_| {
        place += 1;
        !places.contains(&(place - 1))
    });
}

fn name(meta: &ObjectMeta) -> Option<Name<'_>> {
    let name = meta.name.as_deref().filter(|name| !name.is_empty())?;
    Some((meta.namespace.as_deref().unwrap_or_default(), name))
}

fn shown(kind: &str, (namespace, name): Name<'_>) -> String {
    match namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}
