//! Machines that AKS makes, as it is asked and answers (Z6.4, Z-040).
//!
//! Owns the calls of Microsoft.ContainerService. A machine of AKS is read as the virtual machine that it is, with what AKS says of it besides, so that whoever
//! lists, adopts, describes and ends machines need not know who has made them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use spokeshave_provider_azure::aks_machines::{CONTAINER_SERVICE_API_VERSION, MachinePool, retagged};
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::images::NodeImageVersion;

use crate::calls::{Calls, found};
use crate::client::Operation;
use crate::described::{Aks, HardwareProfile, ImageReference, Machine, MachineProperties, StorageProfile};
use crate::ports::UNREADABLE;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    id: String,
    name: String,
    zones: Option<Vec<String>>,
    properties: Properties,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Properties {
    resource_id: Option<String>,
    provisioning_state: String,
    priority: Option<String>,
    node_image_version: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    hardware: Hardware,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Hardware {
    vm_size: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    creation_timestamp: Option<Timestamp>,
    drift_action: Option<String>,
    provisioning_error: Option<Value>,
    vm_state: Option<String>,
}

impl From<Raw> for Machine {
    /// Its name is the virtual machine's; empty while AKS has not said which that is.
    fn from(raw: Raw) -> Self {
        let of = raw.properties;
        let resource_id = of.resource_id.unwrap_or_default();
        let error = of.status.provisioning_error.filter(Value::is_object);
        let is_deleted = |state: String| state.eq_ignore_ascii_case("Deleted");
        // One that is still being made has no virtual machine yet.
        let is_hollow = !of.provisioning_state.eq_ignore_ascii_case("Creating")
            && of.status.vm_state.is_some_and(is_deleted);
        Machine {
            name: resource_id.rsplit('/').next().unwrap_or_default().to_owned(),
            tags: of.tags,
            zones: raw.zones,
            properties: MachineProperties {
                provisioning_state: of.provisioning_state,
                time_created: of.status.creation_timestamp,
                // AKS names a priority only where it is not the usual one.
                priority: of.priority.unwrap_or_default(),
                hardware_profile: HardwareProfile {
                    vm_size: of.hardware.vm_size,
                },
                storage_profile: StorageProfile {
                    image_reference: ImageReference::of_id(of.node_image_version),
                },
            },
            aks: Some(Aks {
                name: raw.name,
                id: raw.id,
                drift_action: of.status.drift_action.unwrap_or_default(),
                error: error.map(|error| ArmError::of_machine(&error)),
                is_hollow,
            }),
        }
    }
}

fn read(what: &str, value: Value) -> Result<Machine, ArmError> {
    let raw: Result<Raw, _> = serde_json::from_value(value);
    raw.map(Machine::from).map_err(|error| {
        ArmError::new(
            UNREADABLE,
            &format!("machine {what} of AKS cannot be read: {error}"),
        )
    })
}

fn version(path: &str) -> String {
    format!("{path}?api-version={CONTAINER_SERVICE_API_VERSION}")
}

impl Calls<'_> {
    /// A machine by its name at AKS.
    pub(crate) async fn aks_machine(
        &self,
        pool: &MachinePool,
        name: &str,
    ) -> Result<Option<Machine>, ArmError> {
        let path = version(&pool.machine_id(name));
        let body: Option<Value> = found(self.client.get(self.options, &path).await)?;
        let Some(body) = body else {
            return self.pool_exists(pool).await.map(|()| None);
        };
        if body["name"]
            .as_str()
            .is_none_or(|it| !it.eq_ignore_ascii_case(name))
        {
            return Err(ArmError::new(
                UNREADABLE,
                &format!("the reply about machine {name} of AKS is about another one or none"),
            ));
        }
        read(name, body).map(Some)
    }

    /// Only NodeClaims name the pool: it was there when they were launched, so that its machines are gone with it.
    fn is_former(&self, pool: &MachinePool) -> bool {
        self.options.machine_pool.as_ref() != Some(pool)
    }

    /// A cluster or pool that is not found has nothing to do with its machines, which may run: settings name the wrong one.
    async fn pool_exists(&self, pool: &MachinePool) -> Result<(), ArmError> {
        if self.is_former(pool) {
            return Ok(());
        }
        let reply = self
            .client
            .send(self.options, "GET", &version(&pool.id()), None)
            .await;
        reply.map(|_| ())
    }

    /// Asks for a machine: what AKS says of it at once, and the operation that goes on.
    pub(crate) async fn put_aks_machine(
        &self,
        pool: &MachinePool,
        name: &str,
        body: &Value,
    ) -> Result<(Machine, Option<Operation>), ArmError> {
        let path = version(&pool.machine_id(name));
        let reply = self.client.send(self.options, "PUT", &path, Some(body)).await?;
        let body = serde_json::from_slice(&reply.body).unwrap_or_default();
        Ok((read(name, body)?, self.client.operation(&reply)))
    }

    /// Changes the tags of a machine by what `change` makes of those that it has: nothing where that is nothing, and nothing where somebody else has changed
    /// the machine meanwhile, which is an error.
    pub(crate) async fn tag_aks_machine(
        &self,
        pool: &MachinePool,
        name: &str,
        change: impl FnOnce(&BTreeMap<String, String>) -> Result<Option<BTreeMap<String, String>>, ArmError>,
    ) -> Result<(), ArmError> {
        let path = version(&pool.machine_id(name));
        let machine: Value = self.client.get(self.options, &path).await?;
        let current = read(name, machine.clone())?.tags.unwrap_or_default();
        let Some(tags) = change(&current)? else {
            return Ok(());
        };
        let state = machine["properties"]["eTag"].as_str();
        let body = retagged(&machine, &tags);
        self.client
            .send_if(self.options, "PUT", &path, Some(&body), state)
            .await
            .map(drop)
    }

    /// Begins to end a machine; `None` when there is none.
    pub(crate) async fn delete_aks_machine(
        &self,
        pool: &MachinePool,
        name: &str,
    ) -> Result<Option<()>, ArmError> {
        let path = version(&format!("{}/deleteMachines", pool.id()));
        let body = json!({"machineNames": [name]});
        match self.client.send(self.options, "POST", &path, Some(&body)).await {
            Ok(_) => Ok(Some(())),
            Err(error) if error.is_no_machine() => self.pool_exists(pool).await.map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// All machines of the pool, or none: one that is left out would be taken for gone. A pool that does not exist is an error, for the same reason.
    pub(crate) async fn aks_machines(&self, pool: &MachinePool) -> Result<Vec<Machine>, ArmError> {
        let path = version(&format!("{}/machines", pool.id()));
        // Upstream asks for it so, though no published document names the parameter: without it, AKS does not say which virtual machines are gone.
        let path = format!("{path}&$expand=instanceView");
        let rows = match self.client.rows(self.options, &path).await {
            Err(error) if error.is_not_found() && self.is_former(pool) => Vec::new(),
            rows => rows?,
        };
        let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
        rows.into_iter().map(|row| read(&name(&row), row)).collect()
    }

    /// Versions of node images that AKS has in the location.
    pub(crate) async fn node_image_versions(&self) -> Result<Vec<NodeImageVersion>, ArmError> {
        let (subscription, region) = (&self.options.place.subscription, &self.options.settings.region);
        let path = version(&format!(
            "/subscriptions/{subscription}/providers/Microsoft.ContainerService/locations/{region}/nodeImageVersions"
        ));
        self.client.list(self.options, &path).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `MachineGet.json` of the published examples, and what a failed machine says.
    #[test]
    fn z_040_a_machine_of_aks_is_read_as_the_virtual_machine_that_it_is() {
        let machine = read(
            "a",
            json!({
                "id": "/subscriptions/s/…/machines/a", "name": "a", "zones": ["1"],
                "properties": {
                    "resourceId": "/subscriptions/s/resourceGroups/nodes/providers/Microsoft.Compute/virtualMachines/aks-pool-a-12345678-vm",
                    "provisioningState": "Failed",
                    "kubernetes": {"orchestratorVersion": "1.30", "nodeName": "x"},
                    "hardware": {"vmSize": "Standard_DS1_v2"},
                    "priority": "Spot", "mode": "User", "nodeImageVersion": "AKSUbuntu-2404gen2containerd-202608.10.0",
                    "tags": {"spokeshave.dev_image": "asked"},
                    "status": {"creationTimestamp": "2026-04-02T12:00:00Z", "driftAction": "Recreate", "vmState": "Deleted", "provisioningError":
                        {"code": "QuotaExceeded", "message": "x", "details": [{"code": "OperationNotAllowed", "message": "y"}]}},
                },
            }),
        )
        .unwrap();
        assert_eq!(machine.name, "aks-pool-a-12345678-vm");
        assert_eq!(machine.image_id(), "AKSUbuntu-2404gen2containerd-202608.10.0");
        assert_eq!(machine.asked_image(), "asked");
        assert!(machine.has_failed() && machine.is_hollow());
        let aks = machine.aks.unwrap();
        assert_eq!((aks.name.as_str(), aks.drift_action.as_str()), ("a", "Recreate"));
        assert_eq!(aks.error.unwrap().code, "OperationNotAllowed");
        let young = read(
            "a",
            json!({"name": "a", "properties": {"provisioningState": "Creating"}}),
        )
        .unwrap();
        assert_eq!((young.name.as_str(), young.is_hollow()), ("", false));
        for (state, is_hollow) in [("Creating", false), ("Succeeded", true), ("Failed", true)] {
            let status = json!({"vmState": "Deleted"});
            let machine = json!({"name": "a", "properties": {"provisioningState": state, "status": status}});
            assert_eq!(read("a", machine).unwrap().is_hollow(), is_hollow, "{state}");
        }
        let error = read("a", json!({"properties": {"tags": ["b"]}})).unwrap_err();
        assert_eq!(error.code, UNREADABLE);
    }
}
