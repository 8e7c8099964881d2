//! AKS: machines that it makes in an agent pool, each of them a virtual machine with a name of AKS's (Z6.4).
//!
//! Owns AKS's records and what AKS does with a request about them. The virtual machine itself is one as any other: it is listed by the graph, it is evicted,
//! it joins. AKS answers about its own records at once; it says a moment later which virtual machine a new one is, and in the machine why it has failed.

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_api::{AKSNodeClass, AKSNodeClassSpec};
use spokeshave_azure_cloud::Response;
use spokeshave_provider_azure::instance_types::{Settings, resolve};
use spokeshave_provider_azure::labels;

use crate::azure::Azure;
use crate::machine_facts::Told;
use crate::machines::{accepted, begun, doubled_tag};
use crate::replies::{ok, page, refused};
use crate::state::{Record, Resource, State, later};

/// Kind of machines of AKS, as denials and what sticks name it.
pub(crate) const AKS_MACHINES: &str = "microsoft.containerservice/managedclusters/agentpools/machines";
/// Versions of the API in which machines can be made.
const VERSIONS: [&str; 2] = ["2026-07-02-preview", "2026-08-02-preview"];
/// Where operations of AKS are asked about, and with which version.
const OPERATIONS: (&str, &str) = ("Microsoft.ContainerService", "2016-03-30");
/// Codes with which AKS refuses a request at once; others are said by Compute, later.
const REFUSED_BY_AKS: [&str; 2] = ["VMSizeNotSupported", "BadRequest"];

impl Azure {
    /// AKS wants something to be done with its machines, such as `Recreate`; `Synced` for nothing.
    pub fn set_drift_action(&self, action: &str) {
        for record in self.state().records.values_mut() {
            action.clone_into(&mut record.drift_action);
        }
    }

    /// AKS does not say of machines that are made from now on which virtual machines they are.
    pub fn leave_unnamed(&self) {
        self.state().unnamed = true;
    }

    /// A virtual machine that runs is called failed from now on, as after an update that could not be made.
    pub fn fail(&self, machine: &str, code: &str, message: &str) {
        if let Some(machine) = self.state().machines.get_mut(&machine.to_lowercase()) {
            machine.failure = Some((code.to_owned(), message.to_owned()));
        }
    }

    /// Names of the machines that AKS has records of.
    #[must_use]
    pub fn aks_machines(&self) -> Vec<String> {
        let now = self.clock().now();
        let mut state = self.state();
        state.settle(now);
        state.records.keys().cloned().collect()
    }
}

fn pool_not_found(pool: &str) -> Response {
    refused(
        404,
        "NotFound",
        &format!("Could not find the agentpool '{pool}'."),
    )
}

impl State {
    /// A request below an agent pool: `machines`, `machines/NAME`, `deleteMachines`.
    pub(crate) fn of_pool(
        &mut self,
        (method, version, state): (&str, &str, Option<&str>),
        (path, url): (&str, &str),
        (group, parts): (&str, &[&str]),
        body: Value,
        now: Timestamp,
    ) -> Response {
        let [cluster, "agentpools", pool, rest @ ..] = parts else {
            return refused(404, "NotFound", "no such resource type");
        };
        if !VERSIONS.contains(&version) {
            let message = format!(
                "No registered resource provider found for API version '{version}' for type 'managedClusters/agentPools/machines'."
            );
            return refused(400, "NoRegisteredProviderFound", &message);
        }
        let action = match (method, rest) {
            ("POST", ["deletemachines"]) => {
                "POST microsoft.containerservice/managedclusters/agentpools/deletemachines".to_owned()
            }
            (_, []) => format!("{method} microsoft.containerservice/managedclusters/agentpools"),
            _ => format!("{method} {AKS_MACHINES}"),
        };
        if self.denied.contains(&action) {
            let message = format!("The client does not have authorization to perform action '{action}'.");
            return refused(403, "AuthorizationFailed", &message);
        }
        let own = &self.options.machine_pool;
        if own
            .as_ref()
            .is_some_and(|own| !own.resource_group.eq_ignore_ascii_case(group))
        {
            let message = format!("Resource group '{group}' could not be found.");
            return refused(404, "ResourceGroupNotFound", &message);
        }
        if own.as_ref().is_none_or(|own| {
            !own.name.eq_ignore_ascii_case(pool) || !own.cluster.eq_ignore_ascii_case(cluster)
        }) {
            return pool_not_found(pool);
        }
        match (method, rest) {
            ("GET", []) => {
                let shown = json!({
                    "id": path, "name": pool, "type": "Microsoft.ContainerService/managedClusters/agentPools",
                    "properties": {"mode": "Machines", "provisioningState": "Succeeded"},
                });
                ok(200, &shown)
            }
            ("GET", ["machines"]) => {
                let with_view = url.to_lowercase().contains("$expand=instanceview");
                let rows: Vec<Value> = self
                    .records
                    .values()
                    .map(|record| self.record(record, now, with_view))
                    .collect();
                page(
                    &rows,
                    (&self.options.base, url),
                    self.options.page,
                    ("value", "nextLink"),
                )
            }
            ("GET", ["machines", name]) => match self.records.get(*name) {
                Some(record) => ok(200, &self.record(record, now, false)),
                None => refused(404, "NotFound", &format!("Could not find the machine '{name}'.")),
            },
            ("PUT", ["machines", name]) if self.records.contains_key(*name) => {
                self.change_record(name, &body, state, now)
            }
            ("PUT", ["machines", name]) => self.put_record(path, name, body, now),
            ("POST", ["deletemachines"]) => self.delete_records(&body, now),
            _ => refused(404, "NotFound", "no such operation"),
        }
    }

    /// A record as AKS shows it; the state of its virtual machine only where the request asks for it.
    fn record(&self, record: &Record, now: Timestamp, with_view: bool) -> Value {
        let mut body = record.body.clone();
        let properties = &mut body["properties"];
        let vm = self.machines.get(&record.vm);
        if now >= record.named_at {
            properties["resourceId"] = json!(record.vm_id);
            properties["kubernetes"]["nodeName"] = json!(record.vm);
        }
        properties["provisioningState"] = json!(vm.map_or("Succeeded", |vm| vm.state(now)));
        if with_view {
            properties["status"]["vmState"] = json!(if vm.is_some() { "Running" } else { "Deleted" });
        }
        properties["status"]["driftAction"] = json!(record.drift_action);
        if record.drift_action != "Synced" {
            properties["status"]["driftReason"] = json!("The managed cluster has changed.");
        }
        let failure = vm
            .filter(|vm| now >= vm.ready_at)
            .and_then(|vm| vm.failure.as_ref());
        if let Some((code, message)) = failure {
            let wrapper = if code == "OperationNotAllowed" {
                "QuotaExceeded"
            } else {
                code
            };
            properties["status"]["provisioningError"] = json!({
                "code": wrapper,
                "message": format!("Code=\"{code}\" Message=\"{message}\""),
                "details": [{"code": code, "message": message}],
            });
        }
        body
    }

    /// A machine that exists: of what it was asked for, only the tags may change.
    fn change_record(&mut self, name: &str, body: &Value, state: Option<&str>, now: Timestamp) -> Response {
        let number = self.next_number();
        let Some(there) = self.records.get_mut(name) else {
            return refused(404, "NotFound", &format!("Could not find the machine '{name}'."));
        };
        let own = there.body["properties"]["eTag"].as_str();
        if state.is_some() && state != own {
            let message = format!("The machine '{name}' has changed since it was read.");
            return refused(412, "PreconditionFailed", &message);
        }
        for field in [
            &["zones"][..],
            &["properties", "hardware", "vmSize"],
            &["properties", "priority"],
        ] {
            let of = |value: &Value| {
                field
                    .iter()
                    .fold(value.clone(), |value, name| value[*name].clone())
            };
            if of(&there.body) != of(body) {
                let message = format!("Changing property '{}' is not allowed.", field.join("."));
                return refused(400, "OperationNotAllowed", &message);
            }
        }
        let vm = self.machines.get_mut(&there.vm);
        let Some(vm) = vm.filter(|_| !there.ends) else {
            return refused(
                409,
                "Conflict",
                &format!("The machine '{name}' is being deleted."),
            );
        };
        let tags = &body["properties"]["tags"];
        vm.body["tags"] = tags.clone();
        there.body["properties"]["tags"] = tags.clone();
        there.body["properties"]["eTag"] = json!(format!("\"{number}\""));
        let record = there.clone();
        ok(200, &self.record(&record, now, false))
    }

    fn put_record(&mut self, path: &str, name: &str, mut body: Value, now: Timestamp) -> Response {
        let size = body["properties"]["hardware"]["vmSize"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let Some(sku) = self.skus.iter().find(|sku| sku.name == size).cloned() else {
            let (subscription, region) = (&self.options.subscription, &self.options.region);
            let message = format!(
                "Virtual Machine size: '{size}' is not supported for subscription {subscription} in location '{region}'."
            );
            return refused(400, "VMSizeNotSupported", &message);
        };
        if name.len() > 34 {
            return refused(
                400,
                "InvalidParameter",
                &format!("The machine name '{name}' is too long."),
            );
        }
        let properties = body["properties"].clone();
        if let Some(refused) = doubled_tag(&properties) {
            return refused;
        }
        if let Some(id) = properties["network"]["vnetSubnetID"].as_str()
            && !self
                .options
                .subnets
                .iter()
                .any(|known| known.eq_ignore_ascii_case(id))
        {
            return refused(400, "InvalidParameter", &format!("Subnet {id} does not exist."));
        }
        let region = self.options.region.clone();
        let pool = self.options.machine_pool.clone().unwrap_or_default();
        let vm = format!(
            "aks-{}-{name}-{:08}-vm",
            pool.name,
            10_000_000 + self.next_number()
        );
        let vm_id = format!(
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/{vm}",
            self.options.subscription, self.options.node_resource_group
        );
        let machine = json!({
            "id": vm_id, "name": vm, "type": "Microsoft.Compute/virtualMachines", "location": region,
            "zones": body["zones"],
            "tags": properties["tags"],
            "properties": {
                "hardwareProfile": {"vmSize": size},
                "priority": properties["priority"].as_str().unwrap_or("Regular"),
                "storageProfile": {"imageReference": {"id": format!("/subscriptions/aks/…/{}", properties["nodeImageVersion"].as_str().unwrap_or_default())}},
                "osProfile": {"computerName": vm},
                "timeCreated": now.to_string(),
                "vmId": format!("vm-{}", self.next_number()),
            },
        });
        let refusal = self.refusal(&machine);
        if let Some(refusal) = refusal
            .as_ref()
            .filter(|it| REFUSED_BY_AKS.contains(&it.code.as_str()))
        {
            return refused(400, &refusal.code, &refusal.message);
        }
        let spot = machine["properties"]["priority"] == "Spot";
        let short = self.short_of(&sku, spot);
        let at_once = refusal.as_ref().is_some_and(|refusal| refusal.status.is_some()) || short.is_some();
        let failure = short.or(refusal.map(|refusal| (refusal.code, refusal.message)));
        let ready_at = if at_once {
            now
        } else {
            self.made(AKS_MACHINES, now, self.options.making)
        };
        let told = self.told(&vm, &vm_id, &sku, &properties);
        let resource = Resource {
            body: machine,
            made_at: now,
            ready_at,
            failure: failure.clone(),
            ends_at: None,
            evicted_at: None,
            told,
        };
        self.machines.insert(vm.to_lowercase(), resource);
        body["id"] = json!(path);
        body["name"] = json!(path.rsplit('/').next().unwrap_or_default());
        body["type"] = json!("Microsoft.ContainerService/managedClusters/agentPools/machines");
        body["properties"]["status"] = json!({"creationTimestamp": now.to_string()});
        body["properties"]["eTag"] = json!(format!("\"{}\"", self.next_number()));
        let record = Record {
            body,
            vm: vm.to_lowercase(),
            vm_id,
            named_at: if self.unnamed {
                Timestamp::MAX
            } else {
                later(now, self.options.making / 10)
            },
            drift_action: "Synced".to_owned(),
            ends: false,
        };
        let reply = ok(201, &self.record(&record, now, false));
        self.records.insert(name.to_owned(), record);
        // The operation says that something has gone wrong, and the machine what.
        let failure = failure.map(|_| {
            (
                "ProvisioningFailed".to_owned(),
                "The machine could not be made.".to_owned(),
            )
        });
        let address = self.begin_at(OPERATIONS, ready_at, failure);
        accepted(reply, &address)
    }

    /// What AKS tells the machine: what it was asked to, and what it knows of a cluster's nodes.
    fn told(
        &self,
        vm: &str,
        vm_id: &str,
        sku: &spokeshave_provider_azure::skus::Sku,
        properties: &Value,
    ) -> Option<Told> {
        let kubernetes = &properties["kubernetes"];
        let settings = Settings {
            region: self.options.region.clone(),
            ..Settings::default()
        };
        let usual = resolve(
            sku,
            &AKSNodeClass::new("usual", AKSNodeClassSpec::default()),
            &settings,
        );
        let priority = if properties["priority"] == "Spot" {
            "spot"
        } else {
            "regular"
        };
        let mode = properties["mode"].as_str().unwrap_or("User").to_lowercase();
        let cluster = labels::cluster(&self.options.node_resource_group);
        let mut node_labels = kubernetes["nodeLabels"].clone();
        for (key, value) in [
            (labels::AKS_CLUSTER, cluster.as_str()),
            (labels::AKS_MODE, mode.as_str()),
            (labels::AKS_PRIORITY, priority),
            (labels::AKS_SCALE_SET_PRIORITY, priority),
        ] {
            node_labels[key] = json!(value);
        }
        let mut lower = vm_id.to_owned();
        for part in [&self.options.subscription, &self.options.node_resource_group] {
            lower = lower.replace(part.as_str(), &part.to_lowercase());
        }
        let taints = kubernetes["nodeInitializationTaints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let taints: Vec<Value> = taints
            .iter()
            .filter_map(|taint| read_taint(taint.as_str()?))
            .collect();
        let told = json!({
            "name": vm, "providerId": format!("azure://{lower}"), "labels": node_labels, "taints": taints,
            "kubelet": {
                "maxPods": kubernetes["maxPods"],
                "kubeReserved": usual.overhead.kube_reserved.to_quantities(),
                "evictionHard": usual.overhead.eviction_threshold.to_quantities().iter().map(|(name, amount)| (format!("{name}.available"), amount.clone())).collect::<std::collections::BTreeMap<_, _>>(),
            },
        });
        serde_json::from_value(told).ok()
    }

    fn delete_records(&mut self, body: &Value, now: Timestamp) -> Response {
        let named = body["machineNames"].as_array().cloned().unwrap_or_default();
        let named: Vec<String> = named
            .iter()
            .filter_map(|name| Some(name.as_str()?.to_lowercase()))
            .collect();
        let known: Vec<String> = named
            .into_iter()
            .filter(|name| self.records.contains_key(name))
            .collect();
        if known.is_empty() {
            return refused(
                400,
                "InvalidParameter",
                "Cannot find any valid machines to delete.",
            );
        }
        let ending = later(now, self.options.ending);
        let mut done_at = now;
        for name in known {
            let Some(record) = self.records.get_mut(&name) else {
                continue;
            };
            record.ends = true;
            match self.machines.get_mut(&record.vm) {
                Some(vm) => done_at = done_at.max(*vm.ends_at.get_or_insert(ending)),
                None => drop(self.records.remove(&name)),
            }
        }
        let address = self.begin_at(OPERATIONS, done_at, None);
        self.settle(now);
        begun(&address)
    }
}

/// A taint as a flag of the kubelet has it.
fn read_taint(text: &str) -> Option<Value> {
    let (pair, effect) = text.rsplit_once(':')?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let value = (!value.is_empty()).then_some(value);
    Some(json!({"key": key, "value": value, "effect": effect}))
}
