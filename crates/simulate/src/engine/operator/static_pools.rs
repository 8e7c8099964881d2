//! NodePools with a fixed number of nodes (D §9.1): what is missing is made, what is too many is deleted, as `plan::static_pools` says.
//!
//! Owns when they are looked at: when one of their NodeClaims has come, got its instance, goes or is gone, when a command lets go of a node, and when a launch that
//! was refused may be tried again. Nothing else changes the answer here, so that the operator's look of every minute is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::{Action, Pod};
use spokeshave_plan::launch_backoff::Admission;
use spokeshave_plan::lifecycle::claim_ref;
use spokeshave_plan::static_pools::{Counts, Held, ScaleUp, count, scale_down, scale_up, template_claim};

use crate::engine::Engine;
use crate::queue::Wake;
use crate::times::milliseconds_between;

/// NodePools that are looked at later, by position.
#[derive(Debug, Default)]
pub(super) struct StaticLooks {
    /// Before anything else happens.
    at_once: BTreeSet<usize>,
    /// When a launch is tried again, in milliseconds.
    again_ms: BTreeMap<usize, u64>,
}

/// How far a NodeClaim is, as far as the number of nodes depends on it.
fn stage(claim: Option<&NodeClaim>) -> Option<(bool, bool)> {
    claim.map(|claim| (claim.is_deleting(), claim.provider_id().is_some()))
}

/// The static NodePool of whose nodes a command lets go with this change: from here on a node and its replacement count as two.
pub(super) fn let_go(before: &Disruption, after: &Disruption) -> Option<String> {
    let ends = before.holds_nodes() && !after.holds_nodes() && after.spec.method.is_static();
    let node = after.spec.nodes.first().filter(|_| ends)?;
    Some(node.node_pool.clone())
}

impl Engine<'_> {
    /// The first look, at the start.
    pub(in crate::engine) fn look_at_static_pools(&mut self) {
        for position in 0..self.operator.node_pools.len() {
            self.look_at_static_pool(position);
        }
    }

    /// A NodeClaim has come, changed or gone.
    pub(super) fn static_claim_changes(&mut self, before: Option<&NodeClaim>, after: Option<&NodeClaim>) {
        if stage(before) == stage(after) {
            return;
        }
        if let Some(pool) = after.or(before).and_then(|claim| claim.node_pool()) {
            self.static_pool_is_due(pool);
        }
    }

    /// A NodePool is looked at at once, if it has a fixed number of nodes.
    pub(super) fn static_pool_is_due(&mut self, name: &str) {
        let mut pools = self.operator.node_pools.values();
        let Some(position) = pools.position(|pool| pool.is_static() && pool.name() == name) else {
            return;
        };
        if self.operator.static_looks.at_once.insert(position) {
            self.queue.at_once(self.now_ms, Wake::StaticPool(position));
        }
    }

    /// One look at a NodePool.
    pub(crate) fn look_at_static_pool(&mut self, position: usize) {
        let looks = &mut self.operator.static_looks;
        looks.at_once.remove(&position);
        if looks
            .again_ms
            .get(&position)
            .is_some_and(|due_ms| *due_ms <= self.now_ms)
        {
            looks.again_ms.remove(&position);
        }
        let pool = self.operator.node_pools.values().nth(position).cloned();
        let Some(pool) = pool.filter(|pool| pool.is_static()) else {
            return;
        };
        let claims = self.claims_of(&pool);
        match scale_up(&pool, self.count_nodes_of(&claims)) {
            ScaleUp::Create(missing) => self.create_static(position, &pool, missing),
            // There is room again when a NodeClaim is gone.
            ScaleUp::AtLimit => {}
            ScaleUp::None => self.delete_excess(&pool, &claims),
        }
    }

    /// The NodeClaims of a NodePool, the oldest first.
    fn claims_of(&self, pool: &NodePool) -> Vec<Arc<NodeClaim>> {
        let claims = self.cluster.machines();
        let claims = claims.filter_map(|(_, found)| found.claim.as_ref());
        let own = claims.filter(|claim| claim.node_pool() == Some(pool.name()));
        own.cloned().collect()
    }

    /// How many of them are in which state (D-355).
    fn count_nodes_of(&self, claims: &[Arc<NodeClaim>]) -> Counts {
        let in_command = self.held_nodes(&[]);
        count(claims.iter().map(|claim| &**claim), |id| in_command.contains(id))
    }

    /// D-356: creates what is missing, unless the cloud has refused it lately; then a single one, when that is due.
    fn create_static(&mut self, position: usize, pool: &NodePool, missing: usize) {
        let now = self.now();
        let types = self.cloud.seen(pool.name());
        let claim = template_claim(pool, types.map_or(&[], |types| &types[..]));
        let admitted = match self.operator.launches.admit(&claim, now) {
            Admission::All => missing,
            Admission::One => 1,
            Admission::NotBefore(_) => 0,
        };
        for _ in 0..admitted {
            self.create_claim(claim.clone(), Vec::new());
        }
        if let Some(trouble) = self.operator.launches.trouble(&claim) {
            // Less than a millisecond is one: it is not tried again in the same instant.
            let left = milliseconds_between(now, trouble.next).max(1);
            self.try_static_again_at(position, self.now_ms.saturating_add(left));
        }
    }

    /// A NodePool has one timer: what was due before looks, and sets none.
    fn try_static_again_at(&mut self, position: usize, due_ms: u64) {
        let before = self.operator.static_looks.again_ms.insert(position, due_ms);
        if before != Some(due_ms) {
            self.queue.at(due_ms, Wake::StaticPool(position));
        }
    }

    /// D-357.
    fn delete_excess(&mut self, pool: &NodePool, claims: &[Arc<NodeClaim>]) {
        let mut held = Held::default();
        for command in self.cluster.commands.values() {
            held.add(command);
        }
        let pods = |claim: &NodeClaim| self.pods_of_claim(claim);
        let excess = scale_down(pool, claims, &held, pods, self.now());
        for claim in excess {
            self.apply(&Action::delete(claim_ref(&claim)));
        }
    }

    /// The pods on the node of a NodeClaim.
    fn pods_of_claim(&self, claim: &NodeClaim) -> Vec<Arc<Pod>> {
        let machine = self.cluster.of_claim(claim.name());
        let found = machine.and_then(|machine| self.cluster.machine(machine));
        found.map(|found| self.pods_on(found)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spokeshave_api::disruption::Replacement;
    use spokeshave_scenario::{Change, Event, Owner, OwnerId, OwnerKind, Spread, Timeline};

    use super::*;
    use crate::cluster::Machine;
    use crate::world::{Delays, HOUR_MS, Policy, World};

    const MINUTE_MS: u64 = 60_000;

    /// One pod from the start.
    fn one_pod() -> Timeline {
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "256Mi"}}}]},
        });
        let owner = Owner {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            kind: OwnerKind::Deployment,
            template: Arc::new(serde_json::from_value(template).unwrap()),
            later: Vec::new(),
            ready: Spread {
                median_ms: 0,
                p99_ms: 0,
            },
            budget: None,
            claims: Vec::new(),
        };
        let event = Event {
            at_ms: 0,
            owner: OwnerId(0),
            change: Change::Replicas(1),
        };
        Timeline {
            owners: vec![owner],
            events: vec![event],
            ..Timeline::default()
        }
    }

    fn live_until(engine: &mut Engine<'_>, until_ms: u64) {
        while let Some((at_ms, wake)) = engine.queue.pop() {
            if at_ms > until_ms {
                engine.queue.at(at_ms, wake);
                return;
            }
            engine.happens(at_ms, wake);
        }
    }

    fn running<'e>(engine: &'e Engine<'_>) -> Vec<&'e Machine> {
        let machines = engine.cluster.machines().map(|(_, found)| found);
        machines.filter(|found| found.has_instance()).collect()
    }

    /// A NodePool of three nodes, which boot for a minute.
    fn three_nodes() -> (World, Policy) {
        let mut pool = spokeshave_example::node_pool("fixed");
        pool.spec.replicas = Some(3);
        let types = vec![spokeshave_example::instance_type("c4", 4, 16, &["zone-a"])];
        let mut world = World::new(spokeshave_example::epoch(), HOUR_MS, types.into());
        world.delays = Delays::exactly(MINUTE_MS);
        (world, Policy::new("now", vec![Arc::new(pool)]))
    }

    /// The same after ten minutes.
    fn lived<'e>(world: &'e World, timeline: &'e Timeline, policy: &'e Policy) -> Engine<'e> {
        let mut engine = Engine::new(world, timeline, policy, 1, None);
        engine.look_at_static_pools();
        engine.turn_now();
        engine.wake_for_timeline();
        live_until(&mut engine, 10 * MINUTE_MS);
        assert_eq!(running(&engine).len(), 3);
        engine
    }

    /// The scheduler puts the pod on the first of three nodes by name, which would go first if nobody looked at pods.
    #[test]
    fn d_357_d_358_what_is_too_many_goes_and_the_node_with_a_pod_stays() {
        let ((world, policy), timeline) = (three_nodes(), one_pod());
        let mut engine = lived(&world, &timeline, &policy);
        for pool in engine.operator.node_pools.values_mut() {
            Arc::make_mut(pool).spec.replicas = Some(1);
        }
        engine.types_changed();
        engine.static_pool_is_due("fixed");
        live_until(&mut engine, 20 * MINUTE_MS);
        let left = running(&engine);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].pods.len(), 1, "its pod has not moved");
        assert_eq!(engine.cluster.made(), 3, "and nothing came instead");
    }

    /// Of three nodes two are wanted, and a command replaces one of them by another: they count as one, until it is rolled back because what it finds is not the
    /// replacement that it has made.
    #[test]
    fn d_357_a_command_that_lets_go_of_a_node_brings_a_look() {
        let ((world, policy), timeline) = (three_nodes(), one_pod());
        let mut engine = lived(&world, &timeline, &policy);
        for pool in engine.operator.node_pools.values_mut() {
            Arc::make_mut(pool).spec.replicas = Some(2);
        }
        engine.types_changed();
        let claims = running(&engine).into_iter();
        let claims: Vec<Arc<NodeClaim>> = claims.filter_map(|found| found.claim.clone()).collect();
        let command = json!({
            "metadata": {"name": "command"},
            "spec": {
                "method": "StaticDrift", "reason": "Drifted", "decision": "Replace", "decidedAt": "2026-03-02T00:00:00.000000Z",
                "nodes": [{
                    "name": claims[0].node_name(), "nodeClaim": claims[0].name(), "nodeClaimUID": claims[0].uid(),
                    "providerID": claims[0].provider_id(), "nodePool": "fixed", "price": "0.22", "pods": 0,
                }],
                "priceBefore": "0.22", "priceAfter": "0.22", "savings": "0", "evictions": 0, "nodeSummary": "n", "replacementSummary": "r",
            },
            "status": {"phase": "Replacing"},
        });
        let mut command: Disruption = serde_json::from_value(command).unwrap();
        command.spec.decided_at.0 = engine.now();
        command.spec.replacements.push(Replacement {
            node_claim: claims[1].name().to_owned(),
            node_pool: "fixed".to_owned(),
            price: "0.22".to_owned(),
            ..Replacement::default()
        });
        engine.create_command(Arc::new(command));
        engine.look_at_static_pool(0);
        let stays = |found: &&Machine| found.claim.as_ref().is_some_and(|claim| !claim.is_deleting());
        assert!(running(&engine).iter().all(stays));
        live_until(&mut engine, 20 * MINUTE_MS);
        assert_eq!(running(&engine).len(), 2);
        assert_eq!(engine.cluster.made(), 3);
    }

    /// Somebody changes the template: one node after the other is replaced, as the default budget has it, and at no time are there fewer.
    #[test]
    fn d_138_d_139_nodes_that_have_drifted_are_replaced_one_for_one() {
        let ((world, policy), timeline) = (three_nodes(), one_pod());
        let mut engine = lived(&world, &timeline, &policy);
        for pool in engine.operator.node_pools.values_mut() {
            let mut changed = NodePool::clone(pool);
            let own = &mut changed.spec.template.metadata.labels;
            own.insert("team".to_owned(), "red".to_owned());
            *pool = Arc::new(super::super::ready(&changed, world.start));
        }
        engine.cloud.generation += 1;
        engine.types_changed();
        for minute in 11..60 {
            live_until(&mut engine, minute * MINUTE_MS);
            assert!((3..=4).contains(&running(&engine).len()), "minute {minute}");
        }
        let claims = running(&engine).into_iter();
        let claims: Vec<&NodeClaim> = claims.filter_map(|found| found.claim.as_deref()).collect();
        assert_eq!(claims.len(), 3);
        assert!(claims.iter().all(|claim| claim.label("team") == Some("red")));
        let commands = || engine.cluster.commands.values();
        assert!(commands().all(|command| command.spec.method.is_static()));
        assert_eq!((commands().count(), engine.cluster.made()), (3, 6));
    }
}
