//! What Endpoints and EndpointSlices say: which pods of a Service can be reached, where, and at what ports. Pure functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort as CorePort, EndpointSubset, Endpoints, ObjectReference, Pod, Service,
    ServicePort,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::objects::{has_ended, is_deleting, is_ready, name, node_of};
use crate::quantities::is_sidecar;

/// Endpoints that a slice has at most.
const MOST_IN_SLICE: usize = 100;
/// Addresses that Endpoints have at most.
const MOST_ADDRESSES: usize = 1000;
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_CONTROLLER: &str = "endpointslice-controller.k8s.io";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";

type Labels = BTreeMap<String, String>;

/// Pods that are reached at the same ports.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Group {
    pub(super) ports: Vec<EndpointPort>,
    /// In the order of the pods' names.
    pub(super) endpoints: Vec<Endpoint>,
}

/// The pods that a Service selects and that have an address, by what ports they are reached at. `zone` knows the zones of nodes.
pub(super) fn groups(
    service: &Service,
    pods: &[Arc<Pod>],
    zone: impl Fn(&str) -> Option<String>,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for pod in pods {
        let Some(endpoint) = endpoint(service, pod, &zone) else {
            continue;
        };
        let ports = ports(service, pod);
        match groups.iter_mut().find(|group| group.ports == ports) {
            Some(group) => group.endpoints.push(endpoint),
            None => groups.push(Group {
                ports,
                endpoints: vec![endpoint],
            }),
        }
    }
    groups
}

fn endpoint(service: &Service, pod: &Pod, zone: impl Fn(&str) -> Option<String>) -> Option<Endpoint> {
    let address = pod.status.as_ref()?.pod_ip.clone()?;
    if has_ended(pod) || address.is_empty() {
        return None;
    }
    let (serving, terminating) = (is_ready(pod), is_deleting(&pod.metadata));
    let node = node_of(pod);
    Some(Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(publishes_all(service) || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname(service, pod),
        node_name: Some(node.to_owned()).filter(|node| !node.is_empty()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        zone: zone(node),
        ..Endpoint::default()
    })
}

/// Whether pods are reached before they are ready.
fn publishes_all(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.publish_not_ready_addresses == Some(true))
}

/// The name of a pod in the domain of its Service.
fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let name = spec.hostname.clone().filter(|name| !name.is_empty())?;
    (spec.subdomain == service.metadata.name).then_some(name)
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let port = |port: &ServicePort| {
        Some(EndpointPort {
            app_protocol: port.app_protocol.clone(),
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number(port, pod)?),
            protocol: Some(protocol(port.protocol.as_deref()).to_owned()),
        })
    };
    ports.filter_map(port).collect()
}

fn protocol(given: Option<&str>) -> &str {
    given.unwrap_or("TCP")
}

/// The number of a port of a pod, which a Service may call by a name.
fn number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let called = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(called)) => called,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| is_sidecar(container));
    let mut known = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let wanted = protocol(port.protocol.as_deref());
    let found = known.find(|known| {
        known.name.as_deref() == Some(called.as_str()) && protocol(known.protocol.as_deref()) == wanted
    })?;
    Some(found.container_port)
}

/// Whether a Service has no address of its own.
fn is_headless(service: &Service) -> bool {
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    matches!(address, None | Some("" | "None"))
}

fn labels(service: &Service, own: &[(&str, &str)]) -> Labels {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.extend(
        own.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    labels
}

/// The labels of the slices of a Service.
pub(super) fn slice_labels(service: &Service) -> Labels {
    labels(
        service,
        &[
            (SERVICE_NAME, name(&service.metadata)),
            (SLICE_MANAGED_BY, SLICE_CONTROLLER),
        ],
    )
}

/// The labels of the Endpoints of a Service.
pub(super) fn endpoints_labels(service: &Service) -> Labels {
    labels(service, &[(MANAGED_BY, CONTROLLER)])
}

/// Whether nobody else manages these Endpoints.
pub(super) fn is_own(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    let by = labels.and_then(|labels| labels.get(MANAGED_BY));
    by.is_some_and(|by| by == CONTROLLER)
}

/// The Service of a slice, unless somebody else manages it.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<&String> {
    let labels = slice.metadata.labels.as_ref()?;
    let is_own = labels
        .get(SLICE_MANAGED_BY)
        .is_some_and(|by| by == SLICE_CONTROLLER);
    labels.get(SERVICE_NAME).filter(|_| is_own)
}

/// What becomes of slices: those that stay with their endpoints, those that are made, and those that go.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) kept: Vec<(Arc<EndpointSlice>, Vec<Endpoint>)>,
    pub(super) made: Vec<Group>,
    pub(super) gone: Vec<Arc<EndpointSlice>>,
}

/// Endpoints stay in the slices that they are in, new ones fill those that have room, and there is always one slice.
pub(super) fn plan(slices: &[Arc<EndpointSlice>], groups: Vec<Group>) -> Plan {
    let mut plan = Plan::default();
    let mut left = slices.to_vec();
    for group in groups {
        let (own, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|slice| has_ports(slice, &group.ports));
        left = others;
        let mut wanted: BTreeMap<String, Endpoint> = BTreeMap::new();
        for endpoint in group.endpoints {
            wanted.insert(pod_name(&endpoint), endpoint);
        }
        let mut kept: Vec<(Arc<EndpointSlice>, Vec<Endpoint>)> = Vec::new();
        for slice in own {
            let known = slice.endpoints.iter().flatten();
            let stays = known
                .filter_map(|known| wanted.remove(&pod_name(known)))
                .collect();
            kept.push((slice, stays));
        }
        for (_, endpoints) in &mut kept {
            while endpoints.len() < MOST_IN_SLICE
                && let Some((_, endpoint)) = wanted.pop_first()
            {
                endpoints.push(endpoint);
            }
        }
        let (kept, empty): (Vec<_>, Vec<_>) =
            kept.into_iter().partition(|(_, endpoints)| !endpoints.is_empty());
        plan.kept.extend(kept);
        plan.gone.extend(empty.into_iter().map(|(slice, _)| slice));
        let rest: Vec<Endpoint> = wanted.into_values().collect();
        let made = rest.chunks(MOST_IN_SLICE).map(|endpoints| Group {
            ports: group.ports.clone(),
            endpoints: endpoints.to_vec(),
        });
        plan.made.extend(made);
    }
    plan.gone.extend(left);
    if plan.kept.is_empty() && plan.made.is_empty() {
        match plan.gone.iter().position(|slice| has_ports(slice, &[])) {
            Some(index) => plan.kept.push((plan.gone.remove(index), Vec::new())),
            None => plan.made.push(Group::default()),
        }
    }
    plan
}

fn pod_name(endpoint: &Endpoint) -> String {
    let target = endpoint.target_ref.as_ref();
    target.and_then(|target| target.name.clone()).unwrap_or_default()
}

/// Whether a slice has these ports, however its server writes what is not given.
fn has_ports(slice: &EndpointSlice, ports: &[EndpointPort]) -> bool {
    let plain = |port: &EndpointPort| {
        (
            port.name.clone().unwrap_or_default(),
            port.port,
            protocol(port.protocol.as_deref()).to_owned(),
            port.app_protocol.clone().unwrap_or_default(),
        )
    };
    let known = slice.ports.iter().flatten().map(plain);
    known.eq(ports.iter().map(plain))
}

/// The subsets of the Endpoints of a Service, and whether not all addresses have room.
pub(super) fn subsets(service: &Service, groups: &[Group]) -> (Vec<EndpointSubset>, bool) {
    let has_ports = service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.ports.as_ref().is_some_and(|ports| !ports.is_empty()));
    let mut room = MOST_ADDRESSES;
    let mut subsets: Vec<EndpointSubset> = Vec::new();
    let shown = |group: &&Group| {
        if has_ports {
            !group.ports.is_empty()
        } else {
            is_headless(service)
        }
    };
    let mut is_cut = false;
    for group in groups.iter().filter(shown) {
        // Those on their way out are left out, unless all are to be reached.
        let there = group.endpoints.iter().filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            let goes = conditions.is_some_and(|conditions| conditions.terminating == Some(true));
            !goes || publishes_all(service)
        });
        let (ready, others): (Vec<&Endpoint>, Vec<&Endpoint>) = there.partition(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.is_some_and(|conditions| conditions.ready == Some(true))
        });
        let mut addresses = |endpoints: Vec<&Endpoint>| {
            is_cut |= endpoints.len() > room;
            let addresses: Vec<EndpointAddress> =
                endpoints.into_iter().take(room).filter_map(address).collect();
            room -= addresses.len();
            Some(addresses).filter(|addresses| !addresses.is_empty())
        };
        let (addresses, not_ready_addresses) = (addresses(ready), addresses(others));
        if addresses.is_none() && not_ready_addresses.is_none() {
            continue;
        }
        let ports: Vec<CorePort> = group.ports.iter().filter_map(core_port).collect();
        subsets.push(EndpointSubset {
            addresses,
            not_ready_addresses,
            ports: Some(ports).filter(|ports| !ports.is_empty()),
        });
    }
    (subsets, is_cut)
}

fn address(endpoint: &Endpoint) -> Option<EndpointAddress> {
    Some(EndpointAddress {
        hostname: endpoint.hostname.clone(),
        ip: endpoint.addresses.first()?.clone(),
        node_name: endpoint.node_name.clone(),
        target_ref: endpoint.target_ref.clone(),
    })
}

fn core_port(port: &EndpointPort) -> Option<CorePort> {
    Some(CorePort {
        app_protocol: port.app_protocol.clone(),
        name: port.name.clone().filter(|name| !name.is_empty()),
        port: port.port?,
        protocol: port.protocol.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "db", "labels": {"tier": "x"}}, "spec": spec}))
            .unwrap()
    }

    fn pod(number: usize, change: fn(&mut Value)) -> Arc<Pod> {
        let mut object = json!({
            "metadata": {"name": format!("db-{number:03}"), "namespace": "shop", "uid": number.to_string()},
            "spec": {"nodeName": "n", "hostname": format!("db-{number:03}"), "subdomain": "db", "containers": [
                {"name": "c", "ports": [{"name": "sql", "containerPort": 5432, "protocol": "TCP"}]},
            ]},
            "status": {"phase": "Running", "podIP": format!("10.0.0.{number}"), "conditions": [{"type": "Ready", "status": "True"}]},
        });
        change(&mut object);
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn found(service: &Service, pods: &[Arc<Pod>]) -> Vec<Group> {
        groups(service, pods, |_| Some("zone-1".to_owned()))
    }

    #[test]
    fn pods_are_reached_at_the_ports_that_the_service_names() {
        let sql = service(json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80, "targetPort": "sql"}]}));
        let found = found(&sql, &[pod(1, |_| {})]);
        let port = &found[0].ports[0];
        assert_eq!((port.port, port.name.as_deref()), (Some(5432), Some("")));
        let endpoint = json!(found[0].endpoints[0]);
        assert_eq!(
            endpoint["conditions"],
            json!({"ready": true, "serving": true, "terminating": false})
        );
        assert_eq!(
            [&endpoint["nodeName"], &endpoint["zone"], &endpoint["hostname"]],
            ["n", "zone-1", "db-001"]
        );
        let (subsets, is_cut) = subsets(&sql, &found);
        let expected = json!([{"ports": [{"port": 5432, "protocol": "TCP"}], "addresses": [{
            "ip": "10.0.0.1", "hostname": "db-001", "nodeName": "n",
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": "db-001", "uid": "1"},
        }]}]);
        assert_eq!((json!(subsets), is_cut), (expected, false));
    }

    #[test]
    fn what_is_not_ready_or_ends_is_told_apart() {
        let plain = service(json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}));
        let all = service(json!({"clusterIP": "None", "publishNotReadyAddresses": true}));
        let pods = [
            pod(1, |_| {}),
            pod(2, |pod| pod["status"]["conditions"][0]["status"] = json!("False")),
            pod(3, |pod| {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
            }),
            pod(4, |pod| pod["status"]["podIP"] = Value::Null),
            pod(5, |pod| pod["status"]["phase"] = json!("Failed")),
        ];
        let ready = |service: &Service| -> Vec<Option<bool>> {
            let found = found(service, &pods);
            let endpoints = found.into_iter().flat_map(|group| group.endpoints);
            endpoints
                .map(|endpoint| endpoint.conditions.unwrap().ready)
                .collect()
        };
        assert_eq!(ready(&plain), [Some(true), Some(false), Some(false)]);
        assert_eq!(ready(&all), [Some(true); 3]);
        let counts = |service: &Service| {
            let (subsets, _) = subsets(service, &found(service, &pods));
            let number = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
            subsets
                .iter()
                .map(|one| (number(&one.addresses), number(&one.not_ready_addresses)))
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(&plain), [(1, 1)]);
        assert_eq!(counts(&all), [(3, 0)], "headless, without ports");
    }

    fn slice_of(group: &Group) -> Arc<EndpointSlice> {
        Arc::new(EndpointSlice {
            endpoints: Some(group.endpoints.clone()),
            ports: Some(group.ports.clone()),
            ..EndpointSlice::default()
        })
    }

    #[test]
    fn endpoints_stay_in_their_slices_and_no_slice_is_too_full() {
        let plain = service(json!({"ports": [{"port": 80}]}));
        let pods: Vec<Arc<Pod>> = (0..250).map(|number| pod(number, |_| {})).collect();
        let first = plan(&[], found(&plain, &pods));
        let sizes: Vec<usize> = first.made.iter().map(|group| group.endpoints.len()).collect();
        assert_eq!(sizes, [100, 100, 50]);
        let slices: Vec<Arc<EndpointSlice>> = first.made.iter().map(slice_of).collect();
        // The first slice loses two, and one more has come.
        let mut pods = pods[2..].to_vec();
        pods.push(pod(900, |_| {}));
        let second = plan(&slices, found(&plain, &pods));
        let sizes: Vec<usize> = second.kept.iter().map(|(_, endpoints)| endpoints.len()).collect();
        assert_eq!(sizes, [99, 100, 50]);
        assert_eq!((second.made, second.gone), (Vec::new(), Vec::new()));
        let last = second.kept[0].1.last().map(pod_name);
        assert_eq!(last.as_deref(), Some("db-900"));
        let third = plan(&slices, found(&plain, &pods[248..]));
        assert_eq!((third.kept.len(), third.gone.len()), (1, 2));
    }

    #[test]
    fn a_service_without_pods_has_an_empty_slice() {
        let none = plan(&[], Vec::new());
        assert_eq!(none.made, [Group::default()]);
        let empty = slice_of(&none.made[0]);
        let again = plan(std::slice::from_ref(&empty), Vec::new());
        assert_eq!(again.kept, [(empty, Vec::new())]);
        assert!(again.made.is_empty() && again.gone.is_empty());
    }

    #[test]
    fn labels_say_whose_a_slice_is() {
        let labels = slice_labels(&service(json!({"clusterIP": "None"})));
        assert_eq!((labels["tier"].as_str(), labels[HEADLESS].as_str()), ("x", ""));
        let mut slice = EndpointSlice::default();
        slice.metadata.labels = Some(labels);
        assert_eq!(service_of(&slice).map(String::as_str), Some("db"));
        let labels = slice_labels(&service(json!({"clusterIP": "10.96.0.9"})));
        assert!(!labels.contains_key(HEADLESS));
    }
}
