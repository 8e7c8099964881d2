//! HorizontalPodAutoscalers: replicas within their range, and as many as the load that an annotation names asks for.
//!
//! Nothing is measured, since no container runs: the annotation says what all pods of the target use together, and utilisation follows from their
//! requests. Of `behavior` the stabilisation windows count, and of the policies the usual limit on scaling out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, MetricSpec,
};
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec, ReplicationController};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::write_status;
use crate::objects::{is_deleting, name, namespace, time};
use crate::quantities::milli;
use crate::world::{World, ignore_races};

/// What all pods of the target use together: `cpu=2500m,memory=4Gi`.
const LOAD: &str = "sim.spokeshave.dev/load";
const PERIOD: Duration = Duration::from_secs(15);
/// A ratio this near to one changes nothing, in thousandths.
const TOLERANCE_MILLI: i128 = 100;
const SCALE_IN_WINDOW: SignedDuration = SignedDuration::from_mins(5);

/// What was recommended when, by autoscaler.
pub(super) type Recommended = Arc<Mutex<BTreeMap<ObjectKey, VecDeque<(Timestamp, i32)>>>>;

/// What is scaled.
struct Target {
    replicas: i32,
    current: i32,
    template: Option<PodTemplateSpec>,
}

pub(super) async fn sync(
    world: Arc<World>,
    recommended: Recommended,
    key: ObjectKey,
) -> Result<Requeue, ReconcileError> {
    let forget = || {
        drop(
            recommended
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&key),
        )
    };
    let Some(autoscaler) = world.autoscalers.get(&key) else {
        forget();
        return Ok(Requeue::Done);
    };
    let spec = &autoscaler.spec;
    if is_deleting(&autoscaler.metadata) {
        return Ok(Requeue::Done);
    }
    let reference = &spec.scale_target_ref;
    let place = ObjectKey::namespaced(namespace(&autoscaler.metadata), &reference.name);
    let mut said = Conditions::new(&autoscaler, world.clock.now());
    let Some(target) = target(&world, &reference.kind, &place) else {
        let text = format!(
            "the {} {:?} is not there, or not of a kind that is scaled here",
            reference.kind, reference.name
        );
        said.set("AbleToScale", false, "FailedGetScale", &text);
        write(&world, &autoscaler, None, &[], said).await?;
        return Ok(Requeue::After(PERIOD));
    };
    let (least, most) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
    if target.replicas == 0 {
        said.set(
            "AbleToScale",
            true,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        );
        said.set(
            "ScalingActive",
            false,
            "ScalingDisabled",
            "scaling is disabled since the replica count of the target is zero",
        );
        write(&world, &autoscaler, Some((target.current, 0)), &[], said).await?;
        return Ok(Requeue::After(PERIOD));
    }
    let load = load_of(&autoscaler);
    let looks: Vec<Look> = spec
        .metrics
        .iter()
        .flatten()
        .map(|metric| look(metric, &load, &target))
        .collect();
    let asked = looks
        .iter()
        .filter_map(|look| look.as_ref().ok())
        .map(|found| found.replicas)
        .max();
    let wanted = match asked {
        Some(replicas) => {
            said.set(
                "ScalingActive",
                true,
                "ValidMetricFound",
                "the HPA was able to successfully calculate a replica count",
            );
            let behavior = spec.behavior.as_ref();
            stabilized(
                &recommended,
                &key,
                behavior,
                (target.replicas, replicas),
                world.clock.now(),
            )
        }
        None => {
            let problem = looks.iter().find_map(|look| look.as_ref().err());
            let text = problem.map_or("no metric is named", String::as_str);
            said.set("ScalingActive", false, "FailedGetResourceMetric", text);
            target.replicas
        }
    };
    let fastest = (target.replicas * 2).max(target.replicas + 4);
    let desired = wanted.min(fastest).clamp(least, most.max(least));
    said.limited(wanted, desired, (least, most));
    said.set(
        "AbleToScale",
        true,
        "ReadyForNewScale",
        "recommended size matches current size",
    );
    if desired != target.replicas {
        said.set(
            "AbleToScale",
            true,
            "SucceededRescale",
            &format!("the HPA controller was able to update the target scale to {desired}"),
        );
        scale(&world, &reference.kind, &place, desired).await?;
        let text = format!(
            "New size: {desired}; reason: {}",
            reason(&target, (least, most), asked)
        );
        world
            .tell_of(
                "horizontal-pod-autoscaler",
                &*autoscaler,
                ("Normal", "SuccessfulRescale", &text),
            )
            .await;
    }
    let current: Vec<Value> = looks
        .into_iter()
        .filter_map(Result::ok)
        .map(|found| found.current)
        .collect();
    write(
        &world,
        &autoscaler,
        Some((target.current, desired)),
        &current,
        said,
    )
    .await?;
    Ok(Requeue::After(PERIOD))
}

fn reason(target: &Target, (least, most): (i32, i32), asked: Option<i32>) -> &'static str {
    if target.replicas > most {
        "Current number of replicas above Spec.MaxReplicas"
    } else if target.replicas < least {
        "Current number of replicas below Spec.MinReplicas"
    } else if asked.is_some_and(|asked| asked > target.replicas) {
        "resource utilization (percentage of request) above target"
    } else {
        "All metrics below target"
    }
}

fn target(world: &World, kind: &str, key: &ObjectKey) -> Option<Target> {
    match kind {
        "Deployment" => world.deployments.get(key).map(|object| Target {
            replicas: object.spec.replicas.unwrap_or(1),
            current: object
                .status
                .as_ref()
                .and_then(|status| status.replicas)
                .unwrap_or(0),
            template: Some(object.spec.template.clone()),
        }),
        "StatefulSet" => world.stateful_sets.get(key).map(|object| Target {
            replicas: object.spec.replicas.unwrap_or(1),
            current: object.status.as_ref().map_or(0, |status| status.replicas),
            template: Some(object.spec.template.clone()),
        }),
        "ReplicaSet" => world.replica_sets.get(key).map(|object| Target {
            replicas: object.spec.replicas.unwrap_or(1),
            current: object.status.as_ref().map_or(0, |status| status.replicas),
            template: object.spec.template.clone(),
        }),
        "ReplicationController" => world.replication_controllers.get(key).map(|object| Target {
            replicas: object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
            current: object.status.as_ref().map_or(0, |status| status.replicas),
            template: object.spec.as_ref().and_then(|spec| spec.template.clone()),
        }),
        _ => None,
    }
}

/// The store learns of it from its watch.
async fn scale(world: &World, kind: &str, key: &ObjectKey, replicas: i32) -> Result<(), ReconcileError> {
    match kind {
        "Deployment" => scale_one::<Deployment>(world, key, replicas).await,
        "StatefulSet" => scale_one::<StatefulSet>(world, key, replicas).await,
        "ReplicationController" => scale_one::<ReplicationController>(world, key, replicas).await,
        _ => scale_one::<ReplicaSet>(world, key, replicas).await,
    }
}

async fn scale_one<K>(world: &World, key: &ObjectKey, replicas: i32) -> Result<(), ReconcileError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + k8s_openapi::serde::de::DeserializeOwned,
{
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let api: Api<K> = Api::namespaced(world.client.clone(), &key.namespace);
    let answer = api.patch_scale(&key.name, &PatchParams::default(), &patch).await;
    ignore_races(answer).map(drop)
}

/// Thousandths of each resource that the annotation names; what cannot be read is left out, with a line in the log.
fn load_of(autoscaler: &HorizontalPodAutoscaler) -> BTreeMap<String, i128> {
    let annotations = autoscaler.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| annotations.get(LOAD));
    let mut load = BTreeMap::new();
    for part in text.into_iter().flat_map(|text| text.split(',')).map(str::trim) {
        let Some((resource, amount)) = part.split_once('=') else {
            tracing::warn!(
                autoscaler = name(&autoscaler.metadata),
                part,
                "annotation {LOAD} reads RESOURCE=QUANTITY"
            );
            continue;
        };
        load.insert(
            resource.trim().to_owned(),
            milli(&Quantity(amount.trim().to_owned())),
        );
    }
    load
}

struct Found {
    replicas: i32,
    current: Value,
}

/// How many replicas a metric asks for, or why that is not known.
type Look = Result<Found, String>;

fn look(metric: &MetricSpec, load: &BTreeMap<String, i128>, target: &Target) -> Look {
    let Some(resource) = &metric.resource else {
        return Err(format!("metrics of type {} are not simulated", metric.type_));
    };
    let kind = &resource.name;
    let Some(&load) = load.get(kind) else {
        return Err(format!(
            "no load of {kind} is given: annotate the autoscaler with {LOAD}={kind}=QUANTITY"
        ));
    };
    let replicas = i128::from(target.replicas);
    if let Some(wanted) = resource
        .target
        .average_value
        .as_ref()
        .map(milli)
        .filter(|wanted| *wanted > 0)
    {
        let current = json!({"averageValue": shown(kind, load / replicas)});
        return Ok(found(kind, replicas, load * 1_000 / (wanted * replicas), current));
    }
    let Some(wanted) = resource.target.average_utilization.filter(|wanted| *wanted > 0) else {
        return Err(format!(
            "the target of {kind} names neither averageUtilization nor averageValue"
        ));
    };
    let containers = target
        .template
        .iter()
        .filter_map(|template| template.spec.as_ref())
        .flat_map(|spec| &spec.containers);
    let request: i128 = containers.map(|container| request_of(container, kind)).sum();
    if request <= 0 {
        return Err(format!(
            "missing request for {kind} in the containers of the target"
        ));
    }
    let percent = load * 100 / (request * replicas);
    let ratio = load * 100_000 / (request * replicas * i128::from(wanted));
    let current = json!({"averageUtilization": percent, "averageValue": shown(kind, load / replicas)});
    Ok(found(kind, replicas, ratio, current))
}

fn request_of(container: &Container, kind: &str) -> i128 {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| requests.get(kind)).map_or(0, milli)
}

fn found(kind: &str, replicas: i128, ratio_milli: i128, current: Value) -> Found {
    let asked = if (ratio_milli - 1_000).abs() <= TOLERANCE_MILLI {
        replicas
    } else {
        (replicas * ratio_milli + 999) / 1_000
    };
    Found {
        replicas: i32::try_from(asked).unwrap_or(i32::MAX),
        current: json!({"type": "Resource", "resource": {"name": kind, "current": current}}),
    }
}

fn shown(kind: &str, milli: i128) -> String {
    if kind == "cpu" {
        format!("{milli}m")
    } else {
        (milli / 1_000).to_string()
    }
}

/// What is recommended now, held back by what was recommended lately: no fewer than the most of the window for scaling in, no more than the fewest
/// of the window for scaling out.
fn stabilized(
    recommended: &Recommended,
    key: &ObjectKey,
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    (replicas, asked): (i32, i32),
    now: Timestamp,
) -> i32 {
    let window = |seconds: Option<i32>, otherwise: SignedDuration| {
        seconds.map_or(otherwise, |seconds| SignedDuration::from_secs(seconds.into()))
    };
    let seconds = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
        rules.and_then(|rules| rules.stabilization_window_seconds)
    };
    let inwards = window(
        seconds(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
        SCALE_IN_WINDOW,
    );
    let outwards = window(
        seconds(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        SignedDuration::ZERO,
    );
    let mut all = recommended.lock().unwrap_or_else(PoisonError::into_inner);
    let past = all
        .entry(key.clone())
        .or_insert_with(|| VecDeque::from([(now, replicas)]));
    past.push_back((now, asked));
    let longest = inwards.max(outwards);
    past.retain(|(when, _)| now.duration_since(*when) <= longest);
    let within = |window: SignedDuration| {
        past.iter()
            .filter(move |(when, _)| now.duration_since(*when) <= window)
            .map(|(_, count)| *count)
    };
    let floor = within(inwards).max().unwrap_or(asked);
    let ceiling = within(outwards).min().unwrap_or(asked);
    if asked < replicas {
        floor.min(replicas)
    } else if asked > replicas {
        ceiling.max(replicas)
    } else {
        asked
    }
}

/// The conditions, with the times at which they changed.
struct Conditions {
    list: Vec<Value>,
    now: Timestamp,
}

impl Conditions {
    fn new(autoscaler: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        let known = autoscaler
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let list = known.into_iter().flatten().map(|one| json!(one)).collect();
        Self { list, now }
    }

    fn set(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let status = if holds { "True" } else { "False" };
        let known = self.list.iter().position(|one| one["type"] == kind);
        let since = known
            .filter(|index| self.list[*index]["status"] == status)
            .map_or_else(
                || json!(time(self.now)),
                |index| self.list[index]["lastTransitionTime"].clone(),
            );
        let condition = json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since});
        match known {
            Some(index) => self.list[index] = condition,
            None => self.list.push(condition),
        }
    }

    fn limited(&mut self, wanted: i32, desired: i32, (least, most): (i32, i32)) {
        let (holds, reason, message) = if wanted < least {
            (
                true,
                "TooFewReplicas",
                "the desired replica count is less than the minimum replica count",
            )
        } else if wanted > most {
            (
                true,
                "TooManyReplicas",
                "the desired replica count is more than the maximum replica count",
            )
        } else if wanted > desired {
            (
                true,
                "ScaleUpLimit",
                "the desired replica count is increasing faster than the maximum scale rate",
            )
        } else {
            (
                false,
                "DesiredWithinRange",
                "the desired count is within the acceptable range",
            )
        };
        self.set("ScalingLimited", holds, reason, message);
    }
}

async fn write(
    world: &World,
    autoscaler: &HorizontalPodAutoscaler,
    replicas: Option<(i32, i32)>,
    current: &[Value],
    conditions: Conditions,
) -> Result<(), ReconcileError> {
    let before = serde_json::to_value(&autoscaler.status).unwrap_or(Value::Null);
    let mut after = json!({
        "conditions": conditions.list, "currentMetrics": if current.is_empty() { Value::Null } else { json!(current) },
    });
    if let Some((found, desired)) = replicas {
        after["currentReplicas"] = json!(found);
        after["desiredReplicas"] = json!(desired);
        let known = autoscaler.status.as_ref().map(|status| status.desired_replicas);
        if known.is_some_and(|known| known != desired) {
            after["lastScaleTime"] = json!(time(conditions.now));
        }
    }
    write_status(world, &world.autoscalers, autoscaler, &before, after).await?;
    Ok(())
}
