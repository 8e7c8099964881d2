//! Nodes that somebody else than the plan has promised to waiting pods, and for how long that is believed.
//!
//! Owns when each was seen first, which the API does not say. What a promise means for a Snapshot is `model`'s.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::Pod;
use spokeshave_model::planned_node::promised;
use spokeshave_runtime::ObjectKey;

/// For how long the name of a node counts that somebody else has given a waiting pod. Kube-scheduler gives up binding a pod after ten minutes, and clears the
/// name; pods that it ends to make room mostly go within half a minute. What stands longer may stand for ever: its scheduler has died, or somebody has written
/// it by hand. It must neither keep its node from disruption for good, nor its pod from another node.
const STANDS: SignedDuration = SignedDuration::from_mins(15);

/// Since when a pod is seen with the name of a node.
#[derive(Debug)]
struct Seen {
    node: String,
    since: Timestamp,
}

/// The names that stand, by UID of the pod.
#[derive(Debug, Default)]
pub(crate) struct Promises(BTreeMap<String, Seen>);

impl Promises {
    /// Of the pods to which a node is promised now, all of them, those to which it has been promised for too long, by UID.
    pub(crate) fn withdrawn(&mut self, pods: &[Arc<Pod>], now: Timestamp) -> BTreeMap<String, ObjectKey> {
        let mut known = std::mem::take(&mut self.0);
        let mut withdrawn = BTreeMap::new();
        for pod in pods {
            let (Some(node), Some(uid)) = (promised(pod), &pod.metadata.uid) else {
                continue;
            };
            let before = known.remove(uid).filter(|seen| seen.node == node);
            let seen = before.unwrap_or_else(|| Seen {
                node: node.to_owned(),
                since: now,
            });
            if now.duration_since(seen.since) >= STANDS {
                withdrawn.insert(uid.clone(), ObjectKey::of(&**pod));
            }
            self.0.insert(uid.clone(), seen);
        }
        withdrawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(node: Option<&str>) -> Arc<Pod> {
        let value = json!({"metadata": {"namespace": "default", "name": "p", "uid": "u"}, "status": {"nominatedNodeName": node}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn p_056_a_name_counts_for_a_quarter_of_an_hour_and_another_one_anew() {
        let at = |minute: i64| Timestamp::from_second(60 * minute).unwrap();
        let mut promises = Promises::default();
        let mut is_withdrawn = |node: Option<&str>, minute| {
            let withdrawn = promises.withdrawn(&[pod(node)], at(minute));
            let key = withdrawn.get("u").cloned();
            assert!(key.is_none() || key == Some(ObjectKey::namespaced("default", "p")));
            key.is_some()
        };
        for (node, minute, expected) in [
            (Some("a"), 0, false),
            (Some("a"), 14, false),
            (Some("a"), 15, true),
            (Some("a"), 60, true),
            (Some("b"), 61, false),
            (Some("b"), 76, true),
            (None, 77, false),
            (Some("b"), 78, false),
            (Some("b"), 93, true),
        ] {
            assert_eq!(
                is_withdrawn(node, minute),
                expected,
                "{node:?} after {minute} minutes"
            );
        }
    }
}
