//! What Azure is asked (Z10), and what of its replies counts.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::images::{Definition, ImageVersion};
use spokeshave_provider_azure::offerings::Usage;
use spokeshave_provider_azure::prices;
use spokeshave_provider_azure::requests::{
    COMPUTE_API_VERSION, GALLERY_API_VERSION, NETWORK_API_VERSION, RESOURCE_GRAPH_API_VERSION,
    SKUS_API_VERSION, list_query,
};
use spokeshave_provider_azure::skus::Sku;

use crate::client::{Client, MOST_PAGES, Operation};
use crate::described::{Interface, Machine};
use crate::options::AzureOptions;
use crate::ports::UNREADABLE;
use crate::tokens::encoded;

const MACHINES: &str = "Microsoft.Compute/virtualMachines";
const INTERFACES: &str = "Microsoft.Network/networkInterfaces";

/// `None` for what does not exist.
pub(crate) fn found<T>(answer: Result<T, ArmError>) -> Result<Option<T>, ArmError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// These are all rows that there were when the first page was read. While machines come and go, a row may be on two pages, or on none.
fn check_whole(rows: &[Value], records: Option<u64>) -> Result<(), ArmError> {
    let ids: BTreeSet<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
    match records {
        Some(records) if u64::try_from(ids.len()).is_ok_and(|found| found < records) => {
            let message = format!(
                "Resource Graph has {records} rows and has shown {}; they are asked for again",
                ids.len()
            );
            Err(ArmError::new(UNREADABLE, &message))
        }
        _ => Ok(()),
    }
}

/// Azure, asked with these settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls<'a> {
    pub(crate) client: &'a Client,
    pub(crate) options: &'a AzureOptions,
}

impl Calls<'_> {
    fn machine_path(&self, name: &str) -> String {
        format!(
            "{}?api-version={COMPUTE_API_VERSION}",
            self.options.place.machine_id(name)
        )
    }

    fn interface_path(&self, name: &str) -> String {
        format!(
            "{}?api-version={NETWORK_API_VERSION}",
            self.options.place.interface_id(name)
        )
    }

    pub(crate) async fn machine(&self, name: &str) -> Result<Option<Machine>, ArmError> {
        let machine: Option<Machine> = found(self.client.get(self.options, &self.machine_path(name)).await)?;
        match machine {
            // Without this, a reply about nothing would be a machine that is not this cluster's.
            Some(machine) if !machine.name.eq_ignore_ascii_case(name) => Err(ArmError::new(
                UNREADABLE,
                &format!("the reply about machine {name} is about another one or none"),
            )),
            machine => Ok(machine),
        }
    }

    pub(crate) async fn put_machine(&self, name: &str, body: &Value) -> Result<Option<Operation>, ArmError> {
        let path = self.machine_path(name);
        let reply = self.client.send(self.options, "PUT", &path, Some(body)).await?;
        Ok(self.client.operation(&reply))
    }

    /// Begins to end a machine; `None` when there is none.
    pub(crate) async fn delete_machine(&self, name: &str) -> Result<Option<()>, ArmError> {
        let path = format!("{}&forceDeletion=true", self.machine_path(name));
        let reply = self.client.send(self.options, "DELETE", &path, None).await;
        // ARM says "no content" about what is not there.
        let reply = found(reply)?;
        Ok(reply.filter(|reply| reply.status != 204).map(|_| ()))
    }

    pub(crate) async fn put_interface(
        &self,
        name: &str,
        body: &Value,
    ) -> Result<Option<Operation>, ArmError> {
        let path = self.interface_path(name);
        let reply = self.client.send(self.options, "PUT", &path, Some(body)).await?;
        Ok(self.client.operation(&reply))
    }

    /// Gives a machine these tags and no others.
    pub(crate) async fn tag_machine(&self, name: &str, tags: &Value) -> Result<(), ArmError> {
        let (path, body) = (self.machine_path(name), json!({"tags": tags}));
        self.client
            .send(self.options, "PATCH", &path, Some(&body))
            .await
            .map(drop)
    }

    pub(crate) async fn interface(&self, name: &str) -> Result<Option<Interface>, ArmError> {
        found(self.client.get(self.options, &self.interface_path(name)).await)
    }

    /// Gives a network interface these tags and no others.
    pub(crate) async fn tag_interface(&self, name: &str, tags: &Value) -> Result<(), ArmError> {
        let (path, body) = (self.interface_path(name), json!({"tags": tags}));
        self.client
            .send(self.options, "PATCH", &path, Some(&body))
            .await
            .map(drop)
    }

    pub(crate) async fn delete_interface(&self, name: &str) -> Result<(), ArmError> {
        let path = self.interface_path(name);
        found(self.client.send(self.options, "DELETE", &path, None).await).map(|_| ())
    }

    pub(crate) async fn skus(&self) -> Result<Vec<Sku>, ArmError> {
        let filter = encoded(&format!("location eq '{}'", self.options.settings.region));
        let subscription = &self.options.place.subscription;
        let path = format!(
            "/subscriptions/{subscription}/providers/Microsoft.Compute/skus?api-version={SKUS_API_VERSION}&$filter={filter}"
        );
        self.client.list(self.options, &path).await
    }

    pub(crate) async fn usages(&self) -> Result<Vec<Usage>, ArmError> {
        let (subscription, region) = (&self.options.place.subscription, &self.options.settings.region);
        let path = format!(
            "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{region}/usages?api-version={COMPUTE_API_VERSION}"
        );
        self.client.list(self.options, &path).await
    }

    pub(crate) async fn image_versions(
        &self,
        definition: &Definition,
    ) -> Result<Vec<ImageVersion>, ArmError> {
        let (subscription, region) = (&self.options.place.subscription, &self.options.settings.region);
        let path = format!(
            "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{region}/communityGalleries/{}/images/{}/versions?api-version={GALLERY_API_VERSION}",
            definition.gallery, definition.name
        );
        let versions = found(self.client.list(self.options, &path).await)?;
        Ok(versions.unwrap_or_default())
    }

    pub(crate) async fn subnet_exists(&self, id: &str) -> Result<bool, ArmError> {
        let path = format!("{id}?api-version={NETWORK_API_VERSION}");
        let subnet: Option<Value> = found(self.client.get(self.options, &path).await)?;
        Ok(subnet.is_some())
    }

    /// Where the first page of prices is.
    pub(crate) fn first_price_page(&self) -> String {
        let base = self.options.endpoints.prices.trim_end_matches('/');
        let filter = encoded(&prices::filter(&self.options.settings.region));
        format!(
            "{base}/api/retail/prices?api-version={}&$filter={filter}",
            prices::API_VERSION
        )
    }

    pub(crate) async fn price_page(&self, url: &str) -> Result<prices::Page, ArmError> {
        self.client.get_public(url).await
    }

    /// All rows of a kind.
    async fn query(&self, kind: &str) -> Result<Vec<Value>, ArmError> {
        let path =
            format!("/providers/Microsoft.ResourceGraph/resources?api-version={RESOURCE_GRAPH_API_VERSION}");
        let query = list_query(
            kind,
            &self.options.place.resource_group,
            &self.options.cluster_name,
        );
        let mut rows = Vec::new();
        let mut records = None;
        let mut token: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let mut body = json!({
                "subscriptions": [self.options.place.subscription],
                "query": query,
                "options": {"resultFormat": "objectArray", "$top": 1000},
            });
            if let Some(token) = &token {
                body["options"]["$skipToken"] = json!(token);
            }
            let reply = self.client.send(self.options, "POST", &path, Some(&body)).await?;
            let mut page: Value = serde_json::from_slice(&reply.body).map_err(|error| {
                ArmError::new(
                    UNREADABLE,
                    &format!("the reply of Resource Graph cannot be read: {error}"),
                )
            })?;
            let data = page.get_mut("data").map(Value::take).unwrap_or_default();
            let Value::Array(data) = data else {
                return Err(ArmError::new(
                    UNREADABLE,
                    "the reply of Resource Graph has no data",
                ));
            };
            rows.extend(data);
            records = records.or_else(|| page["totalRecords"].as_u64());
            match page["$skipToken"].as_str() {
                // The rows that follow are missing: without them what runs would be taken for gone.
                Some(next) if token.as_deref() == Some(next) => {
                    let manager = self.options.endpoints.resource_manager.trim_end_matches('/');
                    let message = format!(
                        "the reply to POST {manager}{path} names the $skipToken that it was asked with; expected that of the next rows, or none after the last ones"
                    );
                    return Err(ArmError::new(UNREADABLE, &message));
                }
                Some(next) => token = Some(next.to_owned()),
                None if page["resultTruncated"] == "true" => {
                    let message = "Resource Graph has left rows out, and says not where to go on";
                    return Err(ArmError::new(UNREADABLE, message));
                }
                None => return check_whole(&rows, records).map(|()| rows),
            }
        }
        Err(ArmError::new(
            UNREADABLE,
            "the rows of Resource Graph have no end",
        ))
    }

    /// All machines, or none: one that is left out would be taken for gone.
    pub(crate) async fn machines(&self) -> Result<Vec<Machine>, ArmError> {
        let read = |row: Value| {
            let id = row["id"].clone();
            let unread = |error| {
                ArmError::new(
                    UNREADABLE,
                    &format!("machine {id} of Resource Graph cannot be read: {error}"),
                )
            };
            serde_json::from_value(row).map_err(unread)
        };
        self.query(MACHINES).await?.into_iter().map(read).collect()
    }

    /// Network interfaces that can be read: one that cannot is not taken away.
    pub(crate) async fn interfaces(&self) -> Result<Vec<Interface>, ArmError> {
        let rows = self.query(INTERFACES).await?;
        Ok(rows
            .into_iter()
            .filter_map(|row| serde_json::from_value(row).ok())
            .collect())
    }
}
