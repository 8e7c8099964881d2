//! What a shadow would disrupt, beside what is disrupted, and what the cluster would cost at rest.
//!
//! A command is looked at twice, as an operator does. Then it counts, and for a while its nodes are held as if it were being carried out, so that others are
//! found, too; nothing is carried out, so that in the end the state is the other's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{Conditioned as _, DISRUPTION_REASON};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Price, lower, pod};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disrupt::{
    BudgetMapping, Command, Frontier, Kept, Verdict, disrupt, disrupt_keeping, is_calm, validate,
};
use spokeshave_runtime::{Change, Shutdown};

use super::{Gone, Ledger, Opinion, Side};
use crate::reconcile::disruption::{pools_of, problems_of};
use crate::state::cluster::Cluster;
use crate::state::frozen::Inputs;

/// Pause between two looks.
const POLL: std::time::Duration = spokeshave_api::constants::DISRUPTION_POLL;
/// How long the nodes of a decided command are held; about what a command takes.
const HELD: SignedDuration = SignedDuration::from_mins(5);
/// The price at rest is worked out this often at most, and so that it takes a tenth of the time at most: it needs a pass for each command.
const REST_EVERY: SignedDuration = SignedDuration::from_secs(10);
const REST_SHARE: i32 = 10;
/// Nodes are judged this often at most: judging all of them costs more than the decisions.
const JUDGED_EVERY: SignedDuration = SignedDuration::from_secs(30);
/// Most commands on the way to rest.
const MOST_COMMANDS: usize = 50;

/// A command that was decided.
struct Decided {
    command: Command,
    object: Arc<Disruption>,
    budgets: Vec<BudgetMapping>,
    /// How it is looked at again; `None` once that has been.
    second_look: Option<SecondLook>,
    /// Until when its nodes are held.
    until: Timestamp,
}

impl Decided {
    fn due(&self) -> Option<Timestamp> {
        self.second_look.as_ref().map(|look| look.due)
    }
}

/// What is kept of a command for its second look.
struct SecondLook {
    due: Timestamp,
    /// Its NodePools were at rest when it was decided.
    is_calm: bool,
}

/// What the loop remembers.
#[derive(Default)]
struct Thread {
    decided: Vec<Decided>,
    /// NodePools of which a command that moves pods has been confirmed since commands began to wait: beside an operator that has decided the same, pods come and
    /// go there because of it.
    moving: BTreeSet<String>,
    frontier: Frontier,
    /// Answers of the last pass.
    kept: Kept,
    seen: Option<(Arc<Inputs>, u64)>,
    /// What the price at rest was worked out from, and when it may be again.
    rested: Option<(Arc<Inputs>, Timestamp)>,
    judged: Option<Timestamp>,
}

/// What is known of the other's NodeClaims.
#[derive(Default)]
struct Others {
    /// NodeClaims whose price is not known yet: name and NodePool.
    unpriced: BTreeMap<String, String>,
    /// What this operator thinks of nodes, by provider ID.
    opinions: BTreeMap<String, Opinion>,
    /// Nodes with the taint of a command, by provider ID.
    tainted: BTreeSet<String>,
}

/// Decides about disruption.
pub(super) struct Moves {
    cluster: Arc<Cluster>,
    ledger: Arc<Mutex<Ledger>>,
    others: Mutex<Others>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Moves {
    pub(super) fn new(cluster: Arc<Cluster>, ledger: Arc<Mutex<Ledger>>) -> Arc<Self> {
        let this = Arc::new(Self {
            cluster,
            ledger,
            others: Mutex::default(),
        });
        let claims = &this.cluster.stores.node_claims;
        // What is there already comes as an arrival, and is nobody's doing.
        let known: BTreeSet<String> = claims.keys().into_iter().map(|key| key.name).collect();
        let on_claim = this.clone();
        claims.on_change(move |change| on_claim.look_at(change, &known));
        let on_node = this.clone();
        let nodes = &this.cluster.stores.nodes;
        nodes.on_change(move |change| on_node.look_at_node(change));
        this
    }

    /// Which Nodes a command of the other has tainted: before 1.2 Karpenter wrote nothing else that tells a disruption from another end.
    fn look_at_node(&self, change: &Change<Node>) {
        let spec = change.object().and_then(|node| node.spec.as_ref());
        let Some(id) = spec.and_then(|spec| spec.provider_id.as_ref()) else {
            return;
        };
        let mut others = lock(&self.others);
        match &change.new {
            // Whatever ends a Node taints it, too.
            Some(node) if node.metadata.deletion_timestamp.is_some() => {}
            Some(node) if is_tainted(node) => {
                others.tainted.insert(id.clone());
            }
            _ => {
                others.tainted.remove(id);
            }
        }
    }

    /// What the other does to a NodeClaim.
    fn look_at(&self, change: &Change<NodeClaim>, known: &BTreeSet<String>) {
        let Some(claim) = change.object() else { return };
        let Some(pool) = claim.node_pool().filter(|_| self.cluster.is_ours(claim)) else {
            return;
        };
        let Some(old) = &change.old else {
            if !known.contains(claim.name()) {
                lock(&self.ledger).launched(Side::Other, pool);
                lock(&self.others)
                    .unpriced
                    .insert(claim.name().to_owned(), pool.to_owned());
            }
            return;
        };
        let goes = |claim: &NodeClaim| claim.is_deleting() || claim.is_true(DISRUPTION_REASON);
        if goes(old) || !change.new.as_deref().is_none_or(goes) {
            return;
        }
        let Some(id) = claim.provider_id() else { return };
        let node = claim.node_name().unwrap_or_else(|| claim.name());
        let is_tainted = lock(&self.others).tainted.contains(id);
        let reason = match claim.true_condition(DISRUPTION_REASON) {
            Some(condition) => condition.reason.clone(),
            None if is_tainted => "disrupted".to_owned(),
            None => {
                lock(&self.ledger).ended_otherwise(id, node, pool);
                return;
            }
        };
        let pods = self.cluster.stores.pods_by_node.get(node);
        let gone = Gone {
            provider_id: id.to_owned(),
            node: node.to_owned(),
            pool: pool.to_owned(),
            reason,
            pods: pods.iter().filter(|pod| pod::is_reschedulable(pod)).count(),
        };
        let opinion = lock(&self.others).opinions.get(id).cloned();
        lock(&self.ledger).was_disrupted(&gone, opinion.as_ref(), self.cluster.now());
    }

    /// Works until shutdown.
    pub(super) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let mut thread = Thread::default();
        loop {
            self.turn(&mut thread).await;
            let now = self.cluster.now();
            let due = thread.decided.iter().filter_map(Decided::due).min();
            let wait = due.map_or(POLL, |due| self.cluster.clock.until(due).min(POLL));
            tracing::trace!(?wait, %now, "the shadow rests");
            if shutdown.cut(self.cluster.clock.sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    async fn turn(&self, thread: &mut Thread) {
        let now = self.cluster.now();
        self.let_go(thread, now);
        self.second_looks(thread, now).await;
        let inputs = Arc::new(self.cluster.inputs(&objects(&thread.decided)).await);
        let number = match thread.seen.take() {
            Some((seen, number)) if seen.is_same(&inputs) => number,
            Some((_, number)) => number + 1,
            None => 0,
        };
        thread.seen = Some((inputs.clone(), number));
        thread.frontier.version = Some(number);
        if !thread.frontier.is_settled(now) {
            self.pass(thread, &inputs, now);
        }
        self.come_to_rest(thread, now).await;
    }

    /// Forgets commands whose nodes are held no more: the other has acted, or their time is over.
    fn let_go(&self, thread: &mut Thread, now: Timestamp) {
        let claims = &self.cluster.stores.node_claims;
        let is_there = |name: &str| claims.get_named(name).is_some_and(|claim| !claim.is_deleting());
        thread
            .decided
            .retain(|one| one.until > now && one.command.nodes.iter().all(|node| is_there(&node.node_claim)));
    }

    async fn second_looks(&self, thread: &mut Thread, now: Timestamp) {
        let is_due = |one: &Decided| one.due().is_some_and(|due| due <= now);
        let (due, others): (Vec<Decided>, Vec<Decided>) =
            std::mem::take(&mut thread.decided).into_iter().partition(is_due);
        thread.decided = others;
        for one in due {
            let stands = self.look_again(thread, one).await;
            thread.decided.extend(stands);
        }
        if thread.decided.iter().all(|one| one.second_look.is_none()) {
            thread.moving.clear();
        }
    }

    /// The second look at a command that has waited for it: the command as it stands now, or nothing.
    async fn look_again(&self, thread: &mut Thread, one: Decided) -> Option<Decided> {
        // Commands that wait were decided after this one, with its pods in their places: they have no say in whether it stands.
        let confirmed = thread.decided.iter().filter(|one| one.second_look.is_none());
        let snapshot = self.cluster.snapshot_with(&objects(confirmed)).await;
        let now = self.cluster.now();
        let policy = &self.cluster.policy;
        let pools = pools_of(&one.command);
        let was_calm = one.second_look.is_some_and(|look| look.is_calm);
        let is_news = was_calm && !pools.is_subset(&thread.moving);
        if is_news && !is_calm(&snapshot, policy, &one.command, now) {
            tracing::debug!(
                command = one.command.text("rejected"),
                "pods came or went since it was decided; it is decided again once they have come to rest"
            );
            return None;
        }
        let Some(command) = validate(&one.command, &snapshot, policy, now).command else {
            thread.frontier.failed(&one.command, now);
            return None;
        };
        let moves_pods = !command.moves.is_empty();
        let stands = self.confirm(thread, &snapshot, command, &one.budgets, now)?;
        if moves_pods {
            thread.moving.extend(pools);
        }
        Some(stands)
    }

    /// One pass on the state as it is.
    fn pass(&self, thread: &mut Thread, inputs: &Arc<Inputs>, now: Timestamp) {
        let snapshot = self.cluster.snapshot_of(inputs.clone());
        self.price_launches(&snapshot);
        let again = thread.judged.map_or(now, |judged| after(judged, JUDGED_EVERY));
        let mut policy = Policy::clone(&self.cluster.policy);
        policy.disrupt.verdicts = again <= now;
        let Thread { frontier, kept, .. } = thread;
        let outcome = disrupt_keeping(&snapshot, &policy, now, frontier, kept, &mut |_| {});
        thread.frontier = outcome.frontier;
        if policy.disrupt.verdicts {
            thread.judged = Some(now);
            self.remember(&snapshot, &outcome.verdicts);
        } else {
            thread.frontier.rest_until(again);
        }
        for command in outcome.commands {
            if !command.method.is_validated() {
                let confirmed = self.confirm(thread, &snapshot, command, &outcome.budgets, now);
                thread.decided.extend(confirmed);
                continue;
            }
            let delay = SignedDuration::try_from(self.cluster.policy.validation_delay)
                .unwrap_or(SignedDuration::ZERO);
            thread.decided.push(Decided {
                object: Arc::new(record(&snapshot, &command, &outcome.budgets, now)),
                second_look: Some(SecondLook {
                    due: after(now, delay),
                    is_calm: is_calm(&snapshot, &self.cluster.policy, &command, now),
                }),
                until: after(now, HELD),
                budgets: outcome.budgets.clone(),
                command,
            });
        }
    }

    /// A command that stands: it counts.
    fn confirm(
        &self,
        thread: &mut Thread,
        snapshot: &Snapshot,
        command: Command,
        budgets: &[BudgetMapping],
        now: Timestamp,
    ) -> Option<Decided> {
        let object = Arc::new(record(snapshot, &command, budgets, now));
        let text = command.text(object.name());
        let mut ledger = lock(&self.ledger);
        if let Some(problem) = problems_of(snapshot, &command, now).first() {
            tracing::error!(
                command = text,
                problem,
                "the command breaks a rule and counts for nothing"
            );
            ledger.refused(&text, problem, now);
            thread.frontier.refused(&command, now);
            return None;
        }
        tracing::info!(command = text, "would disrupt");
        let mut is_new = false;
        for node in &command.nodes {
            is_new |= ledger.would_disrupt(
                &Gone {
                    provider_id: node.provider_id.clone(),
                    node: node.node.clone(),
                    pool: node.pool.clone(),
                    reason: format!("{}: {}", command.method.reason(), command.decision().as_str()),
                    pods: node.reschedulable_pods,
                },
                now,
            );
        }
        for replacement in command.replacements.iter().filter(|_| is_new) {
            ledger.launched(Side::Shadow, &replacement.pool);
            ledger.launch_price(Side::Shadow, &replacement.pool, replacement.price);
        }
        Some(Decided {
            object,
            budgets: budgets.to_vec(),
            second_look: None,
            until: after(now, HELD),
            command,
        })
    }

    /// What the other's NodeClaims cost, once their instances are known.
    fn price_launches(&self, snapshot: &Snapshot) {
        let mut unpriced = std::mem::take(&mut lock(&self.others).unpriced);
        if unpriced.is_empty() {
            return;
        }
        let claims = &self.cluster.stores.node_claims;
        let prices: BTreeMap<&str, Price> = snapshot
            .nodes
            .iter()
            .filter_map(|node| Some((node.claim_name()?, node.price)))
            .collect();
        unpriced.retain(|name, pool| {
            let Some(claim) = claims.get_named(name) else {
                return false;
            };
            if claim.provider_id().is_none() {
                return true;
            }
            if let Some(price) = prices.get(name.as_str()) {
                lock(&self.ledger).launch_price(Side::Other, pool, *price);
            }
            false
        });
        lock(&self.others).unpriced.extend(unpriced);
    }

    fn remember(&self, snapshot: &Snapshot, verdicts: &[Verdict]) {
        if verdicts.is_empty() {
            return;
        }
        let opinions = verdicts.iter().map(|verdict| {
            let opinion = Opinion {
                goes: !verdict.is_keep(),
                text: match verdict.blockers.first() {
                    Some(blocker) => blocker.message.clone(),
                    None => verdict.decision_text().to_owned(),
                },
            };
            (snapshot.node(verdict.node).provider_id.clone(), opinion)
        });
        lock(&self.others).opinions = opinions.collect();
    }

    /// What the cluster costs, and what it would cost if every command were carried out that this operator would find, one after the other.
    async fn come_to_rest(&self, thread: &mut Thread, now: Timestamp) {
        let inputs = Arc::new(self.cluster.inputs(&[]).await);
        let rested = thread.rested.as_ref();
        let is_known = rested.is_some_and(|(seen, again)| seen.is_same(&inputs) || now < *again);
        if is_known {
            lock(&self.ledger).price(self.cluster.prices.sum(), None);
            return;
        }
        let mut policy = Policy::clone(&self.cluster.policy);
        policy.disrupt.verdicts = false;
        policy.disrupt.rounds = false;
        let (mut saved, mut commands, mut nodes) = (Price::ZERO, Vec::new(), BTreeSet::new());
        let mut price = None;
        while commands.len() < MOST_COMMANDS {
            let inputs = self.cluster.inputs(&commands).await;
            let mut state = self.cluster.cluster_state(&inputs);
            for pool in &mut state.node_pools {
                *pool = Arc::new(with_open_budgets(pool));
            }
            // Nor does it matter how many nodes a wave takes at once.
            state.disruptions = self.cluster.ledger(&[]);
            let snapshot = lower(&state);
            price.get_or_insert_with(|| snapshot.nodes.iter().map(|node| node.price).sum());
            let outcome = disrupt(&snapshot, &policy, now, &Frontier::default());
            let before = nodes.len();
            for command in &outcome.commands {
                saved = saved.saturating_add(command.savings());
                nodes.extend(command.nodes.iter().map(|node| node.provider_id.clone()));
                commands.push(Arc::new(record(&snapshot, command, &outcome.budgets, now)));
            }
            if nodes.len() == before {
                break;
            }
        }
        let price = price.unwrap_or_default();
        lock(&self.ledger).price(price, Some((price.saturating_sub(saved), nodes.len())));
        let finished = self.cluster.now();
        let pause = (finished.duration_since(now) * REST_SHARE).max(REST_EVERY);
        thread.rested = Some((inputs, after(finished, pause)));
    }
}

fn objects<'a>(decided: impl IntoIterator<Item = &'a Decided>) -> Vec<Arc<Disruption>> {
    decided.into_iter().map(|one| one.object.clone()).collect()
}

fn is_tainted(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let mut taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    taints.any(|taint| taint.key == labels::DISRUPTED_TAINT_KEY)
}

fn after(now: Timestamp, time: SignedDuration) -> Timestamp {
    now.saturating_add(time).unwrap_or(Timestamp::MAX)
}

/// The NodePool with budgets that bound nothing, except those that are closed: how many at once does not matter to where it ends.
fn with_open_budgets(pool: &NodePool) -> NodePool {
    let mut pool = pool.clone();
    let budgets = &mut pool.spec.disruption.budgets;
    for budget in budgets.iter_mut().flatten() {
        if !matches!(budget.nodes.as_str(), "0" | "0%") {
            "100%".clone_into(&mut budget.nodes);
        }
    }
    // An empty list means no limit (D-183); none at all, 10 %.
    budgets.get_or_insert_default();
    pool
}
