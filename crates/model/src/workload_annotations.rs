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

/// The annotations of an object that policies read for pods; `None` without any. A Deployment copies its annotations to its ReplicaSets and never takes them away
/// there, so it is the only one of them that is asked.
pub fn read_annotations(meta: &ObjectMeta) -> Option<BTreeMap<String, String>> {
    let keys = [labels::QUIET_TIME, labels::MOVES_PER_DAY, labels::MOVE_WINDOWS];
    let mut owners = meta.owner_references.iter().flatten();
    if owners.any(|owner| owner.controller == Some(true) && owner.kind == "Deployment") {
        return None;
    }
    let all = meta.annotations.as_ref()?.iter();
    let found: BTreeMap<String, String> = all
        .filter(|(key, _)| keys.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_deployment_has_copied_to_its_replica_set_is_not_heard() {
        let meta = |owner: Option<&str>| -> ObjectMeta {
            let owner = owner.map(|kind| json!({"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": true}));
            let owners: Vec<_> = owner.into_iter().collect();
            let annotations = json!({labels::QUIET_TIME: "2h", "example.com/other": "x"});
            serde_json::from_value(json!({"annotations": annotations, "ownerReferences": owners}))
                .expect("metadata")
        };
        let own = read_annotations(&meta(None)).expect("its own");
        assert_eq!(own.keys().collect::<Vec<_>>(), [labels::QUIET_TIME]);
        assert_eq!(read_annotations(&meta(Some("Deployment"))), None);
        assert_eq!(read_annotations(&meta(Some("CronJob"))), Some(own));
    }
}
