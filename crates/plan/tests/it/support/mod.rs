//! Small clusters for tests of disruption: built in a few lines, changed by closures.

pub(crate) mod command_world;
pub(crate) mod draining;
pub(crate) mod executor;
pub(crate) mod plain;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::{Budget, Condition, NodeClaim, NodePool, Operator, Requirement};
use spokeshave_example::{bound, epoch, instance_type, labelled, node, node_pool, pending_pod};
use spokeshave_model::Pod;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, InstanceType, Price, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{Command, Frontier, Method, Outcome, Verdict, disrupt, judge};
use std::sync::Arc;

/// A cluster with its catalogue and policy.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) state: ClusterState,
    pub(crate) types: Vec<InstanceType>,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

/// The only command of a pass that deletes node `a`, as [`acts`] says it.
pub(crate) const DELETE_A: &str = "SingleNodeConsolidation delete [a]";

/// What a pod needs to stay on this node.
pub(crate) fn pinned(node: &str) -> Value {
    json!({"nodeSelector": {"kubernetes.io/hostname": node}})
}

/// `a` can go because its pod fits on `b`, which has to stay.
pub(crate) fn pair() -> World {
    World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .pod("p", "a", "1")
        .pod_with("r", "b", "100m", &pinned("b"))
}

/// The commands of one pass, each as a text.
pub(crate) fn acts(world: &World) -> Vec<String> {
    world.pass().commands.iter().map(text).collect()
}

/// small 2/4 at $0.08, medium 4/8 at $0.16, large 16/32 at $0.64; spot costs 70 % of that.
pub(crate) fn three_types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, &["a"]),
        instance_type("medium", 4, 8, &["a"]),
        instance_type("large", 16, 32, &["a"]),
    ]
}

/// A pool without budgets.
pub(crate) fn free_pool(name: &str) -> NodePool {
    let mut pool = node_pool(name);
    pool.spec.disruption.budgets = Some(Vec::new());
    pool
}

/// A pool without budgets that buys on-demand only.
pub(crate) fn on_demand_pool(name: &str) -> NodePool {
    let mut pool = free_pool(name);
    pool.spec.template.spec.requirements = vec![Requirement::new(
        "karpenter.sh/capacity-type",
        Operator::In,
        &["on-demand"],
    )];
    pool
}

pub(crate) fn zero_budget(nodes: &str) -> Vec<Budget> {
    vec![Budget::always(nodes)]
}

impl World {
    pub(crate) fn new(pool: NodePool) -> Self {
        Self::with_types(pool, three_types())
    }

    pub(crate) fn with_types(pool: NodePool, types: Vec<InstanceType>) -> Self {
        World {
            state: ClusterState::default().with_pool(pool, types.clone()),
            types,
            policy: Policy::default(),
            now: epoch(),
        }
    }

    /// An on-demand node of a type in zone a of pool `default`.
    pub(crate) fn node(self, name: &str, instance_type: &str) -> Self {
        self.node_in("default", name, instance_type, "on-demand")
    }

    pub(crate) fn node_in(mut self, pool: &str, name: &str, instance_type: &str, kind: &str) -> Self {
        let found = self.types.iter().find(|known| known.name == instance_type);
        let instance_type = found.expect("a known type").clone();
        self.state = self.state.with_node(node(pool, name, &instance_type, "a", kind));
        self
    }

    /// A running pod.
    pub(crate) fn pod(self, name: &str, on: &str, cpu: &str) -> Self {
        self.pod_with(name, on, cpu, &json!({}))
    }

    pub(crate) fn pod_with(mut self, name: &str, on: &str, cpu: &str, spec: &Value) -> Self {
        let pod = labelled(pending_pod(name, cpu, "10Mi", spec), &[("app", name)]);
        self.state = self.state.with_pod(bound(pod, on));
        self
    }

    pub(crate) fn pending(mut self, name: &str, cpu: &str) -> Self {
        self.state = self.state.with_pod(pending_pod(name, cpu, "10Mi", &json!({})));
        self
    }

    pub(crate) fn budget(mut self, name: &str, matches: &Value, allowed: i32) -> Self {
        let value = json!({"metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}")},
            "spec": {"selector": matches, "maxUnavailable": 1}, "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
        let budget: PodDisruptionBudget = serde_json::from_value(value).expect("a budget");
        self.state.pod_disruption_budgets.push(Arc::new(budget));
        self
    }

    pub(crate) fn edit_pool(mut self, name: &str, edit: impl Fn(&mut NodePool)) -> Self {
        for pool in self
            .state
            .node_pools
            .iter_mut()
            .filter(|pool| pool.name() == name)
        {
            edit(Arc::make_mut(pool));
        }
        self
    }

    pub(crate) fn edit_node(mut self, name: &str, edit: impl Fn(&mut Node)) -> Self {
        for node in &mut self.state.nodes {
            if node.metadata.name.as_deref() == Some(name) {
                edit(Arc::make_mut(node));
            }
        }
        self
    }

    pub(crate) fn edit_claim(mut self, node: &str, edit: impl Fn(&mut NodeClaim)) -> Self {
        for claim in &mut self.state.node_claims {
            if claim.name() == format!("claim-{node}") {
                edit(Arc::make_mut(claim));
            }
        }
        self
    }

    pub(crate) fn edit_pod(mut self, name: &str, edit: impl Fn(&mut Pod)) -> Self {
        for pod in &mut self.state.pods {
            if pod.metadata.name.as_deref() == Some(name) {
                edit(Arc::make_mut(pod));
            }
        }
        self
    }

    pub(crate) fn label_node(self, name: &str, key: &str, value: &str) -> Self {
        self.edit_node(name, |node| {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert(key.to_owned(), value.to_owned());
        })
    }

    pub(crate) fn annotate_node(self, name: &str, key: &str, value: &str) -> Self {
        self.edit_node(name, |node| {
            let annotations = node.metadata.annotations.get_or_insert_default();
            annotations.insert(key.to_owned(), value.to_owned());
        })
    }

    pub(crate) fn annotate_pod(self, name: &str, key: &str, value: &str) -> Self {
        self.edit_pod(name, |pod| {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(key.to_owned(), value.to_owned());
        })
    }

    /// Condition Drifted since so many seconds after the epoch.
    pub(crate) fn drifted(self, node: &str, since: i64) -> Self {
        self.edit_claim(node, |claim| {
            let condition = Condition {
                type_: "Drifted".to_owned(),
                status: "True".to_owned(),
                observed_generation: None,
                last_transition_time: later(since),
                reason: "NodePoolDrifted".to_owned(),
                message: String::new(),
            };
            claim.status.get_or_insert_default().conditions.push(condition);
        })
    }

    /// Without condition Consolidatable.
    pub(crate) fn not_consolidatable(self, node: &str) -> Self {
        self.edit_claim(node, |claim| {
            let conditions = &mut claim.status.get_or_insert_default().conditions;
            conditions.retain(|condition| condition.type_ != "Consolidatable");
        })
    }

    pub(crate) fn grace(self, node: &str) -> Self {
        self.edit_claim(node, |claim| {
            claim.spec.termination_grace_period = "1h".parse().ok();
        })
    }

    pub(crate) fn last_pod_event(self, node: &str, seconds: i64) -> Self {
        self.edit_claim(node, |claim| {
            claim.status.get_or_insert_default().last_pod_event_time = Some(Time(later(seconds)));
        })
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        lower(&self.state)
    }

    pub(crate) fn pass(&self) -> Outcome {
        disrupt(&self.snapshot(), &self.policy, self.now, &Frontier::default())
    }

    /// The one command of a pass.
    pub(crate) fn command(&self) -> Command {
        let mut outcome = self.pass();
        assert_eq!(outcome.commands.len(), 1, "{:#?}", outcome.reports);
        outcome.commands.remove(0)
    }

    pub(crate) fn verdict(&self, node: &str) -> Verdict {
        let snapshot = self.snapshot();
        let id = snapshot.find_node(node).expect("a node of that name");
        judge(&snapshot, &self.policy, self.now, id)
    }

    /// `keep: PodDisruptionBudget default/web`, `delete by Emptiness`.
    pub(crate) fn verdict_text(&self, node: &str) -> String {
        let verdict = self.verdict(node);
        let blockers: Vec<String> = verdict
            .blockers
            .iter()
            .map(|blocker| format!("{} {}", blocker.kind, blocker.object))
            .collect();
        match verdict.method {
            Some(method) => format!("{} by {}", verdict.decision_text(), method.as_str()),
            None => format!("{}: {}", verdict.decision_text(), blockers.join(", ")),
        }
    }

    /// Reason and message of the events about an object.
    pub(crate) fn events(&self, object: &str) -> Vec<String> {
        let outcome = self.pass();
        let events = outcome.events.iter().filter(|event| event.object.name == object);
        events
            .map(|event| format!("{}: {}", event.reason, event.message))
            .collect()
    }
}

pub(crate) fn later(seconds: i64) -> Timestamp {
    epoch() + jiff::SignedDuration::from_secs(seconds)
}

/// `MultiNodeConsolidation delete [a, b]`, `SingleNodeConsolidation replace [a] by small|large`.
pub(crate) fn text(command: &Command) -> String {
    let nodes: Vec<&str> = command.nodes.iter().map(|node| node.node.as_str()).collect();
    let replacements: Vec<String> = command
        .replacements
        .iter()
        .map(|replacement| replacement.instance_types.join("|"))
        .collect();
    let by = if replacements.is_empty() {
        String::new()
    } else {
        format!(" by {}", replacements.join(" + "))
    };
    format!(
        "{} {} [{}]{by}",
        command.method.as_str(),
        command.decision().as_str(),
        nodes.join(", ")
    )
}

/// The nodes that commands take, by name.
pub(crate) fn nodes_of(commands: &[Command]) -> Vec<String> {
    let nodes = commands.iter().flat_map(|command| &command.nodes);
    nodes.map(|node| node.node.clone()).collect()
}

pub(crate) fn dollars(text: &str) -> Price {
    text.parse().expect("a price")
}

pub(crate) fn only(method: Method) -> Policy {
    let mut policy = Policy::default();
    policy.disrupt.methods = [method].into();
    policy
}
