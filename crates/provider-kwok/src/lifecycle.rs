//! What happens to an instance by itself: its Node appears, its end arrives, and a Node whose machine is gone falls silent.
//!
//! Owns the due times. Everything follows from the KWOKInstance objects, so that a restart loses nothing and two runs side by side do
//! no harm; nothing polls: a watch says what changed, and the clock says when something is due. A Node that Karpenter has registered
//! is never deleted from here, that is the core's business (D-249); one that never registered is nobody's, and is removed as a cloud
//! controller manager would.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use serde_json::json;
use spokeshave_api::{KWOKInstance, labels};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudError, causes, is_conflict};

use crate::errors::request_error;
use crate::{KwokProvider, keys, record};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Requests in flight at once.
const PARALLEL: usize = 16;

/// Something to do at a certain time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    /// Look for Nodes whose instance went while nobody watched.
    Sweep,
    /// Make the Node of an instance.
    MakeNode(String),
    /// Say when an instance is taken back of which a message says that it is.
    Doom(String),
    /// Remove the record of an instance whose time is over.
    End(String),
    /// Silence the Node of an instance that is gone.
    Silence(String),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::Sweep => f.write_str("look for Nodes without instance"),
            Job::MakeNode(name) => write!(f, "make Node {name}"),
            Job::Doom(name) => write!(f, "take instance {name} back"),
            Job::End(name) => write!(f, "end instance {name}"),
            Job::Silence(name) => write!(f, "mark Node {name} as gone"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Timestamp,
    failures: u32,
}

/// The instances as the watch tells them, and what is to be done.
#[derive(Debug, Default)]
struct World {
    instances: BTreeMap<String, KWOKInstance>,
    listed: BTreeMap<String, KWOKInstance>,
    work: BTreeMap<Job, Due>,
}

impl World {
    fn take(&mut self, event: Event<DynamicObject>, now: Timestamp, termination_delay: Duration) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                if let Some(instance) = record::readable(object) {
                    self.listed.insert(instance.name().to_owned(), instance);
                }
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let before = std::mem::replace(&mut self.instances, listed);
                for name in before
                    .into_keys()
                    .filter(|name| !self.instances.contains_key(name))
                    .collect::<Vec<_>>()
                {
                    self.removed(&name, now);
                }
                let instances = std::mem::take(&mut self.instances);
                for instance in instances.values() {
                    self.plan(instance, now, termination_delay);
                }
                self.instances = instances;
                self.work.insert(Job::Sweep, Due { at: now, failures: 0 });
            }
            Event::Apply(object) => {
                if let Some(instance) = record::readable(object) {
                    self.plan(&instance, now, termination_delay);
                    self.instances.insert(instance.name().to_owned(), instance);
                }
            }
            Event::Delete(object) => {
                let name = object.metadata.name.unwrap_or_default();
                self.instances.remove(&name);
                self.removed(&name, now);
            }
        }
    }

    fn plan(&mut self, instance: &KWOKInstance, now: Timestamp, termination_delay: Duration) {
        let name = instance.name().to_owned();
        self.work.remove(&Job::MakeNode(name.clone()));
        self.work.remove(&Job::End(name.clone()));
        self.work.remove(&Job::Doom(name.clone()));
        let after = |start: Timestamp, delay: Duration| start.saturating_add(delay).unwrap_or(Timestamp::MAX);
        let taken_back = record::ends_at(instance);
        if taken_back.is_none()
            && record::message(instance) == Some(InterruptionKind::SpotInterrupted.label())
        {
            self.work
                .insert(Job::Doom(name.clone()), Due { at: now, failures: 0 });
        }
        let terminated =
            record::termination_started(instance).map(|started| after(started, termination_delay));
        if let Some(at) = terminated.into_iter().chain(taken_back).min() {
            self.work.insert(Job::End(name.clone()), Due { at, failures: 0 });
        }
        if terminated.is_some() {
            return;
        }
        if !record::is_running(instance)
            && let Some(delay) = instance
                .spec
                .registration_delay
                .as_ref()
                .and_then(spokeshave_api::GoDuration::to_std)
        {
            let launched = instance
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(now, |time| time.0);
            self.work.insert(
                Job::MakeNode(name),
                Due {
                    at: after(launched, delay),
                    failures: 0,
                },
            );
        }
    }

    fn removed(&mut self, name: &str, now: Timestamp) {
        self.work.remove(&Job::MakeNode(name.to_owned()));
        self.work.remove(&Job::End(name.to_owned()));
        self.work.remove(&Job::Doom(name.to_owned()));
        self.work
            .insert(Job::Silence(name.to_owned()), Due { at: now, failures: 0 });
    }

    fn due(&self, now: Timestamp) -> Vec<(Job, Option<KWOKInstance>)> {
        let due = self
            .work
            .iter()
            .filter(|(_, due)| due.at <= now)
            .map(|(job, _)| job);
        due.map(|job| {
            let instance = match job {
                Job::MakeNode(name) | Job::Doom(name) | Job::End(name) | Job::Silence(name) => {
                    self.instances.get(name).cloned()
                }
                Job::Sweep => None,
            };
            (job.clone(), instance)
        })
        .collect()
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.work.values().map(|due| due.at).min()
    }

    fn settle(&mut self, job: Job, outcome: Result<Done, CloudError>, now: Timestamp) {
        let failures = self.work.get(&job).map_or(0, |due| due.failures) + 1;
        match outcome {
            Err(error) => {
                tracing::warn!(%job, %error, failures, "the kwok cloud could not do this, and will try again");
                let wait = FIRST_RETRY
                    .saturating_mul(1 << failures.min(6))
                    .min(LONGEST_RETRY);
                let at = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
                self.work.insert(job, Due { at, failures });
            }
            Ok(done) => {
                self.work.remove(&job);
                match done {
                    Done::Nothing => {}
                    Done::Updated(instance) => {
                        if let Some(known) = self.instances.get_mut(instance.name()) {
                            *known = *instance;
                        }
                    }
                    Done::WithoutInstance(nodes) => {
                        for node in nodes
                            .into_iter()
                            .filter(|node| !self.instances.contains_key(node))
                        {
                            self.work.insert(Job::Silence(node), Due { at: now, failures: 0 });
                        }
                    }
                }
            }
        }
    }
}

/// What a job leaves behind.
enum Done {
    Nothing,
    Updated(Box<KWOKInstance>),
    /// Names of the instances that Nodes say they run on.
    WithoutInstance(Vec<String>),
}

impl KwokProvider {
    /// Lets instances live: makes their Nodes when due, ends them when due. Runs until `shutdown` completes; a request that it cuts off
    /// is made up for by the next run.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = shutdown => {}
            () = self.live() => {}
        }
    }

    async fn live(&self) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &record::record_kind());
        let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
        let mut world = World::default();
        let mut failures: u32 = 0;
        let mut watch_from = self.clock.now();
        loop {
            self.work_off(&mut world).await;
            let next_event = async {
                if watch_from > self.clock.now() {
                    self.clock.sleep_until(watch_from).await;
                }
                events.next().await
            };
            let due = async {
                match world.next_due() {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                event = next_event => event,
                () = due => continue,
            };
            match event {
                Some(Ok(event)) => {
                    failures = 0;
                    world.take(event, self.clock.now(), self.options.termination_delay);
                }
                Some(Err(error)) => {
                    failures += 1;
                    self.watch_failures.count(KWOKInstance::KIND);
                    let wait = FIRST_RETRY
                        .saturating_mul(1 << failures.min(5))
                        .min(LONGEST_RETRY);
                    watch_from = self.clock.now().saturating_add(wait).unwrap_or(Timestamp::MAX);
                    tracing::warn!(error = %causes(&error), seconds = wait.as_secs(), "cannot watch KWOKInstances, will try again");
                }
                None => return,
            }
        }
    }

    /// Does everything that is due now.
    async fn work_off(&self, world: &mut World) {
        loop {
            let due = world.due(self.clock.now());
            if due.is_empty() {
                return;
            }
            let outcomes: Vec<(Job, Result<Done, CloudError>)> = futures::stream::iter(due)
                .map(|(job, instance)| async move {
                    let outcome = self.perform(&job, instance).await;
                    (job, outcome)
                })
                .buffered(PARALLEL)
                .collect()
                .await;
            let now = self.clock.now();
            for (job, outcome) in outcomes {
                world.settle(job, outcome, now);
            }
        }
    }

    async fn perform(&self, job: &Job, instance: Option<KWOKInstance>) -> Result<Done, CloudError> {
        match (job, instance) {
            (Job::Sweep, _) => self.sweep().await,
            (Job::MakeNode(_), Some(instance)) => self.make_node(&instance).await,
            (Job::Doom(_), Some(instance)) => self.doom(&instance).await,
            (Job::End(_), Some(instance)) => self.end(&instance).await.map(|()| Done::Nothing),
            (Job::Silence(name), None) => self.silence(name).await.map(|()| Done::Nothing),
            // The instance came or went meanwhile; the watch has planned what follows.
            (Job::MakeNode(_) | Job::Doom(_) | Job::End(_), None) | (Job::Silence(_), Some(_)) => {
                Ok(Done::Nothing)
            }
        }
    }

    /// Writes down when an instance is taken back, so that a restart takes nothing from its time and adds nothing.
    async fn doom(&self, instance: &KWOKInstance) -> Result<Done, CloudError> {
        let notice = self.options.interruption_notice;
        let ends_at = self.clock.now().saturating_add(notice).unwrap_or(Timestamp::MAX);
        let patch = Patch::Merge(json!({"metadata": {
            "uid": instance.uid(),
            "annotations": {keys::ENDS_AT: ends_at.to_string()},
        }}));
        match self
            .instances()
            .patch(instance.name(), &PatchParams::default(), &patch)
            .await
        {
            Ok(updated) => Ok(Done::Updated(Box::new(updated))),
            Err(kube::Error::Api(status)) if status.is_not_found() || is_conflict(&status) => {
                Ok(Done::Nothing)
            }
            Err(error) => Err(request_error("patch KWOKInstance", &error)),
        }
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn sweep(&self) -> Result<Done, CloudError> {
        let parameters = ListParams::default().labels(&format!("{}={}", keys::NODE, keys::NODE_FAKE));
        let nodes = self
            .nodes()
            .list(&parameters)
            .await
            .map_err(|error| request_error("list Nodes", &error))?;
        let instances = nodes
            .items
            .iter()
            .filter_map(|node| instance_of(node).map(str::to_owned));
        Ok(Done::WithoutInstance(instances.collect()))
    }

    /// Makes the Node, then notes in the record that there is one, so that a Node which is deleted later never comes back.
    async fn make_node(&self, instance: &KWOKInstance) -> Result<Done, CloudError> {
        let wanted = node_of(instance);
        let status = wanted.status.clone();
        match self.nodes().create(&PostParams::default(), &wanted).await {
            Ok(node) => {
                if node
                    .status
                    .and_then(|status| status.capacity)
                    .is_none_or(|capacity| capacity.is_empty())
                {
                    let patch = Patch::Merge(json!({ "status": status }));
                    let patched = self
                        .nodes()
                        .patch_status(instance.name(), &PatchParams::default(), &patch)
                        .await;
                    patched.map_err(|error| request_error("patch status of Node", &error))?;
                }
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let name = instance.name();
                let node = self
                    .nodes()
                    .get_opt(name)
                    .await
                    .map_err(|error| request_error("get Node", &error))?;
                if node.is_some_and(|node| instance_of(&node) != Some(name)) {
                    return Err(CloudError::Other(format!(
                        "Node {name} exists and belongs to something else"
                    )));
                }
            }
            Err(error) => return Err(request_error("create Node", &error)),
        }
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": instance.metadata.resource_version},
            "status": {"phase": record::RUNNING},
        }));
        match self
            .instances()
            .patch_status(instance.name(), &PatchParams::default(), &patch)
            .await
        {
            Ok(updated) => Ok(Done::Updated(Box::new(updated))),
            // Somebody was quicker: the watch brings the newer record and with it what follows.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.code == 409 => Ok(Done::Nothing),
            Err(error) => Err(request_error("patch status of KWOKInstance", &error)),
        }
    }

    /// A machine that is gone sends no heartbeats.
    async fn silence(&self, name: &str) -> Result<(), CloudError> {
        let node = self
            .nodes()
            .get_opt(name)
            .await
            .map_err(|error| request_error("get Node", &error))?;
        let Some(node) = node.filter(|node| instance_of(node) == Some(name)) else {
            return Ok(());
        };
        let registered = node
            .metadata
            .labels
            .as_ref()
            .is_some_and(|it| it.contains_key(labels::REGISTERED));
        let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
        let outcome = if registered || finalizers.iter().any(|it| it == labels::TERMINATION_FINALIZER) {
            let conditions = node
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_deref());
            let mut ready = conditions
                .unwrap_or_default()
                .iter()
                .filter(|condition| condition.type_ == "Ready");
            if ready.any(|condition| condition.status == "Unknown") {
                return Ok(());
            }
            let patch = Patch::Strategic(json!({"status": {"conditions": [{
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": whole_seconds(self.clock.now()),
            }]}}));
            self.nodes()
                .patch_status(name, &PatchParams::default(), &patch)
                .await
                .map(drop)
        } else if node.metadata.deletion_timestamp.is_some() {
            return Ok(());
        } else {
            let preconditions = Preconditions {
                uid: node.metadata.uid.clone(),
                resource_version: None,
            };
            let parameters = DeleteParams {
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            self.nodes().delete(name, &parameters).await.map(drop)
        };
        match outcome {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map_err(|error| request_error("tell that a Node is gone", &error)),
        }
    }
}

/// The instance that a Node says it runs on.
fn instance_of(node: &Node) -> Option<&str> {
    let annotated = node.metadata.annotations.as_ref()?.get(keys::INSTANCE)?;
    let provided = node
        .spec
        .as_ref()?
        .provider_id
        .as_deref()
        .and_then(record::instance_of)?;
    (provided == annotated).then_some(provided)
}

/// The Node as a kubelet would register it.
fn node_of(instance: &KWOKInstance) -> Node {
    let spec = &instance.spec;
    let annotations = [(keys::NODE, keys::NODE_FAKE), (keys::INSTANCE, instance.name())];
    Node {
        metadata: ObjectMeta {
            name: Some(instance.name().to_owned()),
            labels: Some(spec.labels.clone()),
            annotations: Some(
                annotations
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(record::provider_id(instance)),
            taints: Some(spec.taints.clone()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(spec.capacity.clone()),
            allocatable: Some(spec.allocatable.clone()),
            phase: Some("Pending".to_owned()),
            ..NodeStatus::default()
        }),
    }
}

/// RFC 3339 without fraction, as Kubernetes stores times.
fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}
