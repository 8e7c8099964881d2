//! What DisruptionPolicies keep from happening, at full size, with and without them: nodes that all expire together, drift through three zones past a NodePool
//! that always fails, an image on which pods fail, a zone that is lost, and a freeze in the middle of drift.
//!
//! Everything is on virtual time and from a seed. How a churning cluster converges is measured in [`churn`](super::churn).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{DisruptionPolicy, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_runtime::Api;

use crate::lab::{Lab, LabOptions};

const ZONE: &str = "topology.kubernetes.io/zone";
const POOL: &str = "karpenter.sh/nodepool";
const ZONES: [&str; 3] = ["test-zone-a", "test-zone-b", "test-zone-c"];
/// Machines of this type never join.
const BROKEN: &str = "m-8x-amd64-linux";
/// How often the cluster is sampled.
const LOOK: Duration = Duration::from_secs(5);

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct GuardCase {
    /// Its name in figures.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// What is counted as harm.
    pub harm: &'static str,
    /// The description of the policy, and its spec.
    pub policy: (&'static str, &'static str),
    story: Story,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    Expiry,
    Drift,
    Image,
    Outage,
    Freeze,
}

/// All cases.
pub const GUARD_CASES: [GuardCase; 5] = [
    GuardCase {
        name: "expiry",
        about: "300 nodes that were born in one minute expire after 80 minutes",
        harm: "nodes that `expireAfter` took by force",
        policy: (
            "expiry: {softPercent: 50}; budgets: [{limit: \"20\", reasons: [Expired]}]",
            r#"{"expiry": {"softPercent": 50}, "budgets": [{"limit": "20", "reasons": ["Expired"]}]}"#,
        ),
        story: Story::Expiry,
    },
    GuardCase {
        name: "drift",
        about: "300 nodes of 10 NodePools in 3 zones drift; new machines of one NodePool never join",
        harm: "nodes of the other NodePools that were not replaced within a day",
        policy: (
            "rollout: {canary: 2, soak: 1m}; budgets: [{scope: Zone, oneAtATime: true}]",
            r#"{"rollout": {"canary": 2, "soak": "1m"}, "budgets": [{"scope": "Zone", "oneAtATime": true}]}"#,
        ),
        story: Story::Drift,
    },
    GuardCase {
        name: "image",
        about: "an image for 60 nodes on which nodes are Ready and pods are not; 2 hours",
        harm: "nodes whose pods are not ready",
        policy: (
            "rollout: {canary: 1, soak: 10m}",
            r#"{"rollout": {"canary": 1, "soak": "10m"}}"#,
        ),
        story: Story::Image,
    },
    GuardCase {
        name: "outage",
        about: "half of a zone of 60 nodes in 3 zones is not Ready for 45 minutes, and all drift; the NodePool's budget is 50%",
        harm: "nodes that commands took meanwhile",
        policy: (
            "circuitBreakers: {notReady: {percent: 30, scope: Zone}}",
            r#"{"circuitBreakers": {"notReady": {"percent": 30, "scope": "Zone"}}}"#,
        ),
        story: Story::Outage,
    },
    GuardCase {
        name: "freeze",
        about: "a freeze while the first of 60 drifted nodes wait for their replacements; 30 minutes",
        harm: "nodes that were deleted after it",
        policy: (
            "freeze: {reason: incident 42}",
            r#"{"freeze": {"reason": "incident 42"}}"#,
        ),
        story: Story::Freeze,
    },
];

/// What a run has come to. Less is better in each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guarded {
    /// Nodes that were on their way out at once, at most.
    pub at_once: usize,
    /// Zones in which they were at once, at most.
    pub zones_at_once: usize,
    /// What must not be; [`GuardCase::harm`] says what.
    pub harm: usize,
    /// Minutes until nothing was left to do; none where that never came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u64>,
}

/// By case: without the policy, and with it.
pub type GuardTable = BTreeMap<String, [Guarded; 2]>;

impl Guarded {
    /// What is worse than it was, one line each: harm, zones and nodes at once at all, minutes by more than a quarter.
    #[must_use]
    pub fn worse_than(&self, before: &Guarded) -> Vec<String> {
        let rows = [
            ("atOnce", self.at_once, before.at_once),
            ("zonesAtOnce", self.zones_at_once, before.zones_at_once),
            ("harm", self.harm, before.harm),
        ];
        let mut worse: Vec<String> = rows
            .into_iter()
            .filter(|(_, now, before)| now > before)
            .map(|(name, now, before)| format!("{name} is {now}, was {before}"))
            .collect();
        let is_slower = match (self.minutes, before.minutes) {
            (Some(now), Some(before)) => now > before + (before / 4).max(5),
            (None, Some(_)) => true,
            _ => false,
        };
        if is_slower {
            worse.push(format!("minutes is {:?}, was {:?}", self.minutes, before.minutes));
        }
        worse
    }
}

/// The text table.
#[must_use]
pub fn guard_markdown(table: &GuardTable) -> String {
    let mut text = String::from(
        "| Case | Policy | At once, at most | Zones at once | Harm | Done after |\n|---|---|---:|---:|---:|---:|\n",
    );
    for case in GUARD_CASES {
        let Some(runs) = table.get(case.name) else {
            continue;
        };
        for (index, run) in runs.iter().enumerate() {
            let (about, policy) = if index == 0 {
                (format!("{}. Harm: {}", case.about, case.harm), "none".to_owned())
            } else {
                (String::new(), format!("`{}`", case.policy.0))
            };
            let minutes = run
                .minutes
                .map_or_else(|| "–".to_owned(), |minutes| format!("{minutes} min"));
            text += &format!(
                "| {about} | {policy} | {} | {} | {} | {minutes} |\n",
                run.at_once, run.zones_at_once, run.harm
            );
        }
    }
    text
}

/// Runs a case, with its policy or without.
///
/// # Errors
/// The server's; or what was broken.
pub async fn live_guarded(case: &GuardCase, with_policy: bool, seed: u64) -> Result<Guarded, String> {
    let mut options = LabOptions::new(seed);
    options.keep_log = false;
    if case.story == Story::Drift {
        options.cloud.never_register = vec![BROKEN.parse().map_err(|_| "a pattern")?];
    }
    let mut lab = Lab::new(options).await;
    let answer = Life {
        lab: &mut lab,
        case,
        spec: with_policy.then_some(case.policy.1),
        guarded: Guarded::default(),
    };
    let answer = answer.live().await;
    let broken = lab.invariants.violations();
    lab.end().await;
    match broken.first() {
        Some(first) => Err(format!("{}: {first}", case.name)),
        None => answer.map_err(|error| format!("{}: {error}", case.name)),
    }
}

/// A run in progress.
struct Life<'a> {
    lab: &'a mut Lab,
    case: &'a GuardCase,
    spec: Option<&'static str>,
    guarded: Guarded,
}

impl Life<'_> {
    async fn live(mut self) -> Result<Guarded, kube::Error> {
        match self.case.story {
            Story::Expiry => self.expiry().await?,
            Story::Drift => self.drift().await?,
            Story::Image => self.image().await?,
            Story::Outage => self.outage().await?,
            Story::Freeze => self.freeze().await?,
        }
        Ok(self.guarded)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.lab.client.clone())
    }

    /// So many NodePools of machines of eight cores, each with a pod for each of its nodes: `each` in each zone.
    async fn grow(&self, pools: usize, each: usize, expire_after: &str, budget: &str) -> kube::Result<()> {
        let class = json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "10s"}});
        self.lab.create(&self.api::<KWOKNodeClass>(), class).await?;
        for index in 0..pools {
            let name = format!("p{index}");
            let template = json!({
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": requirements("NotIn"),
                "expireAfter": expire_after,
            });
            let spec = json!({
                "template": {"spec": template},
                "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": budget}]},
            });
            let object = json!({"metadata": {"name": name}, "spec": spec});
            self.lab.create(&self.api::<NodePool>(), object).await?;
            for zone in ZONES {
                self.deploy(&name, zone, each).await?;
            }
        }
        Ok(())
    }

    async fn deploy(&self, pool: &str, zone: &str, replicas: usize) -> kube::Result<()> {
        let app = format!("{pool}-{zone}");
        let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 5, "failureThreshold": 1});
        let pod = json!({
            "nodeSelector": {ZONE: zone, POOL: pool},
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "c", "image": "i", "readinessProbe": probe, "resources": {"requests": {"cpu": "6", "memory": "1Gi"}}}],
        });
        let object = json!({"metadata": {"name": app}, "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": pod},
        }});
        let api: Api<Deployment> = Api::default_namespaced(self.lab.client.clone());
        self.lab.create(&api, object).await.map(drop)
    }

    async fn until_ready(&self, nodes: usize) {
        for _ in 0..720 {
            let ready = self
                .lab
                .list::<Pod>()
                .await
                .iter()
                .filter(|pod| is_ready(pod))
                .count();
            if ready == nodes {
                return;
            }
            self.lab.clock.sleep(LOOK).await;
        }
    }

    async fn apply_policy(&self) -> kube::Result<()> {
        let Some(spec) = self.spec else { return Ok(()) };
        let spec: Value = serde_json::from_str(spec).map_err(kube::Error::SerdeError)?;
        let object = json!({"metadata": {"name": "guard"}, "spec": spec});
        self.lab
            .create(&self.api::<DisruptionPolicy>(), object)
            .await
            .map(drop)
    }

    /// All NodePools ask for another label.
    async fn drift_all(&self) -> kube::Result<()> {
        for pool in self.lab.list::<NodePool>().await {
            let template = json!({"metadata": {"labels": {"team": "blue"}}});
            let patch = json!({"spec": {"template": template}});
            self.lab
                .merge(&self.api::<NodePool>(), &pool.name_any(), patch)
                .await?;
        }
        Ok(())
    }

    /// Waits a little, and sees what is being deleted.
    async fn look(&mut self) {
        self.lab.clock.sleep(LOOK).await;
        let claims = self.lab.list::<NodeClaim>().await;
        let mut leaving: BTreeMap<String, Option<String>> = BTreeMap::new();
        for claim in claims
            .iter()
            .filter(|claim| claim.metadata.deletion_timestamp.is_some())
        {
            leaving.insert(claim.name_any(), claim.labels().get(ZONE).cloned());
        }
        for one in self
            .lab
            .list::<Disruption>()
            .await
            .iter()
            .filter(|one| !one.is_finished())
        {
            for node in &one.spec.nodes {
                leaving.insert(node.node_claim.clone(), node.zone.clone());
            }
        }
        let zones: BTreeSet<&String> = leaving.values().flatten().collect();
        self.guarded.at_once = self.guarded.at_once.max(leaving.len());
        self.guarded.zones_at_once = self.guarded.zones_at_once.max(zones.len());
    }

    fn minutes_since(&self, start: Timestamp) -> u64 {
        let seconds = self.lab.clock.now().duration_since(start).as_secs();
        u64::try_from(seconds.max(0)).unwrap_or(0) / 60
    }

    async fn expiry(&mut self) -> kube::Result<()> {
        self.apply_policy().await?;
        self.grow(1, 100, "80m", "10%").await?;
        self.lab.start("a");
        self.until_ready(300).await;
        let start = self.lab.clock.now();
        let first: BTreeSet<String> = self
            .lab
            .list::<NodeClaim>()
            .await
            .iter()
            .map(|claim| claim.name_any())
            .collect();
        let mut commanded: BTreeSet<String> = BTreeSet::new();
        while self.minutes_since(start) < 110 {
            self.look().await;
            for one in self.lab.list::<Disruption>().await {
                commanded.extend(one.spec.nodes.into_iter().map(|node| node.node_claim));
            }
            let here = self.lab.list::<NodeClaim>().await;
            if here.iter().all(|claim| !first.contains(&claim.name_any())) {
                self.guarded.minutes = Some(self.minutes_since(start));
                break;
            }
        }
        self.guarded.harm = first.difference(&commanded).count();
        Ok(())
    }

    async fn drift(&mut self) -> kube::Result<()> {
        self.grow(10, 10, "Never", "10%").await?;
        self.lab.start("a");
        self.until_ready(300).await;
        self.apply_policy().await?;
        let failing = "p9";
        self.drift_all().await?;
        let template = json!({"spec": {"requirements": requirements("In")}});
        let patch = json!({"spec": {"template": template}});
        self.lab.merge(&self.api::<NodePool>(), failing, patch).await?;
        let start = self.lab.clock.now();
        while self.minutes_since(start) < 24 * 60 {
            self.look().await;
            let nodes = self.lab.list::<Node>().await;
            let old = nodes
                .iter()
                .filter(|node| !is_blue(node) && label(node, POOL) != failing);
            self.guarded.harm = old.count();
            if self.guarded.harm == 0 {
                self.guarded.minutes = Some(self.minutes_since(start));
                break;
            }
        }
        Ok(())
    }

    async fn image(&mut self) -> kube::Result<()> {
        self.grow(1, 20, "Never", "10%").await?;
        self.lab.start("a");
        self.until_ready(60).await;
        self.apply_policy().await?;
        self.drift_all().await?;
        let start = self.lab.clock.now();
        let pods: Api<Pod> = Api::default_namespaced(self.lab.client.clone());
        let mut broken: BTreeSet<String> = BTreeSet::new();
        while self.minutes_since(start) < 120 {
            self.look().await;
            let nodes = self.lab.list::<Node>().await;
            let new: BTreeSet<String> = nodes
                .iter()
                .filter(|node| is_blue(node))
                .map(|node| node.name_any())
                .collect();
            for pod in self.lab.list::<Pod>().await {
                let is_on_new = node_of(&pod).is_some_and(|node| new.contains(node));
                if is_on_new && broken.insert(pod.name_any()) {
                    let annotations = json!({"sim.spokeshave.dev/failing-probes": "readiness"});
                    let patch = json!({"metadata": {"annotations": annotations}});
                    drop(self.lab.merge(&pods, &pod.name_any(), patch).await?);
                }
            }
        }
        let pods = self.lab.list::<Pod>().await;
        let down: BTreeSet<&str> = pods
            .iter()
            .filter(|pod| !is_ready(pod))
            .filter_map(node_of)
            .collect();
        self.guarded.harm = down.len();
        Ok(())
    }

    async fn outage(&mut self) -> kube::Result<()> {
        self.grow(1, 20, "Never", "50%").await?;
        self.apply_policy().await?;
        self.lab.start("a");
        self.until_ready(60).await;
        let nodes = self.lab.list::<Node>().await;
        let lost = nodes.iter().filter(|node| label(node, ZONE) == ZONES[0]).take(10);
        for node in lost {
            let now = self.lab.clock.now().to_string();
            let condition = json!({"type": "Ready", "status": "Unknown", "reason": "Zone", "message": "", "lastTransitionTime": now, "lastHeartbeatTime": now});
            let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
            let api: Api<Node> = self.api();
            api.patch_status(&node.name_any(), &PatchParams::default(), &patch)
                .await?;
        }
        self.lab.clock.sleep(Duration::from_secs(15)).await;
        let start = self.lab.clock.now();
        self.drift_all().await?;
        while self.minutes_since(start) < 45 {
            self.look().await;
        }
        self.guarded.harm = self.taken(start).await;
        Ok(())
    }

    async fn freeze(&mut self) -> kube::Result<()> {
        self.grow(1, 20, "Never", "10%").await?;
        self.lab.start("a");
        self.until_ready(60).await;
        self.drift_all().await?;
        for _ in 0..120 {
            self.look().await;
            let ledger = self.lab.list::<Disruption>().await;
            if ledger.iter().any(|one| one.phase() == DisruptionPhase::Replacing) {
                break;
            }
        }
        self.apply_policy().await?;
        let start = self.lab.clock.now();
        while self.minutes_since(start) < 30 {
            self.look().await;
        }
        self.guarded.harm = self.taken(start).await;
        Ok(())
    }

    /// Nodes that commands have deleted since.
    async fn taken(&self, since: Timestamp) -> usize {
        let ledger = self.lab.list::<Disruption>().await;
        let deleted = ledger.iter().filter(|one| {
            let status = one.status.as_ref();
            let at = status.and_then(|status| status.deleted_at.as_ref());
            at.is_some_and(|at| at.0 > since)
        });
        deleted.map(|one| one.spec.nodes.len()).sum()
    }
}

/// Machines of eight cores at most; of the type that never joins, or of any other.
fn requirements(operator: &str) -> Value {
    json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        {"key": "node.kubernetes.io/instance-type", "operator": operator, "values": [BROKEN]},
    ])
}

fn label<'a>(node: &'a Node, key: &str) -> &'a str {
    node.labels().get(key).map_or("", String::as_str)
}

fn is_blue(node: &Node) -> bool {
    label(node, "team") == "blue"
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}
