//! Machines as Nodes: they join the cluster with what their user data says, and fall silent when they end. What users write on Nodes and in one ConfigMap
//! plays fate.
//!
//! Owns Nodes of machines from here, by their provider ID. Their kubelets are somebody else's. A Node that Karpenter has registered is never deleted from
//! here; one that never registered is removed when its machine is gone, as a cloud controller manager does.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use spokeshave_api::labels;
use spokeshave_ports::SharedClock;
use spokeshave_provider_aws::describe::InstanceTypeInfo;

use crate::cloud::SimulatedEc2;
use crate::market::PoolPattern;
use crate::state::{Check, Machine};
use crate::user_data;

/// Annotation of a Node by which a user lets something happen to its instance: `spot_interrupted`, `rebalance_recommendation`, `scheduled_change`,
/// `instance_terminated`, `instance_impaired`, `system_impaired` or `healthy`.
pub const MESSAGE: &str = "ec2.spokeshave.dev/message";
/// ConfigMap in kube-system by which a user says what there is to buy: `capacity` with lines `PATTERN=NUMBER`, `outages` and
/// `zonalShifts` with zones.
pub const SETTINGS: &str = "simulated-ec2";
const SETTINGS_NAMESPACE: &str = "kube-system";
/// What marks Nodes whose kubelets are simulated.
const FAKE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
/// Annotation with the instance.
const INSTANCE: &str = "ec2.spokeshave.dev/instance";
/// Pause after a request that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Share of the memory that a guest sees, in thousandths: firmware and kernel take the rest.
const VISIBLE_MEMORY: i64 = 960;
const MIB_IN_KIB: i64 = 1024;

impl SimulatedEc2 {
    /// Lets machines join the cluster and leave it, until `shutdown` completes.
    pub async fn join(&self, client: kube::Client, shutdown: impl Future<Output = ()>) {
        let joining = Joining {
            nodes: Api::all(client.clone()),
            settings: Api::namespaced(client, SETTINGS_NAMESPACE),
            cloud: self,
        };
        tokio::select! {
            biased;
            () = shutdown => {}
            () = joining.live() => {}
        }
    }
}

struct Joining<'a> {
    nodes: Api<Node>,
    settings: Api<ConfigMap>,
    cloud: &'a SimulatedEc2,
}

/// What is to be told to the cluster about a machine.
enum News {
    Joins(Box<Machine>),
    Gone(Machine),
}

impl Joining<'_> {
    async fn live(&self) {
        let clock = self.cloud.clock();
        let mut nodes = std::pin::pin!(watched(self.nodes.clone(), watcher::Config::default(), clock));
        let named = watcher::Config::default().fields(&format!("metadata.name={SETTINGS}"));
        let mut settings = std::pin::pin!(followed(self.settings.clone(), named, clock));
        // Messages that were acted on, by Node: one annotation is one event.
        let mut heard: BTreeMap<String, String> = BTreeMap::new();
        let mut told_gone: BTreeMap<String, ()> = BTreeMap::new();
        loop {
            let changed = self.cloud.changed();
            let (news, next) = self.news(&told_gone);
            for one in news {
                let (id, told) = match &one {
                    News::Joins(machine) => (machine.facts.id.clone(), self.register(machine).await),
                    News::Gone(machine) => (
                        machine.facts.id.clone(),
                        self.silence(&machine.facts.private_dns_name, &machine.facts.id)
                            .await,
                    ),
                };
                match (told, one) {
                    (Ok(()), News::Joins(_)) => self.joined(&id),
                    (Ok(()), News::Gone(_)) => drop(told_gone.insert(id, ())),
                    (Err(error), _) => {
                        tracing::warn!(instance = id, %error, "the simulated EC2 cannot tell the cluster about a machine, and will try again");
                        clock.sleep(RETRY).await;
                    }
                }
            }
            let due = async {
                match next {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(node) = nodes.next() => self.hear(&node, &mut heard),
                Some(settings) = settings.next() => self.set(&settings),
                () = changed => {}
                () = due => {}
            }
        }
    }

    /// What is due now, and when something is due next.
    fn news(&self, told_gone: &BTreeMap<String, ()>) -> (Vec<News>, Option<Timestamp>) {
        let state = self.cloud.state();
        let now = self.cloud.clock().now();
        let mut news = Vec::new();
        let mut next = state.next_due();
        for machine in state.machines.values() {
            if machine.ended {
                if !told_gone.contains_key(&machine.facts.id) {
                    news.push(News::Gone(machine.clone()));
                }
            } else if let Some(at) = machine.joins_at.filter(|_| machine.ending_at.is_none()) {
                if at <= now {
                    news.push(News::Joins(Box::new(machine.clone())));
                } else {
                    next = Some(next.map_or(at, |next| next.min(at)));
                }
            }
        }
        (news, next.filter(|at| *at > now))
    }

    fn joined(&self, id: &str) {
        if let Some(machine) = self.cloud.state().machines.get_mut(id) {
            machine.joins_at = None;
        }
    }

    async fn register(&self, machine: &Machine) -> kube::Result<()> {
        let info = self
            .cloud
            .state()
            .catalogue
            .types
            .get(&machine.facts.instance_type)
            .cloned();
        let Some(info) = info else { return Ok(()) };
        let value = node(machine, &info);
        let node: Node = serde_json::from_value(value.clone()).map_err(kube::Error::SerdeError)?;
        match self.nodes.create(&PostParams::default(), &node).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error),
        }
        let patch = Patch::Merge(json!({"status": value["status"]}));
        let patched = self
            .nodes
            .patch_status(&machine.facts.private_dns_name, &PatchParams::default(), &patch)
            .await;
        gone_is_fine(patched.map(drop))
    }

    /// A machine that is gone sends no heartbeats.
    async fn silence(&self, name: &str, instance: &str) -> kube::Result<()> {
        let Some(node) = self.nodes.get_opt(name).await? else {
            return Ok(());
        };
        if instance_of(&node) != Some(instance) {
            return Ok(());
        }
        let metadata = &node.metadata;
        let registered = metadata
            .labels
            .as_ref()
            .is_some_and(|it| it.contains_key(labels::REGISTERED));
        let is_kept = metadata
            .finalizers
            .iter()
            .flatten()
            .any(|it| it == labels::TERMINATION_FINALIZER);
        if !registered && !is_kept {
            return gone_is_fine(self.nodes.delete(name, &DeleteParams::default()).await.map(drop));
        }
        let now = whole_seconds(self.cloud.clock().now());
        let patch = Patch::Strategic(json!({"status": {"conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status.", "lastTransitionTime": now,
        }]}}));
        gone_is_fine(
            self.nodes
                .patch_status(name, &PatchParams::default(), &patch)
                .await
                .map(drop),
        )
    }

    /// A user wants something to happen to the machine of a Node.
    fn hear(&self, node: &Node, heard: &mut BTreeMap<String, String>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let message = node.metadata.annotations.as_ref().and_then(|it| it.get(MESSAGE));
        let (Some(message), Some(instance)) = (message, instance_of(node)) else {
            heard.remove(&name);
            return;
        };
        if heard.insert(name.clone(), message.clone()).as_ref() == Some(message) {
            return;
        }
        let cloud = self.cloud;
        let is_done = match message.as_str() {
            "spot_interrupted" => cloud.interrupt(instance),
            "instance_terminated" => cloud.terminate(instance),
            "rebalance_recommendation" => {
                cloud.recommend_rebalance(instance);
                true
            }
            "scheduled_change" => {
                cloud.announce_maintenance(instance);
                true
            }
            "instance_impaired" => {
                cloud.impair(instance, Check::Instance, true);
                true
            }
            "system_impaired" => {
                cloud.impair(instance, Check::System, true);
                true
            }
            "healthy" => {
                cloud.impair(instance, Check::Instance, false);
                cloud.impair(instance, Check::System, false);
                true
            }
            _ => {
                tracing::warn!(
                    Node = name,
                    message,
                    "annotation {MESSAGE} is none of spot_interrupted, rebalance_recommendation, scheduled_change, \
                    instance_terminated, instance_impaired, system_impaired, healthy; it is ignored"
                );
                return;
            }
        };
        if !is_done {
            tracing::warn!(
                Node = name,
                message,
                "this cannot happen to the instance: it is not spot capacity, or it ends anyhow"
            );
        }
    }

    /// A user says what there is to buy.
    fn set(&self, settings: &ConfigMap) {
        let text = |key: &str| {
            settings
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .cloned()
                .unwrap_or_default()
        };
        self.cloud.unlimited();
        for line in text("capacity")
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let rule = line.rsplit_once('=').and_then(|(pattern, number)| {
                Some((
                    pattern.parse::<PoolPattern>().ok()?,
                    number.trim().parse::<u32>().ok()?,
                ))
            });
            match rule {
                Some((pattern, number)) => self.cloud.limit(pattern, number),
                None => tracing::warn!(
                    line,
                    "ConfigMap {SETTINGS_NAMESPACE}/{SETTINGS}, capacity: expected TYPE/ZONE/CAPACITY-TYPE=NUMBER, such as m5.*/us-east-1a/spot=0; the line is ignored"
                ),
            }
        }
        for key in ["outages", "zonalShifts"] {
            let named = text(key);
            let named: Vec<&str> = named
                .split([',', ' ', '\n'])
                .filter(|zone| !zone.is_empty())
                .collect();
            for (zone, _) in crate::catalogue::ZONES {
                let is_named = named.contains(&zone);
                if key == "outages" {
                    self.cloud.set_outage(zone, is_named);
                } else {
                    self.cloud.set_shifted(zone, is_named);
                }
            }
            let exists = |zone: &str| crate::catalogue::ZONES.iter().any(|(name, _)| *name == zone);
            for zone in named.iter().filter(|zone| !exists(zone)) {
                tracing::warn!(
                    zone,
                    "ConfigMap {SETTINGS_NAMESPACE}/{SETTINGS}, {key}: there is no such zone; it is ignored"
                );
            }
        }
    }
}

/// Settings whenever they change, for ever; empty ones when theirs are deleted.
fn followed(
    api: Api<ConfigMap>,
    config: watcher::Config,
    clock: &SharedClock,
) -> impl Stream<Item = ConfigMap> + use<'_> {
    // Whether there are settings, and whether the list that is being read has them.
    let (mut is_there, mut is_listed) = (false, false);
    watcher::watcher(api, config).filter_map(move |event| {
        let mut has_failed = false;
        let news = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                (is_there, is_listed) = (true, true);
                Some(object)
            }
            Ok(Event::Init) => {
                is_listed = false;
                None
            }
            Ok(Event::InitDone) if is_listed || !is_there => None,
            // What stands nowhere undoes nothing that was set in another way.
            Ok(Event::InitDone | Event::Delete(_)) => {
                is_there = false;
                Some(ConfigMap::default())
            }
            Err(error) => {
                tracing::debug!(%error, "watching");
                has_failed = true;
                None
            }
        };
        async move {
            if has_failed {
                clock.sleep(RETRY).await;
            }
            news
        }
    })
}

/// Objects of a kind whenever they change, for ever.
fn watched<K>(api: Api<K>, config: watcher::Config, clock: &SharedClock) -> impl Stream<Item = K> + use<'_, K>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    watcher::watcher(api, config).filter_map(move |event| async move {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => Some(object),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(%error, "watching");
                clock.sleep(RETRY).await;
                None
            }
        }
    })
}

fn gone_is_fine(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    }
}

fn instance_of(node: &Node) -> Option<&str> {
    let id = node
        .spec
        .as_ref()?
        .provider_id
        .as_deref()?
        .strip_prefix("aws:///")?;
    id.split_once('/').map(|(_, id)| id)
}

/// RFC 3339 without fraction, as Kubernetes stores times.
fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

/// The Node as the kubelet of a machine registers it, with the labels that a cloud controller manager adds.
fn node(machine: &Machine, info: &InstanceTypeInfo) -> Value {
    let facts = &machine.facts;
    let told = user_data::read(&machine.user_data);
    let arch = match info
        .processor_info
        .as_ref()
        .and_then(|it| it.supported_architectures.first())
    {
        Some(arch) if arch == "arm64" => "arm64",
        _ => "amd64",
    };
    let mut labels = told.labels.clone();
    labels.extend(
        [
            (labels::ARCH, arch),
            (labels::OS, "linux"),
            (labels::HOSTNAME, &facts.private_dns_name),
            (labels::INSTANCE_TYPE, &facts.instance_type),
            (labels::ZONE, &facts.zone),
            (labels::REGION, crate::catalogue::REGION),
            ("topology.k8s.aws/zone-id", &facts.zone_id),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let taints = told
        .taints
        .iter()
        .map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}));
    let (capacity, allocatable) = resources(info, told.max_pods, facts.has_efa);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": facts.private_dns_name, "labels": labels, "annotations": {FAKE.0: FAKE.1, INSTANCE: facts.id}},
        "spec": {"providerID": format!("aws:///{}/{}", facts.zone, facts.id), "taints": taints.collect::<Vec<_>>()},
        "status": {"capacity": capacity, "allocatable": allocatable, "phase": "Pending"},
    })
}

/// Capacity and allocatable, as the kubelet and the device plugins of a machine say.
fn resources(info: &InstanceTypeInfo, max_pods: Option<i64>, has_efa: bool) -> (Value, Value) {
    let cpus = info.v_cpu_info.default_vcpus;
    let memory_kib = info.memory_info.size_mib * MIB_IN_KIB / 1000 * VISIBLE_MEMORY;
    let network = &info.network_info;
    let interfaces = network
        .network_cards
        .get(network.default_network_card_index)
        .map_or(1, |card| card.maximum_network_interfaces);
    let pods = max_pods.unwrap_or(interfaces * (network.ipv4_addresses_per_interface - 1) + 2);
    let reserved_kib = (255 + 11 * pods + 100) * MIB_IN_KIB;
    let mut capacity = json!({"cpu": cpus.to_string(), "memory": format!("{memory_kib}Ki"), "pods": pods.to_string(), "ephemeral-storage": "20Gi"});
    let gpus = info.gpu_info.iter().flat_map(|it| &it.gpus);
    for gpu in gpus {
        let resource = match gpu.manufacturer.to_lowercase().as_str() {
            "nvidia" => "nvidia.com/gpu",
            "amd" => "amd.com/gpu",
            "habana" => "habana.ai/gaudi",
            _ => continue,
        };
        capacity[resource] = json!(gpu.count.to_string());
    }
    for device in info.neuron_info.iter().flat_map(|it| &it.neuron_devices) {
        capacity["aws.amazon.com/neuron"] = json!(device.count.to_string());
        capacity["aws.amazon.com/neuroncore"] = json!((device.count * device.core_info.count).to_string());
    }
    if has_efa {
        let adapters = network
            .efa_info
            .as_ref()
            .and_then(|it| it.maximum_efa_interfaces)
            .unwrap_or(1);
        capacity["vpc.amazonaws.com/efa"] = json!(adapters.to_string());
    }
    let mut allocatable = capacity.clone();
    allocatable["cpu"] = json!(format!("{}m", cpus * 1000 - reserved_millicores(cpus)));
    allocatable["memory"] = json!(format!("{}Ki", (memory_kib - reserved_kib).max(0)));
    allocatable["ephemeral-storage"] = json!("17Gi");
    (capacity, allocatable)
}

/// What EKS's images keep back: 6 % of the first core, 1 % of the second, half a percent of the third and fourth, a quarter of the rest.
fn reserved_millicores(cpus: i64) -> i64 {
    (1..=cpus)
        .map(|core| match core {
            1 => 600,
            2 => 100,
            3 | 4 => 50,
            _ => 25,
        })
        .sum::<i64>()
        / 10
}
