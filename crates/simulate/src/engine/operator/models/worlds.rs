//! Small clusters for the tests of models: built in a few lines, changed by closures.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_example::{bound, epoch, instance_type, labelled, node, node_pool, pending_pod};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, InstanceType, Pod, Price, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::Command;

use super::{Answer, Memory, UnderWay, cluster_autoscaler, karpenter};

/// A cluster, and what is remembered of it.
#[derive(Default)]
pub(super) struct World {
    pub(super) state: ClusterState,
    types: Vec<InstanceType>,
    pub(super) settings: Policy,
    pub(super) seconds: i64,
    pub(super) memory: Memory,
    pub(super) unneeded: BTreeMap<String, u64>,
}

/// small 2/4 at $0.08, medium 4/8 at $0.16, large 16/32 at $0.64; spot costs 70 % of that.
pub(super) fn three_types() -> Vec<InstanceType> {
    let sizes = [("small", 2, 4), ("medium", 4, 8), ("large", 16, 32)];
    sizes
        .map(|(name, cores, memory_gib)| instance_type(name, cores, memory_gib, &["a"]))
        .into()
}

/// A NodePool without budgets that buys on demand and spot.
pub(super) fn free_pool(name: &str) -> NodePool {
    let mut pool = node_pool(name);
    pool.spec.disruption.budgets = Some(Vec::new());
    pool
}

/// One that buys on demand only.
pub(super) fn on_demand_pool(name: &str) -> NodePool {
    let mut pool = free_pool(name);
    let requirements =
        json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]);
    pool.spec.template.spec.requirements = serde_json::from_value(requirements).unwrap();
    pool
}

/// What a pod needs to stay on this node.
pub(super) fn pinned(node: &str) -> Value {
    json!({"nodeSelector": {"kubernetes.io/hostname": node}})
}

pub(super) fn later(seconds: i64) -> Timestamp {
    epoch() + SignedDuration::from_secs(seconds)
}

pub(super) fn dollars(text: &str) -> Price {
    text.parse().unwrap()
}

impl World {
    /// Of these types and this NodePool.
    pub(super) fn new(pool: NodePool, types: Vec<InstanceType>) -> Self {
        World {
            types,
            ..World::default()
        }
        .pool(pool)
    }

    /// Of three types and a NodePool that buys on demand.
    pub(super) fn on_demand() -> Self {
        World::new(on_demand_pool("default"), three_types())
    }

    pub(super) fn pool(mut self, pool: NodePool) -> Self {
        self.state = self.state.with_pool(pool, self.types.clone());
        self
    }

    /// An on-demand node in zone a of NodePool `default`.
    pub(super) fn node(self, name: &str, instance_type: &str) -> Self {
        self.node_of("default", name, instance_type, ("a", "on-demand"))
    }

    pub(super) fn node_of(
        mut self,
        pool: &str,
        name: &str,
        instance_type: &str,
        (zone, capacity_type): (&str, &str),
    ) -> Self {
        let mut types = self.types.iter();
        let found = types.find(|known| known.name == instance_type).unwrap();
        let found = node(pool, name, found, zone, capacity_type);
        self.state = self.state.with_node(found);
        self
    }

    /// A running pod of a ReplicaSet.
    pub(super) fn pod(self, name: &str, on: &str, cpu: &str) -> Self {
        self.pod_with(name, on, cpu, &json!({}))
    }

    pub(super) fn pod_with(mut self, name: &str, on: &str, cpu: &str, spec: &Value) -> Self {
        let mut pod = labelled(pending_pod(name, cpu, "10Mi", spec), &[("app", name)]);
        pod.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        self.state = self.state.with_pod(bound(pod, on));
        self
    }

    /// A pod with which its node is no candidate.
    pub(super) fn firm_pod(self, name: &str, on: &str, cpu: &str) -> Self {
        let world = self.pod(name, on, cpu);
        world.annotate_pod(name, "karpenter.sh/do-not-disrupt", "true")
    }

    pub(super) fn annotate_pod(self, name: &str, key: &str, value: &str) -> Self {
        self.edit_pod(name, |pod| {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(key.to_owned(), value.to_owned());
        })
    }

    pub(super) fn edit_pod(mut self, name: &str, edit: impl Fn(&mut Pod)) -> Self {
        for pod in &mut self.state.pods {
            if pod.metadata.name.as_deref() == Some(name) {
                edit(Arc::make_mut(pod));
            }
        }
        self
    }

    pub(super) fn edit_pool(mut self, edit: impl Fn(&mut NodePool)) -> Self {
        for pool in &mut self.state.node_pools {
            edit(Arc::make_mut(pool));
        }
        self
    }

    pub(super) fn budgets(self, budgets: &Value) -> Self {
        self.edit_pool(|pool| {
            pool.spec.disruption.budgets = serde_json::from_value(budgets.clone()).unwrap();
        })
    }

    pub(super) fn edit_claim(mut self, node: &str, edit: impl Fn(&mut NodeClaim)) -> Self {
        for claim in &mut self.state.node_claims {
            if claim.name() == format!("claim-{node}") {
                edit(Arc::make_mut(claim));
            }
        }
        self
    }

    pub(super) fn now(&self) -> Timestamp {
        later(self.seconds)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        lower(&self.state)
    }

    /// One pass of the model of Karpenter.
    pub(super) fn pass(&mut self) -> Answer {
        let (snapshot, now) = (self.snapshot(), self.now());
        karpenter(&snapshot, &self.settings, now, &mut self.memory)
    }

    /// Its commands, each as a text.
    pub(super) fn acts(&mut self) -> Vec<String> {
        self.pass().commands.iter().map(text).collect()
    }

    /// Its only command.
    pub(super) fn command(&mut self) -> Command {
        let mut commands = self.pass().commands;
        assert_eq!(commands.len(), 1, "{commands:?}");
        commands.remove(0)
    }

    /// What the model of cluster-autoscaler does then, as texts.
    pub(super) fn scan(
        &mut self,
        now_ms: u64,
        last_launch_ms: Option<u64>,
        under_way: UnderWay,
    ) -> Vec<String> {
        let (snapshot, now) = (self.snapshot(), self.now());
        let unneeded = &mut self.unneeded;
        let answer = cluster_autoscaler(&snapshot, unneeded, last_launch_ms, under_way, now_ms, now);
        answer.commands.iter().map(text).collect()
    }
}

/// `MultiNodeConsolidation delete [a, b]`, `SingleNodeConsolidation replace [a] by small|large`.
pub(super) fn text(command: &Command) -> String {
    let nodes: Vec<&str> = command.nodes.iter().map(|node| node.node.as_str()).collect();
    let replacements = command.replacements.iter();
    let by = replacements.map(|replacement| format!(" by {}", replacement.instance_types.join("|")));
    let by: Vec<String> = by.collect();
    let decision = command.decision().as_str();
    format!(
        "{} {decision} [{}]{}",
        command.method.as_str(),
        nodes.join(", "),
        by.concat()
    )
}
