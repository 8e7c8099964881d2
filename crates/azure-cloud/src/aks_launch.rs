//! The launch of a machine that AKS makes (Z6.4, Z-040): one request, and then a look at which virtual machine it will be.
//!
//! Owns the order of the two. Choice, tags, adoption and what a refusal leads to are [`launch`](crate::launch)'s.

use std::time::Duration;

use jiff::Timestamp;
use spokeshave_model::Requirements;
use spokeshave_ports::CloudError;
use spokeshave_provider_azure::aks_machines::{AksMachine, MachinePool};
use spokeshave_provider_azure::choice::Choice;
use spokeshave_provider_azure::errors::{ArmError, PROVISIONING_FAILED};
use spokeshave_provider_azure::skus::Sku;
use spokeshave_provider_azure::{names, tags};
use spokeshave_provider_common::claims::single_valued;

use crate::client::Operation;
use crate::described::Machine;
use crate::launch::{Launch, node_labels, node_taints};
use crate::provider::Inner;

/// AKS says within this which virtual machine a machine will be.
const NAMED_WITHIN: Duration = Duration::from_secs(60);
/// A launch waits so long for the end of machines that it has made and that have failed.
const ENDED_WITHIN: Duration = Duration::from_secs(180);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl Inner {
    /// Waits for the end of a machine that a launch has made and that has failed: false when it takes longer than a launch that began then may.
    pub(crate) async fn is_gone_soon(
        &self,
        pool: Option<&MachinePool>,
        name: &str,
        since: Timestamp,
    ) -> Result<bool, CloudError> {
        let Some(pool) = pool else {
            return Ok(true);
        };
        while self.find_aks(pool, name).await?.is_some() {
            if self.clock().since(since) > ENDED_WITHIN {
                return Ok(false);
            }
            self.clock().sleep(LOOK_AGAIN).await;
        }
        Ok(true)
    }

    /// Asks for the machine, which is not waited for beyond knowing which virtual machine it will be: nothing else names its node.
    pub(crate) async fn make_aks(
        &self,
        pool: &MachinePool,
        launch: &Launch<'_>,
        choice: &Choice<'_>,
        sku: &Sku,
        image_version: &str,
    ) -> Result<(Machine, Option<Operation>), ArmError> {
        let status = launch.class.status.as_ref();
        let kubernetes_version = status.and_then(|status| status.kubernetes_version.as_deref());
        // What the claim asks for counts where the size leaves it open, such as the mode.
        let asked = Requirements::from_api(&launch.claim.spec.requirements).ok();
        let mut labels = single_valued(&asked);
        labels.extend(node_labels(launch.claim, choice));
        let mut own_tags = launch.tags.clone();
        own_tags.insert(tags::IMAGE.to_owned(), image_version.to_owned());
        let body = AksMachine {
            zone: names::arm_zone(choice.zone),
            capacity_type: choice.capacity_type,
            sku,
            instance_type: choice.instance_type,
            class: launch.class,
            kubernetes_version: kubernetes_version.unwrap_or_default(),
            image_version,
            labels: &labels,
            taints: &node_taints(launch.claim),
            tags: &own_tags,
        }
        .body();
        let (mut machine, operation) = self.calls().put_aks_machine(pool, launch.name, &body).await?;
        let since = self.clock().now();
        loop {
            let error = machine.aks.as_ref().and_then(|aks| aks.error.clone());
            if machine.has_failed() {
                return Err(error.unwrap_or_else(|| ArmError::of_machine(&serde_json::Value::Null)));
            }
            if !machine.name.is_empty() {
                return Ok((machine, operation));
            }
            if self.clock().since(since) > NAMED_WITHIN {
                // As after no reply at all: it exists, and the next launch finds it.
                let text = format!(
                    "AKS does not say which virtual machine machine {} is",
                    launch.name
                );
                return Err(ArmError::new("", &text));
            }
            self.clock().sleep(LOOK_AGAIN).await;
            let found = self.calls().aks_machine(pool, launch.name).await?;
            machine = found.ok_or_else(|| {
                ArmError::new(PROVISIONING_FAILED, "the machine is gone before it was made")
            })?;
        }
    }
}
