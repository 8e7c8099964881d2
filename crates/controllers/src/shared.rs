//! What all controllers share: stores, the writer, the cloud, and the few facts that live in memory only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_model::Pod;
use spokeshave_model::snapshot::{InstanceTypesProblem, Snapshot};
use spokeshave_model::volumes::VolumeObjects;
use spokeshave_model::{ClusterState, Distress, Nomination, NotBegun, Price, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::in_flight::stand_in_id;
use spokeshave_plan::launch_backoff::LaunchBackoff;
use spokeshave_plan::registration_health::{Outcome, Ring};
use spokeshave_plan::unjoined_zones::avoided_event;
use spokeshave_plan::vain_launches::VainLaunches;
use spokeshave_ports::{CloudError, CloudProvider, SharedClock};
use spokeshave_runtime::{Object, Store};

use crate::act::execute::Execute;
use crate::cloud::Measured;
use crate::observe::blocked::Told;
use crate::observe::decision::{Decision, DecisionKind, DecisionLog};
use crate::observe::metrics::ControllerFamilies;
use crate::observe::pod_times::PodTimes;
use crate::options::Options;
use crate::state::distress::Failures;
use crate::state::frozen::{Frozen, Inputs, InstanceTypes};
use crate::state::node_classes::NodeClasses;
use crate::state::store_list::Versions;
use crate::state::stores::Stores;
use crate::state::virtual_pods::VirtualPods;

/// Facts in memory. A restart loses them, and each says why that is harmless.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Until when nodes are kept for pods that are expected on them, by provider ID. Lost: the next pass nominates again.
    pub(crate) nominations: BTreeMap<String, Timestamp>,
    /// Pods that a NodeClaim without provider ID was made for, by UID, under the claim's name. Lost: planning waits a moment for such claims to
    /// launch, and then takes their requests as room for the pods.
    pub(crate) assigned: BTreeMap<String, BTreeSet<String>>,
    /// The last outcomes of launches, by UID of the NodePool. Lost: its condition tells the gist (P-182).
    pub(crate) health: BTreeMap<String, Ring>,
    /// What the cloud has refused lately. Lost: each is tried once more.
    pub(crate) launches: LaunchBackoff,
    /// Nodes that came up in vain. Lost: the next two come at once.
    pub(crate) vain: VainLaunches,
    /// What instances cost per hour, by NodeClaim. Lost: the next Snapshot tells.
    prices: Prices,
    /// The scheduling run that is under way, and since when.
    scheduling: Option<(String, Timestamp)>,
}

/// Prices by NodeClaim, with their sum, which is asked for with every decision.
#[derive(Debug, Default)]
struct Prices {
    by_claim: BTreeMap<String, Price>,
    sum: Price,
}

impl Prices {
    fn insert(&mut self, claim: &str, price: Price) {
        let before = self.by_claim.insert(claim.to_owned(), price).unwrap_or_default();
        self.sum = self.sum.saturating_sub(before).saturating_add(price);
    }

    fn remove(&mut self, claim: &str) -> Price {
        let price = self.by_claim.remove(claim).unwrap_or_default();
        self.sum = self.sum.saturating_sub(price);
        price
    }

    fn replace(&mut self, fresh: BTreeMap<String, Price>) {
        self.sum = fresh.values().copied().sum();
        self.by_claim = fresh;
    }
}

/// What all controllers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stores: Stores,
    pub(crate) execute: Execute,
    /// What has failed lately, as circuit breakers see it.
    pub(crate) failures: Failures,
    /// The cloud, for calls that belong to no controller in particular.
    pub(crate) provider: Arc<dyn CloudProvider>,
    /// The cloud, for calls of one controller: `cloud.of("name")`.
    pub(crate) cloud: Measured,
    pub(crate) clock: SharedClock,
    pub(crate) options: Options,
    pub(crate) policy: Policy,
    pub(crate) families: ControllerFamilies,
    pub(crate) node_classes: NodeClasses,
    pub(crate) decisions: DecisionLog,
    pub(crate) memory: Mutex<Memory>,
    /// How long pods take.
    pub(crate) pod_times: PodTimes,
    /// The last Snapshot.
    pub(crate) frozen: Frozen,
    /// What CapacityBuffers stand for.
    pub(crate) virtual_pods: VirtualPods,
    /// When people were last told what holds up a termination.
    pub(crate) told: Told,
    /// When this term of leadership began.
    pub(crate) started: Timestamp,
}

/// How long planning waits for claims of a predecessor, whose pods are not known, to get their instances.
const PREDECESSOR_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Debug builds compare Snapshots that took changes in up to this size with ones that are lowered.
#[cfg(debug_assertions)]
const PODS_TO_COMPARE: usize = 100;

impl Shared {
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Notes the scheduling run that is under way, for metrics.
    pub(crate) fn scheduling(&self, run: Option<(&str, Timestamp)>) {
        self.memory().scheduling = run.map(|(run, since)| (run.to_owned(), since));
    }

    /// The scheduling run that is under way, and since when.
    pub(crate) fn under_way(&self) -> Option<(String, Timestamp)> {
        self.memory().scheduling.clone()
    }

    /// True when the claim's NodeClass is one of this cloud's.
    pub(crate) fn is_ours(&self, claim: &NodeClaim) -> bool {
        let class = &claim.spec.node_class_ref;
        self.provider
            .supported_node_classes()
            .iter()
            .any(|kind| kind.group == class.group && kind.kind == class.kind)
    }

    /// True while NodeClaims that this process did not plan are about to launch. Their pods are not known, so planning waits a moment; a claim
    /// that takes longer than that delays no other (W-22).
    pub(crate) fn awaits_predecessor(&self) -> bool {
        let now = self.now();
        let mut awaits = false;
        self.stores.node_claims.for_each(|_, claim| {
            let begun = claim
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(self.started, |time| time.0.max(self.started));
            awaits |= claim.provider_id().is_none()
                && !claim.is_deleting()
                && claim.node_pool().is_some()
                && self.is_ours(claim)
                && !self.execute.has_created(claim.name())
                && claim.annotation(labels::DISRUPTION).is_none()
                && now.duration_since(begun) < PREDECESSOR_GRACE;
        });
        awaits
    }

    /// The NodeClaims as planning sees them: those without an instance as stand-ins, and so those that a command has yet to make, from the
    /// moment it is decided: whatever is decided before they exist must leave room for them under the limits (invariant 15).
    fn planned_claims(
        &self,
        instance_types: &InstanceTypes,
        pending: &[Arc<Disruption>],
    ) -> Vec<Arc<NodeClaim>> {
        let mut claims = self.stores.node_claims.snapshot();
        claims.extend(self.unmade_claims(pending));
        claims
            .into_iter()
            .filter(|claim| self.is_ours(claim))
            .map(|claim| self.planned_claim(claim, instance_types))
            .collect()
    }

    /// How often everything that a Snapshot is made of has changed.
    fn versions(&self) -> Versions {
        let mut versions = self.stores.versions();
        versions.pods += self.virtual_pods.changes(&self.stores.buffers);
        versions
    }

    /// Freezes what is known into a Snapshot.
    pub(crate) async fn freeze(&self) -> Arc<Snapshot> {
        self.freeze_with(&[]).await
    }

    /// Freezes what is known, and some commands that are not written down yet as if they were.
    ///
    /// While nothing of it has changed, everybody gets the same Snapshot.
    pub(crate) async fn freeze_with(&self, pending: &[Arc<Disruption>]) -> Arc<Snapshot> {
        self.freeze_from(Arc::new(self.inputs(pending).await))
    }

    /// The Snapshot that is made of these inputs: the last one, with what has changed taken in, where that is possible.
    pub(crate) fn freeze_from(&self, inputs: Arc<Inputs>) -> Arc<Snapshot> {
        let mut frozen = self.frozen.lock();
        if let Some(known) = frozen.find(&inputs) {
            return known;
        }
        let patched = frozen.take().and_then(|(known, mut taken)| {
            let is_current = self.take_in(&mut taken, &known, &inputs);
            is_current.then_some(taken)
        });
        let taken = match patched {
            Some(taken) => {
                #[cfg(debug_assertions)]
                self.compare(taken.live.snapshot(), &inputs);
                taken
            }
            None => {
                self.families.snapshots_made.inc(&[]);
                self.lower_all(&inputs)
            }
        };
        let snapshot = Arc::clone(taken.live.snapshot());
        self.refresh_prices(&snapshot);
        frozen.keep(inputs, taken);
        snapshot
    }

    /// Freezes what is known, as if nothing were for sale in zones in which nodes do not join; `None` while no NodePool avoids a zone.
    pub(crate) async fn freeze_where_nodes_join(&self) -> Option<Snapshot> {
        let now = self.now();
        let mut pools = self.stores.node_pools.snapshot();
        pools.retain(|pool| self.cloud.zones().avoids(pool.name(), now));
        if pools.is_empty() {
            return None;
        }
        let mut inputs = self.inputs(&[]).await;
        let mut differs = false;
        for pool in pools {
            if let Some(Ok(types)) = inputs.instance_types.get_mut(pool.name())
                && let Some(elsewhere) = self.cloud.zones().elsewhere(&pool, types, now)
            {
                *types = elsewhere;
                differs = true;
            }
        }
        differs.then(|| lower(&self.cluster_state(&inputs)))
    }

    /// What every NodePool can launch, by its name.
    async fn instance_types(&self) -> InstanceTypes {
        let mut instance_types = InstanceTypes::new();
        for pool in &self.stores.node_pools.snapshot() {
            let found = match self.provider.instance_types(pool).await {
                Ok(types) if types.is_empty() => Err(InstanceTypesProblem::Failed(
                    "the cloud offers no instance types".to_owned(),
                )),
                Ok(types) => Ok(types),
                Err(CloudError::UnevaluatedNodePool(_)) => Err(InstanceTypesProblem::Unevaluated),
                Err(error) => Err(InstanceTypesProblem::Failed(error.to_string())),
            };
            instance_types.insert(pool.name().to_owned(), found);
        }
        instance_types
    }

    /// What a Snapshot is made of now.
    pub(crate) async fn inputs(&self, pending: &[Arc<Disruption>]) -> Inputs {
        let versions = self.versions();
        let instance_types = self.instance_types().await;
        let now = self.now();
        let (in_command, marked_for_deletion) = self.held_nodes(pending);
        let replacement_nodes = self.replacement_nodes();
        let (nominations, assigned) = {
            let mut memory = self.memory();
            memory.nominations.retain(|_, until| *until > now);
            let claims = &self.stores.node_claims;
            let waits = |name: &String| {
                claims
                    .get_named(name)
                    .is_some_and(|claim| claim.provider_id().is_none())
            };
            memory.assigned.retain(|name, _| waits(name));
            self.execute.retain_created(waits);
            let mut nominations: BTreeMap<String, Nomination> = memory
                .nominations
                .iter()
                .map(|(id, until)| (id.clone(), Nomination { until: *until }))
                .collect();
            nominations.extend(replacement_nodes.into_iter().map(|id| {
                (
                    id,
                    Nomination {
                        until: Timestamp::MAX,
                    },
                )
            }));
            let assigned: BTreeSet<String> = memory.assigned.values().flatten().cloned().collect();
            (nominations, assigned)
        };
        Inputs {
            versions,
            pending: pending.to_vec(),
            instance_types,
            nominations,
            assigned,
            in_command,
            marked_for_deletion,
            distress: if self.stores.disruption_policies.is_empty() {
                Distress::default()
            } else {
                self.failures.distress(self.provider.price_feed())
            },
            owners_unknown: self.stores.owners.are_unknown(&self.stores.disruption_policies),
        }
    }

    /// A Snapshot that took changes in must say what one says that is lowered. Where stores have changed meanwhile, nothing can be said.
    #[cfg(debug_assertions)]
    fn compare(&self, snapshot: &Snapshot, inputs: &Inputs) {
        if snapshot.pods.len() <= PODS_TO_COMPARE {
            let anew = lower(&self.cluster_state(inputs));
            let differs = *snapshot != anew && self.versions().is_same(&inputs.versions);
            let differences = if differs {
                crate::state::frozen::differences(snapshot, &anew)
            } else {
                Vec::new()
            };
            assert!(
                differences.is_empty(),
                "a Snapshot that took changes in differs from one that is lowered in {}",
                differences.join(", ")
            );
        }
    }

    /// The pods as planning sees them, in order: without those that a NodeClaim was made for already.
    fn planned_pods(&self, assigned: &BTreeSet<String>) -> Vec<Arc<Pod>> {
        let pods = self.stores.pods.snapshot();
        let mut pods = self.virtual_pods.join(pods, &self.stores.buffers);
        if !assigned.is_empty() {
            pods.retain(|pod| {
                !(spokeshave_model::pod::is_provisionable(pod)
                    && pod
                        .metadata
                        .uid
                        .as_ref()
                        .is_some_and(|uid| assigned.contains(uid)))
            });
        }
        pods
    }

    pub(crate) fn cluster_state(&self, inputs: &Inputs) -> ClusterState {
        ClusterState {
            nodes: self.stores.nodes.snapshot(),
            pods: self.planned_pods(&inputs.assigned),
            daemon_sets: self.stores.daemon_sets.snapshot(),
            pod_disruption_budgets: self.stores.pod_disruption_budgets.snapshot(),
            namespaces: self.stores.namespaces.snapshot(),
            volumes: self.volumes(),
            default_spread: self.stores.spread.default_spread(&self.options.default_spread),
            node_pools: self.stores.node_pools.snapshot(),
            node_claims: self.planned_claims(&inputs.instance_types, &inputs.pending),
            instance_types: inputs.instance_types.clone(),
            supported_node_classes: self
                .provider
                .supported_node_classes()
                .iter()
                .map(|kind| (kind.group.clone(), kind.kind.clone()))
                .collect(),
            nominations: inputs.nominations.clone(),
            marked_for_deletion: inputs.marked_for_deletion.clone(),
            not_begun: inputs.pending.iter().map(|one| not_begun(one)).collect(),
            in_command: inputs.in_command.clone(),
            owner_annotations: self.stores.owners.annotations(),
            owners_unknown: inputs.owners_unknown,
            distress: inputs.distress.clone(),
            disruptions: self.ledger(),
            disruption_policies: self.stores.disruption_policies.snapshot(),
        }
    }

    /// The commands that policies look back on.
    pub(crate) fn ledger(&self) -> Vec<Arc<Disruption>> {
        if self.stores.disruption_policies.is_empty() {
            Vec::new()
        } else {
            self.stores.disruptions.snapshot()
        }
    }

    /// Nodes in commands, by provider ID, and those of them whose pods need a new place: all, because their replacements are planned with
    /// whether they exist or not (D-098). A command that is only pending counts as carried out.
    pub(crate) fn held_nodes(&self, pending: &[Arc<Disruption>]) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut held, mut marked) = (BTreeSet::new(), BTreeSet::new());
        let mut add = |disruption: &Disruption| {
            let ids = disruption.spec.nodes.iter().map(|node| node.provider_id.clone());
            marked.extend(ids.clone());
            held.extend(ids);
        };
        self.stores.disruptions.for_each(|_, disruption| {
            if disruption.holds_nodes() {
                add(disruption);
            }
        });
        for disruption in pending {
            add(disruption);
        }
        (held, marked)
    }

    /// Nodes that have come for the pods of a command under way, by provider ID: they are kept for them.
    fn replacement_nodes(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.stores.disruptions.for_each(|_, disruption| {
            if !disruption.is_finished() {
                names.extend(
                    disruption
                        .spec
                        .replacements
                        .iter()
                        .map(|one| one.node_claim.clone()),
                );
            }
        });
        let id = |name: String| {
            let claim = self.stores.node_claims.get_named(&name)?;
            claim.provider_id().map(str::to_owned)
        };
        names.into_iter().filter_map(id).collect()
    }

    fn volumes(&self) -> VolumeObjects {
        fn named<K: Object>(store: &Store<K>, key: impl Fn(&K) -> String) -> BTreeMap<String, Arc<K>> {
            store
                .snapshot()
                .into_iter()
                .map(|object| (key(&object), object))
                .collect()
        }
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        VolumeObjects {
            claims: named(&self.stores.persistent_volume_claims, |claim| {
                format!(
                    "{}/{}",
                    text(&claim.metadata.namespace),
                    text(&claim.metadata.name)
                )
            }),
            volumes: named(&self.stores.persistent_volumes, |volume| {
                text(&volume.metadata.name)
            }),
            storage_classes: named(&self.stores.storage_classes, |class| text(&class.metadata.name)),
            csi_nodes: named(&self.stores.csi_nodes, |node| text(&node.metadata.name)),
            unsupported: self.provider.unsupported_volumes(),
        }
    }

    /// Keeps a node for pods that are expected on it (D-027).
    pub(crate) fn nominate(&self, provider_id: &str) {
        let window = SignedDuration::try_from(self.policy.nomination_window).unwrap_or(SignedDuration::ZERO);
        let until = self.now().saturating_add(window).unwrap_or(Timestamp::MAX);
        self.memory().nominations.insert(provider_id.to_owned(), until);
    }

    /// A claim without an instance keeps the price that it was planned at.
    fn refresh_prices(&self, snapshot: &Snapshot) {
        let claims = &self.stores.node_claims;
        let launched = |name: &str| {
            claims
                .get_named(name)
                .is_some_and(|claim| claim.provider_id().is_some())
        };
        let mut memory = self.memory();
        let fresh = snapshot.nodes.iter().filter_map(|node| {
            let name = node.claim_name()?;
            let planned = memory.prices.by_claim.get(name).copied().unwrap_or_default();
            let price = if launched(name) { node.price } else { planned };
            Some((name.to_owned(), price))
        });
        let fresh = fresh.collect();
        memory.prices.replace(fresh);
    }

    /// What all nodes cost per hour, by the cloud's own price list.
    pub(crate) fn cluster_price(&self) -> Price {
        self.memory().prices.sum
    }

    /// What the nodes of each NodePool cost per hour.
    pub(crate) fn pool_prices(&self) -> BTreeMap<String, Price> {
        let mut sums: BTreeMap<String, Price> = BTreeMap::new();
        for (name, price) in &self.memory().prices.by_claim {
            let claim = self.stores.node_claims.get_named(name);
            if let Some(pool) = claim.as_ref().and_then(|claim| claim.node_pool()) {
                let sum = sums.entry(pool.to_owned()).or_insert(Price::ZERO);
                *sum = sum.saturating_add(*price);
            }
        }
        sums
    }

    /// Notes what a planned NodeClaim will cost if the cloud has its cheapest offering.
    pub(crate) fn note_planned_price(&self, claim: &NodeClaim, price: Price) {
        self.memory().prices.insert(claim.name(), price);
    }

    /// Notes what a freshly launched instance costs, and returns it.
    pub(crate) async fn note_price(&self, claim: &NodeClaim) -> Price {
        let pool = claim
            .node_pool()
            .and_then(|name| self.stores.node_pools.get_named(name));
        let Some(pool) = pool else { return Price::ZERO };
        let Ok(types) = self.provider.instance_types(&pool).await else {
            self.families.cost_errors.inc(&[pool.name()]);
            return Price::ZERO;
        };
        let label = |key: &str| claim.label(key).unwrap_or_default();
        let price = types
            .iter()
            .find(|instance_type| instance_type.name == label(labels::INSTANCE_TYPE))
            .and_then(|instance_type| {
                instance_type.price_of(label(labels::ZONE), label(labels::CAPACITY_TYPE))
            });
        if price.is_none() {
            self.families.cost_errors.inc(&[pool.name()]);
        }
        let price = price.unwrap_or_default();
        self.memory().prices.insert(claim.name(), price);
        price
    }

    /// Notes that a NodeClaim is no more, and returns what it cost.
    pub(crate) fn forget_price(&self, claim: &NodeClaim) -> Price {
        self.memory().prices.remove(claim.name())
    }

    /// Takes in how a launch ended, for the health of its NodePool (P-182) and what is known of its zone: only of the NodePool that the claim was
    /// made from.
    pub(crate) fn note_outcome(&self, claim: &NodeClaim, outcome: Outcome) {
        let owners = claim.metadata.owner_references.iter().flatten();
        let pool = claim
            .node_pool()
            .and_then(|name| self.stores.node_pools.get_named(name))
            .filter(|pool| owners.into_iter().any(|owner| owner.uid == pool.uid()));
        let Some(pool) = pool else { return };
        match outcome {
            Outcome::Registered => self.cloud.zones().joined(claim, self.now()),
            Outcome::Failed { .. } => self.avoid_zone(claim, &pool),
        }
        self.memory()
            .health
            .entry(pool.uid().to_owned())
            .or_default()
            .record(outcome);
    }

    fn avoid_zone(&self, claim: &NodeClaim, pool: &NodePool) {
        if let Some(until) = self.cloud.zones().timed_out(claim, self.now()) {
            let zone = claim.label(labels::ZONE).unwrap_or_default();
            tracing::warn!(NodePool = pool.name(), zone, %until, "nodes do not join in this zone; other zones come first");
            self.execute.tell(&avoided_event(pool, zone, until));
        }
    }

    /// Counts a NodeClaim that is deleted by force (D-243).
    pub(crate) fn count_disrupted(&self, claim: &NodeClaim, reason: &str) {
        self.families
            .claims_disrupted
            .inc(&disrupted_labels(claim, reason));
    }

    /// Counts the pods that will have to move because a NodeClaim is deleted by force (D-243).
    pub(crate) fn count_initiated(&self, claim: &NodeClaim, reason: &str) {
        let nodes = claim
            .provider_id()
            .map(|id| self.stores.nodes_by_provider_id.get(id))
            .unwrap_or_default();
        let on_node = |node: &Arc<Node>| {
            self.stores
                .pods_by_node
                .get(node.metadata.name.as_deref().unwrap_or_default())
        };
        let pods = nodes.iter().flat_map(on_node);
        let pods = pods
            .filter(|pod| spokeshave_model::pod::is_reschedulable(pod))
            .count();
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        self.families
            .pods_disruption_initiated
            .add(&disrupted_labels(claim, reason), pods as f64);
    }

    /// Tells a decision to people, with what all nodes cost as far as known.
    pub(crate) fn note(
        &self,
        kind: DecisionKind,
        subject: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        price_change: Option<Price>,
    ) {
        let price = self.cluster_price();
        self.tell(kind, subject, what, why, price_change, price);
    }

    /// Tells a decision to people.
    pub(crate) fn tell(
        &self,
        kind: DecisionKind,
        subject: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        price_change: Option<Price>,
        cluster_price: Price,
    ) {
        self.decisions.tell(&Decision {
            time: self.now(),
            kind,
            subject: subject.to_owned(),
            what: what.into(),
            why: why.into(),
            price_change,
            cluster_price,
        });
    }
}

/// Reason, NodePool, capacity type, consolidation policy (none: it was by force), termination mode.
fn disrupted_labels<'a>(claim: &'a NodeClaim, reason: &'a str) -> [&'a str; 5] {
    [
        reason,
        claim.node_pool().unwrap_or_default(),
        claim.label(labels::CAPACITY_TYPE).unwrap_or_default(),
        "",
        termination_mode(claim),
    ]
}

/// D-244.
pub(crate) fn termination_mode(claim: &NodeClaim) -> &'static str {
    let grace = claim.spec.termination_grace_period.as_ref();
    match grace.map(spokeshave_api::GoDuration::nanoseconds) {
        None => "graceful",
        Some(nanoseconds) if nanoseconds <= 0 => "forceful",
        Some(_) => "eventual",
    }
}

/// A command that waits for its second look.
pub(crate) fn not_begun(disruption: &Disruption) -> NotBegun {
    let replacements = disruption.spec.replacements.iter();
    NotBegun {
        leaves: disruption
            .spec
            .nodes
            .iter()
            .map(|node| node.provider_id.clone())
            .collect(),
        comes: replacements.map(|one| stand_in_id(&one.node_claim)).collect(),
    }
}
