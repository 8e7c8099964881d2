//! The Snapshot that decisions are made on, kept up to date in place.
//!
//! Owns which objects and facts make it up, as the operator's controllers put them together, and what has changed since the last Snapshot. It never
//! decides. Debug builds compare it with one that is lowered from all objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, INITIALIZED};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::disruption_policy::StatefulSetMoves;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::{
    Change, ClusterState, LiveSnapshot, Nomination, Ordinals, Pod, Revocable, Snapshot, planned_node,
};
use spokeshave_plan::disrupt::record::unmade_claim;
use spokeshave_plan::disrupt::{kept_until, revocable};
use spokeshave_plan::in_flight::{Room, expected_on, stand_in, without_room};
use spokeshave_scenario::OwnerKind;

use crate::cluster::{InFlight, Named as _};
use crate::engine::Engine;
use crate::pods::PodId;

/// Debug builds compare Snapshots of up to so many pods with ones that are lowered from all objects.
#[cfg(debug_assertions)]
const MOST_PODS_COMPARED: usize = 60;

/// The Snapshot, what it shows, and what has changed since.
#[derive(Debug, Default)]
pub(crate) struct Live {
    snapshot: Option<LiveSnapshot>,
    pods: BTreeSet<PodId>,
    pods_gone: Vec<(String, String)>,
    machines: BTreeSet<u32>,
    budgets: BTreeSet<u32>,
    has_new_commands: bool,
    /// By machine, the names of the NodeClaim and the Node that it shows.
    shown: BTreeMap<u32, (Option<String>, Option<String>)>,
    /// Names of NodeClaims that commands have yet to make.
    unmade: BTreeSet<String>,
    held: BTreeSet<String>,
    nominated: BTreeMap<String, Timestamp>,
    revocable: Vec<Revocable>,
    stateful_sets: Arc<BTreeMap<String, Ordinals>>,
    in_flight: InFlight,
}

impl Engine<'_> {
    /// A pod is new.
    pub(crate) fn pod_added(&mut self, pod: PodId) {
        self.operator.live.pods.insert(pod);
        self.changed();
    }

    /// A pod has changed.
    pub(crate) fn pod_changed(&mut self, pod: PodId) {
        self.operator.live.pods.insert(pod);
        self.changed();
    }

    /// A pod is about to be gone.
    pub(crate) fn pod_removed(&mut self, id: PodId) {
        let gone = self.pods.get(id).map(|pod| key(&pod.object));
        let live = &mut self.operator.live;
        live.pods.remove(&id);
        live.pods_gone.extend(gone);
        self.changed();
    }

    /// A NodeClaim or its Node has come, changed or gone.
    pub(crate) fn node_changed(&mut self, machine: u32) {
        self.operator.live.machines.insert(machine);
        self.changed();
    }

    /// What a budget allows has changed.
    pub(crate) fn budget_changed(&mut self, budget: u32) {
        self.operator.live.budgets.insert(budget);
        self.changed();
    }

    /// A command has come, or its phase has changed.
    pub(super) fn changed_commands(&mut self) {
        self.operator.live.has_new_commands = true;
        self.changed();
    }

    /// What can be launched has changed.
    pub(crate) fn types_changed(&mut self) {
        self.operator.live.snapshot = None;
        self.changed();
    }

    /// The Snapshot of now, with these commands as if they were written down already.
    pub(super) fn freeze(&mut self, pending: &[Arc<Disruption>]) -> Arc<Snapshot> {
        self.forget_nominations();
        if self.operator.live.snapshot.is_none() {
            self.show_everything();
        }
        let changes = self.changes(pending);
        let Some(live) = &mut self.operator.live.snapshot else {
            // It was made a moment ago.
            return Arc::new(spokeshave_model::lower(&self.cluster_state(pending)));
        };
        live.apply(changes);
        let snapshot = Arc::clone(live.snapshot());
        #[cfg(debug_assertions)]
        if snapshot.pods.len() <= MOST_PODS_COMPARED {
            let anew = spokeshave_model::lower(&self.cluster_state(pending));
            let differing = differences(&snapshot, &anew);
            assert!(
                differing.is_empty(),
                "the Snapshot that was kept differs from one that is lowered in {differing:?}"
            );
        }
        snapshot
    }

    /// The Snapshot of now, of which nobody else has a copy while it is looked at; there always is one.
    pub(super) fn freeze_for_a_look(&mut self) -> Option<&mut Snapshot> {
        drop(self.freeze(&[]));
        let live = self.operator.live.snapshot.as_mut();
        live.map(LiveSnapshot::snapshot_for_a_look)
    }

    /// Lowers everything: at the start, and when what can be launched has changed.
    fn show_everything(&mut self) {
        let state = self.cluster_state(&[]);
        let live = Live {
            unmade: self.unmade(&[]).keys().cloned().collect(),
            held: state.in_command.clone(),
            nominated: state
                .nominations
                .iter()
                .map(|(id, nomination)| (id.clone(), nomination.until))
                .collect(),
            stateful_sets: Arc::clone(&state.stateful_sets),
            in_flight: self.in_flight(),
            shown: self
                .cluster
                .machines()
                .map(|(id, found)| {
                    let claim = found.claim.as_ref().map(|claim| claim.name_of().to_owned());
                    (id, (claim, found.node_name().map(str::to_owned)))
                })
                .collect(),
            snapshot: Some(LiveSnapshot::new(state)),
            ..Live::default()
        };
        self.operator.live = live;
    }

    /// What has changed since the last time.
    fn changes(&mut self, pending: &[Arc<Disruption>]) -> Vec<Change> {
        let mut live = std::mem::take(&mut self.operator.live);
        let mut changes = Vec::new();
        // They go first: a new pod may have the name of one that is gone. One that came and went in between was never in the Snapshot.
        for (namespace, name) in std::mem::take(&mut live.pods_gone) {
            changes.push(Change::PodGone {
                namespace,
                name,
                is_virtual: false,
            });
        }
        let in_flight = self.in_flight();
        // Pods that begin or end to be seen on a stand-in.
        let (known, assigned) = (&live.in_flight.assigned, &in_flight.assigned);
        let before = known.iter();
        let before = before.filter(|(uid, place)| assigned.get(*uid) != Some(*place));
        let now = assigned.iter();
        let now = now.filter(|(uid, place)| known.get(*uid) != Some(*place));
        let differing = before.chain(now).map(|(_, (id, _))| *id);
        live.pods.extend(differing);
        // NodeClaims that begin or end to have room.
        let differing = live
            .in_flight
            .with_room
            .symmetric_difference(&in_flight.with_room);
        live.machines.extend(differing);
        live.in_flight = in_flight;
        for id in std::mem::take(&mut live.pods) {
            let Some(pod) = self.pods.get(id) else {
                continue;
            };
            changes.push(Change::Pod(as_seen(&pod.object, &live.in_flight.assigned)));
        }
        let unmade = self.unmade(pending);
        for name in live.unmade.iter().filter(|name| !unmade.contains_key(*name)) {
            if self.cluster.of_claim(name).is_none() {
                changes.push(Change::NodeClaimGone(name.clone()));
            }
        }
        for (name, claim) in &unmade {
            if !live.unmade.contains(name) {
                changes.push(Change::NodeClaim(Arc::clone(claim)));
            }
        }
        live.unmade = unmade.into_keys().collect();
        for id in std::mem::take(&mut live.machines) {
            self.changes_of_machine(&mut live, id, &mut changes);
        }
        let held = self.held_nodes(pending);
        for (ids, is_held) in [
            (held.difference(&live.held), true),
            (live.held.difference(&held), false),
        ] {
            for id in ids {
                changes.push(Change::MarkedForDeletion(id.clone(), is_held));
                changes.push(Change::InCommand(id.clone(), is_held));
            }
        }
        live.held = held;
        let nominated = self.nominated();
        for (id, until) in &nominated {
            if live.nominated.get(id) != Some(until) {
                changes.push(Change::Nominated(id.clone(), Some(*until)));
            }
        }
        for id in live.nominated.keys().filter(|id| !nominated.contains_key(*id)) {
            changes.push(Change::Nominated(id.clone(), None));
        }
        live.nominated = nominated;
        let revocable = self.revocable(pending);
        if revocable != live.revocable {
            changes.push(Change::Revocable(revocable.clone()));
            live.revocable = revocable;
        }
        let stateful_sets = self.ordinals();
        if stateful_sets != live.stateful_sets {
            changes.push(Change::Owners {
                annotations: BTreeMap::new(),
                stateful_sets: Arc::clone(&stateful_sets),
                unknown: false,
            });
            live.stateful_sets = stateful_sets;
        }
        for budget in std::mem::take(&mut live.budgets) {
            changes.push(Change::PodDisruptionBudget(self.budgets.object(budget)));
        }
        if std::mem::take(&mut live.has_new_commands) && !self.policy.known_disruption_policies().is_empty() {
            changes.push(Change::Disruptions(
                self.cluster.commands.values().cloned().collect(),
            ));
        }
        self.operator.live = live;
        changes
    }

    fn changes_of_machine(&self, live: &mut Live, id: u32, changes: &mut Vec<Change>) {
        let found = self.cluster.machine(id);
        let (claim_before, node_before) = live.shown.remove(&id).unwrap_or_default();
        let claim = found.and_then(|found| found.claim.as_ref());
        let node = found.and_then(|found| found.node.as_ref());
        if let Some(claim) = claim {
            let is_torn = claim.is_true(INITIALIZED) && node.is_none();
            let has_room = live.in_flight.with_room.contains(&id);
            changes.push(Change::NodeClaim(self.as_planned(claim, is_torn, has_room)));
        }
        if let Some(node) = node {
            changes.push(Change::Node(Arc::clone(node)));
        }
        if let (None, Some(name)) = (claim, claim_before) {
            changes.push(Change::NodeClaimGone(name));
        }
        if let (None, Some(name)) = (node, node_before) {
            changes.push(Change::NodeGone(name));
        }
        let shown = (
            claim.map(|claim| claim.name_of().to_owned()),
            node.and_then(|node| node.metadata.name.clone()),
        );
        if shown != (None, None) {
            live.shown.insert(id, shown);
        }
    }

    fn cluster_state(&self, pending: &[Arc<Disruption>]) -> ClusterState {
        let (in_command, in_flight) = (self.held_nodes(pending), self.in_flight());
        // The pods of all of them need a new place (D-098).
        let marked_for_deletion = in_command.clone();
        let disruption_policies = self.policy.known_disruption_policies();
        let has_policies = !disruption_policies.is_empty();
        let nominations = self.nominated().into_iter();
        let nominations = nominations.map(|(id, until)| (id, Nomination { until }));
        ClusterState {
            nodes: self
                .cluster
                .machines()
                .filter_map(|(_, found)| found.node.clone())
                .collect(),
            pods: self.planned_pods(&in_flight),
            daemon_sets: self.world.daemon_sets.clone(),
            pod_disruption_budgets: self.budgets.objects(),
            node_pools: self.operator.node_pools.values().cloned().collect(),
            node_claims: self.planned_claims(pending, &in_flight),
            instance_types: self
                .cloud
                .all_seen()
                .iter()
                .map(|(pool, types)| (pool.clone(), Ok(Arc::clone(types))))
                .collect(),
            nominations: nominations.collect(),
            marked_for_deletion,
            revocable: self.revocable(pending),
            in_command,
            stateful_sets: self.ordinals(),
            disruptions: if has_policies {
                self.cluster.commands.values().cloned().collect()
            } else {
                Vec::new()
            },
            disruption_policies: disruption_policies.to_vec(),
            ..ClusterState::default()
        }
    }

    /// Which members StatefulSets want; none where no policy moves them one at a time.
    fn ordinals(&self) -> Arc<BTreeMap<String, Ordinals>> {
        let mut policies = self.policy.known_disruption_policies().iter();
        let is_asked = policies.any(|policy| {
            let rules = policy.spec.workloads.as_ref();
            rules.is_some_and(|rules| rules.stateful_sets == Some(StatefulSetMoves::OneAtATime))
        });
        if !is_asked {
            return Arc::default();
        }
        let owners = self.owners.iter();
        let sets = owners.filter(|owner| owner.kind == OwnerKind::StatefulSet);
        let ordinals = sets.map(|owner| {
            let metadata = &owner.templates[owner.newest as usize].metadata;
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let wanted = Ordinals {
                start: 0,
                replicas: u64::from(owner.replicas),
            };
            (format!("StatefulSet/{namespace}/{}", owner.name), wanted)
        });
        Arc::new(ordinals.collect())
    }

    /// The pods as planning sees them.
    fn planned_pods(&self, in_flight: &InFlight) -> Vec<Arc<Pod>> {
        let pods = self.pods.iter();
        pods.map(|(_, pod)| as_seen(&pod.object, &in_flight.assigned))
            .collect()
    }

    /// Who is on a node waits for no NodeClaim any more.
    fn in_flight(&self) -> InFlight {
        self.cluster.in_flight(|id| {
            let pod = self.pods.get(id);
            pod.is_some_and(|pod| planned_node::is_provisionable(&pod.object))
        })
    }

    /// The NodeClaims that commands have yet to make, by name.
    fn unmade(&self, pending: &[Arc<Disruption>]) -> BTreeMap<String, Arc<NodeClaim>> {
        let commands = self.cluster.commands.values().chain(pending);
        let starting = commands.filter(|command| command.phase() == DisruptionPhase::Starting);
        let replacements = starting.flat_map(|command| &command.spec.replacements);
        let missing = replacements.filter(|one| self.cluster.of_claim(&one.node_claim).is_none());
        missing
            .map(|replacement| {
                let planned = self.as_planned(&Arc::new(unmade_claim(replacement)), false, false);
                (replacement.node_claim.clone(), planned)
            })
            .collect()
    }

    /// The NodeClaims as planning sees them: those without an instance, and placeholders for those that commands will create.
    fn planned_claims(&self, pending: &[Arc<Disruption>], in_flight: &InFlight) -> Vec<Arc<NodeClaim>> {
        let there = self.cluster.machines().filter_map(|(id, found)| {
            let claim = found.claim.as_ref()?;
            let is_torn = claim.is_true(INITIALIZED) && found.node.is_none();
            Some(self.as_planned(claim, is_torn, in_flight.with_room.contains(&id)))
        });
        there.chain(self.unmade(pending).into_values()).collect()
    }

    fn as_planned(&self, claim: &Arc<NodeClaim>, is_torn: bool, has_room: bool) -> Arc<NodeClaim> {
        if claim.provider_id().is_some() {
            return if is_torn {
                Arc::new(without_room(claim))
            } else {
                Arc::clone(claim)
            };
        }
        if claim.is_deleting() {
            return Arc::clone(claim);
        }
        let types = claim.node_pool().and_then(|pool| self.cloud.seen(pool));
        // A replacement is there for the pods of its command, which planning sees on the nodes that go.
        let room = if has_room || claim.annotation(labels::DISRUPTION).is_some() {
            Room::Open
        } else {
            Room::Taken
        };
        Arc::new(stand_in(claim, types.map_or(&[], |types| &types[..]), room))
    }

    /// Provider IDs of nodes in commands.
    pub(super) fn held_nodes(&self, pending: &[Arc<Disruption>]) -> BTreeSet<String> {
        let holding = self
            .cluster
            .commands
            .values()
            .filter(|command| command.holds_nodes());
        let nodes = holding.chain(pending).flat_map(|command| &command.spec.nodes);
        nodes.map(|node| node.provider_id.clone()).collect()
    }

    /// Commands that may yet be taken back.
    fn revocable(&self, pending: &[Arc<Disruption>]) -> Vec<Revocable> {
        let claim = |name: &str| {
            let machine = self.cluster.of_claim(name)?;
            self.cluster.machine(machine)?.claim.clone()
        };
        let commands = self.cluster.commands.values().chain(pending);
        commands.filter_map(|command| revocable(command, claim)).collect()
    }

    /// Forgets nominations that have ended.
    pub(super) fn forget_nominations(&mut self) {
        let now = self.now();
        self.operator.nominations.retain(|_, until| *until > now);
    }

    /// Until when nodes are kept for pods: by nomination, or because they replace nodes of a command under way.
    pub(super) fn nominated(&self) -> BTreeMap<String, Timestamp> {
        let mut nominated = self.operator.nominations.clone();
        let unfinished = self
            .cluster
            .commands
            .values()
            .filter(|command| !command.is_finished());
        for command in unfinished {
            let until = kept_until(command);
            for replacement in &command.spec.replacements {
                let machine = self.cluster.of_claim(&replacement.node_claim);
                let claim = machine.and_then(|machine| self.cluster.machine(machine)?.claim.as_ref());
                if let Some(id) = claim.and_then(|claim| claim.provider_id()) {
                    let known = nominated.entry(id.to_owned()).or_insert(until);
                    *known = until.max(*known);
                }
            }
        }
        nominated
    }
}

/// A pod as planning sees it: on what stands in for its NodeClaim, as long as it waits for that.
fn as_seen(object: &Arc<Pod>, assigned: &BTreeMap<String, (PodId, Arc<str>)>) -> Arc<Pod> {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    match assigned.get(uid) {
        Some((_, stand_in)) if planned_node::is_provisionable(object) => {
            Arc::new(expected_on(object, stand_in))
        }
        _ => Arc::clone(object),
    }
}

fn key(pod: &Pod) -> (String, String) {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    (text(&pod.metadata.namespace), text(&pod.metadata.name))
}

/// In which parts two Snapshots differ.
#[cfg(debug_assertions)]
fn differences(one: &Snapshot, other: &Snapshot) -> Vec<&'static str> {
    let parts = [
        ("resources", one.resources == other.resources),
        ("pools", one.pools == other.pools),
        ("nodes", one.nodes == other.nodes),
        ("pods", one.pods == other.pods),
        ("classes", one.classes == other.classes),
        ("requests", one.requests == other.requests),
        ("kinds", one.kinds == other.kinds),
        ("daemons", one.daemons == other.daemons),
        ("budgets", one.budgets == other.budgets),
        ("anything else", one == other),
    ];
    let differing = parts.into_iter().filter(|(_, same)| !same);
    differing.map(|(part, _)| part).collect()
}
