//! Why NodeClaims go (2): no budget bounds what an operator deletes without a command, so that each has a reason that anybody can see.
//!
//! Owns the reasons, as they stand in the cluster. When it is time for one of them is another's affair, and so is what users delete. An operator need not
//! have seen what is younger than its decision, and somebody may have taken the reason away since: what may have been one is one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::view::{Change, Claim, JOINS_WITHIN, Node, Pair, View, later};
use super::{Checker, Report, RequestInfo};

/// What a cloud says about an instance may stand in no object: then an event tells of it, which is written beside the deletion.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

/// NodeClaims that an operator has asked to go.
#[derive(Debug, Default)]
pub(super) struct Reasons {
    /// Those for which no reason is known yet: UID → name, and when.
    unexplained: BTreeMap<String, (String, Timestamp)>,
}

impl Checker for Reasons {
    fn changed(&mut self, view: &View, change: &Change, request: &RequestInfo, _report: &mut Report) {
        let Change::Claim(Pair {
            before: Some(before),
            after,
        }) = change
        else {
            return;
        };
        let goes = before.deletion.is_none() && after.as_ref().is_none_or(|after| after.deletion.is_some());
        if goes && request.by_operator() && !has_reason(view, before) {
            let which = (before.name.clone(), view.now);
            self.unexplained.insert(before.uid.clone(), which);
        }
    }

    fn ticked(&mut self, view: &View, report: &mut Report) {
        self.unexplained.retain(|uid, (name, since)| {
            let is_over = later(*since, TOLD_WITHIN) <= view.now;
            let is_told = view.interrupted.contains(uid);
            if is_over && !is_told {
                report.fail(
                    2,
                    format!("nodeclaim {name}"),
                    format!("was asked to go at {since} for no reason that anybody can see"),
                );
            }
            !is_over && !is_told
        });
    }
}

fn has_reason(view: &View, claim: &Claim) -> bool {
    is_of_command(view, claim)
        || is_given_up(view, claim)
        || has_no_machine(view, claim)
        || has_no_node(view, claim)
        || is_spare(view, claim)
}

/// A command takes it, or did until a moment ago. Or it has come for one and is not up: a command that is taken back deletes such a one before it says
/// so (D-116), and what is left of it is collected (W-33).
fn is_of_command(view: &View, claim: &Claim) -> bool {
    let is_chosen = claim.is("DisruptionReason", "True")
        || view.chosen_by(claim).is_some()
        || view.was_chosen_lately(claim);
    is_chosen || !claim.command.is_empty() && !is_known_to_be(view, claim, "Initialized")
}

/// Its time is over (D-241), its launch has failed, for which there need be no time (D-244), or its node has not joined.
fn is_given_up(view: &View, claim: &Claim) -> bool {
    let has_expired = claim.expiry.is_some_and(|expiry| expiry <= view.now);
    let has_launched = is_known_to_be(view, claim, "Launched") && !claim.provider_id.is_empty();
    let is_late = claim
        .created
        .is_none_or(|created| later(created, JOINS_WITHIN) <= view.now);
    has_expired || !has_launched || is_late && !is_known_to_be(view, claim, "Registered")
}

/// Its machine is gone (D-249), ends, or is taken back (D-279), or its cloud has said something else of it (D-282). Of a cloud that nobody asks it may be.
fn has_no_machine(view: &View, claim: &Claim) -> bool {
    let machine = view.instances.get(claim.instance());
    machine.is_none_or(|machine| machine.is_going())
}

/// Its Node goes (D-308) or was taken away (D-253). Or it is not ready: what a broken one is, and for how long it may be, its cloud says (D-255). One that
/// has just come may be the next of the name, and one that has just become ready was not.
fn has_no_node(view: &View, claim: &Claim) -> bool {
    let mut nodes: Vec<&Node> = view.nodes.values().map(|node| &**node).collect();
    nodes.retain(|node| node.provider_id == claim.provider_id);
    let goes = |node: &&Node| node.deletion.is_some() || !node.ready || view.is_news(node.ready_changed);
    nodes.iter().any(goes) || nodes.is_empty() && claim.is("Registered", "True")
}

/// A NodePool with a fixed number of nodes has too many (D-357): how many those are that commands hold is for whoever counts. A NodePool that is gone may have
/// been such a one.
fn is_spare(view: &View, claim: &Claim) -> bool {
    let versions = view.recent_pools(&claim.pool);
    let is_gone = versions.is_empty() && !claim.pool.is_empty();
    is_gone || versions.iter().any(|pool| pool.is_static)
}

/// Whether operators must have learnt that a condition is True.
fn is_known_to_be(view: &View, claim: &Claim, condition: &str) -> bool {
    claim.since(condition).is_some_and(|since| !view.is_news(since))
}
