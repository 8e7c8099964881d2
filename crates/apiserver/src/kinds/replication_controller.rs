//! ReplicationControllers: defaults, and templates that make no pods. Their columns are those of any kind.

use serde_json::json;

use super::filling::{set, with_spec};
use super::{KindRules, PLAIN, pod_template};

pub(super) const RULES: KindRules = KindRules {
    default: |object| with_spec(object, |spec| set(spec, "replicas", json!(1))),
    check: |new, _, causes| pod_template::check_template(&new["spec"]["template"], "spec.template", causes),
    ..PLAIN
};
