//! Who a provider says it is: what the handshake must hold (G-002).
//!
//! Owns the checks. It sends nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use spokeshave_model::volumes::Unsupported;
use spokeshave_ports::{NodeClassKind, RepairPolicy};

use crate::VERSIONS;
use crate::conditions::Rule;
use crate::wire::{Capability, HandshakeResponse};

/// What stays the same as long as the provider is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) kinds: Vec<NodeClassKind>,
    /// JSON pointers into `spec` that are no part of a class's hash, by kind.
    pub(crate) dynamic_fields: Vec<Vec<String>>,
    pub(crate) capabilities: BTreeSet<i32>,
    pub(crate) well_known_labels: Vec<String>,
    pub(crate) restricted_domains: Vec<String>,
    pub(crate) repair_policies: Vec<RepairPolicy>,
    pub(crate) unsupported: Unsupported,
    pub(crate) interruption_conditions: Vec<Rule>,
}

impl Identity {
    /// What a handshake says. The error names the field.
    pub(crate) fn read(answer: HandshakeResponse) -> Result<Self, String> {
        if !VERSIONS.contains(&answer.chosen_version.as_str()) {
            return Err(format!(
                "chosen_version is {:?}; this operator speaks {}",
                answer.chosen_version,
                VERSIONS.join(", ")
            ));
        }
        if answer.provider_name.is_empty() {
            return Err("provider_name is empty".to_owned());
        }
        if answer.node_classes.is_empty() {
            return Err(
                "node_classes is empty; name the kind of NodeClass that NodePools refer to".to_owned(),
            );
        }
        let mut kinds = Vec::new();
        for kind in &answer.node_classes {
            let fields = [&kind.group, &kind.version, &kind.kind, &kind.plural];
            if fields.iter().any(|field| field.is_empty()) {
                return Err(format!(
                    "node_classes: {}.{} needs group, version, kind and plural",
                    kind.kind, kind.group
                ));
            }
            kinds.push(NodeClassKind {
                group: kind.group.clone(),
                version: kind.version.clone(),
                kind: kind.kind.clone(),
                plural: kind.plural.clone(),
            });
        }
        let capabilities = answer.capabilities().map(i32::from).collect();
        let rules = |wanted: fn(&crate::wire::LabelRule) -> bool| {
            let rules = answer.labels.iter().filter(|rule| wanted(rule));
            rules.map(|rule| rule.key.clone()).collect()
        };
        Ok(Self {
            capabilities,
            well_known_labels: rules(|rule| rule.well_known),
            restricted_domains: rules(|rule| rule.restricted_domain),
            repair_policies: repair_policies(&answer)?,
            interruption_conditions: answer
                .interruption_conditions
                .iter()
                .map(Rule::read)
                .collect::<Result<_, _>>()?,
            unsupported: Unsupported {
                provisioners: answer.unsupported_volume_provisioners.into_iter().collect(),
                topology_keys: answer.unsupported_topology_keys.into_iter().collect(),
            },
            dynamic_fields: answer
                .node_classes
                .into_iter()
                .map(|kind| kind.dynamic_fields)
                .collect(),
            name: answer.provider_name,
            kinds,
        })
    }

    pub(crate) fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability.into())
    }
}

fn repair_policies(answer: &HandshakeResponse) -> Result<Vec<RepairPolicy>, String> {
    let mut policies = Vec::new();
    for policy in &answer.repair_policies {
        let named = |what: &str| format!("repair_policies: {}: {what}", policy.condition);
        if !["True", "False", "Unknown"].contains(&policy.status.as_str()) {
            return Err(named(&format!(
                "status {:?}; expected True, False or Unknown",
                policy.status
            )));
        }
        let toleration = policy.toleration.ok_or_else(|| named("no toleration"))?;
        policies.push(RepairPolicy {
            condition_type: policy.condition.clone(),
            condition_status: policy.status.clone(),
            toleration: Duration::try_from(toleration).map_err(|_| named("negative toleration"))?,
        });
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::NodeClassKind as Kind;

    fn answer() -> HandshakeResponse {
        HandshakeResponse {
            chosen_version: "v1alpha1".into(),
            provider_name: "shed".into(),
            node_classes: vec![Kind {
                group: "shed.example".into(),
                version: "v1".into(),
                kind: "ShedClass".into(),
                plural: "shedclasses".into(),
                dynamic_fields: Vec::new(),
            }],
            ..HandshakeResponse::default()
        }
    }

    #[test]
    fn g_002_a_version_that_was_not_asked_for_is_refused_by_name() {
        let wrong = HandshakeResponse {
            chosen_version: "v9".into(),
            ..answer()
        };
        let said = Identity::read(wrong).expect_err("refused");
        assert_eq!(said, "chosen_version is \"v9\"; this operator speaks v1alpha1");
        let mut nameless = answer();
        nameless.node_classes[0].plural.clear();
        assert!(Identity::read(nameless).is_err_and(|said| said.contains("ShedClass.shed.example")));
    }

    #[test]
    fn g_020_capabilities_that_are_not_known_are_passed_over() {
        let newer = HandshakeResponse {
            capabilities: vec![1, 4711],
            ..answer()
        };
        let identity = Identity::read(newer).expect("an identity");
        assert!(identity.can(Capability::Events) && !identity.can(Capability::Drift));
    }
}
