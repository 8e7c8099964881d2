//! What the operator sees, for those who only look: the page. Nothing can be changed through it, and looking costs the controllers nothing but a few pointers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::ClusterState;
use spokeshave_plan::Policy;
use spokeshave_runtime::ObjectKey;

use crate::state::cluster::Cluster;
use crate::state::frozen::Inputs;

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
        let mut unreadable = cluster.stores.rejected();
        let state = cluster.cluster_state(&inputs);
        let attachments = cluster.stores.volume_attachments.snapshot();
        let disruptions = cluster.stores.disruptions.snapshot();
        unreadable.extend(cluster.stores.rejected());
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
