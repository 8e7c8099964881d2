//! The objects of a random world, as a cluster and its cloud have them.
//!
//! Owns the way from plain values to objects, and nothing on the way back.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use spokeshave_api::{ConsolidationPolicy, DisruptionPolicy, NodePool};
use spokeshave_scenario::{DisruptionBudget, Event, Owner, OwnerId, Spread, Timeline};
use spokeshave_simulate::{Delays, Policy, Scoring, Shortage, SpotInterruptions, World};

use super::worlds::{
    DAEMON_MEMORY_MIB, DAEMON_MILLICORES, Force, GRACE, HOUR, Key, LIFE, MINUTE, POD_MEMORY_MIB, Pool,
    PoolBudget, Restriction, Rule, SECOND, SHORTAGE, Scene, Shared, Workload,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn seconds(milliseconds: u64) -> String {
    format!("{}s", milliseconds / SECOND)
}

/// What clocks show: the start is a midnight.
fn clock(milliseconds: u64) -> String {
    format!("{:02}:{:02}", milliseconds / HOUR, milliseconds % HOUR / MINUTE)
}

impl Scene {
    /// The cluster and the cloud around it.
    pub fn world(&self) -> World {
        let mut world = World::new(spokeshave_example::epoch(), LIFE, Arc::clone(&self.types));
        if self.has_exact_delays {
            world.delays = Delays::exactly(40 * SECOND);
        }
        if self.packs {
            world.scoring = Scoring::MostAllocated;
        }
        world.warmup_ms = self.warmup_ms;
        world.curve_step_ms = MINUTE;
        world.spot = self.has_interruptions.then_some(SpotInterruptions {
            per_million_node_hours: 500_000,
            notice_ms: 2 * MINUTE,
        });
        let (from_ms, to_ms) = SHORTAGE;
        let shortage = self.shortage.map(|cheapest| Shortage {
            at_ms: from_ms,
            for_ms: to_ms - from_ms,
            cheapest,
        });
        world.shortages = shortage.into_iter().collect();
        if self.has_daemons {
            let (cpu, memory) = (format!("{DAEMON_MILLICORES}m"), format!("{DAEMON_MEMORY_MIB}Mi"));
            let everywhere = json!({"tolerations": [{"operator": "Exists"}]});
            let agent = spokeshave_example::daemon_set("agent", &cpu, &memory, &everywhere);
            world.daemon_sets = vec![Arc::new(agent)];
        }
        world
    }

    /// What is tried out on it.
    pub fn policy(&self) -> Policy {
        let pools = self.pools.iter().map(|pool| Arc::new(node_pool(pool)));
        let mut policy = Policy::new("now", pools.collect());
        let restriction = self.restriction.map(disruption_policy);
        policy.disruption_policies = restriction.into_iter().map(Arc::new).collect();
        policy.settings.disrupt.rounds = self.rounds;
        policy.settings.disrupt.spot_to_spot = self.spot_to_spot;
        policy
    }

    /// What its workloads do.
    pub fn timeline(&self) -> Timeline {
        let workloads = (0..).zip(&self.workloads);
        let mut events: Vec<Event> = workloads
            .flat_map(|(owner, workload)| {
                let events = workload.events.iter();
                events.map(move |(at_ms, change)| Event {
                    at_ms: *at_ms,
                    owner: OwnerId(owner),
                    change: change.clone(),
                })
            })
            .collect();
        events.sort_by_key(|event| event.at_ms);
        let owners = (0..).zip(&self.workloads);
        Timeline {
            owners: owners.map(|(number, one)| self.owner(number, one)).collect(),
            budgets: self.shared.iter().map(shared_budget).collect(),
            events,
            ..Timeline::default()
        }
    }

    fn owner(&self, number: usize, workload: &Workload) -> Owner {
        let volumes = usize::from(workload.has_volumes);
        Owner {
            namespace: "shop".to_owned(),
            name: workload.name.clone(),
            kind: workload.kind,
            template: Arc::new(from(self.template(number, workload))),
            ready: Spread {
                median_ms: 5 * SECOND,
                p99_ms: 20 * SECOND,
            },
            budget: workload.budget.clone(),
            later: Vec::new(),
            claims: vec![PersistentVolumeClaim::default(); volumes],
        }
    }

    fn template(&self, number: usize, workload: &Workload) -> Value {
        let requests =
            json!({"cpu": format!("{}m", workload.millicores), "memory": format!("{POD_MEMORY_MIB}Mi")});
        let mut spec = json!({
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            "terminationGracePeriodSeconds": GRACE / SECOND,
        });
        let mut selected = Map::new();
        let mut annotations = Map::new();
        if workload.is_protected {
            annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), json!("true"));
        }
        if let Some(quiet_ms) = workload.quiet_ms {
            annotations.insert("spokeshave.dev/quiet-time".to_owned(), json!(seconds(quiet_ms)));
        }
        if workload.is_critical {
            spec["priorityClassName"] = json!("system-cluster-critical");
            spec["priority"] = json!(2_000_000_000);
        }
        if workload.is_batch {
            selected.insert("tier".to_owned(), json!("batch"));
            let toleration =
                json!({"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"});
            spec["tolerations"] = json!([toleration]);
        }
        let near = |name: &str, key: &str| {
            let term = json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"app": name}}}]);
            json!({"requiredDuringSchedulingIgnoredDuringExecution": term})
        };
        match workload.rule {
            Rule::None => {}
            Rule::Spread { over, most } => {
                spec["topologySpreadConstraints"] = json!([{
                    "topologyKey": if over == Key::Zone { ZONE } else { HOST },
                    "maxSkew": most,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": workload.name}},
                }]);
            }
            Rule::Apart => spec["affinity"] = json!({"podAntiAffinity": near(&workload.name, HOST)}),
            Rule::Near(other) => {
                spec["affinity"] = json!({"podAffinity": near(&self.workloads[other].name, ZONE)});
            }
            Rule::Zone(zone) => {
                selected.insert(ZONE.to_owned(), json!(zone));
            }
        }
        if !selected.is_empty() {
            spec["nodeSelector"] = Value::Object(selected);
        }
        let mut labels = json!({"app": workload.name});
        if self
            .shared
            .as_ref()
            .is_some_and(|shared| shared.over.contains(&number))
        {
            labels["budget"] = json!("shared");
        }
        json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
    }
}

fn shared_budget(shared: &Shared) -> ((String, String), DisruptionBudget) {
    let budget = DisruptionBudget {
        selector: from(json!({"matchLabels": {"budget": "shared"}})),
        amount: Some(shared.amount.clone()),
    };
    (("shop".to_owned(), "shared".to_owned()), budget)
}

fn node_pool(pool: &Pool) -> NodePool {
    let mut object = spokeshave_example::node_pool(pool.name);
    let template = &mut object.spec.template;
    template.spec.requirements =
        from(json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": pool.capacity_types}]));
    if let Some(expire_after_ms) = pool.expire_after_ms {
        template.spec.expire_after = from(json!(seconds(expire_after_ms)));
    }
    let grace = pool.termination_grace_ms;
    template.spec.termination_grace_period = grace.map(|grace_ms| from(json!(seconds(grace_ms))));
    if pool.is_batch {
        template
            .metadata
            .labels
            .insert("tier".to_owned(), "batch".to_owned());
        template.spec.taints = from(json!([{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]));
    }
    let disruption = &mut object.spec.disruption;
    disruption.consolidate_after = from(json!(seconds(pool.consolidate_after_ms)));
    if pool.when_empty {
        disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
    }
    let budgets = pool.budgets;
    disruption.budgets = budgets.map(|budgets| budgets.iter().map(|one| from(budget(one))).collect());
    let limit = pool.limit_millicores;
    object.spec.limits = limit.map(|limit| from(json!({"cpu": format!("{limit}m")})));
    object
}

fn budget(budget: &PoolBudget) -> Value {
    let mut object = json!({"nodes": budget.nodes});
    if !budget.reasons.is_empty() {
        object["reasons"] = json!(budget.reasons);
    }
    match budget.force {
        Force::Always => {}
        Force::Between(from_ms, to_ms) => {
            let (hour, minute) = (from_ms / HOUR, from_ms % HOUR / MINUTE);
            object["schedule"] = json!(format!("{minute} {hour} * * *"));
            object["duration"] = json!(seconds(to_ms - from_ms));
        }
        Force::Unreadable => {
            object["schedule"] = json!("whenever");
            object["duration"] = json!("1h");
        }
    }
    object
}

fn disruption_policy(restriction: Restriction) -> DisruptionPolicy {
    let spec = match restriction {
        Restriction::Freeze { until_ms } => {
            let until = format!("2026-01-01T{}:00Z", clock(until_ms));
            json!({"freeze": {"reason": "the first hour", "until": until}})
        }
        Restriction::Window { from_ms, to_ms } => {
            json!({"budgets": [{"limit": "50%", "windows": [{"from": clock(from_ms), "to": clock(to_ms)}]}]})
        }
        Restriction::Hold { duration_ms } => json!({"hold": {"duration": seconds(duration_ms)}}),
        Restriction::PerHour { nodes } => json!({"budgets": [{"perHour": nodes}]}),
        Restriction::PerZone { nodes } => {
            json!({"budgets": [{"limit": nodes.to_string(), "scope": "Zone"}]})
        }
        Restriction::OneZone => json!({"budgets": [{"oneAtATime": true, "scope": "Zone"}]}),
        Restriction::SoftExpiry { percent, nodes } => json!({
            "expiry": {"softPercent": percent},
            "budgets": [{"limit": nodes.to_string(), "reasons": ["Expired"]}],
        }),
        Restriction::Workloads => json!({"workloads": {"statefulSets": "OneAtATime"}}),
    };
    from(json!({"metadata": {"name": "calm"}, "spec": spec}))
}
