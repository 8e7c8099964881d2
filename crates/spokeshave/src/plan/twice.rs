//! Objects that are in files more than once under one kind and name, as two dumps of one cluster have them: of each the last one counts.
//!
//! Owns the note about them, and leaves out the earlier ones where nothing else keeps the last one: of pods, of what makes pods, and of NodeClasses.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use spokeshave_plan::report::some_of;

use super::dump::Dump;
use super::workloads::WorkloadManifest;
use super::written::Written;
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
    let written: Vec<&Written> = written.collect();
    let shown = |one: &&Written| shown("NodePool", ("", one.name()));
    let (_, node_pools) = repeated(&written, |one| Some(one.name()), shown);
    keep_last_beside(dump, node_pools)
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
    let (_, names) = repeated_of(objects);
    names
}

fn repeated_of<K: Resource<DynamicType = ()>>(objects: &[Arc<K>]) -> (Vec<usize>, Vec<String>) {
    let kind = K::kind(&());
    let shown = |one: &Arc<K>| shown(&kind, name(one.meta()).unwrap_or_default());
    repeated(objects, |one| name(one.meta()), shown)
}

fn classes(dump: &mut Dump) -> Vec<String> {
    let (places, names) = repeated(
        &dump.node_classes,
        |class| Some((&class.group, &class.kind, &class.name)),
        |class| shown(&class.kind, ("", &class.name)),
    );
    leave_out(&mut dump.node_classes, &places);
    names
}

fn pods(dump: &mut Dump) -> Vec<String> {
    let (places, names) = repeated_of(&dump.pods);
    leave_out(&mut dump.pods, &places);
    names
}

fn workloads(dump: &mut Dump) -> Vec<String> {
    let (places, names) = repeated(&dump.workloads, |one| Some(one.key()), WorkloadManifest::shown);
    leave_out(&mut dump.workloads, &places);
    names
}

/// The places of objects whose names come again later, and these names for a sentence. What has no name yet gets one of its own.
fn repeated<'a, T, N: Ord>(
    objects: &'a [T],
    name: impl Fn(&'a T) -> Option<N>,
    shown: impl Fn(&T) -> String,
) -> (Vec<usize>, Vec<String>) {
    let mut later = BTreeSet::new();
    let (mut places, mut names) = (Vec::new(), Vec::new());
    for (place, object) in objects.iter().enumerate().rev() {
        if name(object).is_some_and(|name| !later.insert(name)) {
            places.push(place);
            names.push(shown(object));
        }
    }
    (places, names)
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
