//! Tags of machines that run (Z1.4): `spec.tags` is no part of a class's hash, so that a change drifts nothing and is carried to the machines instead.
//!
//! Owns when a machine's tags are looked at, and the calls. What they become is decided in `provider-azure`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use spokeshave_api::{AKSNodeClass, NodeClaim};
use spokeshave_ports::{CloudError, Writes};
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::tags;

use crate::described::Machine;
use crate::objects::Objects;
use crate::provider::{AzureProvider, Inner, cloud_error};

/// How often NodeClaims are looked at.
const PERIOD: Duration = Duration::from_secs(10);
/// Pause after each machine that was asked about, so that a class of many machines leaves room for launches.
const PACE: Duration = Duration::from_secs(1);
/// A machine whose tags could not be changed is looked at again after this.
const RETRY: SignedDuration = SignedDuration::from_mins(1);

type Tags = BTreeMap<String, String>;

impl Inner {
    /// Keeps the tags of machines as their classes have them, for as long as it is polled.
    pub(crate) async fn keep_tags(&self, writes: &dyn Writes) {
        let Some(objects) = &self.objects else {
            return std::future::pending().await;
        };
        let mut not_before: BTreeMap<String, Timestamp> = BTreeMap::new();
        loop {
            self.clock().sleep(PERIOD).await;
            let claims = objects.claims.all().unwrap_or_default();
            not_before.retain(|name, _| claims.iter().any(|claim| claim.name() == name));
            for claim in claims {
                let now = self.clock().now();
                if not_before.get(claim.name()).is_some_and(|at| now < *at) {
                    continue;
                }
                let Some(class) = self.class_of(&claim) else {
                    continue;
                };
                if let Err(problem) = self.keep_tags_of(objects, (&claim, &class), writes).await {
                    tracing::warn!(
                        NodeClaim = claim.name(),
                        problem,
                        "the tags of its machine are not what the class asks for; they are looked at again"
                    );
                    let again = now.saturating_add(RETRY).unwrap_or(Timestamp::MAX);
                    not_before.insert(claim.name().to_owned(), again);
                }
            }
        }
    }

    /// The class of a claim that has a machine and keeps it.
    fn class_of(&self, claim: &NodeClaim) -> Option<std::sync::Arc<AKSNodeClass>> {
        let reference = &claim.spec.node_class_ref;
        if !reference.is_aks() || claim.is_deleting() || claim.provider_id().is_none() {
            return None;
        }
        self.class(&reference.name).filter(|class| !class.is_deleting())
    }

    async fn keep_tags_of(
        &self,
        objects: &Objects,
        (claim, class): (&NodeClaim, &AKSNodeClass),
        writes: &dyn Writes,
    ) -> Result<(), String> {
        let wanted =
            tags::of_user(class, &self.options.additional_tags).map_err(|error| error.to_string())?;
        let applied = claim
            .annotation(tags::APPLIED_ANNOTATION)
            .and_then(|text| serde_json::from_str::<Tags>(text).ok());
        if applied.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let id = claim.provider_id().unwrap_or_default();
        match self.change_tags(id, &applied.unwrap_or_default(), &wanted).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        objects.note_tags(claim, &wanted, writes).await?;
        self.clock().sleep(PACE).await;
        Ok(())
    }

    async fn change_tags(&self, provider_id: &str, before: &Tags, wanted: &Tags) -> Result<(), CloudError> {
        let machine = self.existing(provider_id).await?;
        if machine.is_deleting() {
            return Ok(());
        }
        let tagged = self.tag(&machine, before, wanted).await;
        tagged.map_err(|error| cloud_error("changing tags", &error))
    }

    async fn tag(&self, machine: &Machine, before: &Tags, wanted: &Tags) -> Result<(), ArmError> {
        let changed = |current: &Tags| {
            let changed = tags::changed(current, before, wanted);
            changed.map_err(|error| ArmError::new("TooManyTags", &error.to_string()))
        };
        let calls = self.calls();
        if let Some((pool, name)) = self.at_aks(machine) {
            return calls.tag_aks_machine(&pool, name, changed).await;
        }
        if let Some(tags) = changed(machine.tags.as_ref().unwrap_or(&Tags::new()))? {
            calls.tag_machine(&machine.name, &json!(tags)).await?;
        }
        let Some(interface) = calls.interface(&machine.name).await? else {
            return Ok(());
        };
        match changed(&interface.tags.unwrap_or_default())? {
            Some(tags) => calls.tag_interface(&machine.name, &json!(tags)).await,
            None => Ok(()),
        }
    }
}

impl AzureProvider {
    /// Gives a machine, and its network interface, the tags that are wanted in the place of those that were before.
    ///
    /// # Errors
    /// There is no such machine, or Azure refuses.
    pub async fn change_tags(
        &self,
        provider_id: &str,
        before: &BTreeMap<String, String>,
        wanted: &BTreeMap<String, String>,
    ) -> Result<(), CloudError> {
        self.0.change_tags(provider_id, before, wanted).await
    }
}
