//! What a dump holds: workloads, and pods by the workload that made them.
//!
//! Owns the way from a pod to its owner, and from a dump to the timeline of a cluster that stays as it is. Several dumps in a row are the business of `dumps`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::Cron;

use super::crons::Crons;
use super::objects::{Budget, Meta, Object, Pod, Workload};
use super::redact::is_read;
use super::runs::{Ran, Runs};
use super::{Builder, ImportError, Key};
use crate::timeline::{Change, Owner, OwnerId, OwnerKind, Placement, Spread, Timeline};

/// From the start on a node until a pod is ready, which no dump says.
pub(crate) const READY: Spread = Spread {
    median_ms: 5_000,
    p99_ms: 20_000,
};
/// How long a Job is taken to run that has never been seen to end.
pub(crate) const RUNS_MS: u64 = 10 * 60_000;
/// Labels by which controllers distinguish versions of a template; a simulated owner has one template.
const VERSION_LABELS: [&str; 4] = [
    "pod-template-hash",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
];

/// The objects of one dump.
#[derive(Debug, Default, Clone)]
pub struct Inventory {
    workloads: BTreeMap<(String, String, String), Workload>,
    pods: BTreeMap<(String, String), Pod>,
    budgets: Vec<Budget>,
    newest: Option<Timestamp>,
}

/// Who made a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Maker {
    /// A workload.
    Of(Key),
    /// A DaemonSet, or a node's own: it comes with its node.
    Node,
}

impl Inventory {
    /// Adds an object; of two with one name the later one counts.
    pub fn add(&mut self, object: Object) {
        let meta = match &object {
            Object::Workload(workload) => Some(&workload.meta),
            Object::Pod(pod) => Some(&pod.meta),
            _ => None,
        };
        self.newest = self.newest.max(meta.and_then(|meta| meta.creation_timestamp));
        match object {
            Object::Workload(workload) => {
                let key = (
                    workload.kind.clone(),
                    workload.meta.namespace().to_owned(),
                    workload.meta.name().to_owned(),
                );
                self.workloads.insert(key, *workload);
            }
            Object::Pod(pod) => {
                let key = (pod.meta.namespace().to_owned(), pod.meta.name().to_owned());
                self.pods.insert(key, *pod);
            }
            Object::Budget(budget) => {
                self.budgets
                    .retain(|known| (&known.namespace, &known.name) != (&budget.namespace, &budget.name));
                self.budgets.push(budget);
            }
            Object::Other => {}
        }
    }

    /// Whether there is neither a workload nor a pod.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.pods.is_empty()
    }

    /// When the newest workload or pod was made.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// The PodDisruptionBudgets.
    #[must_use]
    pub fn budgets(&self) -> &[Budget] {
        &self.budgets
    }

    /// The workloads of a kind in a namespace, by kind, namespace and name.
    pub(crate) fn workloads_of(
        &self,
        kind: &str,
        namespace: &str,
    ) -> impl Iterator<Item = &(String, String, String)> {
        let from = (kind.to_owned(), namespace.to_owned(), String::new());
        let all = self.workloads.range(from..).map(|(key, _)| key);
        all.take_while(move |key| key.0 == kind && key.1 == namespace)
    }

    /// What had to be assumed, in sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let runs = self.runs_of_jobs();
        let mut crons = Crons::default();
        let scheduled = self
            .top_workloads()
            .into_iter()
            .filter(|(key, workload)| when(&mut crons, key, workload).is_some());
        let unknown: Vec<String> = scheduled
            .filter(|(key, _)| !runs.contains_key(key))
            .map(|((_, namespace, name), _)| format!("{namespace}/{name}"))
            .collect();
        let mut notes = crons.notes();
        if let Some(first) = unknown.first() {
            let more = match unknown.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            notes.push(format!(
                "no finished run of CronJob {first}{more} is in the dump: each run is taken to last {} minutes",
                RUNS_MS / 60_000
            ));
        }
        notes
    }

    /// Pods by their owner; those of nodes are left out.
    pub(crate) fn pods_by_owner(&self) -> BTreeMap<Key, Vec<&Pod>> {
        let mut found: BTreeMap<Key, Vec<&Pod>> = BTreeMap::new();
        for pod in self.pods.values() {
            if let Maker::Of((kind, namespace, name)) = self.maker_of(pod) {
                // One that is managed by something else has the name of that.
                let own = pod.meta.controller().filter(|owner| owner.name == name);
                let name = match own {
                    Some(owner) => self.called(&owner.kind, &namespace, &name),
                    None => name,
                };
                found.entry((kind, namespace, name)).or_default().push(pod);
            }
        }
        found
    }

    /// Workloads that no other workload of the dump makes, by key.
    pub(crate) fn top_workloads(&self) -> BTreeMap<Key, &Workload> {
        let top = self.workloads.values().filter_map(|workload| {
            let kind = match workload.kind.as_str() {
                "Deployment" | "ReplicaSet" | "ReplicationController" => OwnerKind::Deployment,
                "StatefulSet" => OwnerKind::StatefulSet,
                _ => OwnerKind::Job,
            };
            let made = workload.meta.controller().is_some();
            let namespace = workload.meta.namespace();
            let name = self.called(&workload.kind, namespace, workload.meta.name());
            (!made).then_some(((kind, namespace.to_owned(), name), workload))
        });
        top.collect()
    }

    /// What the owner of a workload is called. A ReplicaSet or ReplicationController counts as a Deployment, and one of its name may be beside it, as while the
    /// one takes the place of the other.
    fn called(&self, kind: &str, namespace: &str, name: &str) -> String {
        let mut called = name.to_owned();
        let (others, suffix) = match kind {
            "ReplicaSet" => (&["Deployment"][..], "-rs"),
            "ReplicationController" => (&["Deployment", "ReplicaSet"][..], "-rc"),
            _ => return called,
        };
        let is_there = |kind: &str, name: &str| {
            let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
            self.workloads.contains_key(&key)
        };
        while others.iter().any(|other| is_there(other, &called))
            || (called != name && is_there(kind, &called))
        {
            called.push_str(suffix);
        }
        called
    }

    /// Who made a pod: through its ReplicaSet or Job, also when that is not in the dump.
    pub(crate) fn maker_of(&self, pod: &Pod) -> Maker {
        let namespace = pod.meta.namespace();
        let Some(owner) = pod.meta.controller() else {
            return Maker::Of((OwnerKind::Bare, namespace.to_owned(), pod.meta.name().to_owned()));
        };
        let key = |kind: OwnerKind, name: &str| Maker::Of((kind, namespace.to_owned(), name.to_owned()));
        let known = |kind: &str| {
            let key = (kind.to_owned(), namespace.to_owned(), owner.name.clone());
            self.workloads
                .get(&key)
                .and_then(|workload| workload.meta.controller())
        };
        match owner.kind.as_str() {
            "DaemonSet" | "Node" => Maker::Node,
            "ReplicaSet" => match known("ReplicaSet") {
                Some(above) => key(OwnerKind::Deployment, &above.name),
                None => key(OwnerKind::Deployment, without_hash(&owner.name, &pod.meta)),
            },
            "StatefulSet" => key(OwnerKind::StatefulSet, &owner.name),
            "Job" => match known("Job") {
                Some(above) => key(OwnerKind::Job, &above.name),
                None => key(OwnerKind::Job, without_time(&owner.name)),
            },
            // Any other controller makes its pods again, too.
            _ => key(OwnerKind::Deployment, &owner.name),
        }
    }

    /// Whether a pod is of a ReplicaSet that something other than a Deployment manages, such as a Rollout.
    pub(crate) fn is_of_a_stranger(&self, pod: &Pod) -> bool {
        let Some(owner) = pod.meta.controller() else {
            return false;
        };
        let key = (
            owner.kind.clone(),
            pod.meta.namespace().to_owned(),
            owner.name.clone(),
        );
        let above = self.workloads.get(&key).and_then(|set| set.meta.controller());
        above.is_some_and(|above| above.own_kind() != "Deployment")
    }

    /// For how long pods of Jobs ran, by the CronJob that made these, or else by the Job.
    fn runs_of_jobs(&self) -> BTreeMap<Key, Vec<u64>> {
        // By namespace and name of the Job, with the name of what made it.
        let mut jobs: BTreeMap<(&str, &str), (String, Ran<'_>)> = BTreeMap::new();
        for job in self.workloads.values().filter(|workload| workload.kind == "Job") {
            let above = job
                .meta
                .controller()
                .map_or(job.meta.name(), |owner| owner.name.as_str());
            let ran = Ran {
                job: Some(job),
                pods: Vec::new(),
            };
            jobs.insert((job.meta.namespace(), job.meta.name()), (above.to_owned(), ran));
        }
        for pod in self.pods.values() {
            if let Maker::Of((OwnerKind::Job, _, above)) = self.maker_of(pod)
                && let Some(job) = pod.meta.controller()
            {
                let key = (pod.meta.namespace(), job.name.as_str());
                let (_, ran) = jobs.entry(key).or_insert_with(|| (above, Ran::default()));
                ran.pods.push(pod);
            }
        }
        let mut found: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
        for ((namespace, _), (above, ran)) in jobs {
            let cron = ("CronJob".to_owned(), namespace.to_owned(), above);
            let lengths = ran.lengths(self.workloads.get(&cron));
            if !lengths.is_empty() {
                let (_, namespace, above) = cron;
                let key = (OwnerKind::Job, namespace, above);
                found.entry(key).or_default().extend(lengths);
            }
        }
        found
    }

    /// The timeline of a cluster whose workloads stay as they are, on the nodes where their pods are, and whose CronJobs go on.
    ///
    /// # Errors
    /// It would have more events than fit into memory.
    pub fn constant(&self, start: Timestamp, duration_ms: u64) -> Result<Timeline, ImportError> {
        let mut builder = Builder::default();
        // What is to be said of them is in the notes.
        let mut crons = Crons::default();
        let mut placements = Vec::new();
        let by_owner = self.pods_by_owner();
        let workloads = self.top_workloads();
        let runs = self.runs_of_jobs();
        let keys: std::collections::BTreeSet<&Key> = by_owner.keys().chain(workloads.keys()).collect();
        for budget in &self.budgets {
            builder.budget(0, 0, budget);
        }
        for key in keys {
            let workload = workloads.get(key).copied();
            let pods: &[&Pod] = by_owner.get(key).map_or(&[], Vec::as_slice);
            let model = model_of(pods);
            // Beside pods without gates, one that still waits for its own would run like these.
            let are_free = workload.is_none() && model.is_some_and(|pod| !is_gated(pod));
            let living = pods.iter().copied().filter(|pod| is_living(pod));
            let living: Vec<&Pod> = living.filter(|pod| !(are_free && is_gated(pod))).collect();
            let Some(owner) = self.owner(key, workload, model) else {
                continue;
            };
            match key.0 {
                OwnerKind::Deployment | OwnerKind::StatefulSet => {
                    let count = workload.map_or(u32::try_from(living.len()).unwrap_or(u32::MAX), |one| {
                        one.replicas
                    });
                    if count > 0 {
                        let id = builder.owner(key, || owner)?;
                        builder.event(0, id, Change::Replicas(count))?;
                        placements.extend(places(key, id, &living, u64::from(count)));
                    }
                }
                OwnerKind::Bare => {
                    if !living.is_empty() {
                        let id = builder.owner(key, || owner)?;
                        builder.event(
                            0,
                            id,
                            Change::Begin {
                                pod: 0,
                                runs_ms: None,
                            },
                        )?;
                        placements.extend(places(key, id, &living, 1));
                    }
                }
                OwnerKind::Job | OwnerKind::Other => {
                    let id = builder.owner(key, || owner)?;
                    let known = runs.get(key).map_or(&[][..], Vec::as_slice);
                    let mut own = Runs::new(id, known);
                    own.begin(&mut builder, 0, living.len())?;
                    let mut placed = places(key, id, &living, living.len() as u64);
                    if !known.is_empty() {
                        for one in &mut placed {
                            let pod = usize::try_from(one.pod).ok().and_then(|place| living.get(place));
                            one.works_since = pod.and_then(|pod| self.works_since(key, pod));
                        }
                    }
                    placements.extend(placed);
                    if let Some(workload) = workload
                        && let Some((schedule, zone)) = when(&mut crons, key, workload)
                    {
                        let times = crate::generate::hits_in(&zone, &schedule, start, duration_ms);
                        own.go_on(&mut builder, workload, times, duration_ms)?;
                    }
                }
            }
        }
        let mut timeline = builder.finish();
        timeline.placements = placements;
        Ok(timeline)
    }

    /// Since when a pod has been at what its Job takes a known time for. Where pods run one after the other, it goes on with what those before it have begun.
    fn works_since(&self, (_, namespace, above): &Key, pod: &Pod) -> Option<Timestamp> {
        let find = |kind: &str, name: &str| {
            let key = (kind.to_owned(), namespace.clone(), name.to_owned());
            self.workloads.get(&key)
        };
        let name = pod.meta.controller().map_or("", |owner| owner.name.as_str());
        let job = find("Job", name);
        let spec = job.or_else(|| find("CronJob", above));
        let in_turn = spec.filter(|spec| spec.completions.is_some_and(|needed| needed > spec.replicas));
        let began = in_turn.and(job).and_then(|job| job.started);
        began.or(pod.started)
    }

    /// An owner, from its template or else from one of its pods.
    pub(crate) fn owner(&self, key: &Key, workload: Option<&Workload>, pod: Option<&Pod>) -> Option<Owner> {
        let (kind, namespace, name) = key;
        let (mut template, mut claims) =
            match (workload.and_then(|one| Some((one, one.template.clone()?))), pod) {
                (Some((workload, template)), _) => (template, workload.claims.clone()),
                (None, Some(pod)) => (template_of(pod), Vec::new()),
                (None, None) => return None,
            };
        strip(&mut template);
        let mounted = unmount(&mut template, *kind == OwnerKind::StatefulSet);
        if claims.is_empty() {
            claims = mounted;
        }
        Some(Owner {
            namespace: namespace.clone(),
            name: name.clone(),
            kind: *kind,
            template: Arc::new(template),
            ready: READY,
            // Those of the dump select whom they are for.
            budget: None,
            later: Vec::new(),
            claims,
        })
    }
}

/// Where pods of an owner are that begins with so many, by their numbers in a simulation: those of a StatefulSet are its ordinals, those of a Deployment follow
/// each other, and pods of others have their places among all that live. Those that are too many are left out, as a controller would delete them.
fn places((kind, _, name): &Key, owner: OwnerId, living: &[&Pod], most: u64) -> Vec<Placement> {
    let mut found: Vec<Placement> = Vec::new();
    for (place, pod) in (0..).zip(living) {
        let node = pod.spec.node_name.as_ref().filter(|node| !node.is_empty());
        let number = match kind {
            OwnerKind::Deployment => Some(found.len() as u64),
            OwnerKind::StatefulSet => ordinal(name, pod.meta.name()),
            OwnerKind::Job | OwnerKind::Bare | OwnerKind::Other => Some(place),
        };
        if let (Some(node), Some(number)) = (node, number.filter(|number| *number < most)) {
            found.push(Placement {
                owner,
                pod: number,
                node: node.clone(),
                since: pod.started.or(pod.meta.creation_timestamp),
                works_since: None,
            });
        }
    }
    found
}

/// The ordinal of a StatefulSet's pod: 2 of `db-2`.
pub(crate) fn ordinal(set: &str, pod: &str) -> Option<u64> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    digits.parse().ok()
}

/// When a CronJob runs, and by whose clocks; none for one that is suspended, and for other workloads.
fn when(crons: &mut Crons, (_, namespace, name): &Key, workload: &Workload) -> Option<(Cron, TimeZone)> {
    let schedule = workload.schedule.as_deref()?;
    let name = (namespace.clone(), name.clone());
    crons.schedule(&name, schedule, workload.time_zone.as_deref())
}

/// It runs or waits to run.
pub(crate) fn is_living(pod: &Pod) -> bool {
    !matches!(pod.phase.as_str(), "Succeeded" | "Failed") && pod.meta.deletion_timestamp.is_none()
}

/// It has scheduling gates, which some controller takes off.
pub(crate) fn is_gated(pod: &Pod) -> bool {
    crate::pods::has_gates(&pod.spec)
}

/// The pod of an owner without a template that tells what its pods are like. Gates are taken off one pod after the other: those of one are no sign of all.
pub(crate) fn model_of<'p>(pods: &[&'p Pod]) -> Option<&'p Pod> {
    let free = pods.iter().find(|pod| !is_gated(pod));
    free.or(pods.first()).copied()
}

/// A template from which a pod like this one would be made.
pub(crate) fn template_of(pod: &Pod) -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: pod.meta.labels.clone(),
            annotations: pod.meta.annotations.clone(),
            ..ObjectMeta::default()
        }),
        spec: Some(pod.spec.clone()),
    }
}

/// Removes what belongs to one pod and not to its owner, and what no decision reads.
pub(crate) fn strip(template: &mut PodTemplateSpec) {
    if let Some(meta) = &mut template.metadata {
        if let Some(labels) = &mut meta.labels {
            labels.retain(|key, _| !VERSION_LABELS.contains(&key.as_str()));
        }
        if let Some(annotations) = &mut meta.annotations {
            annotations.retain(|key, _| is_read(key));
        }
        meta.annotations = meta
            .annotations
            .take()
            .filter(|annotations| !annotations.is_empty());
    }
    let Some(spec) = &mut template.spec else {
        return;
    };
    spec.node_name = None;
    spec.hostname = None;
    // Somebody looks into one pod with them: no API server takes them in a new pod or in a template.
    spec.ephemeral_containers = None;
    for container in spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten())
    {
        let ports = container.ports.take();
        *container = k8s_openapi::api::core::v1::Container {
            name: std::mem::take(&mut container.name),
            resources: container.resources.take(),
            restart_policy: container.restart_policy.take(),
            // Ports of the host are a constraint.
            ports: ports.map(|ports| {
                ports
                    .into_iter()
                    .filter(|port| port.host_port.is_some())
                    .collect()
            }),
            ..k8s_openapi::api::core::v1::Container::default()
        };
    }
}

/// Takes volumes that are claimed out of a template, since their claims are not there in a simulation; those of a StatefulSet's pod come back as claims of
/// each pod.
fn unmount(template: &mut PodTemplateSpec, are_kept: bool) -> Vec<PersistentVolumeClaim> {
    let Some(PodSpec {
        volumes: Some(volumes),
        ..
    }) = &mut template.spec
    else {
        return Vec::new();
    };
    let claimed = volumes
        .iter()
        .filter(|volume| volume.persistent_volume_claim.is_some());
    let claims = claimed.map(|volume| {
        let mut claim = crate::pods::zonal_claim();
        claim.metadata.name = Some(volume.name.clone());
        claim
    });
    let claims: Vec<PersistentVolumeClaim> = claims.collect();
    template.spec.iter_mut().for_each(|spec| spec.volumes = None);
    if are_kept { claims } else { Vec::new() }
}

/// `web` of the ReplicaSet `web-5d4f8c7b9`.
fn without_hash<'n>(name: &'n str, pod: &Meta) -> &'n str {
    let hash = pod
        .labels
        .as_ref()
        .and_then(|labels| labels.get("pod-template-hash"));
    let rest = hash.and_then(|hash| name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    rest.unwrap_or(name)
}

/// `backup` of the Job `backup-29012345`: a CronJob numbers its Jobs by minutes.
pub(crate) fn without_time(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((rest, number)) if number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => name,
    }
}
