//! The node that waiting pods name as theirs, written after each pass and when a Node joins.
//!
//! Owns what is remembered of pods between the pass that has planned them and the Node that joins. `plan::nominations` decides who names what.

use std::collections::BTreeSet;

use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, REGISTERED};
use spokeshave_model::planned_node::planned;
use spokeshave_model::pod::is_provisionable;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Action, Pod};
use spokeshave_plan::Provisioned;
use spokeshave_plan::lifecycle::Progress;
use spokeshave_plan::nominations::{Nominations, at_initialization, at_registration};
use spokeshave_runtime::ObjectKey;

use crate::act::hands::Hands;
use crate::state::cluster::Cluster;

/// After a pass: who is planned on a node that is there names it, and who is planned on one that comes is remembered.
pub(crate) async fn follow(cluster: &Cluster, hands: &Hands, snapshot: &Snapshot, outcome: &Provisioned) {
    if !cluster.options.nominate_pods {
        return;
    }
    let nominations = Nominations::of(snapshot, outcome, cluster.now());
    let about: BTreeSet<&str> = outcome.pods.iter().map(|pod| snapshot.pod(*pod).uid()).collect();
    let places = nominations.expected.into_iter().map(|(pod, claim)| {
        let view = snapshot.pod(pod);
        (claim, view.uid().to_owned(), ObjectKey::of(&*view.object))
    });
    let claims = &cluster.stores.node_claims;
    let joins = |name: &str| {
        claims
            .get_named(name)
            .is_some_and(|claim| !claim.is_true(REGISTERED))
    };
    cluster.memory().expected.decided(&about, places, joins);
    hands.nominate_all(&nominations.actions).await;
}

/// Before a Node takes pods: those that were planned on it name it, once when it joins, and once more, should the scheduler have tried them meanwhile,
/// when it can run them.
pub(crate) async fn before_pods_come(
    cluster: &Cluster,
    hands: &Hands,
    claim: &NodeClaim,
    steps: &[Progress],
) {
    if !cluster.options.nominate_pods {
        return;
    }
    let now = cluster.now();
    let mut nominations: Vec<Action> = Vec::new();
    for step in steps {
        match step {
            Progress::Registered { node } => {
                let expected = cluster.memory().expected.take(claim.name());
                nominations.extend(expected.into_iter().filter_map(|(uid, key)| {
                    let pod = cluster.stores.pods.get(&key)?;
                    let is_same = pod.metadata.uid.as_deref() == Some(&uid);
                    is_same.then(|| at_registration(&pod, node, now)).flatten()
                }));
            }
            Progress::Initialized { node } => {
                let named = cluster.stores.pods_by_planned_node.get(node).into_iter();
                nominations.extend(named.filter_map(|pod| at_initialization(&pod, node, now)));
            }
        }
    }
    hands.nominate_all(&nominations).await;
}

/// Whether all that has changed for planning is the node that a waiting pod names: that was decided in the pass before, and asks for none.
pub(crate) fn is_nomination(before: Option<&Pod>, after: Option<&Pod>) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        return false;
    };
    let name = |pod| planned(pod).map(|(name, _)| name.to_owned());
    is_provisionable(before) && is_provisionable(after) && name(before) != name(after)
}
