//! Which members StatefulSets want.
//!
//! Owns what is read of a StatefulSet for it. Who may be moved while one is missing is decided in `plan`.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;

/// Which members a StatefulSet wants: so many, from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordinals {
    /// The ordinal of the first.
    pub start: u64,
    /// How many.
    pub replicas: u64,
}

impl Ordinals {
    /// What a StatefulSet asks for, with what the API server fills in.
    pub fn of(set: &StatefulSet) -> Self {
        let start = set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start);
        let replicas = set.spec.replicas;
        let number = |value: i32| u64::try_from(value).unwrap_or(0);
        Ordinals {
            start: start.map_or(0, number),
            replicas: replicas.map_or(1, number),
        }
    }

    /// Whether all of them are among these.
    pub fn are_among(&self, present: &BTreeSet<u64>) -> bool {
        let end = self.start.saturating_add(self.replicas);
        (self.start..end).all(|ordinal| present.contains(&ordinal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_stateful_set_wants_so_many_members_from_the_first_on() {
        let wanted = |spec: serde_json::Value| {
            let set = json!({"metadata": {"name": "db"}, "spec": spec});
            Ordinals::of(&serde_json::from_value(set).expect("a StatefulSet"))
        };
        let base = |more: serde_json::Value| {
            let mut spec = json!({"serviceName": "db", "selector": {}, "template": {}});
            for (key, value) in more.as_object().expect("an object") {
                spec[key] = value.clone();
            }
            wanted(spec)
        };
        assert!(
            base(json!({})).are_among(&BTreeSet::from([0])),
            "one, unless it says more"
        );
        let three = base(json!({"replicas": 3}));
        assert!(three.are_among(&BTreeSet::from([0, 1, 2, 3])), "one too many");
        for missing in 0..3 {
            let present: BTreeSet<u64> = (0..3).filter(|ordinal| *ordinal != missing).collect();
            assert!(!three.are_among(&present), "{missing}");
        }
        let from_five = base(json!({"replicas": 2, "ordinals": {"start": 5}}));
        assert!(from_five.are_among(&BTreeSet::from([5, 6])));
        assert!(!from_five.are_among(&BTreeSet::from([0, 1])));
        assert!(base(json!({"replicas": 0})).are_among(&BTreeSet::new()));
    }
}
