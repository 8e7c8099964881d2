//! Commands under way: each look carries a command on by the writes that `plan::disrupt::advance` names.
//!
//! Owns which events bring a look, and the ledger of finished commands. It decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use spokeshave_api::constants::{DISRUPTION_HISTORY, DISRUPTION_HISTORY_ENTRIES};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::Price;
use spokeshave_plan::disrupt::advance::{Milestone, Present, PresentNode, advance, needs_pods_of_server};
use spokeshave_plan::disrupt::history::{expired, finished_at};
use spokeshave_plan::disrupt::{LastLook, last_look_in};
use spokeshave_plan::disruption_policy::{frozen, keep};

use super::static_pools::let_go;
use crate::cluster::{Named as _, patched};
use crate::engine::Engine;
use crate::log::command_text;
use crate::queue::Wake;
use crate::times::milliseconds_between;
use crate::world::{HOUR_MS, Model, milliseconds};

/// What is kept in the ledger for longer is looked at again after so long, in milliseconds.
const KEPT_LOOK_MS: u64 = HOUR_MS;

impl Engine<'_> {
    /// Writes a command down.
    pub(super) fn create_command(&mut self, object: Arc<Disruption>) -> u32 {
        let mut created = Disruption::clone(&object);
        let name = created.name_of().to_owned();
        created.metadata.uid = Some(format!("disruption-{name}"));
        self.log
            .add(self.now_ms, "command", &name, &command_text(&created));
        let id = self.cluster.add_command(Arc::new(created));
        self.changed_commands();
        self.queue.at_once(self.now_ms, Wake::Command(id));
        id
    }

    /// Writes the status of a command.
    pub(super) fn patch_command(&mut self, name: &str, patch: &Value) {
        let Some(id) = self.cluster.of_command(name) else {
            return;
        };
        let Some(before) = self.cluster.commands.get(&id) else {
            return;
        };
        let after = patched(&**before, patch);
        let let_go = let_go(before, &after);
        let ended = after.is_finished().then(|| finished_at(&after));
        let phase = format!("{:?}", after.phase());
        self.cluster.commands.insert(id, Arc::new(after));
        self.log.add(self.now_ms, "phase", name, &phase);
        self.changed_commands();
        // Its own write brings the next look, before anybody else acts on what it has done.
        self.queue.at_once(self.now_ms, Wake::Command(id));
        if let Some(pool) = let_go {
            self.static_pool_is_due(&pool);
        }
        if let Some(ended) = ended {
            self.wake_in(self.left_in_ledger_ms(ended), Wake::Command(id));
            self.cut_ledger();
            self.turn_now();
        }
    }

    /// For how long a command that has ended then is kept in any case.
    fn left_in_ledger_ms(&self, ended: Timestamp) -> u64 {
        milliseconds(DISRUPTION_HISTORY).saturating_sub(milliseconds_between(ended, self.now()))
    }

    /// Drops finished commands that are too old or too many: what is gone from the ledger is looked at anew.
    fn cut_ledger(&mut self) {
        let now = self.now();
        let policies = self.policy.known_disruption_policies();
        let gone: BTreeSet<String> = expired(
            self.cluster.commands.values().map(|command| &**command),
            DISRUPTION_HISTORY,
            DISRUPTION_HISTORY_ENTRIES,
            |one| keep(one, policies, now),
            now,
        )
        .into_iter()
        .map(|target| target.name)
        .collect();
        if gone.is_empty() {
            return;
        }
        self.cluster
            .commands
            .retain(|_, command| !gone.contains(command.name_of()));
        self.changed_commands();
        self.turn_now();
    }

    /// A NodeClaim has changed, or pods on its node have: its commands are advanced.
    pub(super) fn command_of_claim_changes(&mut self, claim: &NodeClaim) {
        if self
            .cluster
            .commands
            .values()
            .all(|command| command.is_finished())
        {
            return;
        }
        let (name, uid) = (claim.annotation(labels::DISRUPTION), claim.uid());
        let concerned = self.cluster.commands.iter().filter(|(_, command)| {
            !command.is_finished()
                && (Some(command.name_of()) == name
                    || command.spec.nodes.iter().any(|node| node.node_claim_uid == uid))
        });
        let ids: Vec<u32> = concerned.map(|(id, _)| *id).collect();
        for id in ids {
            self.queue.at_once(self.now_ms, Wake::Command(id));
        }
    }

    /// One look at a command.
    pub(crate) fn look_at_command(&mut self, id: u32) {
        let Some(command) = self.cluster.commands.get(&id).cloned() else {
            return;
        };
        if command.is_finished() {
            // Looks that were asked for while it was under way come now, too: of these nobody needs to know.
            if self.left_in_ledger_ms(finished_at(&command)) == 0 {
                self.cut_ledger();
                if self.cluster.commands.contains_key(&id) {
                    self.wake_in(KEPT_LOOK_MS, Wake::Command(id));
                }
            }
            return;
        }
        let now = self.now();
        let mut present = self.present(&command);
        // Others delete nodes without a last look.
        if self.policy.model == Model::Ours && needs_pods_of_server(&command, now) {
            present.look_finds(self.look_again(&command));
        }
        let next = advance(&command, &present, now);
        for (action, milestone) in next.actions.iter().zip(&next.report.milestones) {
            self.apply(action);
            match milestone {
                Some(Milestone::Started) => {
                    self.meter.command_starts();
                    self.note_savings(&command);
                }
                Some(Milestone::RolledBack { why, .. }) => {
                    self.log.add(self.now_ms, "rolled back", command.name_of(), why);
                }
                _ => {}
            }
        }
        if let Some(again) = next.report.again {
            // Less than a millisecond is one: what has to wait does not look again in the same instant for ever.
            let pause_ms = milliseconds(again).max(u64::from(!again.is_zero()));
            self.wake_at(self.now_ms.saturating_add(pause_ms), Wake::Command(id));
        }
    }

    fn look_again(&mut self, command: &Disruption) -> LastLook {
        let (now, policy) = (self.now(), self.policy);
        match self.freeze_for_a_look() {
            Some(snapshot) => last_look_in(command, snapshot, &policy.settings, now),
            None => LastLook::NotYet,
        }
    }

    fn present(&self, command: &Disruption) -> Present {
        let nodes = command.spec.nodes.iter().map(|node| {
            let machine = self.cluster.of_claim(&node.node_claim);
            let found = machine.and_then(|machine| self.cluster.machine(machine));
            let claim = found.and_then(|found| found.claim.clone());
            // D-111: others do not ask again for which pods a node is kept, nor which have come since.
            let judged = found.filter(|_| self.policy.model == Model::Ours);
            PresentNode {
                node: self.find_node(&node.name),
                claim: claim.filter(|claim| claim.uid() == node.node_claim_uid),
                pods: judged.map(|found| self.pods_on(found)).unwrap_or_default(),
            }
        });
        let replacements: Vec<Option<Arc<NodeClaim>>> = command
            .spec
            .replacements
            .iter()
            .map(|replacement| {
                let machine = self.cluster.of_claim(&replacement.node_claim)?;
                let claim = self.cluster.machine(machine)?.claim.clone()?;
                (claim.annotation(labels::DISRUPTION) == Some(command.name_of())).then_some(claim)
            })
            .collect();
        let holding = self.cluster.commands.values().filter(|other| other.holds_nodes());
        Present {
            nodes: nodes.collect(),
            destinations: self.destinations(command, &replacements),
            replacements,
            crowded: None,
            guarded: None,
            beyond_limits: None,
            refused: None,
            waits_for: None,
            queued_nodes: holding.map(|other| other.spec.nodes.len()).sum(),
            frozen: self.freeze_by_hand(command),
            price_after: self.price_after(command),
        }
    }

    /// What the replacements of a command cost per hour as they were launched; `None` when one has no instance.
    fn price_after(&self, command: &Disruption) -> Option<Price> {
        let prices = command.spec.replacements.iter().map(|replacement| {
            let machine = self.cluster.of_claim(&replacement.node_claim)?;
            Some(self.cluster.machine(machine)?.instance.as_ref()?.price)
        });
        prices.sum()
    }

    fn find_node(&self, name: &str) -> Option<Arc<Node>> {
        self.cluster.machine(self.cluster.of_node(name)?)?.node.clone()
    }

    fn destinations(
        &self,
        command: &Disruption,
        replacements: &[Option<Arc<NodeClaim>>],
    ) -> Vec<(String, Option<Arc<Node>>)> {
        if self.policy.model != Model::Ours {
            // D-108: nobody asks again whether they are there.
            return Vec::new();
        }
        let there = command.spec.destinations.iter().map(String::as_str);
        let new = replacements
            .iter()
            .flatten()
            .filter_map(|claim| claim.node_name());
        let mut names: BTreeSet<&str> = there.chain(new).collect();
        for other in self.cluster.commands.values() {
            // A node that is there now only has the name of one that went before.
            let ended_before = other.is_finished() && finished_at(other) <= command.spec.decided_at.0;
            if other.phase() != DisruptionPhase::RolledBack && !ended_before {
                for node in &other.spec.nodes {
                    names.remove(node.name.as_str());
                }
            }
        }
        let nodes = names
            .into_iter()
            .map(|name| (name.to_owned(), self.find_node(name)));
        nodes.collect()
    }

    /// A freeze by hand, or the halt of a roll-out, for one of the command's NodePools.
    fn freeze_by_hand(&self, command: &Disruption) -> Option<String> {
        let (now, policies) = (self.now(), self.policy.known_disruption_policies());
        command.spec.nodes.iter().find_map(|node| {
            let pool = self.operator.node_pools.get(&node.node_pool);
            let labels = pool.map(|pool| pool.metadata.labels.clone().unwrap_or_default());
            frozen(
                policies.iter().map(|policy| &**policy),
                &node.node_pool,
                labels.as_ref(),
                &command.spec.reason,
                now,
            )
        })
    }

    fn note_savings(&mut self, command: &Disruption) {
        self.operator.savings.note(self.now_ms, command);
    }

    /// An instance is launched: for waiting pods it costs what was saved before.
    pub(in crate::engine) fn savings_are_lost(&mut self, claim: &NodeClaim, price: Price) {
        if claim.annotation(labels::DISRUPTION).is_some() {
            return;
        }
        let Some(pool) = claim.node_pool() else { return };
        let lost = self.operator.savings.bought(self.now_ms, pool, price);
        for _ in 0..lost {
            self.meter.count(|counted| &mut counted.savings_lost);
        }
    }
}
