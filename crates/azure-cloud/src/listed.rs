//! Machines as core knows them (Z7): with what their sizes hold, under the IDs that NodeClaims have.
//!
//! Owns under which ID core knows a machine. Which machines there are is [`provider`](crate::provider)'s, how one is described [`machines`](crate::machines)'s.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::NodeClaim;
use spokeshave_ports::CloudError;
use spokeshave_provider_azure::tags;

use crate::described::Machine;
use crate::machines;
use crate::provider::Inner;

/// A list that came before NodeClaims are known is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

impl Inner {
    /// IDs that NodeClaims have written down, by machine in lower case. Azure does not tell letters apart by their case, and core does: what a former setting, or
    /// another provider, has written otherwise is the ID of the same machine.
    fn recorded_ids(&self) -> BTreeMap<String, String> {
        let claims = self.objects.as_ref().and_then(|objects| objects.claims.all());
        let recorded = |claim: &Arc<NodeClaim>| {
            let id = claim.provider_id()?;
            let machine = self.options.place.machine_of(id)?;
            Some((machine.to_lowercase(), id.to_owned()))
        };
        claims.iter().flatten().filter_map(recorded).collect()
    }

    /// The ID by which core knows a machine.
    pub(crate) fn provider_id(&self, machine: &str) -> String {
        let recorded = self.recorded_ids().remove(&machine.to_lowercase());
        recorded.unwrap_or_else(|| self.options.place.provider_id(machine))
    }

    pub(crate) fn as_node_claim(&self, machine: &Machine) -> NodeClaim {
        self.as_recorded(machine, &self.recorded_ids())
    }

    fn as_recorded(&self, machine: &Machine, recorded: &BTreeMap<String, String>) -> NodeClaim {
        let class = machine.tag(tags::NODE_CLASS).and_then(|name| self.class(name));
        let types = class.and_then(|class| self.types_of(&class).ok());
        let size = &machine.properties.hardware_profile.vm_size;
        let instance_type = types
            .iter()
            .flat_map(|types| types.iter())
            .find(|it| it.name == *size);
        let mut claim = machines::as_node_claim(machine, instance_type, &self.options, self.clock().now());
        let id = recorded.get(&machine.name.to_lowercase());
        if let (Some(status), Some(id)) = (&mut claim.status, id) {
            status.provider_id = Some(id.clone());
        }
        claim
    }

    /// Whether what NodeClaims say of machines is known: which pools of AKS have some, and under which IDs. A list without it would leave machines out, or name
    /// them so that nobody owned them.
    fn check_claims(&self) -> Result<(), CloudError> {
        let objects = self.objects.as_ref();
        if objects.is_some_and(|objects| objects.claims.all().is_none()) {
            return Err(CloudError::Postponed {
                message: "machines are listed once NodeClaims are known: the operator has not read their list since it started; if this lasts, its log says why"
                    .to_owned(),
                again_after: ASK_AGAIN,
            });
        }
        Ok(())
    }

    pub(crate) async fn list(&self) -> Result<Vec<NodeClaim>, CloudError> {
        self.check_claims()?;
        let machines = self.machines().await?;
        let recorded = self.recorded_ids();
        let mut claims: Vec<NodeClaim> = machines
            .iter()
            // One that AKS has not named yet is still being launched: the next look finds it.
            .filter(|machine| !machine.is_hollow() && !machine.name.is_empty())
            .map(|machine| self.as_recorded(machine, &recorded))
            .collect();
        claims.sort_by(|a, b| a.provider_id().cmp(&b.provider_id()));
        Ok(claims)
    }
}
