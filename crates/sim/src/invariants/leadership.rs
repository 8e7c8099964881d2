//! Invariant 36: of two operators only the leader writes, and a deposed one's writes are not sent, neither to Kubernetes nor to its cloud.

use super::view::{Change, MOMENT, Pair, View, later};
use super::{Actor, Checker, Report, RequestInfo};

#[derive(Debug)]
pub(super) struct LeadershipKept;

impl Checker for LeadershipKept {
    fn requested(&mut self, view: &View, request: &RequestInfo, report: &mut Report) {
        let object = || format!("{} {}", request.method, request.path);
        match &request.actor {
            Actor::Operator(name) if !request.path.contains("/leases") => {
                if let Some(leader) = other_leader(view, name) {
                    let text = format!("operator {name} writes while the lease is held by {leader:?}");
                    report.fail(36, object(), text);
                }
            }
            Actor::CloudCalls(name) if is_launch(request) => asked(view, name, object(), report),
            _ => {}
        }
    }

    fn changed(&mut self, view: &View, change: &Change, request: &RequestInfo, report: &mut Report) {
        let Change::Instance(Pair {
            before: Some(before),
            after: Some(after),
        }) = change
        else {
            return;
        };
        // What the cloud itself does to its machines, perhaps under the same name, begins no end.
        if let Actor::CloudCalls(name) = &request.actor
            && before.ending.is_none()
            && after.ending.is_some()
        {
            asked(view, name, format!("instance {}", after.name), report);
        }
    }
}

/// Who leads, unless it is this replica.
fn other_leader<'view>(view: &'view View, name: &str) -> Option<&'view str> {
    view.leader.as_deref().filter(|leader| *leader != name)
}

/// Whether a machine is asked for.
fn is_launch(request: &RequestInfo) -> bool {
    request.method == "POST" && request.path.ends_with("/kwokinstances")
}

/// A cloud knows no Lease: a request may be on its way while that passes to another.
fn asked(view: &View, name: &str, object: String, report: &mut Report) {
    let leader = other_leader(view, name).filter(|_| later(view.leader_since, MOMENT) < view.now);
    if let Some(leader) = leader {
        report.fail(
            36,
            object,
            format!("operator {name} asks its cloud for that while the lease is held by {leader:?}"),
        );
    }
}
