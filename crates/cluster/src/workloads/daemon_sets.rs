//! DaemonSets: one pod on every node that their template accepts, rolled over within maxUnavailable, or within maxSurge (`daemon_rollout`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use serde_json::{Value, json};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue};

use super::claims::{self, Claimant as _};
use super::daemon_rollout::{self, Bounds, Place, Step};
use super::pods::{create_pod, delete_pod, pod_of};
use super::revisions::{self, REVISION, revision_of};
use super::{count_available, is_available, sooner, still, template_hash, write_status};
use crate::objects::{has_ended, is_deleting, is_ready, key as full_name, name, node_of, phase, uid};
use crate::rules;
use crate::world::World;

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(set) = world.daemon_sets.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&set.metadata) {
        return Ok(Requeue::Done);
    }
    if !claims::settle_pods(&world, &*set).await? {
        return Ok(Requeue::Stale);
    }
    let Some(set) = still(&world.daemon_sets, &key, &*set) else {
        return Ok(Requeue::Done);
    };
    let pods = world.pods_by_owner.get(uid(&set.metadata));
    let daemons = Daemons::of(&set);
    if world.keeps_records() {
        let live: BTreeSet<String> = pods.iter().filter_map(|pod| revision_of(pod)).cloned().collect();
        if !revisions::keep(&world, &*set, &daemons.revision, &live).await? {
            return Ok(Requeue::Stale);
        }
    }
    let mut found = daemons.look(&world.nodes.snapshot(), &pods, world.clock.now());
    let mut failure = daemons.perform(&world, std::mem::take(&mut found.acts)).await;
    let now = world.clock.now();
    let (available, again) = count_available(&found.serving, set.spec.min_ready_seconds, now);
    // That a new daemon beside an old one has been ready for long enough is no change of it, either.
    let beside = found.pairs.iter().filter_map(|pair| pair.new.as_ref());
    let (_, look) = count_available(beside, set.spec.min_ready_seconds, now);
    let again = sooner(again, look);
    let available = i32::try_from(available).unwrap_or(i32::MAX);
    let (desired, current) = (found.desired, found.serving.len());
    let (ready, updated, misscheduled) = (found.ready, found.updated, found.misscheduled);
    if failure.is_none() {
        let rolls = daemons.rolls(found, available, now);
        failure = daemons.perform(&world, rolls).await;
    }
    let status = json!({
        "desiredNumberScheduled": desired, "currentNumberScheduled": current, "numberReady": ready, "numberAvailable": available, "updatedNumberScheduled": updated,
        "numberMisscheduled": misscheduled, "numberUnavailable": if desired > available { json!(desired - available) } else { Value::Null }, "observedGeneration": set.metadata.generation,
    });
    let before = serde_json::to_value(&set.status).unwrap_or(Value::Null);
    write_status(&world, &world.daemon_sets, &*set, &before, status).await?;
    match failure {
        Some(error) => Err(error),
        None => Ok(again),
    }
}

/// What is to be done.
enum Act {
    /// A pod is made for this node.
    Make(String),
    /// A pod goes.
    End(Arc<Pod>),
}

/// The daemons of a node where there may be two.
#[derive(Default)]
struct Pair {
    node: String,
    fits: bool,
    old: Option<Arc<Pod>>,
    new: Option<Arc<Pod>>,
}

/// What was found on the nodes.
#[derive(Default)]
struct Findings {
    acts: Vec<Act>,
    desired: i32,
    ready: i32,
    updated: i32,
    misscheduled: i32,
    /// The oldest pod of each node that is to have one.
    serving: Vec<Arc<Pod>>,
    /// Those of them with an older template.
    outdated: Vec<Arc<Pod>>,
    pairs: Vec<Pair>,
}

/// A DaemonSet with the pods that it makes.
struct Daemons<'a> {
    set: &'a DaemonSet,
    template: Pod,
    revision: String,
    surges: bool,
}

impl<'a> Daemons<'a> {
    fn of(set: &'a DaemonSet) -> Self {
        let mut template = pod_of(set, &set.spec.template);
        template.metadata.generate_name = Some(format!("{}-", name(&set.metadata)));
        tolerate(&mut template);
        let revision = template_hash(&set.spec.template, None);
        let labels = template.metadata.labels.get_or_insert_default();
        labels.insert(REVISION.to_owned(), revision.clone());
        Self {
            set,
            template,
            revision,
            surges: daemon_rollout::surges(set),
        }
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        revision_of(pod) == Some(&self.revision)
    }

    fn is_available(&self, pod: &Pod, now: Timestamp) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds, now)
    }

    fn look(&self, nodes: &[Arc<Node>], pods: &[Arc<Pod>], now: Timestamp) -> Findings {
        let mut on: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !is_deleting(&pod.metadata)) {
            if let Some(node) = target(pod) {
                on.entry(node).or_default().push(pod.clone());
            }
        }
        let mut found = Findings::default();
        for node in nodes {
            let here = on.remove(name(&node.metadata)).unwrap_or_default();
            self.look_at(node, here, now, &mut found);
        }
        // Pods that were made for a node which went before they were bound: nothing else takes them away.
        let mut homeless: Vec<Arc<Pod>> = on.into_values().flatten().collect();
        homeless.retain(|pod| node_of(pod).is_empty());
        homeless.sort_by_cached_key(|pod| name(&pod.metadata).to_owned());
        found.acts.extend(homeless.into_iter().map(Act::End));
        found
    }

    fn look_at(&self, node: &Node, here: Vec<Arc<Pod>>, now: Timestamp, found: &mut Findings) {
        let fits = eligible(&self.template, node, &["NoSchedule", "NoExecute"]);
        found.desired += i32::from(fits);
        // A taint that only keeps new pods away leaves a daemon where it is.
        if !fits && (here.is_empty() || !eligible(&self.template, node, &["NoExecute"])) {
            found.acts.extend(here.into_iter().map(Act::End));
            return;
        }
        let (ended, mut living): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) =
            here.into_iter().partition(|pod| has_ended(pod));
        let is_free = living.is_empty() && (ended.is_empty() || self.surges);
        found.acts.extend(ended.into_iter().map(Act::End));
        if is_free && fits && !is_deleting(&node.metadata) {
            found.acts.push(Act::Make(name(&node.metadata).to_owned()));
        }
        living.sort_by_cached_key(|pod| age(pod));
        let pair = self.pair(node, fits, &living, now);
        let excess = living.extract_if(.., |pod| !pair.has(pod));
        found.acts.extend(excess.map(Act::End));
        let Some(first) = living.first() else { return };
        if fits {
            found.ready += i32::from(is_ready(first));
            found.serving.push(first.clone());
            if self.is_updated(first) {
                found.updated += 1;
            } else {
                found.outdated.push(first.clone());
            }
        } else {
            found.misscheduled += 1;
        }
        if self.surges {
            found.pairs.push(pair);
        }
    }

    /// Which of the pods of a node, the oldest first, may be there. It is the first one, unless the set surges: then it is one of an older and one of the
    /// newest template for as long as the new one is not available and the old one is ready.
    fn pair(&self, node: &Node, fits: bool, living: &[Arc<Pod>], now: Timestamp) -> Pair {
        let mut pair = Pair {
            node: name(&node.metadata).to_owned(),
            fits,
            ..Pair::default()
        };
        for pod in living {
            if !self.surges && (pair.old.is_some() || pair.new.is_some()) {
                break;
            }
            let place = if self.is_updated(pod) {
                &mut pair.new
            } else {
                &mut pair.old
            };
            place.get_or_insert_with(|| pod.clone());
        }
        if let (Some(old), Some(new)) = (&pair.old, &pair.new)
            && (!is_ready(old) || self.is_available(new, now))
        {
            pair.old = None;
        }
        pair
    }

    /// What a new template asks for next.
    fn rolls(&self, found: Findings, available: i32, now: Timestamp) -> Vec<Act> {
        let Some(bounds) = Bounds::of(self.set, found.desired) else {
            return Vec::new();
        };
        if bounds.surge > 0 {
            return self.surge(found.pairs, bounds.surge, found.desired, now);
        }
        // Those that are not available, and of the others as many as may be missing.
        let may_go = usize::try_from(bounds.unavailable - (found.desired - available)).unwrap_or(0);
        let (well, ill): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = found
            .outdated
            .into_iter()
            .partition(|pod| self.is_available(pod, now));
        let gone = ill.into_iter().chain(well.into_iter().take(may_go));
        gone.map(Act::End).collect()
    }

    fn surge(&self, pairs: Vec<Pair>, most: i32, desired: i32, now: Timestamp) -> Vec<Act> {
        let state = |pod: &Option<Arc<Pod>>| pod.as_ref().map(|pod| self.is_available(pod, now));
        let places: Vec<Place> = pairs
            .iter()
            .map(|pair| Place {
                fits: pair.fits,
                old: state(&pair.old),
                new: state(&pair.new),
            })
            .collect();
        let steps = daemon_rollout::surge(&places, most, desired);
        let act = |step: Step| match step {
            Step::Make(index) => pairs.get(index).map(|pair| Act::Make(pair.node.clone())),
            Step::End(index) => pairs.get(index)?.old.clone().map(Act::End),
        };
        steps.into_iter().filter_map(act).collect()
    }

    /// Does it, one after the other. After a pod that could not be made none is made any more; why not.
    async fn perform(&self, world: &World, acts: Vec<Act>) -> Option<ReconcileError> {
        let mut failure: Option<ReconcileError> = None;
        for act in acts {
            let done = match act {
                Act::Make(_) if failure.is_some() => continue,
                Act::Make(node) => create_pod(world, self.set, &pinned(&self.template, &node)).await,
                Act::End(pod) => {
                    self.tell_end(world, &pod).await;
                    delete_pod(world, self.set, &pod).await
                }
            };
            failure = failure.or(done.err());
        }
        failure
    }

    /// Says that a pod goes because it has ended.
    async fn tell_end(&self, world: &World, pod: &Pod) {
        let (kind, reason, what, verb) = match phase(pod) {
            "Failed" => ("Warning", "FailedDaemonPod", "failed", "kill"),
            "Succeeded" => ("Normal", "SucceededDaemonPod", "succeeded", "delete"),
            _ => return,
        };
        if world.keeps_records() {
            let (pod, node) = (full_name(&pod.metadata), node_of(pod));
            let message = format!("Found {what} daemon pod {pod} on node {node}, will try to {verb} it");
            let event = (kind, reason, message.as_str());
            world.note(DaemonSet::COMPONENT, self.set, event).await;
        }
    }
}

impl Pair {
    fn has(&self, pod: &Pod) -> bool {
        let mut pods = [&self.old, &self.new].into_iter().flatten();
        pods.any(|one| one.metadata.uid == pod.metadata.uid)
    }
}

/// By what the pods of a node are ordered: those that are bound, then the oldest, are first.
fn age(pod: &Pod) -> (bool, Option<Timestamp>, String) {
    let created = pod.metadata.creation_timestamp.as_ref();
    (
        node_of(pod).is_empty(),
        created.map(|time| time.0),
        name(&pod.metadata).to_owned(),
    )
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
