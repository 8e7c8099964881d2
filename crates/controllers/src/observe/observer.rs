//! What the operator sees, for those who only look: the page. Nothing can be changed through it, and looking costs the controllers nothing but a few pointers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::ClusterState;
use spokeshave_plan::Policy;
use spokeshave_runtime::{Object, ObjectKey, Store};

use crate::state::cluster::Cluster;
use crate::state::frozen::Inputs;
use crate::state::stores::Stores;

/// Looks at whichever term of leadership there is. Clones look at the same.
#[derive(Clone, Debug, Default)]
pub struct Observer(Arc<Mutex<Weak<Cluster>>>);

/// What was seen, for the question whether anything has changed since.
#[derive(Clone, Debug)]
pub struct Seen(Arc<Inputs>);

/// Everything that the operator knows of the cluster at one instant.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The objects as planning sees them: pods whose node is being made, virtual ones included, are on the stand-in of their NodeClaim.
    pub state: ClusterState,
    /// Volume attachments.
    pub attachments: Vec<Arc<VolumeAttachment>>,
    /// Disruption commands, those that have ended included.
    pub disruptions: Vec<Arc<Disruption>>,
    /// Objects of the API server that cannot be read and are in none of the above: their kinds, their keys and why. They are not gone.
    pub unreadable: BTreeSet<(String, ObjectKey, String)>,
    /// The settings that it decides under.
    pub policy: Policy,
    /// When.
    pub now: Timestamp,
    /// For the next look.
    pub seen: Seen,
}

impl Observer {
    /// Begins to look at a term, whose stores have been filled.
    pub(crate) fn look_at(&self, cluster: &Arc<Cluster>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(cluster);
    }

    /// What there is to see; none while this replica does not lead.
    pub async fn observe(&self) -> Option<Observed> {
        let cluster = self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
        let inputs = Arc::new(cluster.inputs(&[]).await);
        // Before and after: the look may miss what becomes readable or unreadable meanwhile.
        let mut unreadable = rejected(&cluster.stores);
        let state = cluster.cluster_state(&inputs);
        let attachments = cluster.stores.volume_attachments.snapshot();
        let disruptions = cluster.stores.disruptions.snapshot();
        unreadable.extend(rejected(&cluster.stores));
        Some(Observed {
            state,
            attachments,
            disruptions,
            unreadable,
            policy: cluster.policy.clone(),
            now: cluster.now(),
            seen: Seen(inputs),
        })
    }

    /// Whether nothing has changed since: then a new look would only show a later instant.
    pub async fn is_same(&self, seen: &Seen) -> bool {
        let cluster = self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        match cluster {
            Some(cluster) => cluster.inputs(&[]).await.is_same(&seen.0),
            None => false,
        }
    }
}

/// What the API server has of each kind that is watched and this version cannot read.
fn rejected(stores: &Stores) -> BTreeSet<(String, ObjectKey, String)> {
    let (buffers, owners, spread) = (&stores.buffers, &stores.owners, &stores.spread);
    let each = [
        of_kind(&stores.node_pools),
        of_kind(&stores.node_claims),
        of_kind(&stores.nodes),
        of_kind(&stores.pods),
        of_kind(&stores.daemon_sets),
        of_kind(&stores.pod_disruption_budgets),
        of_kind(&stores.namespaces),
        of_kind(&stores.persistent_volumes),
        of_kind(&stores.persistent_volume_claims),
        of_kind(&stores.storage_classes),
        of_kind(&stores.csi_nodes),
        of_kind(&stores.volume_attachments),
        of_kind(&stores.disruptions),
        of_kind(&stores.disruption_policies),
        of_kind(&stores.resource_slices),
        of_kind(&stores.node_overlays),
        of_kind(&buffers.buffers),
        of_kind(&buffers.pod_templates),
        of_kind(&buffers.deployments),
        of_kind(&buffers.stateful_sets),
        of_kind(&buffers.replica_sets),
        of_kind(&owners.deployments),
        of_kind(&owners.stateful_sets),
        of_kind(&owners.replica_sets),
        of_kind(&owners.jobs),
        of_kind(&spread.services),
        of_kind(&spread.replica_sets),
        of_kind(&spread.stateful_sets),
        of_kind(&spread.replication_controllers),
    ];
    each.into_iter().flatten().collect()
}

fn of_kind<K: Object>(store: &Store<K>) -> Vec<(String, ObjectKey, String)> {
    let rejected = store.rejected().into_iter();
    let named = rejected.map(|(key, why)| (K::kind(&()).into_owned(), key, why));
    named.collect()
}
