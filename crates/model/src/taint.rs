//! Taints and tolerations: which taint stops which pod (P §6.11). Uses the Kubernetes types as they are.

pub use k8s_openapi::api::core::v1::{Taint, Toleration};

/// The effect `NoSchedule`.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// The effect `PreferNoSchedule`.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// The effect `NoExecute`.
pub const NO_EXECUTE: &str = "NoExecute";

/// Whether one toleration tolerates one taint, with Kubernetes' rules: an empty effect matches every effect, an empty key every
/// key, `Exists` every value, and `Lt`/`Gt` compare the taint's integer value with the toleration's.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or("");
    let key = toleration.key.as_deref().unwrap_or("");
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    let value = toleration.value.as_deref().unwrap_or("");
    let tainted = taint.value.as_deref().unwrap_or("");
    match toleration.operator.as_deref().unwrap_or("") {
        "" | "Equal" => value == tainted,
        "Exists" => true,
        operator @ ("Lt" | "Gt") => match (tainted.parse::<i64>(), value.parse::<i64>()) {
            (Ok(tainted), Ok(value)) => {
                (operator == "Lt" && tainted < value) || (operator == "Gt" && tainted > value)
            }
            _ => false,
        },
        _ => false,
    }
}

/// The first taint, in the order given, that no toleration tolerates. Every effect counts, `PreferNoSchedule` included.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints
        .iter()
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// The same of the taints that keep pods away: a soft one (`PreferNoSchedule`) does not.
pub fn first_untolerated_hard<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != PREFER_NO_SCHEDULE)
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Taint identity as Kubernetes defines it: key and effect.
pub fn same_taint(left: &Taint, right: &Taint) -> bool {
    left.key == right.key && left.effect == right.effect
}

/// `key[=value]:effect`, as error texts show a taint.
pub fn format_taint(taint: &Taint) -> String {
    match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        _ => format!("{}:{}", taint.key, taint.effect),
    }
}

/// Taints that come and go while a node starts, ignored until it is initialised (P-097, P-098).
pub fn is_known_ephemeral(taint: &Taint) -> bool {
    match (taint.key.as_str(), taint.effect.as_str()) {
        ("node.kubernetes.io/not-ready", NO_SCHEDULE | NO_EXECUTE)
        | ("node.kubernetes.io/unreachable", NO_SCHEDULE) => true,
        ("node.cloudprovider.kubernetes.io/uninitialized", NO_SCHEDULE) => {
            taint.value.as_deref() == Some("true")
        }
        ("karpenter.sh/unregistered", NO_EXECUTE) => true,
        (key, _) => key.starts_with("readiness.k8s.io/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(text: &str) -> Taint {
        let (head, effect) = text.rsplit_once(':').unwrap_or((text, ""));
        let (key, value) = head
            .split_once('=')
            .map_or((head, None), |(key, value)| (key, Some(value.to_owned())));
        Taint {
            key: key.to_owned(),
            value,
            effect: effect.to_owned(),
            time_added: None,
        }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        Toleration {
            key: text(key),
            operator: text(operator),
            value: text(value),
            effect: text(effect),
            toleration_seconds: None,
        }
    }

    #[test]
    fn tolerations_follow_kubernetes_rules() {
        for (toleration, tainted, expected) in [
            (toleration("", "Exists", "", ""), "a=b:NoExecute", true),
            (
                toleration("a", "Exists", "", "NoSchedule"),
                "a=b:NoExecute",
                false,
            ),
            (toleration("a", "", "b", ""), "a=b:NoSchedule", true),
            (toleration("a", "Equal", "c", ""), "a=b:NoSchedule", false),
            (toleration("a", "Gt", "750", ""), "a=950:NoSchedule", true),
            (toleration("a", "Lt", "750", ""), "a=950:NoSchedule", false),
            (toleration("a", "Lt", "x", ""), "a=950:NoSchedule", false),
            (toleration("a", "Bogus", "b", ""), "a=b:NoSchedule", false),
        ] {
            assert_eq!(
                tolerates(&toleration, &taint(tainted)),
                expected,
                "{toleration:?} {tainted}"
            );
        }
    }

    #[test]
    fn p_098_readiness_prefix_is_ephemeral() {
        assert!(is_known_ephemeral(&taint("readiness.k8s.io/cni:NoSchedule")));
        assert!(is_known_ephemeral(&taint(
            "node.kubernetes.io/not-ready:NoExecute"
        )));
        assert!(!is_known_ephemeral(&taint(
            "node.kubernetes.io/unreachable:NoExecute"
        )));
        assert!(!is_known_ephemeral(&taint(
            "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"
        )));
    }
}
