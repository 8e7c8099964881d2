//! What is known of the cluster: its objects, the few facts that live in memory only, and the Snapshot that planning sees of both.
//!
//! Owns when a Snapshot is made again. It decides nothing and writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::disruption::{DisruptedNode, Disruption};
use spokeshave_api::{DisruptionReason, NodeClaim, NodePool, labels};
use spokeshave_model::Pod;
use spokeshave_model::snapshot::{InstanceTypesProblem, Snapshot};
use spokeshave_model::volumes::VolumeObjects;
use spokeshave_model::{ClusterState, Distress, Nomination, Revocable, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{kept_until, revocable};
use spokeshave_plan::in_flight::stand_in_id;
use spokeshave_plan::pool_conditions::CannotLaunch;
use spokeshave_plan::static_pools::template_claim;
use spokeshave_ports::{CloudError, CloudProvider, SharedClock};
use spokeshave_runtime::{Counter, Object, Store};

use crate::act::error::ExecuteError;
use crate::cloud::Measured;
use crate::options::Options;
use crate::state::changes::as_seen;
use crate::state::distress::Failures;
use crate::state::frozen::{Frozen, Inputs, InstanceTypes};
use crate::state::memory::{AssignedPod, Created, Memory, Prices};
use crate::state::node_classes::NodeClasses;
use crate::state::store_list::Versions;
use crate::state::stores::Stores;
use crate::state::virtual_pods::VirtualPods;

/// What is known of the cluster, and the Snapshot that is made of it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) stores: Stores,
    pub(crate) node_classes: NodeClasses,
    /// What CapacityBuffers stand for.
    pub(crate) virtual_pods: VirtualPods,
    /// What has failed lately, as circuit breakers see it.
    pub(crate) failures: Failures,
    pub(crate) created: Created,
    pub(crate) prices: Prices,
    memory: Mutex<Memory>,
    /// The cloud, which knows instance types; `cloud.of("name")` for calls of one controller.
    pub(crate) cloud: Measured,
    pub(crate) clock: SharedClock,
    pub(crate) options: Options,
    pub(crate) policy: Policy,
    /// The last Snapshot.
    frozen: Frozen,
    pub(super) snapshots_made: Counter,
    /// When this term of leadership began.
    pub(crate) started: Timestamp,
}

/// How long planning waits for claims of a predecessor, whose pods are not known, to get their instances.
const PREDECESSOR_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Debug builds compare Snapshots that took changes in up to this size with ones that are lowered.
#[cfg(debug_assertions)]
const PODS_TO_COMPARE: usize = 100;

impl Cluster {
    /// Nothing is known yet. Snapshots are counted.
    pub(crate) fn new(
        stores: Stores,
        cloud: Measured,
        failures: Failures,
        clock: SharedClock,
        options: &Options,
        snapshots_made: Counter,
    ) -> Self {
        Self {
            stores,
            node_classes: NodeClasses::new(),
            virtual_pods: VirtualPods::default(),
            failures,
            created: Created::default(),
            prices: Prices::default(),
            memory: Mutex::default(),
            cloud,
            started: clock.now(),
            clock,
            policy: options.policy(),
            options: options.clone(),
            frozen: Frozen::default(),
            snapshots_made,
        }
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// True when the claim's NodeClass is one of this cloud's.
    pub(crate) fn is_ours(&self, claim: &NodeClaim) -> bool {
        let class = &claim.spec.node_class_ref;
        self.cloud
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
                && !self.created.contains(claim.name())
                && claim.annotation(labels::DISRUPTION).is_none()
                && now.duration_since(begun) < PREDECESSOR_GRACE;
        });
        awaits
    }

    /// The NodeClaims as planning sees them: those without an instance as stand-ins, and so those that a command has yet to make, from the
    /// moment it is decided: whatever is decided before they exist must leave room for them under the limits (invariant 15).
    fn planned_claims(&self, inputs: &Inputs) -> Vec<Arc<NodeClaim>> {
        let mut claims = self.stores.node_claims.snapshot();
        claims.extend(self.unmade_claims(&inputs.pending));
        claims
            .into_iter()
            .filter(|claim| self.is_ours(claim))
            .map(|claim| self.planned_claim(claim, inputs))
            .collect()
    }

    /// How often everything that a Snapshot is made of has changed.
    pub(super) fn versions(&self) -> Versions {
        let mut versions = self.stores.versions();
        versions.others += self.virtual_pods.changes(&self.stores.buffers);
        versions
    }

    /// Freezes what is known into a Snapshot.
    pub(crate) async fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot_with(&[]).await
    }

    /// Freezes what is known, and some commands that are not written down yet as if they were.
    ///
    /// While nothing of it has changed, everybody gets the same Snapshot.
    pub(crate) async fn snapshot_with(&self, pending: &[Arc<Disruption>]) -> Arc<Snapshot> {
        self.snapshot_of(Arc::new(self.inputs(pending).await))
    }

    /// The Snapshot that is made of these inputs: the last one, with what has changed taken in, where that is possible.
    pub(crate) fn snapshot_of(&self, inputs: Arc<Inputs>) -> Arc<Snapshot> {
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
                self.snapshots_made.inc(&[]);
                self.lower_all(&inputs)
            }
        };
        let snapshot = Arc::clone(taken.live.snapshot());
        self.refresh_prices(&snapshot);
        frozen.keep(inputs, taken);
        snapshot
    }

    /// Freezes what is known, as if nothing were for sale in zones in which nodes do not join; `None` while no NodePool avoids a zone.
    pub(crate) async fn snapshot_where_nodes_join(&self) -> Option<Snapshot> {
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
            let found = match self.cloud.instance_types(pool).await {
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
        let in_command = self.held_nodes(pending);
        // The pods of all of them need a new place: their replacements are planned with whether they exist or not (D-098).
        let marked_for_deletion = in_command.clone();
        let revocable = self.revocable(pending);
        let replacement_nodes = self.replacement_nodes();
        let promised = self.promised_pods();
        let (nominations, assigned, claims_with_room, withdrawn) = {
            let mut memory = self.memory();
            let withdrawn = memory.promises.withdrawn(&promised, now);
            memory.nominations.retain(|_, until| *until > now);
            let claims = &self.stores.node_claims;
            let waits = |name: &String| {
                claims
                    .get_named(name)
                    .is_some_and(|claim| claim.provider_id().is_none())
            };
            memory.assigned.retain(|name, _| waits(name));
            self.created.retain(waits);
            let mut nominations: BTreeMap<String, Nomination> = memory
                .nominations
                .iter()
                .map(|(id, until)| (id.clone(), Nomination { until: *until }))
                .collect();
            for (id, until) in replacement_nodes {
                let known = nominations.entry(id).or_insert(Nomination { until });
                known.until = known.until.max(until);
            }
            let (mut assigned, mut claims_with_room) = (BTreeMap::new(), BTreeSet::new());
            for (name, pods) in &memory.assigned {
                match claims.get_named(name) {
                    Some(claim) if pods.iter().all(|pod| self.still_waits(pod)) => {
                        let stand_in: Arc<str> = stand_in_id(claim.uid()).into();
                        assigned.extend(pods.iter().map(|pod| (pod.uid.clone(), Arc::clone(&stand_in))));
                    }
                    _ => _ = claims_with_room.insert(name.clone()),
                }
            }
            (nominations, assigned, claims_with_room, withdrawn)
        };
        Inputs {
            versions,
            pending: pending.to_vec(),
            instance_types,
            nominations,
            assigned,
            withdrawn,
            claims_with_room,
            in_command,
            marked_for_deletion,
            revocable,
            distress: if self.stores.disruption_policies.is_empty() {
                Distress::default()
            } else {
                self.failures.distress(self.cloud.price_feed())
            },
            owners_unknown: self.stores.owners.are_unknown(&self.stores.disruption_policies),
        }
    }

    /// The pods to which somebody else has promised a node. O(of these).
    fn promised_pods(&self) -> Vec<Arc<Pod>> {
        let promised = &self.stores.pods_by_promised_node;
        let nodes = promised.values();
        nodes.iter().flat_map(|node| promised.get(node)).collect()
    }

    /// Whether a pod still waits for the NodeClaim that was made for it. One on a node that goes does not: it is planned for as long as it is there,
    /// and another takes its place later.
    fn still_waits(&self, pod: &AssignedPod) -> bool {
        let Some(key) = &pod.key else { return true };
        let current = self.stores.pods.get(key);
        current.is_some_and(|current| {
            current.metadata.uid.as_deref() == Some(&pod.uid)
                && spokeshave_model::planned_node::is_provisionable(&current)
        })
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

    /// The pods as planning sees them, in order: those that a NodeClaim was made for already are on its stand-in.
    fn planned_pods(&self, inputs: &Inputs) -> Vec<Arc<Pod>> {
        let pods = self.stores.pods.snapshot();
        let pods = self.virtual_pods.join(pods, &self.stores.buffers);
        pods.into_iter().map(|pod| as_seen(pod, inputs)).collect()
    }

    pub(crate) fn cluster_state(&self, inputs: &Inputs) -> ClusterState {
        ClusterState {
            nodes: self.stores.nodes.snapshot(),
            pods: self.planned_pods(inputs),
            daemon_sets: self.stores.daemon_sets.snapshot(),
            pod_disruption_budgets: self.stores.pod_disruption_budgets.snapshot(),
            namespaces: self.stores.namespaces.snapshot(),
            volumes: self.volumes(),
            default_spread: self
                .stores
                .spread
                .default_spread(&self.options.scheduler_profiles),
            scheduler_profiles: Arc::clone(&self.options.scheduler_profiles),
            node_pools: self.stores.node_pools.snapshot(),
            node_claims: self.planned_claims(inputs),
            instance_types: inputs.instance_types.clone(),
            supported_node_classes: self
                .cloud
                .supported_node_classes()
                .iter()
                .map(|kind| (kind.group.clone(), kind.kind.clone()))
                .collect(),
            nominations: inputs.nominations.clone(),
            marked_for_deletion: inputs.marked_for_deletion.clone(),
            revocable: inputs.revocable.clone(),
            in_command: inputs.in_command.clone(),
            owner_annotations: self.stores.owners.annotations(),
            stateful_sets: self.stores.owners.ordinals(&self.stores.disruption_policies),
            owners_unknown: inputs.owners_unknown,
            distress: inputs.distress.clone(),
            disruptions: self.ledger(&inputs.pending),
            disruption_policies: self.stores.disruption_policies.snapshot(),
        }
    }

    /// The commands that policies look back on. One for drift is among them from its decision on, as it is where it is written down at once: a shadow never
    /// writes it, and whose nodes somebody else has taken meanwhile counts as the other's.
    pub(crate) fn ledger(&self, pending: &[Arc<Disruption>]) -> Vec<Arc<Disruption>> {
        if self.stores.disruption_policies.is_empty() {
            return Vec::new();
        }
        let mut ledger = self.stores.disruptions.snapshot();
        let unwritten = for_drift(pending).filter(|one| !takes_of(&ledger, one));
        let unwritten: Vec<Arc<Disruption>> = unwritten.cloned().collect();
        ledger.extend(unwritten);
        ledger
    }

    /// Nodes in commands, by provider ID. A command that is only pending counts as carried out.
    pub(crate) fn held_nodes(&self, pending: &[Arc<Disruption>]) -> BTreeSet<String> {
        let mut held = BTreeSet::new();
        let mut add = |disruption: &Disruption| {
            let ids = disruption.spec.nodes.iter().map(|node| node.provider_id.clone());
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
        held
    }

    /// Commands, under way or pending, that may yet be taken back: NodePools' limits must hold either way (invariant 15).
    fn revocable(&self, pending: &[Arc<Disruption>]) -> Vec<Revocable> {
        let claim = |name: &str| self.stores.node_claims.get_named(name);
        let mut found = Vec::new();
        self.stores.disruptions.for_each(|_, command| {
            if !command.is_finished() {
                found.extend(revocable(command, claim));
            }
        });
        found.extend(pending.iter().filter_map(|command| revocable(command, claim)));
        found
    }

    /// Nodes that have come for the pods of a command under way, by provider ID: they are kept for them, but not for as long as one drain hangs.
    fn replacement_nodes(&self) -> Vec<(String, Timestamp)> {
        let mut names = Vec::new();
        self.stores.disruptions.for_each(|_, disruption| {
            if !disruption.is_finished() {
                let until = kept_until(disruption);
                let replacements = disruption.spec.replacements.iter();
                names.extend(replacements.map(|one| (one.node_claim.clone(), until)));
            }
        });
        let id = |(name, until): (String, Timestamp)| {
            let claim = self.stores.node_claims.get_named(&name)?;
            Some((claim.provider_id()?.to_owned(), until))
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
            unsupported: self.cloud.unsupported_volumes(),
        }
    }

    /// Keeps a node for pods that are expected on it (D-027).
    pub(crate) fn nominate(&self, provider_id: &str) {
        let until = self.policy.nominated_until(self.now());
        self.memory().nominations.insert(provider_id.to_owned(), until);
    }

    fn refresh_prices(&self, snapshot: &Snapshot) {
        let nodes = snapshot.nodes.iter();
        let prices = nodes.filter_map(|node| Some((node.claim_name()?, node.price)));
        self.prices.refresh(prices, |name| {
            let claim = self.stores.node_claims.get_named(name);
            claim.is_some_and(|claim| claim.provider_id().is_some())
        });
    }

    /// Invariant 24: what was refused at once is not asked for again at once.
    pub(crate) fn launch_refused(&self, claim: &NodeClaim, message: &str) {
        let now = self.now();
        self.memory().launches.failed(claim, message, now);
    }

    /// A NodeClaim that came to be and cannot be read counts as refused: nobody sees it in the next look, and one more would be created in each. One
    /// that was not created has not asked the cloud, and its try is given back. Where nobody knows whether it was, the try keeps its pause: what the cloud says to it
    /// counts by itself, and there is one at a time.
    pub(crate) fn creation_failed(&self, claim: &NodeClaim, error: &ExecuteError) {
        if error.is_unreadable() {
            self.launch_refused(claim, &error.to_string());
        } else if !error.may_exist() {
            let now = self.now();
            self.memory().launches.give_back(claim, now);
        }
    }

    /// Why a NodePool with a fixed number of nodes gets none, while the cloud refuses them.
    pub(crate) async fn launch_trouble(&self, pool: &NodePool) -> Option<CannotLaunch> {
        // Its labels are of no account here.
        let claim = template_claim(pool, &[]);
        let trouble = self.memory().launches.trouble(&claim).cloned()?;
        let types = self.cloud.instance_types(pool).await.ok();
        Some(CannotLaunch::of(pool, &trouble, types.as_deref(), self.now()))
    }
}

/// Those of some commands that are for drift. Among commands that wait for a second look there are none.
pub(super) fn for_drift(commands: &[Arc<Disruption>]) -> impl Iterator<Item = &Arc<Disruption>> {
    commands
        .iter()
        .filter(|one| one.spec.reason == DisruptionReason::Drifted)
}

/// Whether a command of the ledger has taken nodes of another, and was not taken back.
fn takes_of(ledger: &[Arc<Disruption>], other: &Disruption) -> bool {
    let is_of_other = |node: &DisruptedNode| {
        let mut nodes = other.spec.nodes.iter();
        nodes.any(|own| own.provider_id == node.provider_id)
    };
    ledger
        .iter()
        .any(|one| one.is_counted() && one.spec.nodes.iter().any(is_of_other))
}
