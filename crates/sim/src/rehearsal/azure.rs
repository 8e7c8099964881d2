//! Seeds on the simulated Azure, with the shipped provider for Azure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt as _};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use spokeshave_api::crds::Cloud;
use spokeshave_api::validation::LabelRules;
use spokeshave_azure_cloud::{AzureOptions, AzureProvider, Http, Outside};
use spokeshave_azure_simulated::{Azure, MESSAGE, Options, Refusal};
use spokeshave_ports::{CloudProvider, SharedClock};
use spokeshave_provider_azure::bootstrap::Cluster;
use spokeshave_provider_azure::{labels, tags};
use spokeshave_runtime::{Api, read_only};

use super::stage::{Census, HasDied, Machine, Stage, Words};
use super::steps::{Step, failed};
use super::{CLASS, CLUSTER};
use crate::invariants::later;
use crate::lab::Lab;
use crate::soak::pick;

const TROUBLES: [Step; 11] = [
    Step::Interrupt,
    Step::TerminateByHand,
    Step::Maintenance,
    Step::RunOut,
    Step::ZoneOutage,
    Step::FailLater,
    Step::Quota,
    Step::FailCalls,
    Step::LoseReplies,
    Step::RevokeTokens,
    Step::ReleaseImages,
];

/// What Azure refuses is left out for so long (Z6.5): when it has refused everything, no NodeClaim is made in that time.
const LEFT_OUT: Duration = Duration::from_secs(3600);

/// Between the notice of an eviction and the end of the machine.
const EVICTION_NOTICE: Duration = Duration::from_secs(30);
/// Notices stand on Nodes.
const NOTICES_TAKE: Duration = Duration::from_secs(20);

/// Requests whose replies are lost.
const REQUESTS: [&str; 4] = ["PUT", "DELETE", "GET", "POST"];

/// An Azure, and what it has said of its machines.
pub(super) struct OnAzure {
    azure: Azure,
    words: Words,
    options: Options,
}

impl OnAzure {
    pub(super) fn new(clock: SharedClock, options: Options) -> Self {
        OnAzure {
            azure: Azure::new(options.clone(), clock),
            words: Words::default(),
            options,
        }
    }

    /// One whose machines join after half a minute, or one that takes its time in everything.
    pub(super) fn options(is_slow: bool) -> Options {
        if is_slow {
            return Options {
                graph_lag: SignedDuration::from_secs(150),
                making: SignedDuration::from_secs(100),
                ..Options::slow()
            };
        }
        Options {
            joining: SignedDuration::from_secs(30),
            ..Options::instant()
        }
    }

    fn provider_on(&self, http: Arc<dyn Http>, lab: &Lab, client: Client) -> Arc<dyn CloudProvider> {
        let outside = Outside {
            http,
            assertion: Arc::new(self.azure.clone()),
        };
        let clock = lab.clock.clone();
        Arc::new(AzureProvider::of_cluster(
            outside,
            read_only(client),
            clock,
            provider_options(&self.options),
        ))
    }

    fn some_machine(&self, chance: &mut ChaCha8Rng) -> Option<String> {
        let machines = self.machines();
        (!machines.is_empty()).then(|| pick(chance, &machines).id.clone())
    }

    /// A Node tells of it: a machine that has none, or that is no spot machine, is not evicted.
    async fn take_back(&self, lab: &Lab, name: &str) -> Result<(), String> {
        let machines = self.machines();
        let is_spot = machines
            .iter()
            .any(|machine| machine.id == name && machine.is_spot);
        // Nobody acts on the annotation before this goes on: the user's requests take no time, and the simulated Azure hears of it first.
        if annotate(lab, name, "spot_evicted").await? && is_spot {
            let ends_at = later(lab.clock.now(), EVICTION_NOTICE);
            self.words.take_back(name, ends_at);
            lab.invariants.ask_cloud();
        }
        Ok(())
    }

    async fn happen(&self, lab: &Lab, step: Step, chance: &mut ChaCha8Rng) -> Result<(), String> {
        if matches!(
            step,
            Step::RunOut | Step::ZoneOutage | Step::FailLater | Step::Quota
        ) {
            lab.invariants.run_out(LEFT_OUT);
        }
        match step {
            Step::Interrupt | Step::Maintenance | Step::TerminateByHand => {
                let Some(name) = self.some_machine(chance) else {
                    return Ok(());
                };
                // What follows from an eviction at once is judged (33).
                if step != Step::Interrupt {
                    lab.invariants.disturb();
                }
                match step {
                    Step::Interrupt => self.take_back(lab, &name).await?,
                    Step::Maintenance => {
                        self.words.warn(&name);
                        annotate(lab, &name, "maintenance_scheduled").await?;
                    }
                    _ => self.azure.evict(&name),
                }
            }
            Step::RunOut => {
                let codes = [
                    "SkuNotAvailable",
                    "AllocationFailed",
                    "OverconstrainedAllocationRequest",
                ];
                self.azure.refuse(Refusal {
                    size: chance.random_bool(0.5).then(|| "Standard_D4s_v5".to_owned()),
                    spot: chance.random_bool(0.7).then_some(true),
                    status: Some(409),
                    code: (*pick(chance, &codes)).to_owned(),
                    message: "The requested size is not available.".to_owned(),
                    ..Refusal::default()
                });
            }
            Step::ZoneOutage => self.azure.refuse(Refusal {
                zone: Some(chance.random_range(1..=3).to_string()),
                status: Some(409),
                code: "ZonalAllocationFailed".to_owned(),
                message: "Allocation failed. We do not have sufficient capacity in this zone.".to_owned(),
                ..Refusal::default()
            }),
            Step::FailLater => self.azure.refuse(Refusal {
                spot: Some(chance.random_bool(0.5)),
                status: None,
                code: "AllocationFailed".to_owned(),
                message: "Allocation failed.".to_owned(),
                ..Refusal::default()
            }),
            Step::Quota => {
                let family = *pick(chance, &["standardDSv5Family", "standardFSv2Family"]);
                let left = chance.random_range(0..12);
                self.azure.set_quota(BTreeMap::from([(family.to_owned(), left)]));
            }
            Step::FailCalls => {
                self.azure
                    .throttle(chance.random_range(1..8), chance.random_range(1..40));
                lab.invariants.disturb();
            }
            Step::LoseReplies => {
                self.azure
                    .lose_replies(pick::<&str>(chance, &REQUESTS), chance.random_range(1..4));
                lab.invariants.disturb();
            }
            Step::RevokeTokens => self.azure.revoke_tokens(),
            Step::ReleaseImages => {
                let version = format!(
                    "2026{:02}.{}.0",
                    chance.random_range(9..=12),
                    chance.random_range(1..28)
                );
                self.azure.publish_image(&version);
                if self.options.machine_pool.is_some() && chance.random_bool(0.5) {
                    self.azure.set_drift_action("Recreate");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Lets something happen to the machine of a Node: whether that has joined.
async fn annotate(lab: &Lab, machine: &str, message: &str) -> Result<bool, String> {
    let nodes: Vec<Node> = lab.list().await;
    let Some(node) = nodes
        .iter()
        .map(|node| node.name_any())
        .find(|name| name.eq_ignore_ascii_case(machine))
    else {
        return Ok(false);
    };
    let api: Api<Node> = Api::all(lab.client.clone());
    let patch = json!({"metadata": {"annotations": {MESSAGE: message}}});
    match lab.merge::<Node>(&api, &node, patch).await {
        // It may have ended in the meantime.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        patched => patched.map(|_| true).map_err(failed),
    }
}

/// Whether a seed uses machines created by AKS. It is drawn from a separate random stream, so other seeds are unaffected.
pub(super) fn has_machine_pool(seed: u64) -> bool {
    const OWN: u64 = 0x616b_736d;
    ChaCha8Rng::seed_from_u64(seed ^ OWN).random_bool(0.4)
}

fn provider_options(options: &Options) -> AzureOptions {
    options.provider_options(Cluster {
        name: CLUSTER.to_owned(),
        endpoint: "https://rehearsal.example:6443".to_owned(),
        ..Cluster::default()
    })
}

/// What it adds to the rules about labels.
pub(super) fn label_rules() -> LabelRules {
    LabelRules {
        restricted_domains: vec!["karpenter.azure.com".to_owned()],
        well_known: labels::WELL_KNOWN
            .iter()
            .map(|label| (*label).to_owned())
            .collect(),
        unsupported: Vec::new(),
    }
}

impl Stage for OnAzure {
    fn name(&self) -> &'static str {
        match self.options.machine_pool {
            Some(_) => "Azure with machines of AKS",
            None => "Azure",
        }
    }

    fn definitions(&self) -> Cloud {
        Cloud::Azure
    }

    fn class(&self) -> Value {
        json!({"apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": {"name": CLASS}, "spec": {}})
    }

    fn class_change(&self, number: u32) -> Value {
        json!({"spec": {"osDiskSizeGB": 128 + number}})
    }

    fn requirements(&self) -> Value {
        json!([
            {"key": "karpenter.azure.com/sku-family", "operator": "In", "values": ["D", "F"]},
            {"key": "karpenter.azure.com/sku-cpu", "operator": "Lt", "values": ["17"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
        ])
    }

    fn join(&self, client: Client) {
        let machines = self.azure.clone();
        tokio::spawn(async move { machines.join(client, std::future::pending()).await });
    }

    fn provider(&self, lab: &Lab, client: Client) -> Arc<dyn CloudProvider> {
        self.provider_on(Arc::new(self.azure.clone()), lab, client)
    }

    fn mortal_provider(&self, lab: &Lab, client: Client, calls: u64) -> (Arc<dyn CloudProvider>, HasDied) {
        let (http, life) = self.azure.mortal(calls);
        (
            self.provider_on(http, lab, client),
            Box::new(move || life.has_ended()),
        )
    }

    fn census(&self) -> Census {
        let (azure, words) = (self.azure.clone(), self.words.clone());
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Arc::new(move || {
            let found = azure.machines();
            let machines = found.iter().map(|body| {
                let id = text(&body["name"]).unwrap_or_default().to_lowercase();
                let mut said = words.about(&id);
                // A launch that has failed after all.
                said.is_warned |= body["properties"]["provisioningState"] == "Failed";
                Machine {
                    claim: text(&body["tags"][tags::NODE_CLAIM]),
                    is_ending: body["properties"]["provisioningState"] == "Deleting",
                    is_spot: body["properties"]["priority"] == "Spot",
                    is_held: false,
                    launched_at: text(&body["properties"]["timeCreated"]).and_then(|text| text.parse().ok()),
                    said,
                    id,
                }
            });
            machines.collect()
        })
    }

    fn belongings(&self) -> Vec<(&'static str, Vec<String>)> {
        vec![
            ("network interface", self.azure.interfaces()),
            ("record of AKS", self.azure.aks_machines()),
        ]
    }

    fn calls(&self) -> Vec<(String, u64)> {
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        for line in self.azure.log() {
            let method = line.split(' ').next().unwrap_or_default().to_owned();
            *calls.entry(method).or_default() += 1;
        }
        calls.into_iter().collect()
    }

    fn troubles(&self) -> &'static [Step] {
        &TROUBLES
    }

    fn act<'a>(
        &'a self,
        lab: &'a Lab,
        step: Step,
        chance: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<(), String>> {
        self.happen(lab, step, chance).boxed()
    }

    fn word_takes(&self) -> Duration {
        NOTICES_TAKE
    }

    fn interrupt<'a>(&'a self, lab: &'a Lab, machine: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.take_back(lab, machine).boxed()
    }

    fn heal(&self) {
        self.azure.heal();
    }
}
