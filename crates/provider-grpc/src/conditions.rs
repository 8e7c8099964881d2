//! Conditions of Nodes of which a provider says that they mean the end of the machine (G-018): an interruption without code of the provider's.
//!
//! Owns the rules and what a condition means by them. Whoever looks at Nodes is `mirror`'s.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use k8s_openapi::api::core::v1::NodeCondition;
use regex::Regex;
use spokeshave_model::interruption::InterruptionKind as Kind;
use spokeshave_ports::Interruption;

use crate::kinds::kind_named;
use crate::wire;

/// One rule of the handshake.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    condition: String,
    status: String,
    /// Any, where it is empty.
    reason: String,
    kind: Kind,
    deadline: Option<Regex>,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        let parts = |rule: &Self| {
            let deadline = rule.deadline.as_ref().map(|regex| regex.as_str().to_owned());
            let names = [&rule.condition, &rule.status, &rule.reason].map(String::clone);
            (names, rule.kind, deadline)
        };
        parts(self) == parts(other)
    }
}

impl Eq for Rule {}

impl Rule {
    /// A rule of a handshake. The error names the field.
    pub(crate) fn read(rule: &wire::ConditionRule) -> Result<Self, String> {
        let wrong = |what: String| format!("interruption_conditions: {:?}: {what}", rule.condition);
        if rule.condition.is_empty() {
            return Err(wrong(
                "condition is empty; name the type of a Node's condition".to_owned(),
            ));
        }
        if !["True", "False", "Unknown"].contains(&rule.status.as_str()) {
            return Err(wrong(format!(
                "status {:?}; expected True, False or Unknown",
                rule.status
            )));
        }
        let kind = kind_named(rule.kind())
            .filter(|kind| *kind != Kind::NoOp)
            .ok_or_else(|| {
                wrong(format!(
                    "kind {}; expected what will happen to the instance",
                    rule.kind
                ))
            })?;
        let deadline = Some(rule.deadline_regex.as_str()).filter(|text| !text.is_empty());
        let deadline = deadline
            .map(|text| {
                let regex = Regex::new(text).map_err(|error| wrong(format!("deadline_regex: {error}")))?;
                if regex.captures_len() < 2 {
                    return Err(wrong(
                        "deadline_regex has no group; put the time in parentheses".to_owned(),
                    ));
                }
                Ok(regex)
            })
            .transpose()?;
        Ok(Self {
            condition: rule.condition.clone(),
            status: rule.status.clone(),
            reason: rule.reason.clone(),
            kind,
            deadline,
        })
    }

    fn applies(&self, condition: &NodeCondition) -> bool {
        let reason = condition.reason.as_deref().unwrap_or_default();
        self.condition == condition.type_
            && self.status == condition.status
            && (self.reason.is_empty() || self.reason == reason)
    }

    fn ends_at(&self, condition: &NodeCondition) -> Option<Timestamp> {
        let message = condition.message.as_deref()?;
        let found = self.deadline.as_ref()?.captures(message)?.get(1)?.as_str();
        found
            .parse()
            .ok()
            .or_else(|| DateTimeParser::new().parse_timestamp(found).ok())
    }
}

/// What a condition of the instance's Node tells by these rules, the first that applies; `None` where none does.
pub(crate) fn read(rules: &[Rule], provider_id: &str, condition: &NodeCondition) -> Option<Interruption> {
    let rule = rules.iter().find(|rule| rule.applies(condition))?;
    let ends_at = rule.ends_at(condition);
    let sent_at = condition.last_transition_time.as_ref().map(|time| time.0);
    let part = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
    Some(Interruption {
        // A deadline that is another one is told again.
        id: format!(
            "condition {}={} {provider_id} {} {}",
            rule.condition,
            rule.status,
            part(sent_at),
            part(ends_at)
        ),
        provider_id: provider_id.to_owned(),
        kind: Ok(rule.kind),
        sent_at,
        ends_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn rule(change: impl FnOnce(&mut wire::ConditionRule)) -> wire::ConditionRule {
        let mut rule = wire::ConditionRule {
            condition: "Ready".into(),
            status: "False".into(),
            reason: "KubeletNotReady".into(),
            kind: wire::InterruptionKind::Spot.into(),
            deadline_regex: r"ends at (\S+Z|.* GMT)".into(),
        };
        change(&mut rule);
        rule
    }

    fn condition(status: &str, reason: &str, message: &str) -> NodeCondition {
        NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(Time(Timestamp::UNIX_EPOCH)),
            ..NodeCondition::default()
        }
    }

    #[test]
    fn g_018_condition_status_and_reason_decide_and_the_message_gives_the_deadline() {
        let rules = [Rule::read(&rule(|_| {})).unwrap()];
        let told = |status: &str, reason: &str, message: &str| {
            read(&rules, "shed://1", &condition(status, reason, message))
        };
        let at = "2026-09-01T00:00:30Z".parse::<Timestamp>().unwrap();
        for message in [
            "the machine ends at 2026-09-01T00:00:30Z",
            "it ends at Tue, 01 Sep 2026 00:00:30 GMT. EventId: 7",
        ] {
            let found = told("False", "KubeletNotReady", message).unwrap();
            assert_eq!(
                (found.kind, found.ends_at),
                (Ok(Kind::SpotInterrupted), Some(at)),
                "{message}"
            );
            assert_eq!(found.sent_at, Some(Timestamp::UNIX_EPOCH));
        }
        let without = told("False", "KubeletNotReady", "node is shutting down").unwrap();
        assert_eq!(without.ends_at, None);
        assert_eq!(told("True", "KubeletNotReady", ""), None);
        assert_eq!(told("False", "KubeletStopped", ""), None);
        let any = [Rule::read(&rule(|rule| rule.reason.clear())).unwrap()];
        assert!(read(&any, "shed://1", &condition("False", "KubeletStopped", "")).is_some());
    }

    #[test]
    fn g_018_a_rule_that_cannot_be_followed_is_refused_by_its_field() {
        for (wrong, words) in [
            (rule(|rule| rule.condition.clear()), "condition is empty"),
            (
                rule(|rule| rule.status = "Maybe".into()),
                "\"Maybe\"; expected True",
            ),
            (rule(|rule| rule.kind = 0), "kind 0; expected"),
            (
                rule(|rule| rule.kind = wire::InterruptionKind::None.into()),
                "kind 10; expected",
            ),
            (
                rule(|rule| rule.deadline_regex = "(".into()),
                "deadline_regex: regex parse error",
            ),
            (
                rule(|rule| rule.deadline_regex = "x".into()),
                "deadline_regex has no group",
            ),
        ] {
            let said = Rule::read(&wrong).unwrap_err();
            assert!(
                said.starts_with("interruption_conditions: ") && said.contains(words),
                "{said}"
            );
        }
    }
}
