//! Machines and network interfaces: made, shown, ended.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_azure_cloud::Response;
use spokeshave_provider_azure::skus::Sku;

use crate::azure::Azure;
use crate::machine_facts;
use crate::options::Refusal;
use crate::replies::{not_found, ok, refused, with};
use crate::state::{INTERFACES, MACHINES, Resource, State, attached, last_part, later};

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    let found = path.iter().fold(value, |value, name| &value[*name]);
    found.as_str().unwrap_or_default()
}

/// The address of an operation, as ARM gives it.
pub(crate) fn accepted(reply: Response, address: &str) -> Response {
    with(with(reply, "azure-asyncoperation", address), "retry-after", "5")
}

/// The refusal of a change of what is being deleted.
fn in_progress(id: &str) -> Response {
    let message = format!("Another operation on {id} or a dependent resource is in progress.");
    refused(409, "AnotherOperationInProgress", &message)
}

/// The refusal of tags that name one twice: ARM does not tell names apart by case.
pub(crate) fn doubled_tag(tagged: &Value) -> Option<Response> {
    let mut names = BTreeSet::new();
    let mut all = tagged["tags"].as_object()?.keys();
    let twice = all.find(|name| !names.insert(name.to_lowercase()))?;
    Some(refused(
        400,
        "InvalidRequestContent",
        &format!("The tag '{twice}' is given twice."),
    ))
}

/// The reply to a deletion, which goes on.
pub(crate) fn begun(address: &str) -> Response {
    let reply = Response {
        status: 202,
        ..Response::default()
    };
    accepted(reply, address)
}

impl State {
    pub(crate) fn put_interface(
        &mut self,
        id: &str,
        name: &str,
        mut body: Value,
        now: Timestamp,
    ) -> Response {
        if text(&body, &["location"]).is_empty() {
            return refused(
                400,
                "LocationRequired",
                "The location property is required for this definition.",
            );
        }
        if let Some(refused) = doubled_tag(&body) {
            return refused;
        }
        let configurations = body["properties"]["ipConfigurations"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if configurations.is_empty() {
            return refused(
                400,
                "InvalidRequestFormat",
                "A network interface must have an IP configuration.",
            );
        }
        for configuration in &configurations {
            let subnet = text(configuration, &["properties", "subnet", "id"]);
            if !self
                .options
                .subnets
                .iter()
                .any(|known| known.eq_ignore_ascii_case(subnet))
            {
                return refused(404, "NotFound", &format!("Resource {subnet} not found."));
            }
        }
        if let Some(there) = self.interfaces.get(name) {
            if there.ends_at.is_some() {
                return in_progress(id);
            }
            let machine = there.body["properties"]["virtualMachine"].clone();
            if !machine.is_null() {
                body["properties"]["virtualMachine"] = machine;
            }
        }
        name_it(&mut body, id, INTERFACES);
        let is_new = !self.interfaces.contains_key(name);
        let ready_at = self.made(INTERFACES, now, self.options.making / 4);
        let resource = Resource {
            body,
            made_at: self.interfaces.get(name).map_or(now, |there| there.made_at),
            ready_at,
            failure: None,
            ends_at: None,
            evicted_at: None,
            told: None,
        };
        let reply = ok(if is_new { 201 } else { 200 }, &resource.shown(now));
        self.interfaces.insert(name.to_owned(), resource);
        let address = self.begin(ready_at, None);
        accepted(reply, &address)
    }

    pub(crate) fn delete_interface(&mut self, id: &str, name: &str, now: Timestamp) -> Response {
        if self.reserved.get(name).is_some_and(|until| now < *until) {
            let message =
                format!("Nic(s) in request is reserved for another Virtual Machine for 180 seconds: {id}.");
            return refused(400, "NicReservedForAnotherVm", &message);
        }
        let takes = self.options.making / 4;
        let Some(interface) = self.interfaces.get_mut(name) else {
            return Response {
                status: 204,
                ..Response::default()
            };
        };
        if !interface.body["properties"]["virtualMachine"].is_null() {
            return refused(
                400,
                "NicInUse",
                &format!("Network Interface {id} is used by a virtual machine."),
            );
        }
        let ends_at = *interface.ends_at.get_or_insert(later(now, takes));
        let address = self.begin(ends_at, None);
        self.settle(now);
        begun(&address)
    }

    /// What stands against a machine.
    fn check(&self, body: &Value) -> Result<(), Response> {
        let size = text(body, &["properties", "hardwareProfile", "vmSize"]);
        let bad = |code: &str, message: String| Err(refused(400, code, &message));
        if text(body, &["location"]) != self.options.region {
            return bad(
                "LocationNotAvailableForResourceType",
                "The location is not available.".to_owned(),
            );
        }
        let Some(sku) = self.skus.iter().find(|sku| sku.name == size) else {
            return bad(
                "InvalidParameter",
                format!("The value {size} provided for the VM size is not valid."),
            );
        };
        for zone in body["zones"].as_array().into_iter().flatten() {
            let zone = zone.as_str().unwrap_or_default();
            if !sku.zones(&self.options.region).contains(zone) {
                return bad(
                    "InvalidAvailabilityZone",
                    format!("The zone {zone} has no {size}."),
                );
            }
        }
        let image = &body["properties"]["storageProfile"]["imageReference"];
        if image["communityGalleryImageId"].is_null() && image["id"].is_null() {
            return bad(
                "InvalidParameter",
                "Required parameter 'imageReference' is missing.".to_owned(),
            );
        }
        for part in ["computerName", "adminUsername", "customData"] {
            if text(body, &["properties", "osProfile", part]).is_empty() {
                return bad(
                    "InvalidParameter",
                    format!("Required parameter 'osProfile.{part}' is missing."),
                );
            }
        }
        let interfaces = attached(body);
        if interfaces.is_empty() {
            return bad("InvalidParameter", "A network interface is missing.".to_owned());
        }
        for interface in interfaces {
            let name = last_part(&interface["id"]).unwrap_or_default();
            let id = interface["id"].as_str().unwrap_or_default();
            match self.interfaces.get(&name) {
                None => return Err(refused(404, "NotFound", &format!("Resource {id} not found."))),
                Some(there) if there.ends_at.is_some() => return Err(in_progress(id)),
                Some(_) => {}
            }
        }
        let spot = body["properties"]["priority"] == "Spot";
        if let Some((code, message)) = self.short_of(sku, spot) {
            return Err(refused(409, &code, &message));
        }
        Ok(())
    }

    /// Why there is no machine of this size now: code and message.
    pub(crate) fn short_of(&self, sku: &Sku, spot: bool) -> Option<(String, String)> {
        if spot && !sku.is("LowPriorityCapable") {
            return Some((
                "SkuNotAvailable".to_owned(),
                format!("{} is not available as spot.", sku.name),
            ));
        }
        let (used, cpus) = (self.used(&sku.family), sku.cpus().unwrap_or(0));
        let limit = self.options.quota.get(&sku.family);
        if let Some(limit) = limit.filter(|limit| !spot && used + cpus > **limit) {
            let message = format!(
                "Operation could not be completed as it results in exceeding approved {} Family Cores quota. Additional details - Deployment Model: Resource Manager, Location: {}, Current Limit: {limit}, Current Usage: {used}, Additional Required: {cpus}, (Minimum) New Limit Required: {}.",
                sku.family,
                self.options.region,
                used + cpus
            );
            return Some(("OperationNotAllowed".to_owned(), message));
        }
        None
    }

    pub(crate) fn refusal(&self, body: &Value) -> Option<Refusal> {
        let size = text(body, &["properties", "hardwareProfile", "vmSize"]);
        let zone = body["zones"][0].as_str();
        let spot = body["properties"]["priority"] == "Spot";
        let found = self.refusals.iter().find(|refusal| {
            refusal.size.as_deref().is_none_or(|it| it == size)
                && refusal.zone.as_deref().is_none_or(|it| Some(it) == zone)
                && refusal.spot.is_none_or(|it| it == spot)
        });
        found.cloned()
    }

    pub(crate) fn put_machine(&mut self, id: &str, name: &str, mut body: Value, now: Timestamp) -> Response {
        if let Some(there) = self.machines.get(name) {
            for path in [
                &["zones"][..],
                &["properties", "osProfile"],
                &["properties", "priority"],
            ] {
                let of = |value: &Value| {
                    path.iter()
                        .fold(value.clone(), |value, name| value[*name].clone())
                };
                if of(&there.body) != of(&body) {
                    let message = format!("Changing property '{}' is not allowed.", path.join("."));
                    return refused(409, "PropertyChangeNotAllowed", &message);
                }
            }
            let done = there.ready_at;
            let reply = ok(200, &there.shown(now));
            let address = self.begin(done, None);
            return accepted(reply, &address);
        }
        if let Some(refused) = doubled_tag(&body) {
            return refused;
        }
        if let Err(refused) = self.check(&body) {
            return refused;
        }
        let refusal = self.refusal(&body);
        if let Some(refusal) = &refusal
            && let Some(status) = refusal.status
        {
            return refused(status, &refusal.code, &refusal.message);
        }
        name_it(&mut body, id, "Microsoft.Compute/virtualMachines");
        body["properties"]["timeCreated"] = json!(now.to_string());
        body["properties"]["vmId"] = json!(format!("vm-{}", self.next_number()));
        for interface in attached(&body) {
            let interface = last_part(&interface["id"]).and_then(|name| self.interfaces.get_mut(&name));
            if let Some(interface) = interface {
                interface.body["properties"]["virtualMachine"] = json!({"id": id});
            }
        }
        let told = machine_facts::read(text(&body, &["properties", "osProfile", "customData"]));
        // What a machine is told at its start is never shown again.
        if let Some(profile) = body["properties"]["osProfile"].as_object_mut() {
            profile.remove("customData");
        }
        let failure = refusal.map(|refusal| (refusal.code, refusal.message));
        let ready_at = self.made(MACHINES, now, self.options.making);
        let resource = Resource {
            body,
            made_at: now,
            ready_at,
            failure: failure.clone(),
            ends_at: None,
            evicted_at: None,
            told,
        };
        let reply = ok(201, &resource.shown(now));
        self.machines.insert(name.to_owned(), resource);
        let address = self.begin(ready_at, failure);
        accepted(reply, &address)
    }

    pub(crate) fn delete_machine(&mut self, name: &str, now: Timestamp) -> Response {
        let ends_at = later(now, self.options.ending);
        let Some(machine) = self.machines.get_mut(name) else {
            return Response {
                status: 204,
                ..Response::default()
            };
        };
        let ends_at = *machine.ends_at.get_or_insert(ends_at);
        let address = self.begin(ends_at, None);
        self.settle(now);
        begun(&address)
    }

    /// Gives a machine or an interface these tags, and takes all others away.
    pub(crate) fn retag(
        &mut self,
        (kind, name): (&str, &str),
        id: &str,
        body: &Value,
        now: Timestamp,
    ) -> Response {
        if let Some(refused) = doubled_tag(body) {
            return refused;
        }
        let of_kind = match kind {
            MACHINES => &mut self.machines,
            INTERFACES => &mut self.interfaces,
            _ => return not_found(id),
        };
        let Some(resource) = of_kind.get_mut(name) else {
            return not_found(id);
        };
        if now < resource.ready_at || resource.ends_at.is_some() {
            let message = format!("Operation is not allowed on {id}, which is being made or ended.");
            return refused(409, "OperationNotAllowed", &message);
        }
        if body["tags"].is_object() {
            resource.body["tags"] = body["tags"].clone();
        }
        ok(200, &resource.shown(now))
    }

    pub(crate) fn show(&self, resource: Option<&Resource>, id: &str, now: Timestamp) -> Response {
        resource.map_or_else(|| not_found(id), |resource| ok(200, &resource.shown(now)))
    }
}

impl Azure {
    /// Tags of a network interface; nothing where there is none.
    #[must_use]
    pub fn interface_tags(&self, name: &str) -> Value {
        let state = self.state();
        let interface = state.interfaces.get(&name.to_lowercase());
        interface.map_or(Value::Null, |interface| interface.body["tags"].clone())
    }
}

fn name_it(body: &mut Value, id: &str, kind: &str) {
    body["id"] = json!(id);
    body["name"] = json!(id.rsplit('/').next().unwrap_or_default());
    body["type"] = json!(kind);
}
