//! Which pods the Eviction API will never let go while they are healthy, and which only not now: the arithmetic of the disruption controller.
//!
//! With `maxUnavailable` or a percentage it counts what controllers want: pods without one are not counted, and with pods of a controller that has no scale nothing is.
//! Percentages are rounded up; a budget that asks for nothing expects no pods; a pod under two budgets is refused whatever they allow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use spokeshave_model::ClusterState;
use spokeshave_model::Pod;
use spokeshave_model::pod::{is_active, is_mirror, phase, true_since};
use spokeshave_model::selector::Selector;
use spokeshave_model::snapshot::{PodId, Snapshot};

use super::{Finding, Level};
use spokeshave_plan::disruption_policy::workloads::workload_of;
use spokeshave_plan::report::{count, some_of};

/// The rule of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// `minAvailable: N`.
    Available(i64),
    /// `minAvailable: P%`.
    AvailableShare(i64),
    /// `maxUnavailable: N`.
    Unavailable(i64),
    /// `maxUnavailable: P%`.
    UnavailableShare(i64),
    /// Neither, which an API server takes.
    Nothing,
}

impl Wanted {
    /// None where it asks in words that no API server takes: then nothing is claimed of it.
    fn of(budget: &PodDisruptionBudget) -> Option<Self> {
        let spec = budget.spec.as_ref()?;
        let share = |text: &str| text.strip_suffix('%')?.parse().ok();
        match (&spec.min_available, &spec.max_unavailable) {
            (Some(IntOrString::Int(number)), _) => Some(Wanted::Available((*number).into())),
            (Some(IntOrString::String(text)), _) => share(text).map(Wanted::AvailableShare),
            (None, Some(IntOrString::Int(number))) => Some(Wanted::Unavailable((*number).into())),
            (None, Some(IntOrString::String(text))) => share(text).map(Wanted::UnavailableShare),
            (None, None) => Some(Wanted::Nothing),
        }
    }

    /// Whether it is relative to what controllers want.
    fn is_of_scale(&self) -> bool {
        !matches!(self, Wanted::Available(_) | Wanted::Nothing)
    }

    /// How many pods count as expected and how many of them must stay healthy, of `all` that are selected and `scale` that controllers want.
    fn numbers(&self, all: i64, scale: i64) -> (i64, i64) {
        let (expected, desired) = match self {
            Wanted::Available(least) => (all, *least),
            Wanted::AvailableShare(share) => (scale, part(*share, scale)),
            Wanted::Unavailable(most) => (scale, scale.saturating_sub(*most)),
            Wanted::UnavailableShare(share) => (scale, scale.saturating_sub(part(*share, scale))),
            Wanted::Nothing => (0, 0),
        };
        (expected, desired.max(0))
    }

    fn field(&self) -> &'static str {
        match self {
            Wanted::Available(_) | Wanted::AvailableShare(_) => "spec.minAvailable",
            Wanted::Unavailable(_) | Wanted::UnavailableShare(_) => "spec.maxUnavailable",
            Wanted::Nothing => "spec",
        }
    }

    fn text(&self) -> String {
        match self {
            Wanted::Available(number) => format!("minAvailable {number}"),
            Wanted::AvailableShare(share) => format!("minAvailable {share}%"),
            Wanted::Unavailable(number) => format!("maxUnavailable {number}"),
            Wanted::UnavailableShare(share) => format!("maxUnavailable {share}%"),
            Wanted::Nothing => "neither minAvailable nor maxUnavailable".to_owned(),
        }
    }
}

/// `share` percent of `whole`, rounded up.
fn part(share: i64, whole: i64) -> i64 {
    share.saturating_mul(whole).saturating_add(99).div_euclid(100)
}

/// One budget with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// `namespace/name`.
    pub budget: String,
    wanted: Wanted,
    /// Positions of the active pods that it selects.
    pub pods: Vec<usize>,
    /// Pods that count as expected; 0 lets nothing go.
    pub expected: i64,
    /// Pods that must stay healthy.
    pub desired_healthy: i64,
    /// Pods that are healthy now.
    pub healthy: i64,
    /// Pods that are healthy when all is well.
    pub most_healthy: i64,
    /// Pods that have a controller.
    managed: i64,
    /// The kind of a controller of its pods that has no scale, and how many pods have one of it; then nothing is counted that is relative to a scale.
    unscaled: Option<(&'static str, usize)>,
    /// Evictions that are allowed once its workloads are scaled up as far as they may be and all is well; 0 where that makes no more pods.
    allowed_scaled_up: i64,
    always_allows_unhealthy: bool,
}

impl Room {
    fn of(
        budget: &PodDisruptionBudget,
        pods: &[Arc<Pod>],
        most_replicas: &BTreeMap<String, i64>,
    ) -> Option<Self> {
        let spec = budget.spec.as_ref()?;
        let wanted = Wanted::of(budget)?;
        let selector = Selector::understand(spec.selector.as_ref())?;
        let nothing = BTreeMap::new();
        let selected = |pod: &Pod| {
            namespace(&pod.metadata) == namespace(&budget.metadata)
                && selector.matches(pod.metadata.labels.as_ref().unwrap_or(&nothing))
        };
        let selected: Vec<usize> = (0..pods.len()).filter(|index| selected(&pods[*index])).collect();
        // The controller asks for the scale of those that have finished as well.
        let unscaled = unscaled(selected.iter().map(|index| &*pods[*index]));
        let pods_of: Vec<usize> = selected
            .into_iter()
            .filter(|index| is_active(&pods[*index]))
            .collect();
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let all = number(pods_of.len());
        let managed = pods_of
            .iter()
            .filter(|index| controller(&pods[**index].metadata).is_some());
        let managed = number(managed.count());
        // The controller's own count knows pods that are yet to be made.
        let scale = told(budget).unwrap_or(managed);
        let is_counted = unscaled.is_none() || !wanted.is_of_scale();
        let (expected, desired_healthy) = match is_counted {
            true => wanted.numbers(all, scale),
            false => (0, 0),
        };
        let more = room_to_grow(pods_of.iter().map(|index| &*pods[*index]), most_replicas);
        let allowed_scaled_up = if more > 0 && is_counted {
            let (all, scale) = (all.saturating_add(more), scale.max(managed.saturating_add(more)));
            let (expected, desired) = wanted.numbers(all, scale);
            allowed(expected, all.max(expected), desired)
        } else {
            0
        };
        let healthy = pods_of.iter().filter(|index| is_ready(&pods[**index])).count();
        Some(Room {
            budget: format!(
                "{}/{}",
                namespace(&budget.metadata),
                budget.metadata.name.as_deref().unwrap_or_default()
            ),
            wanted,
            expected,
            desired_healthy,
            healthy: number(healthy),
            most_healthy: all.max(expected),
            managed,
            unscaled,
            allowed_scaled_up,
            pods: pods_of,
            always_allows_unhealthy: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
        })
    }

    fn allowed_with(&self, healthy: i64) -> i64 {
        allowed(self.expected, healthy, self.desired_healthy)
    }

    /// Evictions that are allowed when every pod is healthy.
    #[must_use]
    pub fn allowed_at_best(&self) -> i64 {
        self.allowed_with(self.most_healthy)
    }

    /// Whether it can never allow an eviction, however many pods its workloads get.
    fn is_closed_for_ever(&self) -> bool {
        self.allowed_at_best() == 0 && self.allowed_scaled_up == 0
    }

    /// Evictions that are allowed now.
    #[must_use]
    pub fn allowed_now(&self) -> i64 {
        self.allowed_with(self.healthy)
    }

    /// Whether it lets this pod go now.
    fn lets_go(&self, pod: &Pod) -> bool {
        let by_health = self.always_allows_unhealthy
            || (self.healthy >= self.desired_healthy && self.desired_healthy > 0);
        self.allowed_now() > 0 || (!is_ready(pod) && by_health)
    }
}

fn allowed(expected: i64, healthy: i64, desired: i64) -> i64 {
    match expected {
        ..=0 => 0,
        _ => healthy.saturating_sub(desired).max(0),
    }
}

/// How many more pods the workloads of these may get.
fn room_to_grow<'a>(pods: impl Iterator<Item = &'a Pod>, most_replicas: &BTreeMap<String, i64>) -> i64 {
    if most_replicas.is_empty() {
        return 0;
    }
    let mut there: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        *there.entry(workload_of(pod)).or_default() += 1;
    }
    let more = there.iter().filter_map(|(workload, pods)| {
        let most = most_replicas.get(workload)?;
        Some(most.saturating_sub(*pods).max(0))
    });
    more.sum()
}

/// The disruption controller's count, unless the budget has changed since.
fn told(budget: &PodDisruptionBudget) -> Option<i64> {
    let status = budget.status.as_ref()?;
    let seen = status.observed_generation == budget.metadata.generation;
    let expected = status.expected_pods?;
    (seen && expected > 0).then_some(i64::from(expected))
}

fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Controllers without the subresource `scale`, by API group and kind.
const UNSCALED: [(&str, &str); 2] = [("batch", "Job"), ("apps", "DaemonSet")];

/// The first kind of controllers of these pods that has no scale, and how many pods have one of it.
fn unscaled<'a>(pods: impl Iterator<Item = &'a Pod> + Clone) -> Option<(&'static str, usize)> {
    let number = |(group, kind): (&str, &'static str)| {
        let is_it = |owner: &OwnerReference| {
            let of = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            of == group && owner.kind == kind
        };
        let owners = pods.clone().filter_map(|pod| controller(&pod.metadata));
        (kind, owners.filter(|owner| is_it(owner)).count())
    };
    UNSCALED.into_iter().map(number).find(|(_, pods)| *pods > 0)
}

fn is_ready(pod: &Pod) -> bool {
    true_since(pod, "Ready").is_some() || has_ready(pod)
}

/// A condition without a time counts as well.
fn has_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        let mut ready = conditions.iter().filter(|condition| condition.type_ == "Ready");
        ready.any(|condition| condition.status == "True")
    })
}

/// Where an object comes to be: in `default` where its manifest names none.
fn namespace(meta: &ObjectMeta) -> &str {
    let named = meta.namespace.as_deref().filter(|name| !name.is_empty());
    named.unwrap_or("default")
}

fn key(meta: &ObjectMeta) -> String {
    let part = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("{}/{}", part(&meta.namespace), part(&meta.name))
}

/// How the Eviction API treats a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It may go.
    Free,
    /// It may go once others are healthy again.
    NotNow,
    /// While it is healthy it may never go, whatever becomes of the others.
    Never,
}

/// All budgets, applied to all pods.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Budgets whose arithmetic could be done, by name.
    pub rooms: Vec<Room>,
    /// One for each pod of the state, in its order.
    pub verdicts: Vec<Verdict>,
    /// `namespace/name` of the pods.
    keys: Vec<String>,
    ready: Vec<bool>,
}

/// Works out every budget and pod; pods of nodes themselves (mirror pods) are free. `most_replicas` says how many pods workloads may have once they are
/// scaled up, by `Deployment/shop/web`.
#[must_use]
pub fn standing(state: &ClusterState, most_replicas: &BTreeMap<String, i64>) -> Standing {
    let pods = &state.pods;
    let mut rooms: Vec<Room> = state
        .pod_disruption_budgets
        .iter()
        .filter_map(|budget| Room::of(budget, pods, most_replicas))
        .collect();
    rooms.sort_by(|left, right| left.budget.cmp(&right.budget));
    let mut over: Vec<Vec<usize>> = vec![Vec::new(); pods.len()];
    for (room, numbers) in rooms.iter().enumerate() {
        for pod in &numbers.pods {
            over[*pod].push(room);
        }
    }
    let verdict = |(index, pod): (usize, &Arc<Pod>)| match over[index][..] {
        _ if is_mirror(pod) => Verdict::Free,
        [] => Verdict::Free,
        [room] if rooms[room].is_closed_for_ever() => Verdict::Never,
        [_] if phase(pod) == "Pending" => Verdict::Free,
        [room] if rooms[room].lets_go(pod) => Verdict::Free,
        [_] => Verdict::NotNow,
        _ => Verdict::Never,
    };
    Standing {
        verdicts: pods.iter().enumerate().map(verdict).collect(),
        keys: pods.iter().map(|pod| key(&pod.metadata)).collect(),
        ready: pods.iter().map(|pod| is_ready(pod)).collect(),
        rooms,
    }
}

impl Standing {
    /// Names of pods for which there is a verdict.
    pub(super) fn keys_with(&self, verdict: Verdict) -> BTreeSet<&str> {
        let pods = self.keys.iter().zip(&self.verdicts);
        pods.filter(|(_, own)| **own == verdict)
            .map(|(key, _)| key.as_str())
            .collect()
    }
}

/// The pods of the snapshot with these names.
fn ids(snapshot: &Snapshot, names: &BTreeSet<&str>) -> Vec<PodId> {
    snapshot
        .pod_ids()
        .filter(|id| names.contains(snapshot.pod(*id).key().as_str()))
        .collect()
}

/// Findings about budgets.
pub(super) fn findings(standing: &Standing, snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = overlaps(standing, snapshot);
    for room in &standing.rooms {
        let names: BTreeSet<&str> = room.pods.iter().map(|pod| standing.keys[*pod].as_str()).collect();
        let object = format!("PodDisruptionBudget {}", room.budget);
        if names.is_empty() {
            let message = "it selects no pod".to_owned();
            let proof = "no active pod of its namespace has the labels of its selector".to_owned();
            findings.push(
                Finding::new(Level::Note, "pdb-selects-nothing", object, message, proof)
                    .field("spec.selector"),
            );
        } else if room.is_closed_for_ever() {
            findings.push(never(room, object).keeps(snapshot, &ids(snapshot, &names)));
        } else if room.allowed_at_best() == 0 {
            findings.push(too_small(room, object));
        } else if room.allowed_now() == 0 {
            findings.push(not_now(room, standing, object));
        }
    }
    findings
}

/// A budget that can never allow anything.
fn never(room: &Room, object: String) -> Finding {
    let wanted = room.wanted.text();
    let (expected, desired) = (room.expected, room.desired_healthy);
    if room.wanted == Wanted::Nothing {
        return of_nothing(room, object);
    }
    if expected <= 0 {
        return without_scale(room, object);
    }
    let must = match room.wanted {
        Wanted::AvailableShare(share) => format!(
            "{share}% of {expected} is {}, rounded up {desired}",
            decimal(share, expected)
        ),
        Wanted::UnavailableShare(share) => {
            format!("{share}% of {expected} is 0, so that {desired} must stay")
        }
        Wanted::Unavailable(most) => format!("{expected} - {most} = {desired} must stay"),
        Wanted::Available(least) => format!("{least} must stay"),
        Wanted::Nothing => String::new(),
    };
    let proof = format!(
        "{wanted} of {expected}: {must}; at best {} are healthy, and {} - {desired} {} 0 may go",
        room.most_healthy,
        room.most_healthy,
        if room.most_healthy < desired { "< 0:" } else { "=" }
    );
    let suggestion = match (expected, &room.wanted) {
        (1, _) => "maxUnavailable: 1, which lets the only pod go; or a second replica with maxUnavailable: 1"
            .to_owned(),
        (_, Wanted::Available(_)) => format!("minAvailable: {}", room.most_healthy - 1),
        _ => "maxUnavailable: 1".to_owned(),
    };
    Finding::new(
        Level::Error,
        "pdb-never-allows",
        object,
        "it can never allow an eviction: its nodes cannot be drained, consolidated or replaced".to_owned(),
        proof,
    )
    .field(room.wanted.field())
    .suggest(suggestion)
}

/// A budget that says neither how many pods must stay nor how many may go.
fn of_nothing(room: &Room, object: String) -> Finding {
    let proof = format!("{}: 0 pods are expected, and 0 may go", room.wanted.text());
    let suggestion = match room.managed > 0 && room.unscaled.is_none() {
        true => "maxUnavailable: 1".to_owned(),
        false => by_number(room),
    };
    Finding::new(
        Level::Error,
        "pdb-never-allows",
        object,
        "it can never allow an eviction: it says neither how many pods must stay nor how many may go"
            .to_owned(),
        proof,
    )
    .field(room.wanted.field())
    .suggest(suggestion)
}

/// A budget that is relative to what controllers want, where that is nothing or not known.
fn without_scale(room: &Room, object: String) -> Finding {
    let wanted = room.wanted.text();
    let (message, proof) = match room.unscaled {
        Some((kind, pods)) => (
            format!("{} of a {kind}, which has no scale", count(pods, "pod")),
            format!(
                "{wanted} counts the pods that controllers want, and of a {kind} nobody knows how many: it cannot be synced (DisruptionAllowed is False, SyncFailed), and 0 may go"
            ),
        ),
        None => (
            "none of its pods has a controller".to_owned(),
            format!(
                "{wanted} counts the pods that controllers want, and {} without a controller: 0 expected, 0 may go",
                match room.pods.len() {
                    1 => "its 1 pod is".to_owned(),
                    pods => format!("its {pods} pods are"),
                }
            ),
        ),
    };
    let suggestion = match room.unscaled {
        Some((kind, _)) => format!(
            "{}, or a selector without the pods of the {kind}",
            by_number(room)
        ),
        None => by_number(room),
    };
    Finding::new(
        Level::Error,
        "pdb-without-controller",
        object,
        format!("it can never allow an eviction: {message}"),
        proof,
    )
    .field(room.wanted.field())
    .suggest(suggestion)
}

/// A number of pods that must stay, which is relative to nothing.
fn by_number(room: &Room) -> String {
    format!("minAvailable: {}", room.pods.len().saturating_sub(1))
}

/// `4.5`, for a share of a whole.
fn decimal(share: i64, whole: i64) -> String {
    let hundredths = share.saturating_mul(whole);
    match hundredths % 100 {
        0 => (hundredths / 100).to_string(),
        rest => format!("{}.{rest:02}", hundredths / 100)
            .trim_end_matches('0')
            .to_owned(),
    }
}

/// A budget that allows nothing until some pods are well again.
fn not_now(room: &Room, standing: &Standing, object: String) -> Finding {
    let missing = room.desired_healthy + 1 - room.healthy;
    let unready: Vec<&str> = room
        .pods
        .iter()
        .filter(|pod| !standing.ready[**pod])
        .map(|pod| standing.keys[*pod].as_str())
        .collect();
    let waits = if unready.is_empty() {
        "the others are yet to be made".to_owned()
    } else {
        format!("not Ready: {}", some_of(&unready, 3))
    };
    let proof = format!(
        "{} of {}: {} must stay and {} are healthy; at best {} may go",
        room.wanted.text(),
        room.expected,
        room.desired_healthy,
        room.healthy,
        room.allowed_at_best()
    );
    let more = count(usize::try_from(missing).unwrap_or(0), "more pod");
    Finding::new(
        Level::Note,
        "pdb-not-now",
        object,
        format!(
            "it allows no eviction now, and one again once {more} {} Ready; {waits}",
            if missing == 1 { "is" } else { "are" }
        ),
        proof,
    )
}

/// A budget that allows nothing at the present size of its workloads.
fn too_small(room: &Room, object: String) -> Finding {
    let proof = format!(
        "{} of {}: {} must stay; at maxReplicas {} may go",
        room.wanted.text(),
        room.expected,
        room.desired_healthy,
        room.allowed_scaled_up
    );
    Finding::new(
        Level::Note,
        "pdb-not-now",
        object,
        "it allows no eviction now, and one again once a HorizontalPodAutoscaler has scaled its pods up"
            .to_owned(),
        proof,
    )
    .field(room.wanted.field())
}

/// Pods under several budgets, by the budgets that they share.
fn overlaps(standing: &Standing, snapshot: &Snapshot) -> Vec<Finding> {
    let mut over: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for room in &standing.rooms {
        for pod in &room.pods {
            over.entry(*pod).or_default().push(room.budget.as_str());
        }
    }
    let mut groups: BTreeMap<Vec<&str>, BTreeSet<&str>> = BTreeMap::new();
    for (pod, budgets) in over {
        if budgets.len() > 1 {
            groups
                .entry(budgets)
                .or_default()
                .insert(standing.keys[pod].as_str());
        }
    }
    let finding = |(budgets, pods): (Vec<&str>, BTreeSet<&str>)| {
        let names: Vec<&str> = pods.iter().copied().collect();
        Finding::new(
            Level::Error,
            "pdb-overlap",
            format!("PodDisruptionBudget {}", budgets[0]),
            format!(
                "{} under {} budgets can never be evicted: {}",
                count(pods.len(), "pod"),
                budgets.len(),
                some_of(&names, 3)
            ),
            format!(
                "the Eviction API refuses a pod that more than one budget selects, whatever they allow: {}",
                budgets.join(", ")
            ),
        )
        .field("spec.selector")
        .suggest("delete all of them but one, or narrow their selectors")
        .keeps(snapshot, &ids(snapshot, &pods))
    };
    groups.into_iter().map(finding).collect()
}
