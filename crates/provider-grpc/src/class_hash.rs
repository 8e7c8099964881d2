//! The hash by which a change of a NodeClass is known where the provider does not decide about drift (G-015).
//!
//! Owns the hash, the fields that it leaves out, and when two can be compared. A provider may name other dynamic fields at any time: a NodeClaim says by
//! which its hash was made and is compared by those, until it is stamped anew. Writes go through core.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_api::hash::digest;
use spokeshave_ports::{SharedClock, Write, WriteTarget, Writes};

/// Annotation of a NodeClaim: the hash of its NodeClass when it was launched.
const HASH: &str = "spokeshave.dev/provider-nodeclass-hash";
/// Annotation of a NodeClaim: the JSON pointers that its hash leaves out, as a list in JSON.
const LEFT_OUT: &str = "spokeshave.dev/provider-nodeclass-hash-without";
/// Pause between two rounds of stamping.
const PERIOD: Duration = Duration::from_secs(5);

/// A hash, and the fields that it leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    hash: String,
    left_out: String,
}

impl Stamp {
    pub(crate) fn of(class: &DynamicObject, dynamic_fields: &[String]) -> Self {
        Self {
            hash: hash(class, dynamic_fields),
            left_out: listed(dynamic_fields),
        }
    }

    pub(crate) fn put_on(self, claim: &mut NodeClaim) {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.extend([(HASH.to_owned(), self.hash), (LEFT_OUT.to_owned(), self.left_out)]);
    }
}

/// What the hash of a NodeClaim says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) has_drifted: bool,
    /// With which the NodeClaim is to be stamped, because other fields are left out now.
    pub(crate) stamp: Option<Stamp>,
}

/// Compares a NodeClass with the one of the launch, by the fields that counted then. A hash of which nobody knows the fields says nothing, unless drift was
/// found by it already: it is replaced, as Karpenter replaces hashes of another version.
pub(crate) fn judge(claim: &NodeClaim, class: &DynamicObject, dynamic_fields: &[String]) -> Judgement {
    let Some(launched) = claim.annotation(HASH) else {
        return Judgement {
            has_drifted: false,
            stamp: None,
        };
    };
    let now = Stamp::of(class, dynamic_fields);
    let left_out = claim.annotation(LEFT_OUT);
    if left_out == Some(now.left_out.as_str()) {
        return Judgement {
            has_drifted: launched != now.hash,
            stamp: None,
        };
    }
    let fields: Option<Vec<String>> = left_out.and_then(|fields| serde_json::from_str(fields).ok());
    let has_drifted = match fields {
        Some(fields) => launched != hash(class, &fields),
        None => claim.is_true(DRIFTED) && launched != now.hash,
    };
    Judgement {
        has_drifted,
        stamp: (!has_drifted).then_some(now),
    }
}

/// A list that does not depend on the order in which a provider names its fields.
fn listed(dynamic_fields: &[String]) -> String {
    let mut fields: Vec<&str> = dynamic_fields.iter().map(String::as_str).collect();
    fields.sort_unstable();
    fields.dedup();
    json!(fields).to_string()
}

/// FNV-1a over the spec without dynamic fields, whose keys are in order.
fn hash(class: &DynamicObject, dynamic_fields: &[String]) -> String {
    let mut spec = class.data.get("spec").cloned().unwrap_or_default();
    for pointer in dynamic_fields {
        let steps: Vec<String> = pointer.split('/').skip(1).map(unescaped).collect();
        if let (Value::Object(fields), Some((first, rest))) = (&mut spec, steps.split_first()) {
            remove(fields, first, rest);
        }
    }
    format!("{:016x}", digest(&spec.to_string()))
}

/// A step of a JSON pointer (RFC 6901).
fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Removes a field, and what holds nothing else: whether there is a parent is decided by the field.
fn remove(fields: &mut Map<String, Value>, first: &str, rest: &[String]) {
    let is_empty = match (rest.split_first(), fields.get_mut(first)) {
        (None, _) => true,
        (Some((next, rest)), Some(Value::Object(inner))) => {
            remove(inner, next, rest);
            inner.is_empty()
        }
        (Some(_), _) => false,
    };
    if is_empty {
        fields.remove(first);
    }
}

/// NodeClaims that are to be stamped anew, by name. `None` while nobody writes: another replica leads.
#[derive(Debug, Default)]
pub(crate) struct Stamps(Mutex<Option<BTreeMap<String, Write>>>);

/// As long as this lives, what is noted is written.
struct Writing<'a>(&'a Stamps);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        *self.0.waiting() = None;
    }
}

impl Stamps {
    /// Notes what is to be written. The last word about a NodeClaim counts.
    pub(crate) fn note(&self, claim: &NodeClaim, stamp: Stamp) {
        let patch = json!({"metadata": {"uid": claim.uid(), "annotations": {HASH: stamp.hash, LEFT_OUT: stamp.left_out}}});
        let name = claim.name().to_owned();
        if let Some(waiting) = &mut *self.waiting() {
            let write = Write {
                target: WriteTarget::NodeClaim,
                name: name.clone(),
                patch,
            };
            waiting.insert(name, write);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<BTreeMap<String, Write>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is noted. What cannot be written is noted again when its drift is looked at next.
    pub(crate) async fn keep(&self, writes: &dyn Writes, clock: &SharedClock) {
        *self.waiting() = Some(BTreeMap::new());
        let _writing = Writing(self);
        loop {
            clock.sleep(PERIOD).await;
            let waiting = self.waiting().as_mut().map(std::mem::take).unwrap_or_default();
            for (name, write) in waiting {
                match writes.write(write).await {
                    Ok(_) => {
                        tracing::info!(
                            NodeClaim = name,
                            "the provider has other dynamic fields: the hash of its NodeClass is made anew"
                        );
                    }
                    Err(error) if error.is_not_found() => {}
                    Err(error) => {
                        tracing::warn!(NodeClaim = name, %error, "the hash of its NodeClass is not written; it is tried again");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(spec: Value) -> DynamicObject {
        let object = json!({"apiVersion": "shed.example/v1", "kind": "ShedClass", "metadata": {"name": "a"}, "spec": spec});
        serde_json::from_value(object).expect("a class")
    }

    fn fields(pointers: &[&str]) -> Vec<String> {
        pointers.iter().map(|one| (*one).to_owned()).collect()
    }

    fn launched(spec: Value, dynamic: &[&str]) -> NodeClaim {
        let mut claim = NodeClaim::new("one", spokeshave_api::NodeClaimSpec::default());
        Stamp::of(&class(spec), &fields(dynamic)).put_on(&mut claim);
        claim
    }

    #[test]
    fn g_015_a_hashed_field_changes_the_hash_and_a_dynamic_one_does_not() {
        let dynamic = fields(&["/image/channel", "/labels/a~1b", "/list/0"]);
        let of = |spec: Value| hash(&class(spec), &dynamic);
        let one = of(json!({"disk": 1, "image": {"channel": "stable"}}));
        for same in [
            json!({"disk": 1, "image": {"channel": "next"}}),
            json!({"disk": 1}),
            json!({"disk": 1, "labels": {"a/b": "c"}}),
        ] {
            assert_eq!(one, of(same.clone()), "{same}");
        }
        for other in [
            json!({"disk": 2, "image": {"channel": "stable"}}),
            json!({"disk": 1, "image": {"channel": "stable", "arch": "arm64"}}),
            json!({"disk": 1, "image": "stable"}),
            json!({"disk": 1, "labels": {"a": "c"}}),
            json!({"disk": 1, "list": ["x"]}),
        ] {
            assert_ne!(one, of(other.clone()), "{other}");
        }
    }

    #[test]
    fn g_015_a_hash_is_compared_by_the_fields_that_it_was_made_by() {
        let spec = json!({"disk": 1, "channel": "stable"});
        let another = json!({"disk": 1, "channel": "next"});
        for (then, now) in [
            (vec![], vec!["/channel"]),
            (vec!["/channel"], vec![]),
            (vec!["/channel"], vec!["/disk"]),
        ] {
            let (then, now) = (then.as_slice(), now.as_slice());
            let claim = launched(spec.clone(), then);
            let judged = judge(&claim, &class(spec.clone()), &fields(now));
            assert!(!judged.has_drifted, "{then:?} {now:?}");
            assert_eq!(judged.stamp, Some(Stamp::of(&class(spec.clone()), &fields(now))));
            let judged = judge(&claim, &class(json!({"disk": 2})), &fields(now));
            assert!(judged.has_drifted && judged.stamp.is_none(), "{then:?} {now:?}");
            let by_channel = judge(&claim, &class(another.clone()), &fields(now));
            assert_eq!(by_channel.has_drifted, then.is_empty(), "{then:?} {now:?}");
        }
        let order = judge(
            &launched(spec.clone(), &["/a", "/b"]),
            &class(spec),
            &fields(&["/b", "/a", "/a"]),
        );
        assert_eq!((order.has_drifted, order.stamp), (false, None));
    }

    #[test]
    fn g_015_a_hash_of_unknown_fields_drifts_nothing_that_had_not_drifted() {
        for left_out in [None, Some("no list")] {
            let mut claim = launched(json!({"disk": 1}), &[]);
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.remove(LEFT_OUT);
            annotations.extend(left_out.map(|text| (LEFT_OUT.to_owned(), text.to_owned())));
            let changed = class(json!({"disk": 2}));
            let judged = judge(&claim, &changed, &[]);
            assert_eq!(
                (judged.has_drifted, judged.stamp),
                (false, Some(Stamp::of(&changed, &[])))
            );
            let found = json!([{"type": "Drifted", "status": "True", "reason": "NodeClassDrift", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            claim.status.get_or_insert_default().conditions =
                serde_json::from_value(found).expect("conditions");
            let judged = judge(&claim, &changed, &[]);
            assert_eq!((judged.has_drifted, judged.stamp), (true, None));
        }
    }
}
