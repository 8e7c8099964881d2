//! DaemonSets: one pod on every node that their template accepts, rolled over within maxUnavailable.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue};

use super::{count_available, create_pod, delete_pod, pod_of, template_hash, until_available, write_status};
use crate::objects::{has_ended, is_deleting, is_ready, name, namespace, node_of, owner, uid};
use crate::rules;
use crate::world::World;

const REVISION: &str = "controller-revision-hash";

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(set) = world.daemon_sets.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&set.metadata) {
        return Ok(Requeue::Done);
    }
    let pods = world.pods_by_owner.get(uid(&set.metadata));
    let nodes = world.nodes.snapshot();
    let mut template = pod_of(
        &set.spec.template,
        namespace(&set.metadata),
        owner("apps/v1", "DaemonSet", &set.metadata),
    );
    template.metadata.generate_name = Some(format!("{}-", name(&set.metadata)));
    tolerate(&mut template);
    let revision = template_hash(&set.spec.template);
    let labels = template.metadata.labels.get_or_insert_default();
    labels.insert(REVISION.to_owned(), revision.clone());
    let is_updated = |pod: &Pod| {
        let labels = pod.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.get(REVISION) == Some(&revision))
    };
    let (mut desired, mut current, mut ready, mut misscheduled, mut updated) = (0, 0, 0, 0, 0);
    let mut outdated: Vec<Arc<Pod>> = Vec::new();
    let mut serving: Vec<Arc<Pod>> = Vec::new();
    for node in &nodes {
        let node_name = name(&node.metadata);
        let here: Vec<&Arc<Pod>> = pods
            .iter()
            .filter(|pod| target(pod).as_deref() == Some(node_name) && !is_deleting(&pod.metadata))
            .collect();
        let fits = eligible(&template, node, &["NoSchedule", "NoExecute"]);
        if fits {
            desired += 1;
        }
        // A taint that only keeps new pods away leaves a daemon where it is.
        let stays = eligible(&template, node, &["NoExecute"]);
        if !fits && (!stays || here.is_empty()) {
            for pod in here {
                delete_pod(&world, pod).await?;
            }
            continue;
        }
        match here.first() {
            None if !is_deleting(&node.metadata) => create_pod(&world, &pinned(&template, node_name)).await?,
            None => {}
            Some(pod) if has_ended(pod) => delete_pod(&world, pod).await?,
            Some(_) if !fits => misscheduled += 1,
            Some(pod) => {
                current += 1;
                ready += i32::from(is_ready(pod));
                serving.push((*pod).clone());
                if is_updated(pod) {
                    updated += 1;
                } else {
                    outdated.push((*pod).clone());
                }
            }
        }
    }
    for pod in without_node(&pods, &nodes) {
        delete_pod(&world, pod).await?;
    }
    let (now, min_ready) = (world.clock.now(), set.spec.min_ready_seconds);
    let (available, again) = count_available(&serving, min_ready, now);
    let available = i32::try_from(available).unwrap_or(i32::MAX);
    let is_available = |pod: &Pod| until_available(pod, min_ready, now).is_some_and(|wait| wait.is_zero());
    for pod in to_roll(&set, outdated, desired, available, is_available) {
        delete_pod(&world, &pod).await?;
    }
    let status = json!({
        "desiredNumberScheduled": desired, "currentNumberScheduled": current, "numberReady": ready, "numberAvailable": available, "updatedNumberScheduled": updated,
        "numberMisscheduled": misscheduled, "numberUnavailable": if desired > available { json!(desired - available) } else { Value::Null }, "observedGeneration": set.metadata.generation,
    });
    let before = serde_json::to_value(&set.status).unwrap_or(Value::Null);
    write_status(&world, &world.daemon_sets, &*set, &before, status).await?;
    Ok(again)
}

/// Pods that were made for a node which went before they were bound: nothing else takes them away.
fn without_node<'a>(pods: &'a [Arc<Pod>], nodes: &'a [Arc<Node>]) -> impl Iterator<Item = &'a Arc<Pod>> {
    pods.iter().filter(|pod| {
        let gone = |target: String| !nodes.iter().any(|node| name(&node.metadata) == target);
        node_of(pod).is_empty() && !is_deleting(&pod.metadata) && target(pod).is_some_and(gone)
    })
}

/// Pods of an older template that may go now: those that are not available, and of the others as many as may be missing.
fn to_roll(
    set: &DaemonSet,
    outdated: Vec<Arc<Pod>>,
    desired: i32,
    available: i32,
    is_available: impl Fn(&Pod) -> bool,
) -> Vec<Arc<Pod>> {
    let strategy = set.spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return Vec::new();
    }
    let limit = strategy
        .and_then(|strategy| strategy.rolling_update.as_ref())
        .and_then(|rolling| rolling.max_unavailable.clone());
    let limit = match limit {
        None => 1,
        Some(IntOrString::Int(number)) => number,
        Some(IntOrString::String(text)) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            (desired * percent + 99) / 100
        }
    };
    let may_go = usize::try_from(limit.max(1) - (desired - available)).unwrap_or(0);
    let (well, ill): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = outdated.into_iter().partition(|pod| is_available(pod));
    ill.into_iter().chain(well.into_iter().take(may_go)).collect()
}

/// The node that a daemon's pod is on or made for.
fn target(pod: &Pod) -> Option<String> {
    let bound = node_of(pod);
    if !bound.is_empty() {
        return Some(bound.to_owned());
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?
        .node_selector_terms;
    terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten())
        .find(|field| field.key == "metadata.name")?
        .values
        .as_ref()?
        .first()
        .cloned()
}

/// Daemons stay on nodes that are sick.
fn tolerate(pod: &mut Pod) {
    let Some(spec) = &mut pod.spec else { return };
    let tolerations = spec.tolerations.get_or_insert_default();
    let exists = |key: &str, effect: &str| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        ..Toleration::default()
    };
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ] {
        let wanted = exists(&format!("node.kubernetes.io/{key}"), effect);
        if !tolerations.contains(&wanted) {
            tolerations.push(wanted);
        }
    }
}

fn eligible(template: &Pod, node: &Node, effects: &[&str]) -> bool {
    let Some(spec) = &template.spec else { return false };
    rules::accepts_node(spec, node) && rules::untolerated(spec, node, effects).is_none()
}

fn pinned(template: &Pod, node_name: &str) -> Pod {
    let mut pod = template.clone();
    let Some(spec) = &mut pod.spec else { return pod };
    let affinity = spec
        .affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_default();
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default();
    let field = k8s_openapi::api::core::v1::NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node_name.to_owned()]),
    };
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(k8s_openapi::api::core::v1::NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_fields = Some(vec![field.clone()]);
    }
    pod
}
