//! Which objects are a controller's: orphans that it selects are adopted, and what it does not select any more is released.
//!
//! Owns the references from pods, ReplicaSets and ControllerRevisions to their controllers once both are there. It makes nothing and deletes nothing.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::json;
use spokeshave_runtime::{Api, Change, Index, Object, ObjectKey, ReconcileError, Store};

use super::is_active;
use super::pods::{Deed, of_a_stateful_set, usual};
use super::stateful_sets::ordinal_of;
use crate::objects::{controller_of, is_deleting, name, namespace, owner, selects, uid};
use crate::world::{World, orphans};

/// A controller that owns what it selects.
pub(super) trait Claimant: Object + Resource<Scope = NamespaceResourceScope> {
    /// Under what name it tells of its deeds.
    const COMPONENT: &'static str;

    /// By what it selects; none where it neither adopts nor releases.
    fn selector(&self) -> Option<Cow<'_, LabelSelector>>;

    /// A reference to it as the controller of an object.
    fn reference(&self) -> OwnerReference {
        owner(&Self::api_version(&()), &Self::kind(&()), self.meta())
    }

    /// Whether it selects an object.
    fn takes(&self, metadata: &ObjectMeta) -> bool {
        selects(self.selector().as_deref(), metadata.labels.as_ref())
    }

    /// Whether a pod stays whose it is, whatever its labels.
    fn leaves(pod: &Pod) -> bool {
        is_deleting(&pod.metadata)
    }

    /// Whether it adopts at this moment.
    fn adopts(&self, _: &World) -> bool {
        true
    }

    /// Reason and message of an event about a pod that it has made or deleted, or why it could not.
    fn words(&self, deed: Deed, pod: &str, problem: Option<&str>) -> (&'static str, String) {
        usual(deed, pod, problem)
    }
}

impl Claimant for Deployment {
    const COMPONENT: &'static str = "deployment-controller";

    fn selector(&self) -> Option<Cow<'_, LabelSelector>> {
        Some(Cow::Borrowed(&self.spec.selector))
    }
}

impl Claimant for ReplicaSet {
    const COMPONENT: &'static str = "replicaset-controller";

    fn selector(&self) -> Option<Cow<'_, LabelSelector>> {
        Some(Cow::Borrowed(&self.spec.selector))
    }

    fn leaves(pod: &Pod) -> bool {
        !is_active(pod)
    }

    /// One that a Deployment has just made, without pods, and has not scaled yet, would delete at once what it adopted now.
    fn adopts(&self, world: &World) -> bool {
        let is_as_made = self.spec.replicas == Some(0) && self.metadata.generation == Some(1);
        let owner = controller_of(&self.metadata).filter(|owner| is_as_made && owner.kind == "Deployment");
        let Some(owner) = owner else {
            return true;
        };
        let key = ObjectKey::namespaced(namespace(&self.metadata), &owner.name);
        let deployment = world.deployments.get(&key);
        deployment.is_none_or(|deployment| deployment.spec.replicas == Some(0))
    }
}

impl Claimant for ReplicationController {
    const COMPONENT: &'static str = "replication-controller";

    /// By labels alone; by those of its template where it names none.
    fn selector(&self) -> Option<Cow<'_, LabelSelector>> {
        let spec = self.spec.as_ref()?;
        let template = spec
            .template
            .as_ref()
            .and_then(|template| template.metadata.as_ref());
        let own = spec.selector.as_ref().filter(|labels| !labels.is_empty());
        let labels = own.or_else(|| template?.labels.as_ref());
        let labels = labels.filter(|labels| !labels.is_empty())?;
        Some(Cow::Owned(LabelSelector {
            match_labels: Some(labels.clone()),
            ..LabelSelector::default()
        }))
    }

    fn leaves(pod: &Pod) -> bool {
        !is_active(pod)
    }
}

impl Claimant for StatefulSet {
    const COMPONENT: &'static str = "statefulset-controller";

    fn selector(&self) -> Option<Cow<'_, LabelSelector>> {
        Some(Cow::Borrowed(&self.spec.selector))
    }

    /// Of pods those that have one of its names.
    fn takes(&self, metadata: &ObjectMeta) -> bool {
        let is_named = ordinal_of(self, name(metadata)).is_some();
        is_named && selects(self.selector().as_deref(), metadata.labels.as_ref())
    }

    fn words(&self, deed: Deed, pod: &str, problem: Option<&str>) -> (&'static str, String) {
        of_a_stateful_set(deed, name(&self.metadata), pod, problem)
    }
}

impl Claimant for DaemonSet {
    const COMPONENT: &'static str = "daemonset-controller";

    fn selector(&self) -> Option<Cow<'_, LabelSelector>> {
        Some(Cow::Borrowed(&self.spec.selector))
    }
}

impl Claimant for Job {
    const COMPONENT: &'static str = "job-controller";

    /// One that does not select its own pods would release all that it makes.
    fn selector(&self) -> Option<Cow<'_, LabelSelector>> {
        let spec = self.spec.as_ref()?;
        let template = spec.template.metadata.as_ref();
        let labels = template.and_then(|metadata| metadata.labels.as_ref());
        let selector = spec.selector.as_ref();
        let selector = selector.filter(|&selector| selects(Some(selector), labels));
        selector.map(Cow::Borrowed)
    }

    /// Nobody else's pods have the UID by which a Job selects unless its author has chosen otherwise.
    fn adopts(&self, _: &World) -> bool {
        self.spec
            .as_ref()
            .is_some_and(|spec| spec.manual_selector == Some(true))
    }
}

/// The controllers of an object, now and, where that was another one, before.
pub(super) fn controllers<D: Object>(change: &Change<D>) -> Vec<&OwnerReference> {
    let new = change.new.as_deref().map(D::meta).and_then(controller_of);
    let old = change.old.as_deref().map(D::meta).and_then(controller_of);
    let lost = old.filter(|old| new.is_none_or(|new| new.uid != old.uid));
    new.into_iter().chain(lost).collect()
}

/// What an object says of itself, if it has become one that no owner controls, or has got other labels as such.
pub(super) fn new_orphan<D: Object>(change: &Change<D>) -> Option<&ObjectMeta> {
    let is_orphan = |metadata: &ObjectMeta| controller_of(metadata).is_none();
    let new = change.new.as_deref().map(D::meta)?;
    let old = change.old.as_deref().map(D::meta);
    let is_known = old.is_some_and(|old| is_orphan(old) && old.labels == new.labels);
    (is_orphan(new) && !is_known).then_some(new)
}

/// What of a kind there is to be had.
struct Dependents<'w, D> {
    store: &'w Store<D>,
    by_owner: &'w Index<D>,
    orphans: &'w Index<D>,
    /// Which of them stay whose they are.
    leaves: fn(&D) -> bool,
}

/// Releases pods of a controller that it does not select, and adopts orphans that it selects. Those on their way out stay whose they are.
///
/// Whether all of that could be written: where another writer was faster, a pod may still be without its owner, or with one that it should not have.
pub(super) async fn settle_pods<C: Claimant>(world: &World, claimant: &C) -> Result<bool, ReconcileError> {
    let pods = Dependents {
        store: &world.pods,
        by_owner: &world.pods_by_owner,
        orphans: &world.orphans,
        leaves: C::leaves,
    };
    settle(world, claimant, C::takes, &pods).await
}

/// The same with ReplicaSets.
pub(super) async fn settle_sets(world: &World, deployment: &Deployment) -> Result<bool, ReconcileError> {
    let sets = Dependents {
        store: &world.replica_sets,
        by_owner: &world.replica_sets_by_owner,
        orphans: &world.orphan_sets,
        leaves: |set| is_deleting(&set.metadata),
    };
    settle(world, deployment, Deployment::takes, &sets).await
}

/// The same with ControllerRevisions.
pub(super) async fn settle_revisions<C: Claimant>(
    world: &World,
    claimant: &C,
) -> Result<bool, ReconcileError> {
    let revisions = Dependents {
        store: &world.revisions,
        by_owner: &world.revisions_by_owner,
        orphans: &world.orphan_revisions,
        leaves: |revision| is_deleting(&revision.metadata),
    };
    // Their names are not those of pods.
    let takes = |claimant: &C, metadata: &ObjectMeta| {
        selects(claimant.selector().as_deref(), metadata.labels.as_ref())
    };
    settle(world, claimant, takes, &revisions).await
}

async fn settle<C, D>(
    world: &World,
    claimant: &C,
    takes: fn(&C, &ObjectMeta) -> bool,
    dependents: &Dependents<'_, D>,
) -> Result<bool, ReconcileError>
where
    C: Claimant,
    D: Object + Resource<Scope = NamespaceResourceScope>,
{
    let Some(selector) = claimant.selector() else {
        return Ok(true);
    };
    let mut all_written = true;
    let mut strangers = dependents.by_owner.get(uid(claimant.meta()));
    strangers.retain(|one| !(dependents.leaves)(one) && !takes(claimant, one.meta()));
    for one in &strangers {
        let owners = without(claimant.meta(), one.meta());
        all_written &= write_owners(world, dependents.store, &**one, &owners).await?;
    }
    if !claimant.adopts(world) {
        return Ok(all_written);
    }
    let mut orphans = orphans(dependents.orphans, namespace(claimant.meta()), &selector);
    orphans.retain(|one| !(dependents.leaves)(one) && takes(claimant, one.meta()));
    if orphans.is_empty() || !is_there(world, claimant).await? {
        return Ok(all_written);
    }
    for one in &orphans {
        let mut owners = without(claimant.meta(), one.meta());
        owners.push(claimant.reference());
        all_written &= write_owners(world, dependents.store, &**one, &owners).await?;
    }
    Ok(all_written)
}

/// The owners of an object but this one.
fn without(claimant: &ObjectMeta, dependent: &ObjectMeta) -> Vec<OwnerReference> {
    let mut owners = dependent.owner_references.clone().unwrap_or_default();
    owners.retain(|owner| owner.uid != uid(claimant));
    owners
}

/// Whether the server still has this controller, and keeps it: what is known here may be older, and one that has gone would take what it adopts along.
async fn is_there<C: Claimant>(world: &World, claimant: &C) -> Result<bool, ReconcileError> {
    let api: Api<C> = Api::namespaced(world.client.clone(), namespace(claimant.meta()));
    let Some(found) = api.get_opt(name(claimant.meta())).await? else {
        return Ok(false);
    };
    Ok(found.meta().uid == claimant.meta().uid && !is_deleting(found.meta()))
}

/// Writes the owners of an object that nobody has changed in the meantime. Whether they were written.
pub(super) async fn write_owners<D>(
    world: &World,
    store: &Store<D>,
    object: &D,
    owners: &[OwnerReference],
) -> Result<bool, ReconcileError>
where
    D: Object + Resource<Scope = NamespaceResourceScope>,
{
    let known = object.meta();
    let metadata = json!({
        "uid": known.uid, "resourceVersion": known.resource_version, "ownerReferences": owners,
    });
    world.patch(store, object, json!({"metadata": metadata})).await
}
