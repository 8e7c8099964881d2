//! Pods that no NodePool of a policy takes, such as those of a managed node group: named before anything is simulated, because they wait to its end.
//!
//! Owns one look at a cluster that is empty, but for the nodes that no NodePool owns and the places that NodePools with a fixed number of nodes will have. Whether
//! a pod has a place, and why not, is the answer of `plan`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::NodePool;
use spokeshave_api::conditions::{Conditioned as _, NODE_CLASS_READY, VALIDATION_SUCCEEDED};
use spokeshave_model::snapshot::PodId;
use spokeshave_model::{ClusterState, InstanceType, Offering, Pod, ResourceName, Snapshot, lower};
use spokeshave_plan::report::{count, some_of};
use spokeshave_plan::static_pools::{Counts, ScaleUp, scale_up, template_claim};
use spokeshave_plan::{Provisioned, provision, provision_only};
use spokeshave_scenario::{Change, Owner, Timeline};
use spokeshave_simulate::market::Market;
use spokeshave_simulate::owners::{pod_labels, pod_name};
use spokeshave_simulate::{Policy, World};

/// Workloads that are looked at: one more tells nobody anything new.
const MOST_OWNERS: usize = 5_000;

/// Pods that are tried alone.
const MOST_ALONE: usize = 100;

/// Workloads of one reason that are named.
const MOST_NAMED: usize = 5;

/// Why no NodePool takes the pods of a workload, by its position.
type Reasons = BTreeMap<usize, String>;

/// A sentence for each reason that there is.
pub(crate) fn notes(world: &World, policies: &[Policy], timeline: &Timeline) -> Vec<String> {
    let pods = samples(timeline);
    let mut known: Vec<(&Policy, Reasons)> = Vec::new();
    let mut told: BTreeMap<(usize, String), Vec<&str>> = BTreeMap::new();
    for policy in policies {
        let alike = known.iter().find(|(other, _)| is_alike(policy, other));
        let reasons = match alike {
            Some((_, reasons)) => reasons.clone(),
            None => misfits(world, policy, timeline, &pods),
        };
        for (owner, reason) in &reasons {
            let names = told.entry((*owner, reason.clone())).or_default();
            names.push(&policy.name);
        }
        known.push((policy, reasons));
    }
    if told.is_empty() {
        return Vec::new();
    }
    let (numbers, settled) = (numbers(timeline), settled(world, timeline));
    let mut owners: BTreeMap<(Vec<&str>, String), Vec<String>> = BTreeMap::new();
    for ((owner, reason), under) in told {
        let of = &timeline.owners[owner];
        let number = numbers.get(&owner).copied().unwrap_or_default();
        if settled.get(&owner).is_some_and(|placed| *placed >= number) {
            continue;
        }
        let name = format!("{}/{} ({})", of.namespace, of.name, count(number, "pod"));
        owners.entry((under, reason)).or_default().push(name);
    }
    let notes = owners.into_iter().map(|((under, reason), names)| {
        let names = some_of(&names, MOST_NAMED);
        let whose = if under.len() == policies.len() {
            "no NodePool".to_owned()
        } else {
            format!("under {} no NodePool", some_of(&under, MOST_NAMED))
        };
        format!("{whose} takes the pods of {names}, which wait as long as they are there: {reason}")
    });
    notes.collect()
}

/// The NodePools of both offer the same places.
fn is_alike(one: &Policy, other: &Policy) -> bool {
    let mut pairs = one.node_pools.iter().zip(&other.node_pools);
    one.node_pools.len() == other.node_pools.len()
        && pairs.all(|(one, other)| {
            let (spec, others) = (&one.spec, &other.spec);
            one.name() == other.name()
                && (&spec.template, &spec.limits, spec.replicas)
                    == (&others.template, &others.limits, others.replicas)
        })
}

/// One pod of each workload that the scheduler has found no place for. Its UID is the position of the workload.
fn samples(timeline: &Timeline) -> Vec<Arc<Pod>> {
    let sample = |(index, owner): (usize, &Owner)| {
        let template = owner.template.metadata.as_ref();
        let unschedulable = PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            ..PodCondition::default()
        };
        Arc::new(Pod {
            metadata: ObjectMeta {
                namespace: Some(owner.namespace.clone()),
                name: Some(pod_name(owner.kind, &owner.name, 0)),
                uid: Some(index.to_string()),
                labels: Some(pod_labels(owner)),
                annotations: template.and_then(|template| template.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(Arc::new(owner.template.spec.clone().unwrap_or_default())),
            node_name: None,
            status: Some(PodStatus {
                phase: Some("Pending".to_owned()),
                conditions: Some(vec![unschedulable]),
                ..PodStatus::default()
            }),
        })
    };
    let owners = timeline.owners.iter().enumerate();
    owners.take(MOST_OWNERS).map(sample).collect()
}

/// The most pods that each workload wants at once or, of those that run to completion, how many there are in all.
fn numbers(timeline: &Timeline) -> BTreeMap<usize, usize> {
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    for event in &timeline.events {
        let number = numbers.entry(event.owner.0 as usize).or_default();
        match event.change {
            Change::Replicas(replicas) => *number = (*number).max(replicas as usize),
            Change::Begin { .. } => *number += 1,
            Change::Template(_) | Change::End { .. } => {}
        }
    }
    numbers
}

/// How many pods of each workload are on nodes of no NodePool from the start: nothing moves them, so that they need no other place.
fn settled(world: &World, timeline: &Timeline) -> BTreeMap<usize, usize> {
    let fixed: BTreeSet<&str> = world.standing.fixed_names().collect();
    let mut settled: BTreeMap<usize, usize> = BTreeMap::new();
    for placement in &timeline.placements {
        if fixed.contains(placement.node.as_str()) {
            *settled.entry(placement.owner.0 as usize).or_default() += 1;
        }
    }
    settled
}

/// Why which workloads have no place in a cluster without other pods.
fn misfits(world: &World, policy: &Policy, timeline: &Timeline, pods: &[Arc<Pod>]) -> Reasons {
    let node_pools: Vec<Arc<NodePool>> = policy
        .node_pools
        .iter()
        .map(|pool| ready(pool, world.start))
        .collect();
    let are_limited = node_pools.iter().any(|pool| pool.spec.limits.is_some());
    let mut market = Market::new(
        &World {
            shortages: Vec::new(),
            ..world.clone()
        },
        policy,
    );
    let offered = policy.node_pools.iter().map(|pool| {
        let types = policy.types_of(world, pool.name());
        let types = if pool.is_static() {
            bought(pool, types, &mut market)
        } else {
            Arc::clone(types)
        };
        (pool.name().to_owned(), Ok(types))
    });
    let snapshot = lower(&ClusterState {
        instance_types: offered.collect(),
        node_pools,
        nodes: world.standing.fixed.clone(),
        daemon_sets: world.daemon_sets.clone(),
        pods: pods.to_vec(),
        ..ClusterState::default()
    });
    let together = provision(&snapshot, &policy.settings, world.start);
    let left: Vec<PodId> = together.left_over().map(|(pod, _)| pod).collect();
    let mut explained = BTreeMap::new();
    let mut explain = |outcome: &Provisioned, pod: PodId| -> Option<String> {
        let (_, text) = outcome.left_over().find(|(one, _)| *one == pod)?;
        // What is said of many is worked out once.
        let known = explained.entry(Arc::clone(&text));
        let told: &mut String = known.or_insert_with(|| reason(&snapshot, policy, outcome, pod, &text));
        Some(told.clone())
    };
    let found = left.into_iter().take(MOST_ALONE).filter_map(|pod| {
        let owner: usize = snapshot.pod(pod).uid().parse().ok()?;
        let needs_others = needs_others(timeline.owners.get(owner)?);
        let reason = match needs_others {
            // One that has to be beside others has no place where these are missing, or where limits keep them out.
            true if are_limited => None,
            true => explain(&together, pod),
            // Others may have taken what limits allow, or want to be apart from it.
            false => {
                let alone = provision_only(&snapshot, &policy.settings, world.start, |one| one == pod);
                explain(&alone, pod)
            }
        };
        Some((owner, reason?))
    });
    found.collect()
}

/// Why a pod has no place and what would help, in one line; `text` is what its event says.
fn reason(snapshot: &Snapshot, policy: &Policy, outcome: &Provisioned, pod: PodId, text: &str) -> String {
    let derivations = outcome.explain(snapshot, &policy.settings);
    match derivations.get(&pod).filter(|why| !why.pools().is_empty()) {
        Some(why) => why.to_string().lines().collect::<Vec<_>>().join("; "),
        // No NodePool has said anything.
        None => text.to_owned(),
    }
}

/// Its pods have to be where certain others are.
fn needs_others(owner: &Owner) -> bool {
    let affinity = owner
        .template
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    let terms = affinity.and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    terms.is_some_and(|terms| !terms.is_empty())
}

/// The NodePool as the engines take it. One with a fixed number of nodes offers the places of these.
fn ready(pool: &NodePool, now: Timestamp) -> Arc<NodePool> {
    let mut pool = pool.clone();
    pool.set_true(VALIDATION_SUCCEEDED, now);
    pool.set_true(NODE_CLASS_READY, now);
    if pool.is_static() {
        let nodes = match scale_up(&pool, Counts::default()) {
            ScaleUp::Create(nodes) => nodes,
            ScaleUp::AtLimit | ScaleUp::None => 0,
        };
        let nodes = Quantity(nodes.to_string());
        pool.spec.limits = Some([(ResourceName::NODES.to_owned(), nodes)].into());
        pool.spec.replicas = None;
    }
    Arc::new(pool)
}

/// What a NodePool with a fixed number of nodes launches: no pod has a say in it, so that it is the cheapest.
fn bought(pool: &NodePool, types: &[InstanceType], market: &mut Market) -> Arc<[InstanceType]> {
    let sale = market.launch(&template_claim(pool, types), 0, |_| 0);
    let bought = sale.choice.map(|(mut instance_type, sold)| {
        let is_alike =
            |other: &Offering| (other.price, other.capacity_type()) == (sold.price, sold.capacity_type());
        instance_type.offerings.retain(is_alike);
        instance_type
    });
    bought.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;
    use spokeshave_scenario::{Event, OwnerId, OwnerKind, Placement, Spread};

    use super::*;

    fn owner(name: &str, spec: &serde_json::Value) -> Owner {
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": spec});
        Owner {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            kind: OwnerKind::Deployment,
            template: Arc::new(serde_json::from_value(template).expect("a template")),
            ready: Spread {
                median_ms: 0,
                p99_ms: 0,
            },
            budget: None,
            later: Vec::new(),
            claims: Vec::new(),
        }
    }

    fn asking(cpu: &str) -> serde_json::Value {
        json!([{"name": "a", "resources": {"requests": {"cpu": cpu}}}])
    }

    fn policy(name: &str, limit: Option<&str>) -> Policy {
        let mut pool = spokeshave_example::node_pool("default");
        let limits = limit.map(|cpu| json!({"cpu": cpu}));
        pool.spec.limits = serde_json::from_value(json!(limits)).expect("limits");
        Policy::new(name, vec![Arc::new(pool)])
    }

    /// What is said of these workloads, which want so many pods each, where nodes have two cores or four.
    fn said(policies: &[Policy], workloads: &[(&str, u32, serde_json::Value)]) -> Vec<String> {
        said_beside(policies, workloads, &[], &[])
    }

    /// The same where these Nodes are there that no NodePool owns, and so many pods of the workload at each of these positions are on the first of them.
    fn said_beside(
        policies: &[Policy],
        workloads: &[(&str, u32, serde_json::Value)],
        fixed: &[Arc<Node>],
        placed: &[(u32, u64)],
    ) -> Vec<String> {
        let owners = workloads.iter().map(|(name, _, spec)| owner(name, spec));
        let events = (0..).zip(workloads).map(|(position, (_, replicas, _))| Event {
            at_ms: 0,
            owner: OwnerId(position),
            change: Change::Replicas(*replicas),
        });
        let placements = placed.iter().flat_map(|(owner, pods)| {
            (0..*pods).map(move |pod| Placement {
                owner: OwnerId(*owner),
                pod,
                node: fixed[0].metadata.name.clone().expect("a name"),
                since: None,
                works_since: None,
            })
        });
        let timeline = Timeline {
            owners: owners.collect(),
            events: events.collect(),
            placements: placements.collect(),
            ..Timeline::default()
        };
        let types = [("c2", 2), ("c4", 4)]
            .map(|(name, cores)| spokeshave_example::instance_type(name, cores, 16, &["zone-a"]));
        let mut world = World::new(spokeshave_example::epoch(), 3_600_000, Arc::from(types));
        world.standing.fixed = fixed.to_vec();
        notes(&world, policies, &timeline)
    }

    /// A Node of four cores that no NodePool owns, of the group `system`, with this taint if there is one.
    fn of_group(name: &str, taint: Option<&str>) -> Arc<Node> {
        let taints: Vec<serde_json::Value> = taint
            .map(|key| json!({"key": key, "effect": "NoSchedule"}))
            .into_iter()
            .collect();
        let amounts = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
        let node = json!({
            "metadata": {"name": name, "labels": {"group": "system", "kubernetes.io/hostname": name}},
            "spec": {"taints": taints},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        Arc::new(serde_json::from_value(node).expect("a Node"))
    }

    #[test]
    fn pods_of_a_node_group_are_named_with_their_number_and_the_reason() {
        let policies = [policy("now", None), policy("same", None)];
        let dns = json!({"containers": asking("100m"), "nodeSelector": {"group": "system"}});
        let workloads = [
            ("web", 40, json!({"containers": asking("500m")})),
            ("dns", 2, dns),
        ];
        let said = said(&policies, &workloads);
        let [dns] = &said[..] else { panic!("{said:?}") };
        assert!(
            dns.starts_with("no NodePool takes the pods of shop/dns (2 pods), "),
            "{dns}"
        );
        assert!(
            dns.contains("\"group\"") && dns.contains("node selector"),
            "{dns}"
        );
    }

    /// Pods that need such a node have it, and those that are there already stay, tolerated or not: more of these have no place.
    #[test]
    fn pods_have_places_on_nodes_of_no_node_pool() {
        let policies = [policy("now", None)];
        let of_group_only =
            |cpu: &str| json!({"containers": asking(cpu), "nodeSelector": {"group": "system"}});
        let workloads = [
            ("dns", 2, of_group_only("100m")),
            ("large", 1, of_group_only("5")),
        ];
        let open = [of_group("one", None)];
        let about_large = said_beside(&policies, &workloads, &open, &[]);
        assert!(
            matches!(&about_large[..], [note] if note.contains("shop/large (1 pod)")),
            "{about_large:?}"
        );
        let tainted = [of_group("one", Some("compute-type"))];
        for (pods, is_said) in [(2, false), (1, true)] {
            let said = said_beside(&policies, &workloads[..1], &tainted, &[(0, pods)]);
            assert_eq!(!said.is_empty(), is_said, "{pods} of 2: {said:?}");
        }
    }

    /// A NodePool with a fixed number of nodes launches the cheapest, which is all that its pods can get.
    #[test]
    fn d_356_a_static_pool_takes_what_fits_on_the_nodes_that_it_launches() {
        let policies = ["one", "none"].map(|name| {
            let mut fixed = spokeshave_example::node_pool("system");
            fixed.spec.replicas = Some(i64::from(name == "one"));
            let own = &mut fixed.spec.template.metadata.labels;
            own.insert("group".to_owned(), "system".to_owned());
            let mut policy = policy(name, None);
            policy.node_pools.push(Arc::new(fixed));
            policy
        });
        let of_system = |cpu: &str| json!({"containers": asking(cpu), "nodeSelector": {"group": "system"}});
        let workloads = [("dns", 2, of_system("100m")), ("large", 1, of_system("3"))];
        let said = said(&policies, &workloads);
        let about = |name: &str| said.iter().filter(|note| note.contains(name)).collect::<Vec<_>>();
        let dns = about("shop/dns (2 pods)");
        assert!(
            matches!(&dns[..], [note] if note.starts_with("under none no NodePool takes the pods of ")),
            "one node has room: {said:?}"
        );
        let large = about("shop/large (1 pod)");
        assert!(
            large.iter().any(|note| !note.starts_with("under none ")),
            "{said:?}"
        );
    }

    /// One that wants to be apart from all others has a place alone, and one that has to be beside another is not blamed for the limit.
    #[test]
    fn a_limit_keeps_out_only_what_is_too_large_for_it() {
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]}});
        let beside = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "large"}}}]}});
        let workloads = [
            ("web", 40, json!({"containers": asking("500m")})),
            ("large", 1, json!({"containers": asking("3")})),
            (
                "apart",
                1,
                json!({"containers": asking("100m"), "affinity": apart}),
            ),
            (
                "beside",
                1,
                json!({"containers": asking("100m"), "affinity": beside}),
            ),
        ];
        let policies = [policy("now", None), policy("few", Some("2"))];
        let said = said(&policies, &workloads);
        let [large] = &said[..] else { panic!("{said:?}") };
        assert!(
            large.starts_with("under few no NodePool takes the pods of shop/large (1 pod), "),
            "{large}"
        );
        assert!(large.contains("limit"), "{large}");
    }
}
