//! The fingerprint of a NodePool's template, by which static drift is noticed (D-219…D-225, P §1.9).
//!
//! Upstream's value comes from a Go library that walks Go structs; reproducing it bit for bit would tie us to it. Ours has a version of
//! its own, so taking over a cluster updates the hashes of its NodeClaims (D-224) and causes no drift.

use crate::duration::GoDuration;
use crate::kinds::node_pool::NodePool;
use k8s_openapi::api::core::v1::Taint;

/// Version of the algorithm below. Change it whenever the value for any template changes.
pub const VERSION: &str = "spokeshave-v1";

/// FNV-1a over a canonical text: sorted lists, empty as absent, durations by value (D-222).
#[must_use]
pub fn node_pool_hash(pool: &NodePool) -> String {
    let template = &pool.spec.template;
    let mut canonical = Canonical::default();
    for (key, value) in &template.metadata.labels {
        canonical.field("label", &[key, value]);
    }
    for (key, value) in &template.metadata.annotations {
        canonical.field("annotation", &[key, value]);
    }
    canonical.taints("taint", &template.spec.taints);
    canonical.taints("startupTaint", &template.spec.startup_taints);
    let class = &template.spec.node_class_ref;
    canonical.field("nodeClassRef", &[&class.group, &class.kind, &class.name]);
    let grace = template
        .spec
        .termination_grace_period
        .as_ref()
        .map_or(0, GoDuration::nanoseconds);
    if grace != 0 {
        canonical.field("terminationGracePeriod", &[&grace.to_string()]);
    }
    if let Some(expire_after) = template.spec.expire_after.duration() {
        canonical.field("expireAfter", &[&expire_after.as_nanos().to_string()]);
    }
    canonical.digest().to_string()
}

/// Unambiguous text: each part is preceded by its length.
#[derive(Default)]
struct Canonical(String);

impl Canonical {
    fn field(&mut self, name: &str, parts: &[&str]) {
        self.0.push_str(&encode(name, parts));
    }

    fn taints(&mut self, name: &str, taints: &[Taint]) {
        let mut encoded: Vec<String> = taints
            .iter()
            .map(|taint| {
                encode(
                    name,
                    &[
                        &taint.key,
                        taint.value.as_deref().unwrap_or_default(),
                        &taint.effect,
                    ],
                )
            })
            .collect();
        encoded.sort();
        encoded.dedup();
        self.0.extend(encoded);
    }

    fn digest(&self) -> u64 {
        digest(&self.0)
    }
}

/// FNV-1a of a text, 64 bits. Values are stored in clusters: the algorithm never changes.
#[must_use]
pub fn digest(text: &str) -> u64 {
    digest_of(text.bytes())
}

/// The same of any bytes.
#[must_use]
pub fn digest_of(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn encode(name: &str, parts: &[&str]) -> String {
    let mut text = format!("{name}(");
    for part in parts {
        text.push_str(&format!("{}:{part}", part.len()));
    }
    text.push_str(");");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePoolSpec;
    use serde_json::{Value, json};

    fn hash(change: impl FnOnce(&mut Value)) -> String {
        let mut spec = json!({
            "template": {
                "metadata": {"labels": {"team": "a"}, "annotations": {"x": "y"}},
                "spec": {
                    "taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "c", "effect": "NoExecute"}],
                    "startupTaints": [{"key": "s", "effect": "NoSchedule"}],
                    "requirements": [],
                    "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
                    "terminationGracePeriod": "1h",
                    "expireAfter": "24h"
                }
            }
        });
        change(&mut spec);
        node_pool_hash(&NodePool::new(
            "pool",
            serde_json::from_value::<NodePoolSpec>(spec).unwrap(),
        ))
    }

    #[test]
    fn p_021_d_221_what_the_hash_covers() {
        let base = hash(|_| {});
        assert_eq!(
            base, "5090215182239074029",
            "computed apart from this code; it is stored in clusters, so that changing it needs a new VERSION"
        );
        let changed: [fn(&mut Value); 7] = [
            |spec| spec["template"]["metadata"]["labels"]["team"] = json!("b"),
            |spec| spec["template"]["metadata"]["annotations"]["x"] = json!("z"),
            |spec| spec["template"]["spec"]["taints"][0]["effect"] = json!("NoExecute"),
            |spec| spec["template"]["spec"]["startupTaints"] = json!([]),
            |spec| spec["template"]["spec"]["nodeClassRef"]["name"] = json!("other"),
            |spec| spec["template"]["spec"]["terminationGracePeriod"] = json!("2h"),
            |spec| spec["template"]["spec"]["expireAfter"] = json!("Never"),
        ];
        for (index, change) in changed.into_iter().enumerate() {
            assert_ne!(hash(change), base, "change {index} must show");
        }
        let unchanged: [fn(&mut Value); 4] = [
            |spec| spec["template"]["spec"]["requirements"] = json!([{"key": "team", "operator": "Exists"}]),
            |spec| spec["weight"] = json!(7),
            |spec| spec["limits"] = json!({"cpu": "1"}),
            |spec| spec["disruption"] = json!({"consolidateAfter": "Never"}),
        ];
        for (index, change) in unchanged.into_iter().enumerate() {
            assert_eq!(hash(change), base, "change {index} must not show");
        }
    }

    #[test]
    fn d_225_the_version_is_ours_because_the_value_is() {
        // Differs from upstream's, so taking over a cluster migrates (D-224) and causes no drift.
        assert_eq!(VERSION, "spokeshave-v1");
    }

    #[test]
    fn d_222_order_spelling_and_emptiness_do_not_matter() {
        let base = hash(|_| {});
        assert_eq!(
            hash(|spec| spec["template"]["spec"]["expireAfter"] = json!("1440m")),
            base
        );
        assert_eq!(
            hash(
                |spec| spec["template"]["spec"]["taints"] = json!([{"key": "b", "value": "c", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"}])
            ),
            base
        );
        let without = hash(|spec| {
            spec["template"]["spec"]
                .as_object_mut()
                .unwrap()
                .remove("startupTaints");
        });
        assert_eq!(
            hash(|spec| spec["template"]["spec"]["startupTaints"] = json!([])),
            without
        );
        assert_ne!(
            hash(|spec| spec["template"]["metadata"]["labels"] = json!({"a": "bc"})),
            hash(|spec| spec["template"]["metadata"]["labels"] = json!({"ab": "c"})),
            "the encoding is unambiguous"
        );
    }
}
