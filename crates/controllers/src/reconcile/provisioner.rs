//! Nodes for pods that do not fit (P §5): collect pods for a moment, freeze a Snapshot, plan, check the plan, create NodeClaims.

mod audited;
mod batcher;
mod passes;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::Pod;
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::planned_node::waits;
use spokeshave_model::snapshot::{PodId, PoolView, Snapshot};
use spokeshave_model::taint::same_taint;
use spokeshave_model::{Action, Plan, Price, pod};
use spokeshave_plan::buffers::{buffer_of, failed_event};
use spokeshave_plan::launch_backoff::Admission;
use spokeshave_plan::preferences::{Hindrance, hindrances};
use spokeshave_plan::vain_launches::{Askers, Pause};
use spokeshave_plan::{Provisioned, limit_exceeded, pending_pods, provision_by_zone, report};
use spokeshave_runtime::{ObjectKey, Shutdown};

use self::audited::Decision;
use self::batcher::Batcher;
use self::reports::Reports;
use crate::act::error::ExecuteError;
use crate::act::hands::Hands;
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::observe::repeats::Repeats;
use crate::reconcile::nominations::{self, Names, is_nomination};
use crate::state::cluster::Cluster;
use crate::state::memory::AssignedPod;
use crate::state::vain_launches::asking_pods;

/// Pods that stay pending are planned for again after so long (P-052).
const RETRIGGER: Duration = Duration::from_secs(10);

/// A pod's preference is warned of again after so long (P-072).
const WARN_AGAIN: SignedDuration = SignedDuration::from_hours(24);

/// Pods by the zone they will be in.
type Zones = BTreeMap<String, Vec<PodId>>;

/// Planned NodeClaims of a NodePool that are not created before the same time, because the cloud has refused such lately.
#[derive(Default)]
struct BackedOff {
    claims: usize,
    pods: usize,
}

/// The provisioner.
#[derive(Debug)]
pub(crate) struct Provisioner {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    pub(crate) batcher: Batcher,
    /// Numbers the scheduling runs.
    runs: AtomicU64,
    /// When a line was written about a pod's preference, by UID. Lost: it is written once more.
    warned: Mutex<BTreeMap<(String, Hindrance), Timestamp>>,
    /// Lines that each pass would write again.
    lines: Mutex<Repeats>,
    /// What passes leave to be written while the next ones go on. Lost: the next pass decides it anew.
    names: Names,
    reports: Reports,
}

impl Provisioner {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Arc<Self> {
        let this = Arc::new(Self {
            cluster,
            hands,
            journal,
            batcher: Batcher::default(),
            runs: AtomicU64::new(1),
            warned: Mutex::default(),
            lines: Mutex::default(),
            names: Names::default(),
            reports: Reports::default(),
        });
        let on_pod = this.clone();
        this.cluster.stores.pods.on_change(move |change| {
            if !is_nomination(change.old.as_deref(), change.new.as_deref()) {
                on_pod.look_at_pod(change.new.as_deref());
            }
            on_pod.names.hear(&on_pod.cluster, change);
        });
        let on_end = this.clone();
        this.cluster.stores.pods.on_change(move |change| {
            if let Some(pod) = change.new.as_deref().or(change.old.as_deref()) {
                on_end.cluster.memory().vain.ran(pod, on_end.cluster.now());
            }
        });
        let on_node = this.clone();
        this.cluster
            .stores
            .nodes
            .on_change(move |change| on_node.look_at_node(change.new.as_deref()));
        this
    }

    /// Asks for a pass now: whoever waits for it has not the time for a window.
    pub(crate) fn urge(&self, id: &str) {
        self.batcher.urge(id);
    }

    fn look_at_pod(&self, pod: Option<&Pod>) {
        // Whether what somebody else has named for it stands is for the pass to find out.
        if let Some(pod) = pod
            && waits(pod)
        {
            self.batcher
                .trigger(pod.metadata.uid.as_deref().unwrap_or_default());
        }
    }

    fn look_at_node(&self, node: Option<&Node>) {
        let disrupted = labels::disrupted_taint();
        if let Some(node) = node
            && node
                .spec
                .iter()
                .filter_map(|spec| spec.taints.as_ref())
                .flatten()
                .any(|taint| same_taint(taint, &disrupted))
        {
            self.batcher
                .trigger(node.metadata.uid.as_deref().unwrap_or_default());
        }
    }

    /// Triggers again for everything that still waits.
    fn retrigger(&self) {
        self.cluster
            .stores
            .pods
            .for_each(|_, pod| self.look_at_pod(Some(pod)));
        self.cluster
            .stores
            .nodes
            .for_each(|_, node| self.look_at_node(Some(node)));
    }

    /// Works until shutdown.
    pub(crate) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        tokio::select! {
            biased;
            () = self.run_passes(&shutdown) => {}
            () = self.names.write(&self.cluster, &self.hands) => {}
            () = self.reports.write(&self.hands) => {}
        }
    }

    /// One pass after the other, until shutdown.
    async fn run_passes(&self, shutdown: &Shutdown) {
        self.retrigger();
        while shutdown.cut(self.wait()).await.is_some() {
            if self.cluster.awaits_predecessor() {
                // Claims of a predecessor: their pods are known again once they have an instance.
                self.batcher.clear();
                let _ = shutdown
                    .cut(self.cluster.clock.sleep(Duration::from_secs(1)))
                    .await;
                self.retrigger();
                continue;
            }
            self.batcher.clear();
            self.pass().await;
        }
    }

    /// Completes when the window after the first trigger closes.
    async fn wait(&self) {
        let clock = &self.cluster.clock;
        while self.batcher.is_empty() {
            tokio::select! {
                biased;
                () = self.batcher.fresh.notified() => {}
                () = clock.sleep(RETRIGGER) => self.retrigger(),
            }
            if self.batcher.is_empty() {
                self.count_none();
            }
        }
        let options = &self.cluster.options;
        self.batcher
            .close(clock, options.batch_idle_duration, options.batch_max_duration)
            .await;
    }

    /// Decides about the pods that are meant, counts those that are ignored, and tells the zone they will be in.
    fn decide(&self, snapshot: &Snapshot, is_meant: impl Fn(PodId) -> bool) -> (Provisioned, Zones) {
        let started = self.cluster.now();
        let run = self.runs.fetch_add(1, Ordering::Relaxed).to_string();
        let labels = ["provisioner", run.as_str()];
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        self.journal
            .families
            .queue_depth
            .set(&labels, waiting(snapshot) as f64);
        self.journal.scheduling(Some((&run, started)));
        let (outcome, zones) = provision_by_zone(snapshot, &self.cluster.policy, started, is_meant);
        self.journal.scheduling(None);
        self.journal.families.queue_depth.remove(&labels);
        self.journal
            .families
            .scheduling_duration
            .observe(&["provisioner"], self.cluster.clock.since(started).as_secs_f64());
        let ignored = outcome
            .ignored
            .iter()
            .filter(|(pod, _)| !snapshot.pod(*pod).is_virtual);
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        self.journal
            .families
            .ignored_pods
            .set(&[], ignored.count() as f64);
        (outcome, zones)
    }

    /// Tells of what was decided and makes it true. Returns how many pods that exist wait for NodeClaims that are held up.
    async fn carry_out(&self, snapshot: &Snapshot, decision: Decision) -> usize {
        let Decision { outcome, refused, .. } = decision;
        let outcome = &outcome;
        if outcome.pods.is_empty() {
            let names = self.follow_names(snapshot, outcome).await;
            self.names.add(names);
            return 0;
        }
        let failed = outcome.unschedulable.iter().map(|one| one.pod);
        let failed: BTreeSet<PodId> = failed.chain(refused.keys().copied()).collect();
        for pod in outcome.real_pods(snapshot) {
            let uid = snapshot.pod(pod).uid();
            self.journal.pod_times.decided(uid, !failed.contains(&pod));
        }
        self.warn_of_preferences(snapshot, outcome, self.cluster.now());
        self.report(snapshot, outcome);
        self.tell_of_refused(snapshot, &refused);
        let plan = outcome.plan(snapshot, &self.cluster.policy);
        for event in &plan.events {
            self.hands.tell(event);
        }
        for (node, _) in outcome.nominated_nodes(snapshot) {
            self.cluster.nominate(&snapshot.node(node).provider_id);
        }
        let stores = &self.cluster.stores;
        self.journal.landings.decided(snapshot, outcome, stores);
        let names = self.follow_names(snapshot, outcome).await;
        let held_up = self.create(snapshot, outcome, &plan).await;
        // Thousands of pods may name nodes that are there already: neither NodeClaims nor the next pass wait for that.
        self.names.add(names);
        held_up
    }

    /// Takes names back that the plan does not bear out any more, and returns the new ones of nodes that are there.
    async fn follow_names(&self, snapshot: &Snapshot, outcome: &Provisioned) -> Vec<Action> {
        nominations::follow(&self.cluster, &self.hands, &self.names, snapshot, outcome).await
    }

    /// No pod waits: gauges of those that did would keep saying so, because without pods there is no pass.
    fn count_none(&self) {
        let families = &self.journal.families;
        families.unschedulable_pods.set(&["provisioner"], 0.0);
        families.ignored_pods.set(&[], 0.0);
        families.pods_by_effective_zone.replace_all(std::iter::empty());
    }

    /// P-072: a line in the log for pods whose preferences can keep nodes alive, at most once a day for each pod.
    fn warn_of_preferences(&self, snapshot: &Snapshot, outcome: &Provisioned, now: Timestamp) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.retain(|_, since| now.duration_since(*since) < WARN_AGAIN);
        let mut fresh: BTreeMap<Hindrance, Vec<String>> = BTreeMap::new();
        let pods = outcome.real_pods(snapshot);
        for (hindrance, pod) in hindrances(snapshot, &self.cluster.policy, &pods) {
            let view = snapshot.pod(pod);
            if warned.insert((view.uid().to_owned(), hindrance), now).is_none() {
                fresh.entry(hindrance).or_default().push(view.key());
            }
        }
        for (hindrance, pods) in fresh {
            tracing::info!(Pods = report::first_few(&pods, 5), "{}", hindrance.text());
        }
    }

    fn report(&self, snapshot: &Snapshot, outcome: &Provisioned) {
        let pods = outcome.real_pods(snapshot);
        if outcome.report.pending_pods > 0 {
            let names = report::first_pods(snapshot, &pods, 5);
            tracing::info!(Pods = names, "found provisionable pod(s)");
        }
        if !outcome.placements.claims.is_empty() {
            tracing::info!(
                nodeclaims = outcome.placements.claims.len(),
                pods = outcome.pods.len(),
                "computed new nodeclaim(s) to fit pod(s)"
            );
        }
        self.report_room(snapshot, outcome);
        let mut reasons: BTreeMap<Arc<str>, Vec<PodId>> = BTreeMap::new();
        for (unplaced, reason) in outcome.worded(snapshot, &self.cluster.policy) {
            reasons.entry(reason).or_default().push(unplaced.pod);
        }
        for (reason, mut pods) in reasons {
            pods.sort_unstable();
            let pods = report::first_pods(snapshot, &pods, 3);
            if !self.is_line_due(format!("{pods}: {reason}")) {
                continue;
            }
            tracing::error!(Pods = pods, error = &*reason, "could not schedule pod");
            self.journal.note(
                DecisionKind::Unschedulable,
                &pods,
                "cannot be placed",
                &*reason,
                None,
            );
        }
    }

    /// Whether a line that each pass would write is to be said again.
    fn is_line_due(&self, line: String) -> bool {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.is_due(line, self.cluster.now())
    }

    /// B-52: virtual pods without a place are told of on their buffer.
    fn report_room(&self, snapshot: &Snapshot, outcome: &Provisioned) {
        let mut reasons: BTreeMap<(String, Arc<str>), usize> = BTreeMap::new();
        for (pod, reason) in outcome.left_over() {
            if let Some(buffer) = buffer_of(snapshot, pod) {
                *reasons.entry((buffer, reason)).or_default() += 1;
            }
        }
        for ((buffer, reason), count) in reasons {
            tracing::debug!(
                CapacityBuffer = buffer,
                count,
                error = &*reason,
                "could not place virtual pod(s)"
            );
            let key = buffer.split_once('/').unwrap_or(("", &buffer));
            let known = self
                .cluster
                .stores
                .buffers
                .buffers
                .get(&ObjectKey::namespaced(key.0, key.1));
            if let Some(known) = known {
                self.hands.tell(&failed_event(&known, count, &reason));
            }
        }
    }

    /// P-065: creates what is planned, many at once; what fails is planned for again. Returns for how many pods that exist none is created for now, or
    /// the single try after others were refused, which is no node yet.
    async fn create(&self, snapshot: &Snapshot, outcome: &Provisioned, plan: &Plan) -> usize {
        let mut wanted = Vec::new();
        let mut held_up = 0;
        let mut backed_off: BTreeMap<(&str, Timestamp), BackedOff> = BTreeMap::new();
        self.cluster.begin_launches(snapshot, &outcome.placements);
        for (planned, action) in outcome.placements.claims.iter().zip(&plan.actions) {
            let Action::CreateNodeClaim { claim, reason } = action else {
                continue;
            };
            let view = snapshot.pool(planned.pool);
            if !self.may_grow(view) {
                continue;
            }
            if let Some(pauses) = self.cluster.waits_in_vain(snapshot, planned) {
                held_up += existing(snapshot, &planned.pods);
                for (pause, pod) in pauses {
                    self.tell_of_pause(&pause, &pod);
                }
                continue;
            }
            let admission = self.cluster.memory().launches.admit(claim, self.cluster.now());
            if admission != Admission::All {
                held_up += existing(snapshot, &planned.pods);
            }
            if let Admission::NotBefore(next) = admission {
                let alike = backed_off.entry((view.name.as_str(), next)).or_default();
                alike.claims += 1;
                alike.pods += planned.pods.len();
                continue;
            }
            wanted.push(((planned, reason), &**claim));
        }
        self.tell_of_back_offs(&backed_off);
        let done = |(planned, reason): (&PlannedClaim, &String),
                    claim: &NodeClaim,
                    created: Result<NodeClaim, ExecuteError>| {
            match created {
                Ok(created) => {
                    let launch = planned
                        .launches
                        .first()
                        .map_or(Price::ZERO, |launch| launch.price);
                    self.journal.note_planned_price(&created, launch);
                    self.created(snapshot, planned, &created, reason, launch);
                }
                Err(error) => {
                    let pool = &snapshot.pool(planned.pool).name;
                    tracing::error!(NodePool = pool, %error, "creating nodeclaim; its pods are planned for again");
                    self.cluster.creation_failed(claim, &error);
                }
            }
        };
        self.hands.create_claims(wanted, done).await;
        held_up
    }

    /// Virtual pods are told of on their buffer.
    fn tell_of_pause(&self, pause: &Pause, pod: &Pod) {
        let event = pause.event(pod);
        let (object, nodes) = (&event.object, pause.count);
        if self.is_line_due(format!("{object}: {nodes} nodes in vain")) {
            let key = format!("{}/{}", object.namespace, object.name);
            if pod::is_virtual(pod) {
                tracing::info!(CapacityBuffer = key, nodes, until = %pause.until, "nodes came up in vain for this capacitybuffer; the next one waits");
            } else {
                tracing::info!(pod = key, nodes, until = %pause.until, "nodes came up in vain for this pod; the next one waits");
            }
        }
        self.hands.tell(&event);
    }

    /// One line for all that waits for the same try, however many NodeClaims that is, and not one in every pass.
    fn tell_of_back_offs(&self, backed_off: &BTreeMap<(&str, Timestamp), BackedOff>) {
        for ((pool, next), BackedOff { claims, pods }) in backed_off {
            if self.is_line_due(format!("{pool}: not before {next}")) {
                tracing::info!(NodePool = pool, nodeclaims = claims, pods, %next, "the cloud has refused such nodeclaims lately; they are not created before the next try");
            }
        }
    }

    /// P-065: the NodePool as it is now, not as it was when the plan was made, still has room and a future.
    fn may_grow(&self, view: &PoolView) -> bool {
        let current = self.cluster.stores.node_pools.get_named(&view.name);
        let current = current.filter(|pool| pool.uid() == view.uid && !pool.is_deleting());
        let Some(current) = current else {
            tracing::info!(
                NodePool = view.name,
                "nodeclaim not created, the nodepool is being deleted"
            );
            return false;
        };
        match limit_exceeded(&current, &view.usage) {
            None => true,
            Some(exceeded) => {
                tracing::error!(NodePool = view.name, error = %exceeded, "nodeclaim not created");
                false
            }
        }
    }

    fn created(
        &self,
        snapshot: &Snapshot,
        planned: &PlannedClaim,
        created: &NodeClaim,
        reason: &str,
        launch: Price,
    ) {
        let pool = &snapshot.pool(planned.pool).name;
        let uids: Vec<AssignedPod> = planned
            .pods
            .iter()
            .map(|id| {
                let pod = snapshot.pod(*id);
                AssignedPod {
                    uid: pod.uid().to_owned(),
                    key: (!pod.is_virtual).then(|| ObjectKey::of(&*pod.object)),
                }
            })
            .collect();
        let mut known = Askers::default();
        let askers = asking_pods(snapshot, planned).map(|pod| known.of(pod)).collect();
        let now = self.cluster.now();
        let stores = &self.cluster.stores;
        self.journal.landings.assigned(created.name(), &uids, stores);
        let mut memory = self.cluster.memory();
        if self.cluster.options.nominate_pods {
            memory.expected.assigned(created.name(), &uids);
        }
        memory.assigned.insert(created.name().to_owned(), uids);
        memory.vain.launched(created.name(), askers, now);
        drop(memory);
        let relaxed = if planned.min_values_relaxed {
            "true"
        } else {
            "false"
        };
        self.journal.families.claims_created.inc(&[reason, pool, relaxed]);
        let types = report::first_few(&report::instance_type_names(snapshot, planned), 5);
        tracing::info!(
            NodePool = pool,
            NodeClaim = created.name(),
            requests = planned.requests.to_json_text(),
            "instance-types" = types,
            "created nodeclaim"
        );
        let told = report::planned_launch(snapshot, planned);
        self.journal.note(
            DecisionKind::Launch,
            created.name(),
            &told.what,
            &told.pods,
            Some(launch),
        );
        for id in planned.pods.iter().filter(|id| !snapshot.pod(**id).is_virtual) {
            let event = spokeshave_plan::nominated_event(snapshot, *id, Some(created.name()), None);
            self.hands.tell(&event);
        }
    }
}

/// How many of these pods exist.
fn existing<'a>(snapshot: &Snapshot, pods: impl IntoIterator<Item = &'a PodId>) -> usize {
    let pods = pods.into_iter();
    pods.filter(|pod| !snapshot.pod(**pod).is_virtual).count()
}

/// Pods that exist and wait for a place.
fn waiting(snapshot: &Snapshot) -> usize {
    let (pending, _) = pending_pods(snapshot);
    existing(snapshot, &pending)
}
