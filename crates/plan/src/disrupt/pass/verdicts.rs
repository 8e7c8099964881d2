//! Every node is judged at the end of a pass, where that is asked for.
//!
//! Owns which nodes are judged, on how many threads, and why one that may go waits. What is said about one node is `judge`'s.

use super::Pass;
use crate::disrupt::command::{Command, Method};
use crate::disrupt::consolidate::Alone;
use crate::disrupt::judge::{Judge, Unlimited};
use crate::disrupt::outcome::{drift_key, node_key};
use crate::disrupt::threads;
use crate::disrupt::verdict::Verdict;
use spokeshave_model::snapshot::NodeId;

impl<'a> Pass<'_, '_, 'a> {
    /// Judges every node, on as many threads as the policy says.
    pub(super) fn judge(&mut self, unlimited: &'a Unlimited) {
        let (ground, options) = (self.ground, self.options);
        let what_if = self.settled();
        let nodes: Vec<NodeId> = ground.snapshot.node_ids().collect();
        let mut alone: Vec<Option<&Alone<'_>>> = vec![None; nodes.len()];
        if let Some(known) = &self.alone {
            for (candidate, answer) in known.candidates.iter().zip(&known.answers) {
                alone[candidate.node.index()] = Some(answer);
            }
        }
        let threads = ground.policy.disrupt.threads.clamp(1, 1 + nodes.len() / 64);
        let done = threads::in_chunks(
            &nodes,
            threads,
            || what_if.worker(),
            |what_if, nodes: &[NodeId]| {
                let mut judge = Judge::new(ground, options, unlimited, what_if);
                let verdicts: Vec<Verdict> = nodes
                    .iter()
                    .map(|node| judge.verdict(*node, alone[node.index()]))
                    .collect();
                (verdicts, judge.statistics())
            },
        );
        for (mut verdicts, statistics) in done {
            for verdict in verdicts.iter_mut().filter(|verdict| !verdict.is_keep()) {
                verdict.waits = self.waits(verdict);
            }
            self.outcome.verdicts.extend(verdicts);
            self.outcome.statistics.add(statistics);
        }
        self.settled = Some(what_if);
    }

    /// Why a node that may go is not in a command of this pass.
    fn waits(&self, verdict: &Verdict) -> Option<String> {
        let view = self.ground.snapshot.node(verdict.node);
        let chosen = |command: &Command| {
            let mut nodes = command.nodes.iter();
            nodes.any(|node| node.provider_id == view.provider_id)
        };
        if self.outcome.commands.iter().any(chosen) {
            return None;
        }
        let is_drift = verdict.method.is_some_and(Method::is_maintenance);
        let of_method = if is_drift {
            drift_key(view.pool_name.as_deref().unwrap_or(""))
        } else {
            node_key(&view.provider_id)
        };
        let now = self.ground.now;
        if let Some(until) = self.frontier.node_rests_until(&of_method, &view.provider_id, now) {
            let until = until.strftime("%H:%M:%SZ");
            return Some(format!(
                "the last command for it did not stand; it rests until {until}"
            ));
        }
        let is_consolidation = verdict.method == Some(Method::SingleNodeConsolidation);
        if is_consolidation && self.frontier.has_lost_places(&view.provider_id) {
            let why = "the last command for it was taken back because its pods had no places in the end: it rests until pods, nodes or prices change";
            return Some(why.to_owned());
        }
        let round = view.pool.and_then(|pool| self.closed.get(&pool));
        if let Some(until) = round.filter(|_| is_consolidation) {
            let until = until.strftime("%H:%M:%SZ");
            return Some(format!(
                "pods or nodes of its NodePool are still on their way: moves start when they have come to rest, at {until} at the latest"
            ));
        }
        if self.frontier.is_cautious() && is_consolidation {
            let why = "the last move made nothing cheaper, because pods went elsewhere: until they change, only moves that cannot disappoint are made";
            return Some(why.to_owned());
        }
        None
    }
}
