//! What happens in a scenario, and what must be true when it is over.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, EvictParams};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_provider_kwok::keys::MESSAGE;
use spokeshave_runtime::Api;

use super::policies::Policies;
use super::scenario::{Scenario, budgets, pick};
use super::workloads::{Kind, Workload};
use crate::lab::{Lab, Rates};
use spokeshave_cluster::objects::{is_deleting, is_ready};

/// Within this time a calm cluster settles: a machine that never registers costs 15 minutes, and one after it may do the same.
const SETTLES_WITHIN: Duration = Duration::from_secs(4 * 3600);
const REPLICAS: [&str; 2] = ["a", "b"];
const PROTECTION: &str = "karpenter.sh/do-not-disrupt";

/// A scenario in progress.
#[derive(Debug)]
pub(crate) struct Days {
    scenario: Scenario,
    chance: ChaCha8Rng,
    workloads: Vec<Workload>,
    policies: Policies,
    pub(crate) steps: usize,
}

fn text(error: impl std::fmt::Display) -> String {
    format!("the scenario cannot go on: {error}")
}

/// The user was too late; that happens to users.
fn forgive<T>(result: kube::Result<T>) -> Result<(), String> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 429 | 500) => Ok(()),
        Err(error) => Err(text(error)),
    }
}

impl Days {
    pub(crate) fn new(scenario: Scenario, lab: &Lab) -> Self {
        Self {
            scenario,
            chance: lab.entropy.child("soak").rng("steps"),
            workloads: Vec::new(),
            policies: Policies::new(lab),
            steps: 0,
        }
    }

    pub(crate) async fn live(&mut self, lab: &mut Lab) -> Result<(), String> {
        self.furnish(lab).await?;
        self.trouble(lab).await?;
        self.calm(lab).await?;
        self.close(lab).await
    }

    async fn furnish(&mut self, lab: &mut Lab) -> Result<(), String> {
        let class = json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": *pick(&mut self.chance, &["0s", "5s", "40s"])}});
        lab.create(&Api::<KWOKNodeClass>::all(lab.client.clone()), class)
            .await
            .map_err(text)?;
        let storage = json!({"metadata": {"name": "fast"}, "provisioner": "disk.csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
        lab.create(&Api::<StorageClass>::all(lab.client.clone()), storage)
            .await
            .map_err(text)?;
        for index in 0..self.scenario.pools {
            let pool = self.scenario.pool(index, &mut self.chance);
            lab.create(&Api::<NodePool>::all(lab.client.clone()), pool)
                .await
                .map_err(text)?;
        }
        if self.scenario.policies {
            self.policies.change(lab).await?;
            self.policies.change(lab).await?;
        }
        for name in &REPLICAS[..self.scenario.replicas] {
            lab.start(name);
        }
        for index in 0..self.scenario.workloads {
            let wishes = if self.scenario.policies {
                self.policies.wishes()
            } else {
                json!({})
            };
            let mut workload = Workload::draw(index, &self.scenario, &wishes, &mut self.chance);
            let replicas = self.chance.random_range(0..=10);
            workload.create(lab, replicas).await.map_err(text)?;
            self.workloads.push(workload);
            self.pass(lab, 0, 20).await;
        }
        Ok(())
    }

    async fn pass(&mut self, lab: &Lab, from_seconds: u64, to_seconds: u64) {
        let milliseconds = self.chance.random_range(from_seconds * 1000..=to_seconds * 1000);
        lab.clock.sleep(Duration::from_millis(milliseconds)).await;
    }

    async fn trouble(&mut self, lab: &mut Lab) -> Result<(), String> {
        let start = lab.clock.now();
        let length = Duration::from_secs(self.scenario.minutes * 60);
        while lab.clock.since(start) < length {
            self.step(lab).await?;
            self.steps += 1;
            let longest = *pick(&mut self.chance, &[3, 30, 180]);
            self.pass(lab, 0, longest).await;
            self.revive(lab);
        }
        Ok(())
    }

    /// An operator that lost its lease ends; its pod starts again.
    fn revive(&self, lab: &mut Lab) {
        for name in &REPLICAS[..self.scenario.replicas] {
            lab.start(name);
        }
    }

    async fn step(&mut self, lab: &mut Lab) -> Result<(), String> {
        let scenario = self.scenario.clone();
        // Weight, whether it may happen, and what.
        let choices: [(u32, bool, Step); 17] = [
            (8, true, Step::Scale),
            (2, true, Step::Roll),
            (2, scenario.deletes, Step::DeletePod),
            (2, scenario.deletes, Step::DeleteNode),
            (2, scenario.deletes, Step::DeleteClaim),
            (1, scenario.deletes && scenario.cloud_troubles, Step::LoseInstance),
            (1, scenario.deletes && scenario.cloud_troubles, Step::Interrupt),
            (1, scenario.deletes && scenario.pools > 1, Step::DeletePool),
            (3, scenario.drift, Step::EditPool),
            (3, scenario.budgets_for_pods, Step::EditBudget),
            (2, scenario.cordons, Step::Cordon),
            (3, scenario.do_not_disrupt, Step::Protect),
            (2, scenario.rates != Rates::default(), Step::Storm),
            (3, scenario.watch_gaps, Step::WatchGap),
            (2, scenario.kills || scenario.cuts, Step::KillOrCut),
            (1, scenario.tampering, Step::Tamper),
            (3, scenario.policies, Step::ChangePolicy),
        ];
        let total: u32 = choices
            .iter()
            .filter(|(_, may, _)| *may)
            .map(|(weight, ..)| weight)
            .sum();
        let mut drawn = self.chance.random_range(0..total);
        for (weight, may, step) in choices {
            if !may {
                continue;
            }
            if drawn < weight {
                return self.take(lab, step).await;
            }
            drawn -= weight;
        }
        Ok(())
    }

    async fn take(&mut self, lab: &mut Lab, step: Step) -> Result<(), String> {
        let client = lab.client.clone();
        match step {
            Step::Scale => {
                let index = self.chance.random_range(0..self.workloads.len());
                let replicas = *pick(&mut self.chance, &[0, 0, 1, 2, 3, 5, 8, 12]);
                forgive(self.workloads[index].scale(lab, replicas).await)
            }
            Step::Roll => {
                let index = self.chance.random_range(0..self.workloads.len());
                forgive(self.workloads[index].roll(lab).await)
            }
            Step::DeletePod => {
                let Some(pod) = self.one::<Pod>(lab).await else {
                    return Ok(());
                };
                let api: Api<Pod> = Api::default_namespaced(client);
                if self.chance.random_bool(0.5) {
                    return forgive(api.evict(&pod.name_any(), &EvictParams::default()).await);
                }
                forgive(api.delete(&pod.name_any(), &DeleteParams::default()).await)
            }
            Step::DeleteNode => {
                let Some(node) = self.one::<Node>(lab).await else {
                    return Ok(());
                };
                forgive(
                    Api::<Node>::all(client)
                        .delete(&node.name_any(), &DeleteParams::default())
                        .await,
                )
            }
            Step::DeleteClaim => {
                let Some(claim) = self.one::<NodeClaim>(lab).await else {
                    return Ok(());
                };
                forgive(
                    Api::<NodeClaim>::all(client)
                        .delete(claim.name(), &DeleteParams::default())
                        .await,
                )
            }
            Step::LoseInstance => {
                let Some(instance) = self.one::<KWOKInstance>(lab).await else {
                    return Ok(());
                };
                lab.invariants.disturb();
                forgive(
                    Api::<KWOKInstance>::all(client)
                        .delete(instance.name(), &DeleteParams::default())
                        .await,
                )
            }
            Step::Interrupt => {
                let Some(instance) = self.one::<KWOKInstance>(lab).await else {
                    return Ok(());
                };
                let text = *pick(
                    &mut self.chance,
                    &[
                        "spot_interrupted",
                        "spot_interrupted",
                        "rebalance_recommendation",
                        "???",
                    ],
                );
                let message = json!({"metadata": {"annotations": {MESSAGE: text}}});
                let api = Api::<KWOKInstance>::all(client);
                forgive(lab.merge(&api, instance.name(), message).await)
            }
            Step::DeletePool => self.replace_pool(lab).await,
            Step::EditPool => self.edit_pool(lab).await,
            Step::EditBudget => {
                let index = self.chance.random_range(0..self.workloads.len());
                forgive(self.workloads[index].budget(lab, &mut self.chance).await)
            }
            Step::Cordon => {
                let Some(node) = self.one::<Node>(lab).await else {
                    return Ok(());
                };
                let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
                let patch = json!({"spec": {"unschedulable": !cordoned}});
                forgive(
                    lab.merge(&Api::<Node>::all(client), &node.name_any(), patch)
                        .await,
                )
            }
            Step::Protect => self.protect(lab).await,
            // It is still there when something else happens.
            Step::Storm => {
                let name = self.replica();
                let seconds = self.chance.random_range(20..=240);
                lab.weather(name)
                    .storm(self.scenario.rates, Duration::from_secs(seconds));
                Ok(())
            }
            Step::WatchGap => {
                let name = self.replica();
                let weather = lab.weather(name);
                if self.chance.random_bool(0.4) {
                    weather.break_watches();
                } else {
                    let length = *pick(&mut self.chance, &[2, 12, 45, 100]);
                    weather.hold_watches(Duration::from_secs(length));
                }
                Ok(())
            }
            Step::KillOrCut => self.kill_or_cut(lab).await,
            Step::Tamper => self.tamper(lab).await,
            Step::ChangePolicy => {
                let index = self.policies.place(self.workloads.len());
                match self.workloads.get(index) {
                    Some(workload) => self.policies.ask(lab, &workload.name).await,
                    None => self.policies.change(lab).await,
                }
            }
        }
    }

    fn replica(&mut self) -> &'static str {
        pick::<&str>(&mut self.chance, &REPLICAS[..self.scenario.replicas])
    }

    async fn one<K>(&mut self, lab: &Lab) -> Option<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let all = lab.list::<K>().await;
        (!all.is_empty()).then(|| pick(&mut self.chance, &all).clone())
    }

    async fn replace_pool(&mut self, lab: &Lab) -> Result<(), String> {
        let index = self.chance.random_range(1..self.scenario.pools);
        let name = format!("p{index}");
        let api: Api<NodePool> = Api::all(lab.client.clone());
        forgive(api.delete(&name, &DeleteParams::default()).await)?;
        lab.invariants.disturb();
        self.pass(lab, 0, 60).await;
        let pool = self.scenario.pool(index, &mut self.chance);
        forgive(lab.create(&api, pool).await)
    }

    async fn edit_pool(&mut self, lab: &Lab) -> Result<(), String> {
        let index = self.chance.random_range(0..self.scenario.pools);
        let patch = match self.chance.random_range(0..6) {
            0 | 1 => {
                json!({"spec": {"template": {"metadata": {"labels": {"version": format!("v{}", self.steps)}}}}})
            }
            2 => json!({"spec": {"disruption": {"budgets": budgets(&mut self.chance)}}}),
            3 => {
                json!({"spec": {"disruption": {"consolidateAfter": *pick(&mut self.chance, &["0s", "30s", "Never"])}}})
            }
            4 => json!({"spec": {"weight": self.chance.random_range(1..=9)}}),
            _ => {
                json!({"spec": {"template": {"spec": {"terminationGracePeriod": *pick(&mut self.chance, &["30s", "5m", "1h"])}}}})
            }
        };
        let api: Api<NodePool> = Api::all(lab.client.clone());
        forgive(lab.merge(&api, &format!("p{index}"), patch).await)
    }

    async fn protect(&mut self, lab: &Lab) -> Result<(), String> {
        let value = pick(&mut self.chance, &[json!("true"), json!(null)]).clone();
        let patch = json!({"metadata": {"annotations": {PROTECTION: value}}});
        if self.chance.random_bool(0.5) {
            let Some(node) = self.one::<Node>(lab).await else {
                return Ok(());
            };
            return forgive(
                lab.merge(&Api::<Node>::all(lab.client.clone()), &node.name_any(), patch)
                    .await,
            );
        }
        let Some(pod) = self.one::<Pod>(lab).await else {
            return Ok(());
        };
        let api: Api<Pod> = Api::default_namespaced(lab.client.clone());
        forgive(lab.merge(&api, &pod.name_any(), patch).await)
    }

    async fn kill_or_cut(&mut self, lab: &mut Lab) -> Result<(), String> {
        let name = self.replica();
        if self.scenario.kills && (!self.scenario.cuts || self.chance.random_bool(0.6)) {
            if self.chance.random_bool(0.7) {
                lab.kill(name).await;
            } else {
                lab.stop(name).await;
            }
            let down = *pick(&mut self.chance, &[0, 1, 20, 90]);
            self.pass(lab, 0, down).await;
            lab.start(name);
        } else {
            let length = *pick(&mut self.chance, &[3, 15, 60]);
            lab.weather(name).cut(Duration::from_secs(length));
        }
        Ok(())
    }

    /// User errors.
    async fn tamper(&mut self, lab: &Lab) -> Result<(), String> {
        lab.invariants.disturb();
        let patch = json!({"metadata": {"finalizers": null}});
        if self.chance.random_bool(0.5) {
            let Some(claim) = self.one::<NodeClaim>(lab).await else {
                return Ok(());
            };
            let api: Api<NodeClaim> = Api::all(lab.client.clone());
            return forgive(lab.merge(&api, claim.name(), patch).await);
        }
        let Some(node) = self.one::<Node>(lab).await else {
            return Ok(());
        };
        let api: Api<Node> = Api::all(lab.client.clone());
        forgive(lab.merge(&api, &node.name_any(), patch).await)
    }

    /// Nothing is in the way any more: the cluster settles with every pod running.
    async fn calm(&mut self, lab: &mut Lab) -> Result<(), String> {
        lab.log.note("calm");
        for name in REPLICAS {
            lab.weather(name).set(Rates::default());
        }
        self.revive(lab);
        lab.invariants.disturb();
        if self.scenario.policies {
            self.policies.thaw(lab).await?;
        }
        self.clear_away(lab).await?;
        let start = lab.clock.now();
        loop {
            self.revive(lab);
            self.free_pods(lab).await?;
            let unsettled = self.unsettled(lab).await;
            if unsettled.is_empty() {
                return Ok(());
            }
            if lab.clock.since(start) > SETTLES_WITHIN {
                return Err(format!(
                    "not settled {SETTLES_WITHIN:?} after the last trouble: {}",
                    unsettled.join("; ")
                ));
            }
            lab.clock.sleep(Duration::from_secs(15)).await;
        }
    }

    /// Whatever forbids moves.
    async fn clear_away(&mut self, lab: &Lab) -> Result<(), String> {
        let client = lab.client.clone();
        let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
        for budget in lab.list::<PodDisruptionBudget>().await {
            forgive(budgets.delete(&budget.name_any(), &DeleteParams::default()).await)?;
        }
        for node in lab.list::<Node>().await {
            let api: Api<Node> = Api::all(client.clone());
            let patch =
                json!({"metadata": {"annotations": {PROTECTION: null}}, "spec": {"unschedulable": null}});
            forgive(lab.merge(&api, &node.name_any(), patch).await)?;
        }
        self.free_pods(lab).await
    }

    /// Pods whose template forbids moves forbid none: where nodes expire sooner than a protected pod's drain ends, there is always one on its way out.
    async fn free_pods(&self, lab: &Lab) -> Result<(), String> {
        let free = json!({"metadata": {"annotations": {PROTECTION: null}}});
        for pod in lab.list::<Pod>().await {
            if pod.annotations().contains_key(PROTECTION) {
                let api: Api<Pod> = Api::default_namespaced(lab.client.clone());
                forgive(lab.merge(&api, &pod.name_any(), free.clone()).await)?;
            }
        }
        Ok(())
    }

    /// What is not as it should be.
    async fn unsettled(&self, lab: &Lab) -> Vec<String> {
        let mut found = Vec::new();
        for pod in lab.list::<Pod>().await {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if !is_deleting(&pod.metadata) && phase != Some("Succeeded") && !is_ready(&pod) {
                found.push(format!(
                    "pod {} is {}",
                    pod.name_any(),
                    phase.unwrap_or("without phase")
                ));
            }
        }
        let instances: BTreeSet<String> = lab
            .list::<KWOKInstance>()
            .await
            .iter()
            .map(|instance| format!("kwok://{}", instance.name()))
            .collect();
        let mut claimed = BTreeSet::new();
        let claims = lab.list::<NodeClaim>().await;
        for claim in &claims {
            let id = claim.provider_id().unwrap_or_default();
            if is_deleting(&claim.metadata) {
                found.push(format!("nodeclaim {} is on its way out", claim.name()));
            } else if !instances.contains(id) {
                found.push(format!("nodeclaim {} has no instance ({id:?})", claim.name()));
            } else if !claimed.insert(id.to_owned()) {
                found.push(format!("two nodeclaims have instance {id}"));
            }
        }
        for instance in instances.difference(&claimed) {
            found.push(format!("instance {instance} has no nodeclaim"));
        }
        let mut with_node = BTreeSet::new();
        for node in lab.list::<Node>().await {
            let spec = node.spec.clone().unwrap_or_default();
            let id = spec.provider_id.unwrap_or_default();
            let taints = spec.taints.unwrap_or_default();
            if let Some(taint) = taints.iter().find(|taint| taint.key.starts_with("karpenter.sh/")) {
                found.push(format!("node {} has the taint {}", node.name_any(), taint.key));
            }
            if !claimed.contains(&id) {
                found.push(format!("node {} has no nodeclaim", node.name_any()));
            }
            with_node.insert(id);
        }
        for command in lab.list::<Disruption>().await {
            let phase = command.status.as_ref().and_then(|status| status.phase.clone());
            if !matches!(
                phase,
                Some(DisruptionPhase::Succeeded | DisruptionPhase::RolledBack)
            ) {
                found.push(format!("disruption {} is {phase:?}", command.name_any()));
            }
        }
        for id in claimed.difference(&with_node) {
            found.push(format!("instance {id} has no node"));
        }
        found
    }

    /// All workloads but daemons end: nothing is left.
    async fn close(&mut self, lab: &mut Lab) -> Result<(), String> {
        lab.log.note("the end of all workloads");
        let pools: Api<NodePool> = Api::all(lab.client.clone());
        for pool in lab.list::<NodePool>().await {
            let disruption: Value = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
            forgive(
                lab.merge(&pools, pool.name(), json!({"spec": {"disruption": disruption}}))
                    .await,
            )?;
        }
        for workload in self
            .workloads
            .iter()
            .filter(|workload| workload.kind != Kind::DaemonSet)
        {
            forgive(workload.delete(lab).await)?;
        }
        self.clear_away(lab).await?;
        lab.invariants.disturb();
        let start = lab.clock.now();
        loop {
            self.revive(lab);
            let left: Vec<String> = [
                lab.list::<NodeClaim>()
                    .await
                    .iter()
                    .map(|one| format!("nodeclaim {}", one.name()))
                    .collect::<Vec<_>>(),
                lab.list::<Node>()
                    .await
                    .iter()
                    .map(|one| format!("node {}", one.name_any()))
                    .collect(),
                lab.list::<KWOKInstance>()
                    .await
                    .iter()
                    .map(|one| format!("instance {}", one.name()))
                    .collect(),
                lab.list::<VolumeAttachment>()
                    .await
                    .iter()
                    .map(|one| format!("volumeattachment {}", one.name_any()))
                    .collect(),
            ]
            .concat();
            if left.is_empty() {
                return Ok(());
            }
            if lab.clock.since(start) > SETTLES_WITHIN {
                return Err(format!(
                    "{SETTLES_WITHIN:?} after the end of all workloads there is left: {}",
                    left.join(", ")
                ));
            }
            lab.clock.sleep(Duration::from_secs(15)).await;
        }
    }
}

/// Things that happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Scale,
    Roll,
    DeletePod,
    DeleteNode,
    DeleteClaim,
    LoseInstance,
    Interrupt,
    DeletePool,
    EditPool,
    EditBudget,
    Cordon,
    Protect,
    Storm,
    WatchGap,
    KillOrCut,
    Tamper,
    ChangePolicy,
}
