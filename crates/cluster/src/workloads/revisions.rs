//! ControllerRevisions: the templates that a DaemonSet or StatefulSet has had, for `kubectl rollout history` and `undo`, and for pods that stay at an old one.
//!
//! Only where records are kept. Owns what is in them and how many there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use spokeshave_runtime::{Api, ObjectKey, ReconcileError};

use super::claims::{self, Claimant};
use crate::objects::{name, namespace, uid};
use crate::world::{World, ignore_races, is_namespace_ending, is_race};

/// The label of a pod with its revision.
pub(super) const REVISION: &str = "controller-revision-hash";

/// A controller that keeps its templates.
pub(super) trait Versioned: Claimant {
    /// The label of a revision with the hash of its template.
    const HASH: &'static str;
    /// Whether revisions of pods that still run count among those of which only so many are kept.
    const COUNTS_LIVE: bool;

    fn template(&self) -> &PodTemplateSpec;

    fn history_limit(&self) -> Option<i32>;
}

impl Versioned for DaemonSet {
    const HASH: &'static str = REVISION;
    const COUNTS_LIVE: bool = true;

    fn template(&self) -> &PodTemplateSpec {
        &self.spec.template
    }

    fn history_limit(&self) -> Option<i32> {
        self.spec.revision_history_limit
    }
}

impl Versioned for StatefulSet {
    const HASH: &'static str = "controller.kubernetes.io/hash";
    const COUNTS_LIVE: bool = false;

    fn template(&self) -> &PodTemplateSpec {
        &self.spec.template
    }

    fn history_limit(&self) -> Option<i32> {
        self.spec.revision_history_limit
    }
}

/// Keeps the template with this hash as the newest revision, and not too many older ones: `live` are the names, or the hashes, of those that are in use.
///
/// Whether all of that could be written.
pub(super) async fn keep<C: Versioned>(
    world: &World,
    set: &C,
    hash: &str,
    live: &BTreeSet<String>,
) -> Result<bool, ReconcileError> {
    if !claims::settle_revisions(world, set).await? {
        return Ok(false);
    }
    let newest = format!("{}-{hash}", name(set.meta()));
    let known = world.revisions_by_owner.get(uid(set.meta()));
    let (current, mut old): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|one| name(&one.metadata) == newest);
    old.sort_by_cached_key(|one| (one.revision, name(&one.metadata).to_owned()));
    let number = old.iter().filter_map(|one| one.revision).max().unwrap_or(0) + 1;
    let written = match current.first() {
        None => create(world, set, &newest, hash, number).await?,
        Some(current) if current.revision.unwrap_or(0) < number => raise(world, current, number).await?,
        Some(_) => true,
    };
    let limit = usize::try_from(set.history_limit().unwrap_or(10)).unwrap_or(usize::MAX);
    for one in surplus::<C>(&old, live, limit) {
        delete(world, &one).await?;
    }
    Ok(written)
}

/// The oldest revisions, as many as there are too many, but for those that are in use.
fn surplus<C: Versioned>(
    old: &[Arc<ControllerRevision>],
    live: &BTreeSet<String>,
    limit: usize,
) -> Vec<Arc<ControllerRevision>> {
    let is_live = |one: &ControllerRevision| {
        let labels = one.metadata.labels.as_ref();
        let hash = labels.and_then(|labels| labels.get(C::HASH));
        live.contains(name(&one.metadata)) || hash.is_some_and(|hash| live.contains(hash))
    };
    let unused = old.iter().filter(|one| !is_live(one));
    let counted = if C::COUNTS_LIVE {
        old.len()
    } else {
        unused.clone().count()
    };
    unused.take(counted.saturating_sub(limit)).cloned().collect()
}

async fn create<C: Versioned>(
    world: &World,
    set: &C,
    revision_name: &str,
    hash: &str,
    number: i64,
) -> Result<bool, ReconcileError> {
    let mut template = serde_json::to_value(set.template())?;
    template["$patch"] = json!("replace");
    let metadata = set.template().metadata.as_ref();
    let mut labels = metadata
        .and_then(|metadata| metadata.labels.clone())
        .unwrap_or_default();
    labels.insert(C::HASH.to_owned(), hash.to_owned());
    let revision: ControllerRevision = serde_json::from_value(json!({
        "metadata": {
            "name": revision_name, "namespace": namespace(set.meta()), "labels": labels, "annotations": set.meta().annotations,
            "ownerReferences": [set.reference()],
        },
        "data": {"spec": {"template": template}}, "revision": number,
    }))?;
    let api: Api<ControllerRevision> = Api::namespaced(world.client.clone(), namespace(set.meta()));
    match api.create(&PostParams::default(), &revision).await {
        Ok(created) => world.revisions.note_written(created),
        // Somebody else's, or one that is not known yet: pods can be made all the same.
        Err(error) if is_race(&error) || is_namespace_ending(&error) => {}
        Err(error) => return Err(Box::new(error)),
    }
    Ok(true)
}

/// An older template is the newest again.
async fn raise(world: &World, revision: &ControllerRevision, number: i64) -> Result<bool, ReconcileError> {
    let version = &revision.metadata.resource_version;
    let patch = json!({"metadata": {"resourceVersion": version}, "revision": number});
    world.patch(&world.revisions, revision, patch).await
}

async fn delete(world: &World, revision: &ControllerRevision) -> Result<(), ReconcileError> {
    let known = &revision.metadata;
    let api: Api<ControllerRevision> = Api::namespaced(world.client.clone(), namespace(known));
    let answer = api.delete(name(known), &DeleteParams::default()).await;
    if ignore_races(answer)?.is_some() {
        world.revisions.note_gone(&ObjectKey::of(revision), uid(known));
    }
    Ok(())
}

/// The revision of a pod.
pub(super) fn revision_of(pod: &Pod) -> Option<&String> {
    pod.metadata.labels.as_ref()?.get(REVISION)
}

/// The template of a revision in this namespace, if it is kept.
pub(super) fn template(world: &World, place: &str, revision_name: &str) -> Option<PodTemplateSpec> {
    let key = ObjectKey::namespaced(place, revision_name);
    let revision = world.revisions.get(&key)?;
    let mut template = revision.data.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(revision_name: &str, hash: &str, number: i64) -> Arc<ControllerRevision> {
        let labels = json!({(DaemonSet::HASH): hash, (StatefulSet::HASH): hash});
        let object =
            json!({"metadata": {"name": revision_name, "labels": labels}, "data": {}, "revision": number});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_oldest_revisions_go_unless_they_are_in_use() {
        let old = [
            revision("s-a", "a", 1),
            revision("s-b", "b", 2),
            revision("s-c", "c", 3),
        ];
        let live = |text: &str| BTreeSet::from([text.to_owned()]);
        let names = |found: Vec<Arc<ControllerRevision>>| -> Vec<String> {
            found.iter().map(|one| name(&one.metadata).to_owned()).collect()
        };
        // Of a DaemonSet the one that is in use counts, of a StatefulSet it does not.
        let found = surplus::<DaemonSet>(&old, &live("a"), 1);
        assert_eq!(names(found), ["s-b", "s-c"]);
        let found = surplus::<StatefulSet>(&old, &live("s-a"), 1);
        assert_eq!(names(found), ["s-b"]);
        assert!(surplus::<StatefulSet>(&old, &live("s-a"), 2).is_empty());
    }
}
