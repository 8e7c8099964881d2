//! Objects that cannot be read, one of which must not hide the others.
//!
//! Owns what was said of them: one line each, until it says something else.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;

/// Objects of one kind that cannot be read, by name, with the reason.
#[derive(Debug)]
pub(crate) struct Unreadable {
    kind: String,
    reasons: BTreeMap<String, String>,
}

impl Unreadable {
    /// None so far.
    pub(crate) fn new(kind: &str) -> Self {
        Unreadable {
            kind: kind.to_owned(),
            reasons: BTreeMap::new(),
        }
    }

    /// The object as its own kind; where that fails, says why, unless it was said already.
    pub(crate) fn read<K: DeserializeOwned>(&mut self, mut object: DynamicObject) -> Option<K> {
        let name = object.name_any();
        // Nobody reads them, and they are a third of an object.
        object.metadata.managed_fields = None;
        match serde_json::to_value(object).and_then(serde_json::from_value) {
            Ok(object) => {
                self.forget(&name);
                Some(object)
            }
            Err(error) => {
                self.say(name, error.to_string());
                None
            }
        }
    }

    fn say(&mut self, name: String, reason: String) {
        if self.reasons.get(&name) == Some(&reason) {
            return;
        }
        tracing::warn!(
            kind = self.kind,
            object = name,
            error = reason,
            "an object cannot be read: correct the value that the error names; until then it is known as it was last, or not at all"
        );
        self.reasons.insert(name, reason);
    }

    /// It is gone, or can be read.
    pub(crate) fn forget(&mut self, name: &str) {
        self.reasons.remove(name);
    }

    /// A list follows, of all that there is.
    pub(crate) fn forget_all(&mut self) {
        self.reasons.clear();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_reason_is_said_once_and_another_one_again() {
        let mut unreadable = Unreadable::new("Node");
        let mut read = |unschedulable: Value| {
            let object = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": unschedulable}});
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let is_read = unreadable.read::<Node>(object).is_some();
            (is_read, unreadable.reasons.get("a").cloned())
        };
        let (is_read, first) = read(json!("perhaps"));
        assert!(
            !is_read && first.as_ref().unwrap().contains("perhaps"),
            "{first:?}"
        );
        assert_eq!(read(json!("perhaps")), (false, first.clone()));
        let (is_read, second) = read(json!(7));
        assert!(!is_read && second.is_some() && second != first, "{second:?}");
        assert_eq!(read(json!(true)), (true, None));
    }
}
