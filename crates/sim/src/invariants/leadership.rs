//! Invariant 36: of two operators only the leader writes, and a deposed one's writes are not sent.

use super::view::View;
use super::{Actor, Checker, Report, RequestInfo};

#[derive(Debug)]
pub(super) struct LeadershipKept;

impl Checker for LeadershipKept {
    fn requested(&mut self, view: &View, request: &RequestInfo, report: &mut Report) {
        let Actor::Operator(name) = &request.actor else {
            return;
        };
        let about_lease = request.path.contains("/leases");
        if let Some(leader) = view
            .leader
            .as_deref()
            .filter(|leader| *leader != name && !about_lease)
        {
            report.fail(
                36,
                format!("{} {}", request.method, request.path),
                format!("operator {name} writes while the lease is held by {leader:?}"),
            );
        }
    }
}
