//! ReplicationControllers: defaults. Their columns are those of any kind.

use serde_json::json;

use super::filling::{set, with_spec};
use super::{KindRules, PLAIN};

pub(super) const RULES: KindRules = KindRules {
    default: |object| with_spec(object, |spec| set(spec, "replicas", json!(1))),
    ..PLAIN
};
