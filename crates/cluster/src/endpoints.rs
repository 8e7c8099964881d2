//! Endpoints and EndpointSlices: at which addresses the pods of a Service are reached.
//!
//! Nothing here is ever reached: they are for whoever waits for them. Only where records are kept.

mod contents;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use spokeshave_runtime::{Api, Change, ObjectKey, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue};

use crate::objects::{has_ended, is_deleting, is_ready, name, namespace, node_of, owner, uid};
use crate::volumes;
use crate::world::{World, is_namespace_ending, is_race};
use contents::{Group, endpoints_labels, groups, is_own, plan, service_of, slice_labels, subsets};

const WORKERS: usize = 5;
/// Says that not all addresses have room in Endpoints.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// The controller of both kinds, by Services.
pub(crate) struct EndpointControllers {
    queue: WorkQueue<ObjectKey>,
}

impl EndpointControllers {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let queue: WorkQueue<ObjectKey> = world.queue("endpoints");
        let keys = queue.clone();
        world
            .services
            .on_change(move |change| keys.add(change.key.clone()));
        let keys = queue.clone();
        world
            .endpoints
            .on_change(move |change| keys.add(change.key.clone()));
        let keys = queue.clone();
        world.slices.on_change(move |change| {
            for slice in [&change.old, &change.new].into_iter().flatten() {
                if let Some(service) = service_of(slice) {
                    keys.add(ObjectKey::namespaced(&change.key.namespace, service));
                }
            }
        });
        let (keys, services) = (queue.clone(), world.services.clone());
        world.pods.on_change(move |change| {
            if is_known(change) {
                return;
            }
            for service in services.in_namespace(&change.key.namespace) {
                let mut pods = [&change.old, &change.new].into_iter().flatten();
                if pods.any(|pod| is_selected(&service, pod)) {
                    keys.add(ObjectKey::of(&*service));
                }
            }
        });
        Self { queue }
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        world.start(tasks, shutdown, "endpoints", self.queue, WORKERS, sync);
    }
}

/// Whether nothing has changed that is told of a pod.
fn is_known(change: &Change<Pod>) -> bool {
    let (Some(old), Some(new)) = (change.old.as_deref(), change.new.as_deref()) else {
        return false;
    };
    let address = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let state = |pod: &Pod| (is_ready(pod), is_deleting(&pod.metadata), has_ended(pod));
    old.metadata.uid == new.metadata.uid
        && old.metadata.labels == new.metadata.labels
        && node_of(old) == node_of(new)
        && state(old) == state(new)
        && address(old) == address(new)
}

/// Whether a Service is one whose pods are looked for. One without a selector gets its addresses from somebody else.
fn is_looked_after(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    let mut families = spec.ip_families.iter().flatten();
    spec.type_.as_deref() != Some("ExternalName")
        && spec
            .selector
            .as_ref()
            .is_some_and(|selector| !selector.is_empty())
        && (spec.ip_families.is_none() || families.any(|family| family == "IPv4"))
}

fn is_selected(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let labels = pod.metadata.labels.as_ref();
    let label = |key: &String| labels.and_then(|labels| labels.get(key));
    is_looked_after(service)
        && selector.is_some_and(|selector| selector.iter().all(|(key, value)| label(key) == Some(value)))
}

async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let service = world.services.get(&key);
    let Some(service) = service.filter(|service| !is_deleting(&service.metadata)) else {
        // Slices go with their owner.
        return forget(&world, &key).await;
    };
    if !is_looked_after(&service) {
        return Ok(Requeue::Done);
    }
    let mut pods = world.pods.in_namespace(&key.namespace);
    pods.retain(|pod| is_selected(&service, pod));
    let zone = |node: &str| {
        let node = world.nodes.get_named(node)?;
        volumes::zone(&node).cloned()
    };
    let found = groups(&service, &pods, zone);
    write_endpoints(&world, &service, &found).await?;
    write_slices(&world, &service, found).await
}

/// The Endpoints of a Service that is gone go, too, unless somebody has made them by hand.
async fn forget(world: &World, key: &ObjectKey) -> Result<Requeue, ReconcileError> {
    let known = world.endpoints.get(key);
    let Some(known) = known.filter(|known| is_own(known) && !is_deleting(&known.metadata)) else {
        return Ok(Requeue::Done);
    };
    let api: Api<Endpoints> = Api::namespaced(world.client.clone(), &key.namespace);
    let result = api.delete(&key.name, &DeleteParams::default()).await;
    let gone = || world.endpoints.note_gone(key, uid(&known.metadata));
    settled(result.map(|_| gone()))
}

async fn write_endpoints(world: &World, service: &Service, found: &[Group]) -> Result<(), ReconcileError> {
    let key = ObjectKey::of(service);
    let known = world.endpoints.get(&key);
    let (subsets, is_cut) = subsets(service, found);
    let mut next = known.as_deref().cloned().unwrap_or_default();
    next.metadata.name = Some(key.name.clone());
    next.metadata.namespace = Some(key.namespace.clone());
    next.metadata.labels = Some(endpoints_labels(service));
    let has_said = next
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(OVER_CAPACITY));
    if is_cut != has_said {
        let annotations = next.metadata.annotations.get_or_insert_default();
        if is_cut {
            annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
        } else {
            annotations.remove(OVER_CAPACITY);
        }
    }
    if next.subsets.as_deref().unwrap_or_default() != subsets {
        next.subsets = Some(subsets);
    }
    let api: Api<Endpoints> = Api::namespaced(world.client.clone(), &key.namespace);
    let written = match known {
        Some(known) if *known == next => return Ok(()),
        Some(_) => api.replace(&key.name, &PostParams::default(), &next).await,
        None => api.create(&PostParams::default(), &next).await,
    };
    settled(written.map(|written| world.endpoints.note_written(written)))?;
    Ok(())
}

async fn write_slices(
    world: &World,
    service: &Service,
    found: Vec<Group>,
) -> Result<Requeue, ReconcileError> {
    let place = namespace(&service.metadata);
    let mut known = world.slices.in_namespace(place);
    known.retain(|slice| {
        let is_of_service = service_of(slice).is_some_and(|of| of == name(&service.metadata));
        is_of_service && !is_deleting(&slice.metadata)
    });
    let plan = plan(&known, found);
    let api: Api<EndpointSlice> = Api::namespaced(world.client.clone(), place);
    for group in plan.made {
        let slice = new_slice(service, &group)?;
        let made = api.create(&PostParams::default(), &slice).await;
        settled(made.map(|made| world.slices.note_written(made)))?;
    }
    for (slice, endpoints) in plan.kept {
        let Some(next) = changed(service, &slice, endpoints) else {
            continue;
        };
        let written = api
            .replace(name(&slice.metadata), &PostParams::default(), &next)
            .await;
        settled(written.map(|written| world.slices.note_written(written)))?;
    }
    for slice in plan.gone {
        let gone = api.delete(name(&slice.metadata), &DeleteParams::default()).await;
        let note = || {
            world
                .slices
                .note_gone(&ObjectKey::of(&*slice), uid(&slice.metadata))
        };
        settled(gone.map(|_| note()))?;
    }
    Ok(Requeue::Done)
}

fn new_slice(service: &Service, group: &Group) -> Result<EndpointSlice, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {
            "generateName": format!("{}-", name(&service.metadata)), "namespace": namespace(&service.metadata),
            "labels": slice_labels(service), "ownerReferences": [owner("v1", "Service", &service.metadata)],
        },
        "addressType": "IPv4", "endpoints": group.endpoints, "ports": group.ports,
    }))
}

/// A slice with these endpoints and the labels of its Service, where it has others.
fn changed(service: &Service, slice: &EndpointSlice, endpoints: Vec<Endpoint>) -> Option<EndpointSlice> {
    let labels = slice_labels(service);
    let is_same = slice.endpoints.as_deref().unwrap_or_default() == endpoints
        && slice.metadata.labels.as_ref() == Some(&labels);
    if is_same {
        return None;
    }
    let mut next = slice.clone();
    next.metadata.labels = Some(labels);
    next.endpoints = Some(endpoints);
    Some(next)
}

/// Another writer was faster: the change that it made brings another look. In a namespace that ends there is nothing to be done.
fn settled(result: Result<(), kube::Error>) -> Result<Requeue, ReconcileError> {
    match result {
        Err(error) if !is_race(&error) && !is_namespace_ending(&error) => Err(Box::new(error)),
        _ => Ok(Requeue::Done),
    }
}
