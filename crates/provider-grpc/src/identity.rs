//! Who a provider says it is: what the handshake must hold (G-002).
//!
//! Owns the checks. It sends nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use spokeshave_api::labels;
use spokeshave_model::volumes::Unsupported;
use spokeshave_ports::{NodeClassKind, RepairPolicy};

use crate::VERSIONS;
use crate::conditions::Rule;
use crate::wire::{Capability, HandshakeResponse};

/// What a provider says of itself. Name and kinds stay the same as long as it is used.
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
    /// Rules that cannot be followed, by name, with what was expected. They are left out, and harm no other.
    pub(crate) problems: Vec<String>,
}

impl Identity {
    /// Labels that NodeClaims need not define: core's, and the provider's.
    pub(crate) fn well_known(&self) -> BTreeSet<String> {
        let core = labels::WELL_KNOWN.iter().map(|key| (*key).to_owned());
        core.chain(self.well_known_labels.clone()).collect()
    }

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
        let mut problems = Vec::new();
        let conditions = answer.interruption_conditions.iter().map(Rule::read);
        let interruption_conditions = whole(conditions, &mut problems);
        let repair_policies = whole(answer.repair_policies.iter().map(repair_policy), &mut problems);
        let dynamic_fields = answer
            .node_classes
            .iter()
            .map(|kind| {
                whole(
                    kind.dynamic_fields.iter().map(|field| pointer(kind, field)),
                    &mut problems,
                )
            })
            .collect();
        let capabilities = answer.capabilities().map(i32::from).collect();
        let rules = |wanted: fn(&crate::wire::LabelRule) -> bool| {
            let rules = answer.labels.iter().filter(|rule| wanted(rule));
            rules.map(|rule| rule.key.clone()).collect()
        };
        Ok(Self {
            capabilities,
            well_known_labels: rules(|rule| rule.well_known),
            restricted_domains: rules(|rule| rule.restricted_domain),
            repair_policies,
            interruption_conditions,
            problems,
            unsupported: Unsupported {
                provisioners: answer.unsupported_volume_provisioners.into_iter().collect(),
                topology_keys: answer.unsupported_topology_keys.into_iter().collect(),
            },
            dynamic_fields,
            name: answer.provider_name,
            kinds,
        })
    }

    pub(crate) fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability.into())
    }

    /// Who writes the status of its NodeClasses.
    pub(crate) fn status_author(&self) -> StatusAuthor {
        if self.can(Capability::NodeClassStatus) {
            StatusAuthor::OperatorByVerdict
        } else if self.can(Capability::OwnNodeClassStatus) {
            StatusAuthor::Provider
        } else {
            StatusAuthor::Operator
        }
    }

    /// Why what answers now is not the provider of the start; `None` when it is.
    pub(crate) fn is_another(&self, start: &Self) -> Option<String> {
        let named = |one: &Self| {
            let kinds: Vec<String> = one.kinds.iter().map(ToString::to_string).collect();
            format!("{:?} with {}", one.name, kinds.join(", "))
        };
        (self.name != start.name || self.kinds != start.kinds).then(|| {
            format!(
                "it says that it is {} now and differs from {}, which this operator has begun with; restart the operator",
                named(self),
                named(start)
            )
        })
    }

    /// Fields of the handshake that differ from the start's and that an operator takes in at its start only.
    pub(crate) fn changes_for_later(&self, start: &Self) -> Vec<&'static str> {
        let labels = (&self.well_known_labels, &self.restricted_domains);
        let differs = [
            (
                "labels",
                labels != (&start.well_known_labels, &start.restricted_domains),
            ),
            ("repair_policies", self.repair_policies != start.repair_policies),
        ];
        differs
            .into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(field, _)| field)
            .collect()
    }
}

/// Who writes the status of NodeClasses (G-021).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusAuthor {
    /// The operator, as the provider says.
    OperatorByVerdict,
    /// The provider itself.
    Provider,
    /// The operator, because nobody else does: classes are ready.
    Operator,
}

/// Those that can be followed.
fn whole<T>(rules: impl Iterator<Item = Result<T, String>>, problems: &mut Vec<String>) -> Vec<T> {
    let mut good = Vec::new();
    for rule in rules {
        match rule {
            Ok(rule) => good.push(rule),
            Err(problem) => problems.push(problem),
        }
    }
    good
}

fn pointer(kind: &crate::wire::NodeClassKind, field: &str) -> Result<String, String> {
    if field.starts_with('/') {
        return Ok(field.to_owned());
    }
    Err(format!(
        "node_classes: {}.{}: dynamic_fields: {field:?}; expected a JSON pointer into spec, such as \"/image/channel\"",
        kind.kind, kind.group
    ))
}

fn repair_policy(policy: &crate::wire::RepairPolicy) -> Result<RepairPolicy, String> {
    let named = |what: &str| format!("repair_policies: {}: {what}", policy.condition);
    if !["True", "False", "Unknown"].contains(&policy.status.as_str()) {
        return Err(named(&format!(
            "status {:?}; expected True, False or Unknown",
            policy.status
        )));
    }
    let toleration = policy.toleration.ok_or_else(|| named("no toleration"))?;
    Ok(RepairPolicy {
        condition_type: policy.condition.clone(),
        condition_status: policy.status.clone(),
        toleration: Duration::try_from(toleration).map_err(|_| named("negative toleration"))?,
    })
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
    fn g_015_a_dynamic_field_that_points_nowhere_is_left_out_by_name() {
        let mut wrong = answer();
        wrong.node_classes[0].dynamic_fields = vec!["image.channel".into(), "/disk".into(), String::new()];
        let identity = Identity::read(wrong).expect("an identity");
        assert_eq!(identity.dynamic_fields, [["/disk"]]);
        assert_eq!(identity.problems.len(), 2);
        let expected = "node_classes: ShedClass.shed.example: dynamic_fields: \"image.channel\"; expected a JSON pointer into spec, such as \"/image/channel\"";
        assert_eq!(identity.problems[0], expected);
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
