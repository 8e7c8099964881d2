//! Machines as Nodes: they join the cluster with what their custom data says, and fall silent when they end. What users write on Nodes and in one ConfigMap
//! plays fate.
//!
//! Owns Nodes of machines from here, by their provider ID. Their kubelets are somebody else's. A Node that Karpenter has registered is never deleted from
//! here; one that never registered is removed when its machine is gone, as a cloud controller manager does.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use spokeshave_api::labels;
use spokeshave_ports::SharedClock;

use crate::azure::Azure;
use crate::machine_facts::{Machine, node};
use crate::settings::{self, SETTINGS, SETTINGS_NAMESPACE};
use crate::state::later;

/// Annotation of a Node by which a user lets something happen to its machine: `spot_evicted`, `maintenance_scheduled`, `freeze_scheduled`,
/// `machine_terminated` or `healthy`.
pub const MESSAGE: &str = "azure.spokeshave.dev/message";
/// How often machines are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Between the notice of an eviction and the end of the machine.
const EVICTION_NOTICE: SignedDuration = SignedDuration::from_secs(30);
/// Between the notice of maintenance and the maintenance.
const MAINTENANCE_NOTICE: SignedDuration = SignedDuration::from_mins(15);
/// Pause after a watch that failed.
const RETRY: Duration = Duration::from_secs(1);
const PREEMPTION: &str = "PreemptionScheduled";
const MAINTENANCE: &str = "VMEventScheduled";

impl Azure {
    /// Lets machines join the cluster and leave it, until `shutdown` completes.
    pub async fn join(&self, client: kube::Client, shutdown: impl Future<Output = ()>) {
        let mut joining = Joining {
            nodes: Api::all(client.clone()),
            settings: Api::namespaced(client, SETTINGS_NAMESPACE),
            azure: self,
            joined: BTreeMap::new(),
            heard: BTreeMap::new(),
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
    azure: &'a Azure,
    /// Machines whose Nodes were made: provider ID → name of the Node.
    joined: BTreeMap<String, String>,
    /// Messages that were acted on, by Node: one annotation is one event.
    heard: BTreeMap<String, String>,
}

impl Joining<'_> {
    async fn live(&mut self) {
        let clock = self.azure.clock();
        let mut nodes = std::pin::pin!(watched(
            self.nodes.clone(),
            watcher::Config::default(),
            clock.clone()
        ));
        let named = watcher::Config::default().fields(&format!("metadata.name={SETTINGS}"));
        let mut settings = std::pin::pin!(watched(self.settings.clone(), named, clock.clone()));
        loop {
            tokio::select! {
                biased;
                Some(node) = nodes.next() => self.hear(&node).await,
                Some(settings) = settings.next() => settings::apply(self.azure, &settings),
                () = clock.sleep(TICK) => self.look().await,
            }
        }
    }

    /// Tells the cluster who has come and who has gone. What it could not be told it is told at the next look.
    async fn look(&mut self) {
        let machines = self.azure.bodies();
        for machine in machines.values().filter(|machine| machine.is_up) {
            if self.joined.contains_key(&machine.told.provider_id) {
                continue;
            }
            match self.register(machine).await {
                Ok(()) => {
                    self.joined
                        .insert(machine.told.provider_id.clone(), machine.told.name.clone());
                }
                Err(error) => warn(&machine.told.name, &error),
            }
        }
        let there = |id: &str| machines.values().any(|machine| machine.told.provider_id == id);
        let gone: Vec<(String, String)> = self
            .joined
            .iter()
            .filter(|(id, _)| !there(id))
            .map(|(id, name)| (id.clone(), name.clone()))
            .collect();
        for (id, name) in gone {
            match self.silence(&name, &id).await {
                Ok(()) => drop(self.joined.remove(&id)),
                Err(error) => warn(&name, &error),
            }
        }
    }

    async fn register(&self, machine: &Machine) -> kube::Result<()> {
        let value = node(machine);
        let node: Node = serde_json::from_value(value.clone()).map_err(kube::Error::SerdeError)?;
        match self.nodes.create(&PostParams::default(), &node).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error),
        }
        let patch = Patch::Merge(json!({"status": value["status"]}));
        let name = &machine.told.name;
        let patched = self
            .nodes
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        gone_is_fine(patched.map(drop))
    }

    /// A machine that is gone sends no heartbeats.
    async fn silence(&self, name: &str, provider_id: &str) -> kube::Result<()> {
        let Some(node) = self.nodes.get_opt(name).await? else {
            return Ok(());
        };
        if provider_id_of(&node) != Some(provider_id) {
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
        let silent = condition(
            "Ready",
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
            self.azure.clock().now(),
        );
        self.tell(name, silent).await
    }

    async fn tell(&self, node: &str, condition: Value) -> kube::Result<()> {
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let patched = self
            .nodes
            .patch_status(node, &PatchParams::default(), &patch)
            .await;
        gone_is_fine(patched.map(drop))
    }

    /// A user wants something to happen to the machine of a Node.
    async fn hear(&mut self, node: &Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let message = node.metadata.annotations.as_ref().and_then(|it| it.get(MESSAGE));
        let machine = provider_id_of(node).and_then(|id| id.strip_prefix("azure://")?.rsplit('/').next());
        let (Some(message), Some(machine)) = (message, machine) else {
            self.heard.remove(&name);
            return;
        };
        if self.heard.get(&name) == Some(message) {
            return;
        }
        if let Err(error) = self.act(&name, machine, message).await {
            warn(&name, &error);
            return;
        }
        self.heard.insert(name, message.clone());
    }

    async fn act(&self, node: &str, machine: &str, message: &str) -> kube::Result<()> {
        let now = self.azure.clock().now();
        match message {
            "spot_evicted" => {
                let at = later(now, EVICTION_NOTICE);
                if !self.azure.evict_at(machine, at) {
                    tracing::warn!(Node = node, message, "no spot machine: it cannot be evicted");
                    return Ok(());
                }
                let text = notice("Preempt", -1, machine, at);
                self.tell(node, condition(PREEMPTION, "True", PREEMPTION, &text, now))
                    .await
            }
            "maintenance_scheduled" => {
                let text = notice("Redeploy", -1, machine, later(now, MAINTENANCE_NOTICE));
                self.tell(node, condition(MAINTENANCE, "True", MAINTENANCE, &text, now))
                    .await
            }
            // The machine stands still for five seconds, and goes on.
            "freeze_scheduled" => {
                let text = notice("Freeze", 5, machine, later(now, MAINTENANCE_NOTICE));
                self.tell(node, condition(MAINTENANCE, "True", MAINTENANCE, &text, now))
                    .await
            }
            "machine_terminated" => {
                self.azure.evict(machine);
                Ok(())
            }
            "healthy" => {
                for kind in [PREEMPTION, MAINTENANCE] {
                    let said = condition(kind, "False", &format!("No{kind}"), "", now);
                    self.tell(node, said).await?;
                }
                Ok(())
            }
            _ => {
                tracing::warn!(
                    Node = node,
                    message,
                    "annotation {MESSAGE} is none of spot_evicted, maintenance_scheduled, freeze_scheduled, machine_terminated, healthy; it is ignored"
                );
                Ok(())
            }
        }
    }
}

/// As AKS's node problem detector writes it.
fn notice(event: &str, seconds: i32, machine: &str, at: Timestamp) -> String {
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&at);
    let text = text.unwrap_or_else(|_| at.to_string());
    format!(
        "{event} Scheduled: {text}. DurationInSeconds: {seconds}. EventId: {machine}-{}",
        at.as_second()
    )
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now.to_string()})
}

fn warn(node: &str, error: &kube::Error) {
    tracing::warn!(Node = node, %error, "the simulated Azure cannot tell the cluster about a machine, and will try again");
}

/// Objects of a kind whenever they change, for ever.
fn watched<K>(api: Api<K>, config: watcher::Config, clock: SharedClock) -> impl Stream<Item = K>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    watcher::watcher(api, config).filter_map(move |event| {
        let clock = clock.clone();
        async move {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => Some(object),
                Ok(_) => None,
                Err(error) => {
                    tracing::debug!(%error, "watching");
                    clock.sleep(RETRY).await;
                    None
                }
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

fn provider_id_of(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}
