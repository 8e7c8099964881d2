//! Workloads of upstream's performance suites (P App. C) and of its own bench, as Deployments in a laboratory, for measuring what the operator
//! makes of them. It measures nothing itself, except [`settle`], what a cluster costs and moves until it rests.

pub mod churn;
pub mod figures;
pub mod guard;
pub mod layout;
pub mod settle;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use spokeshave_api::{KWOKNodeClass, NodePool};
use spokeshave_runtime::Api;

use crate::lab::Lab;

/// Affinity between pods of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anywhere.
    Plain,
    /// Spread over hosts.
    HostSpread,
    /// One a host.
    HostAnti,
    /// Spread over zones.
    ZoneSpread,
    /// Spread over zones, one a host.
    ZoneSpreadHostAnti,
    /// Spread over zones and hosts.
    ZoneSpreadHostSpread,
    /// Rather beside each other.
    PreferredHost,
    /// Rather in one zone.
    PreferredZone,
    /// Not to be evicted.
    DoNotDisrupt,
}

/// A workload and how many replicas it is to have.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name of the Deployment.
    pub name: String,
    /// What a pod asks for.
    pub cpu: &'static str,
    /// The same of memory.
    pub memory: &'static str,
    /// Affinity between its pods.
    pub kind: Kind,
    /// Pods.
    pub replicas: u32,
    /// Their grace period.
    pub grace_seconds: u32,
}

/// A workload.
#[must_use]
pub fn workload(name: &str, cpu: &'static str, memory: &'static str, kind: Kind, replicas: u32) -> Workload {
    Workload {
        name: name.to_owned(),
        cpu,
        memory,
        kind,
        replicas,
        grace_seconds: 1,
    }
}

/// Upstream's small pods.
#[must_use]
pub fn small(kind: Kind, replicas: u32) -> Workload {
    workload("small", "900m", "3100Mi", kind, replicas)
}

/// Upstream's large pods.
#[must_use]
pub fn large(kind: Kind, replicas: u32) -> Workload {
    workload("large", "3500m", "28Gi", kind, replicas)
}

/// The thirty deployments of upstream's test of wide deployments: twenty with so many pods, ten with others.
#[must_use]
pub fn wide(first: u32, others: u32) -> Vec<Workload> {
    const CPU: [&str; 30] = [
        "240m", "450m", "650m", "900m", "1400m", "1900m", "2400m", "2800m", "3300m", "3700m", "2300m",
        "900m", "1300m", "2800m", "1800m", "1850m", "3300m", "3800m", "225m", "450m", "700m", "900m",
        "1300m", "1800m", "2400m", "2800m", "3400m", "3800m", "3300m", "2800m",
    ];
    const MEMORY: [&str; 30] = [
        "300Mi", "400Mi", "700Mi", "1Gi", "2Gi", "4Gi", "8Gi", "4Gi", "16Gi", "10Gi", "64Gi", "30Gi", "32Gi",
        "32Gi", "30Gi", "20Gi", "30Gi", "300Mi", "500Mi", "750Mi", "1Gi", "2Gi", "4Gi", "8Gi", "16Gi",
        "32Gi", "28Gi", "64Gi", "13Gi", "24Gi",
    ];
    let pairs = CPU.into_iter().zip(MEMORY).enumerate();
    pairs
        .map(|(index, (cpu, memory))| {
            let kind = match index {
                0..3 => Kind::ZoneSpreadHostAnti,
                3..6 => Kind::ZoneSpreadHostSpread,
                _ => Kind::ZoneSpread,
            };
            let replicas = if index < 20 { first } else { others };
            workload(&format!("wide-{:02}", index + 1), cpu, memory, kind, replicas)
        })
        .collect()
}

/// Six deployments of sixteen pods, one of each kind.
#[must_use]
pub fn complex() -> Vec<Workload> {
    let kinds = [
        ("generic", "1", "256Mi", Kind::Plain),
        ("zone-spread", "250m", "1Gi", Kind::ZoneSpread),
        ("host-spread", "500m", "512Mi", Kind::HostSpread),
        ("host-affinity", "100m", "100Mi", Kind::PreferredHost),
        ("zone-affinity", "1500m", "2Gi", Kind::PreferredZone),
        ("host-anti", "250m", "4Gi", Kind::HostAnti),
    ];
    kinds
        .map(|(name, cpu, memory, kind)| workload(name, cpu, memory, kind, 16))
        .into()
}

fn template(of: &Workload) -> Value {
    const HOST: &str = "kubernetes.io/hostname";
    const ZONE: &str = "topology.kubernetes.io/zone";
    let selector = json!({"matchLabels": {"app": of.name}});
    let spread = |key: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector});
    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": HOST, "labelSelector": selector}]}});
    let prefer = |key: &str| {
        json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}}]}})
    };
    let mut template = json!({
        "metadata": {"labels": {"app": of.name, "testing/cluster": "unspecified"}},
        "spec": {"terminationGracePeriodSeconds": of.grace_seconds, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": of.cpu, "memory": of.memory}}},
        ]},
    });
    match of.kind {
        Kind::Plain => {}
        Kind::HostSpread => template["spec"]["topologySpreadConstraints"] = json!([spread(HOST)]),
        Kind::HostAnti => template["spec"]["affinity"] = anti,
        Kind::ZoneSpread => template["spec"]["topologySpreadConstraints"] = json!([spread(ZONE)]),
        Kind::ZoneSpreadHostAnti => {
            template["spec"]["topologySpreadConstraints"] = json!([spread(ZONE)]);
            template["spec"]["affinity"] = anti;
        }
        Kind::ZoneSpreadHostSpread => {
            template["spec"]["topologySpreadConstraints"] = json!([spread(ZONE), spread(HOST)]);
        }
        Kind::PreferredHost => template["spec"]["affinity"] = prefer(HOST),
        Kind::PreferredZone => template["spec"]["affinity"] = prefer(ZONE),
        Kind::DoNotDisrupt => {
            template["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
        }
    }
    template
}

/// Creates the Deployments, or sets the replicas of existing ones.
///
/// # Errors
/// The server's.
pub async fn deploy(lab: &Lab, workloads: &[Workload]) -> kube::Result<()> {
    let api: Api<Deployment> = Api::default_namespaced(lab.client.clone());
    for of in workloads {
        let object = json!({"metadata": {"name": of.name}, "spec": {
            "replicas": of.replicas, "selector": {"matchLabels": {"app": of.name}}, "template": template(of),
        }});
        match lab.create(&api, object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let replicas = json!({"spec": {"replicas": of.replicas}});
                lab.merge(&api, &of.name, replicas).await?;
            }
            other => drop(other?),
        }
    }
    Ok(())
}

/// How many pods run and are not about to go.
pub async fn running(lab: &Lab) -> u32 {
    let pods = lab.list::<Pod>().await;
    let is_running = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    };
    u32::try_from(pods.iter().filter(is_running).count()).unwrap_or(u32::MAX)
}

/// How many evictions of an operator succeeded, by the log of a run.
#[must_use]
pub fn evictions(log: &[u8]) -> usize {
    let text = String::from_utf8_lossy(log);
    let evicted =
        |line: &&str| line.contains("/eviction?") && line.contains("operator") && line.ends_with("-> 201");
    text.lines().filter(evicted).count()
}

/// The NodePool that upstream's performance suites use: machines below 32 cores on demand, `consolidateAfter: 30s`, no bound on disruption. Nodes register
/// after so many seconds.
///
/// # Errors
/// The server's.
pub async fn prepare(lab: &Lab, registration_seconds: u32) -> kube::Result<()> {
    let class = json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": format!("{registration_seconds}s")}});
    let pool = json!({"metadata": {"name": "default"}, "spec": {
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["32"]},
            ],
            "expireAfter": "Never",
        }},
        "disruption": {
            "consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "100%"}],
        },
    }});
    lab.create(&Api::<KWOKNodeClass>::all(lab.client.clone()), class)
        .await?;
    lab.create(&Api::<NodePool>::all(lab.client.clone()), pool)
        .await
        .map(drop)
}
