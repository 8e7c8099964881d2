//! Objects that cannot be read, one of which must not hide the others.
//!
//! Owns what was said of them: one line each, until it says something else.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use spokeshave_ports::read_object;

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

    /// The object as its own kind. Where that fails, says why, unless it was said already, and what that means for one that was or was not read before.
    pub(crate) fn read<K: DeserializeOwned>(
        &mut self,
        mut object: DynamicObject,
        was_read: bool,
    ) -> Result<K, String> {
        let name = object.name_any();
        // Nobody reads them, and they are a third of an object.
        object.metadata.managed_fields = None;
        let read = serde_json::to_value(object).map_err(|error| error.to_string());
        let read = read.and_then(|tree| read_object::<K>(tree).map_err(|error| error.to_string()));
        match read {
            Ok(object) => {
                self.forget(&name);
                Ok(object)
            }
            Err(reason) => {
                self.say(name, &reason, was_read);
                Err(reason)
            }
        }
    }

    fn say(&mut self, name: String, reason: &str, was_read: bool) {
        if self.reasons.get(&name).is_some_and(|said| said == reason) {
            return;
        }
        let until_then = if was_read {
            "it is known as it was last"
        } else {
            "it is not known, and whatever has to know all objects of its kind waits, such as the end of what it may use"
        };
        tracing::warn!(
            kind = self.kind,
            object = name,
            error = reason,
            "an object cannot be read: correct the value that the error names; until then {until_then}"
        );
        self.reasons.insert(name, reason.to_owned());
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
            let is_read = unreadable.read::<Node>(object, false).is_ok();
            (is_read, unreadable.reasons.get("a").cloned())
        };
        let (is_read, first) = read(json!("perhaps"));
        assert!(
            !is_read
                && first
                    .as_ref()
                    .unwrap()
                    .contains("spec.unschedulable: invalid type: string \"perhaps\""),
            "{first:?}"
        );
        assert_eq!(read(json!("perhaps")), (false, first.clone()));
        let (is_read, second) = read(json!(7));
        assert!(!is_read && second.is_some() && second != first, "{second:?}");
        assert_eq!(read(json!(true)), (true, None));
    }
}
