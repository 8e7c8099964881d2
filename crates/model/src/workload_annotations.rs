//! What owners of pods and namespaces ask for their pods by annotation, as DisruptionPolicies read it. It judges nothing.

use crate::cluster_state::ClusterState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::labels;
use std::collections::BTreeMap;

/// The annotations that policies read, of owners and namespaces; those of others stay out, so that most clusters have none.
pub(crate) fn of(state: &ClusterState) -> BTreeMap<String, BTreeMap<String, String>> {
    let of_namespaces = state.namespaces.iter().filter_map(|namespace| {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        Some((
            format!("Namespace/{name}"),
            read_annotations(&namespace.metadata)?,
        ))
    });
    let owners = state.owner_annotations.clone().into_iter();
    of_namespaces.chain(owners).collect()
}

/// The annotations of an object that policies read for pods; `None` without any.
pub fn read_annotations(meta: &ObjectMeta) -> Option<BTreeMap<String, String>> {
    let keys = [labels::QUIET_TIME, labels::MOVES_PER_DAY, labels::MOVE_WINDOWS];
    let all = meta.annotations.as_ref()?.iter();
    let found: BTreeMap<String, String> = all
        .filter(|(key, _)| keys.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!found.is_empty()).then_some(found)
}
