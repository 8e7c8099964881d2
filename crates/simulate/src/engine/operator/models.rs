//! Models of other autoscalers, after their documented behaviour: what they would remove. They are no products, and results call them models.
//!
//! Owns the two searches, on the Snapshot and the packing that Spokeshave uses. Everything else in a run of a model (launches, drains, the scheduler) is that of
//! every other run. What the models leave out is listed in `docs/simulate-engine.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::{ConsolidationPolicy, NodePool};
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_model::vector::{CPU, MEMORY};
use spokeshave_model::{CapacityType, Price, labels};
use spokeshave_plan::disrupt::{
    BalancedPools, BudgetMapping, Candidate, Command, CommandNode, Destination, DisruptionClass, Frontier,
    Method, Move, Replacement, candidates, consolidates, cost, disrupt,
};
use spokeshave_plan::{Policy, displaced_pods, pending_pods};
use spokeshave_schedule::{PackOptions, ReservedPolicy, Simulation};

/// D-135: sets are looked for among so many candidates.
const MOST_OF_A_SET: usize = 100;
/// Single nodes that are evaluated within the limit of three minutes, at 0.93 s a simulation.
const MOST_SINGLE: usize = 193;
/// Milliseconds for which cluster-autoscaler wants a node to be unneeded, and waits after a scale-up.
const UNNEEDED_MS: u64 = 600_000;
/// Empty nodes that cluster-autoscaler removes at once.
const MOST_EMPTY: usize = 10;

/// What a model would do now.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) commands: Vec<Command>,
    /// How many sets of nodes were taken away to find that out.
    pub(super) what_ifs: u64,
}

/// A NodePool as `karpenter-balanced` has it: one that consolidates weighs what that saves.
pub(super) fn weigh_savings(pool: &mut NodePool) {
    let policy = &mut pool.spec.disruption.consolidation_policy;
    if *policy == ConsolidationPolicy::WhenEmptyOrUnderutilized {
        *policy = ConsolidationPolicy::Balanced;
    }
}

/// What Karpenter would do: empty nodes, drift, then the longest prefix of the candidates that can be consolidated, then the first single node.
pub(super) fn karpenter(snapshot: &Snapshot, settings: &Policy, now: Timestamp) -> Answer {
    let mut simple = settings.clone();
    simple.disrupt.methods = [Method::Emptiness, Method::StaticDrift, Method::Drift].into();
    let outcome = disrupt(snapshot, &simple, now, &Frontier::default());
    let what_ifs = outcome.statistics.what_ifs;
    if !outcome.commands.is_empty() {
        return Answer {
            commands: outcome.commands,
            what_ifs,
        };
    }
    let mut found = consolidatable(snapshot, now);
    cost::sort_by_savings_ratio(snapshot, &mut found);
    let mut budget = BudgetMapping::build(snapshot, &Method::SingleNodeConsolidation.reason(), now);
    found.retain(|candidate| budget.take(candidate.pool));
    if found.is_empty() {
        return Answer {
            commands: Vec::new(),
            what_ifs,
        };
    }
    let options = PackOptions {
        reserved: ReservedPolicy::Fallback,
        preferences: settings.preferences,
        min_values: settings.min_values,
        instance_types_per_claim: settings.instance_types_per_claim,
        tables: settings.tables.clone(),
    };
    let mut search = Search {
        balanced: weighs(snapshot).then(|| BalancedPools::of(snapshot, settings, now)),
        ..Search::new(snapshot, &options, now)
    };
    let best = search.longest_prefix(&found);
    let best = best.or_else(|| search.first_single(&found));
    Answer {
        commands: best.into_iter().collect(),
        what_ifs: what_ifs + search.what_ifs,
    }
}

/// Whether some NodePool weighs what a move saves.
fn weighs(snapshot: &Snapshot) -> bool {
    let mut pools = snapshot.pools.iter();
    pools.any(|pool| pool.object.spec.disruption.consolidation_policy == ConsolidationPolicy::Balanced)
}

/// Nodes that policy and consolidateAfter leave to consolidation.
fn consolidatable(snapshot: &Snapshot, now: Timestamp) -> Vec<Candidate> {
    let (mut found, _) = candidates(snapshot, DisruptionClass::Graceful, now);
    found.retain(|candidate| {
        let policy = &snapshot
            .pool(candidate.pool)
            .object
            .spec
            .disruption
            .consolidation_policy;
        consolidates(policy) && snapshot.node(candidate.node).consolidatable && candidate.price > Price::ZERO
    });
    found
}

/// What cluster-autoscaler would do: nodes below half of their CPU and memory, whose pods fit elsewhere, for ten minutes and ten minutes after the last launch;
/// empty ones ten at once, others one at a time, never for another node.
pub(super) fn cluster_autoscaler(
    snapshot: &Snapshot,
    unneeded: &mut BTreeMap<String, u64>,
    last_launch_ms: Option<u64>,
    now_ms: u64,
    now: Timestamp,
) -> Answer {
    let options = PackOptions::default();
    let mut search = Search::new(snapshot, &options, now);
    let (mut found, _) = candidates(snapshot, DisruptionClass::Graceful, now);
    found.retain(|candidate| is_underused(snapshot, candidate.node));
    found.sort_by(|left, right| snapshot.node(left.node).name.cmp(&snapshot.node(right.node).name));
    let mut commands: Vec<(Candidate, Command)> = Vec::new();
    for candidate in found {
        let one = std::slice::from_ref(&candidate);
        let method = if candidate.pod_count() == 0 {
            Method::Emptiness
        } else {
            Method::SingleNodeConsolidation
        };
        if let Some(command) = search.without(one, method, false) {
            commands.push((candidate, command));
        }
    }
    let ids: BTreeSet<&str> = commands
        .iter()
        .map(|(candidate, _)| snapshot.node(candidate.node).provider_id.as_str())
        .collect();
    unneeded.retain(|id, _| ids.contains(id.as_str()));
    for id in ids {
        unneeded.entry(id.to_owned()).or_insert(now_ms);
    }
    let what_ifs = search.what_ifs;
    if last_launch_ms.is_some_and(|last| now_ms - last < UNNEEDED_MS) {
        return Answer {
            commands: Vec::new(),
            what_ifs,
        };
    }
    commands.retain(|(candidate, _)| {
        let since = unneeded.get(&snapshot.node(candidate.node).provider_id);
        since.is_some_and(|since| now_ms - since >= UNNEEDED_MS)
    });
    let empty = |(candidate, _): &&(Candidate, Command)| candidate.pod_count() == 0;
    let all_empty: Vec<Command> = commands
        .iter()
        .filter(empty)
        .take(MOST_EMPTY)
        .map(|(_, command)| command.clone())
        .collect();
    let commands = if all_empty.is_empty() {
        commands.into_iter().take(1).map(|(_, command)| command).collect()
    } else {
        all_empty
    };
    Answer { commands, what_ifs }
}

/// When the next node has been unneeded for long enough, after now.
pub(super) fn next_unneeded_ms(
    unneeded: &BTreeMap<String, u64>,
    last_launch_ms: Option<u64>,
    now_ms: u64,
) -> Option<u64> {
    let earliest = unneeded.values().map(|since| since + UNNEEDED_MS).min()?;
    let rested = last_launch_ms.map_or(0, |last| last + UNNEEDED_MS);
    let due = earliest.max(rested);
    (due > now_ms).then_some(due)
}

fn is_underused(snapshot: &Snapshot, node: NodeId) -> bool {
    let view = snapshot.node(node);
    [CPU, MEMORY].into_iter().all(|index| {
        let (used, total) = (
            i128::from(view.requested[index]),
            i128::from(view.allocatable[index]),
        );
        total > 0 && used * 2 < total
    })
}

/// The what-ifs of one turn.
struct Search<'a> {
    snapshot: &'a Snapshot,
    /// The packing of what is, with what provisioning is about to place.
    simulation: Simulation<'a>,
    /// What says whether a move is worth it, where a NodePool asks for that.
    balanced: Option<BalancedPools<'a>>,
    what_ifs: u64,
}

impl<'a> Search<'a> {
    fn new(snapshot: &'a Snapshot, options: &'a PackOptions, now: Timestamp) -> Self {
        let mut simulation = Simulation::new(snapshot, options);
        let (pending, _) = pending_pods(snapshot);
        let pods: BTreeSet<PodId> = pending.into_iter().chain(displaced_pods(snapshot, now)).collect();
        simulation.base(&pods.into_iter().collect::<Vec<_>>());
        Search {
            snapshot,
            simulation,
            balanced: None,
            what_ifs: 0,
        }
    }

    /// The longest prefix that can be consolidated, by halving (D-159).
    fn longest_prefix(&mut self, found: &[Candidate]) -> Option<Command> {
        let set = &found[..found.len().min(MOST_OF_A_SET)];
        let mut best = None;
        let (mut least, mut most) = (2, set.len());
        while least <= most {
            let middle = usize::midpoint(least, most);
            match self.approved(&set[..middle], Method::MultiNodeConsolidation) {
                Some(command) => {
                    best = Some(command);
                    least = middle + 1;
                }
                None => most = middle - 1,
            }
        }
        best
    }

    /// The first node that can be consolidated alone; what could not be worth it takes none of the time (D-177).
    fn first_single(&mut self, found: &[Candidate]) -> Option<Command> {
        let pools = self.balanced.as_ref();
        let may = |candidate: &&Candidate| pools.is_none_or(|pools| pools.may_approve(candidate));
        let tried: Vec<&Candidate> = found.iter().filter(may).take(MOST_SINGLE).collect();
        tried.into_iter().find_map(|candidate| {
            let one = std::slice::from_ref(candidate);
            self.approved(one, Method::SingleNodeConsolidation)
        })
    }

    /// The command that takes these nodes away, if all NodePools that weigh what is saved find it worth the disruption (D-176).
    fn approved(&mut self, set: &[Candidate], method: Method) -> Option<Command> {
        let command = self.without(set, method, true)?;
        let pools = self.balanced.as_ref();
        pools
            .is_none_or(|pools| pools.approves(set, command.savings()))
            .then_some(command)
    }

    /// The command that takes these nodes away, if their pods have places and it makes the cluster cheaper.
    fn without(&mut self, set: &[Candidate], method: Method, may_replace: bool) -> Option<Command> {
        self.what_ifs += 1;
        let (snapshot, simulation) = (self.snapshot, &mut self.simulation);
        let fork = simulation.fork();
        set.iter()
            .for_each(|candidate| simulation.remove_node(candidate.node));
        let pods: Vec<PodId> = set
            .iter()
            .flat_map(|candidate| candidate.moving(snapshot).into_owned())
            .collect();
        let placed = simulation.place(&pods);
        let most = usize::from(may_replace);
        let packing =
            (placed.is_complete() && placed.claims_opened <= most).then(|| simulation.packing_since(&fork));
        simulation.revert(fork);
        let packing = packing?;
        let before: Price = set.iter().map(|candidate| candidate.price).sum();
        let mut replacements = Vec::new();
        for mut claim in packing.placements.claims.clone() {
            let all_spot = set.iter().all(|candidate| {
                let capacity_type = snapshot.node(candidate.node).labels.get(labels::CAPACITY_TYPE);
                capacity_type.is_some_and(|text| text == CapacityType::Spot.as_str())
            });
            claim.launches.retain(|launch| launch.price < before);
            let first = claim.launches.first()?;
            // Without the feature gate, spot nodes are not replaced by spot nodes.
            if all_spot && first.capacity_type == Some(CapacityType::Spot) {
                return None;
            }
            let price = first.price;
            replacements.push(Replacement::of(snapshot, claim, price));
        }
        let moves = Arc::new(moves(snapshot, &packing.placements, &pods));
        Some(Command {
            method,
            nodes: set
                .iter()
                .map(|candidate| CommandNode::of(snapshot, candidate.node))
                .collect(),
            price_before: before,
            price_after: replacements.iter().map(|replacement| replacement.price).sum(),
            replacements,
            moves,
        })
    }
}

fn moves(
    snapshot: &Snapshot,
    placements: &spokeshave_model::placement::Placements,
    pods: &[PodId],
) -> Vec<Move> {
    let mut to: BTreeMap<PodId, Destination> = BTreeMap::new();
    for (node, placed) in &placements.existing {
        let view = snapshot.node(*node);
        for pod in placed {
            let destination = Destination::Node {
                name: view.name.clone(),
                provider_id: view.provider_id.clone(),
            };
            to.insert(*pod, destination);
        }
    }
    for (index, claim) in placements.claims.iter().enumerate() {
        for pod in &claim.pods {
            to.insert(*pod, Destination::Replacement(index));
        }
    }
    let moved = pods.iter().filter_map(|pod| {
        let view = snapshot.pod(*pod);
        Some(Move {
            pod: view.key(),
            uid: view.uid().to_owned(),
            from: snapshot.node(view.node?).name.clone(),
            to: to.get(pod)?.clone(),
        })
    });
    moved.collect()
}
