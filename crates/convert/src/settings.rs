//! The ConfigMap karpenter-global-settings of v1alpha5: each key with the setting of the operator that it became.

use serde_json::Value;

use crate::fields::text;
use crate::report::Notes;

/// Keys with the environment variable of the operator; without one where the setting is gone.
const KEYS: [(&str, Option<&str>); 16] = [
    ("batchMaxDuration", Some("BATCH_MAX_DURATION")),
    ("batchIdleDuration", Some("BATCH_IDLE_DURATION")),
    ("aws.clusterCABundle", Some("CLUSTER_CA_BUNDLE")),
    ("aws.clusterName", Some("CLUSTER_NAME")),
    ("aws.clusterEndpoint", Some("CLUSTER_ENDPOINT")),
    ("aws.isolatedVPC", Some("ISOLATED_VPC")),
    ("aws.vmMemoryOverheadPercent", Some("VM_MEMORY_OVERHEAD_PERCENT")),
    ("aws.interruptionQueueName", Some("INTERRUPTION_QUEUE")),
    ("aws.reservedENIs", Some("RESERVED_ENIS")),
    ("aws.assumeRoleARN", None),
    ("aws.assumeRoleDuration", None),
    ("featureGates.driftEnabled", None),
    ("aws.defaultInstanceProfile", None),
    ("aws.enablePodENI", None),
    ("aws.enableENILimitedPodDensity", None),
    ("aws.nodeNameConvention", None),
];

/// Whether the object is that ConfigMap.
pub(crate) fn is_global(object: &Value) -> bool {
    object["kind"] == "ConfigMap" && object["metadata"]["name"] == "karpenter-global-settings"
}

/// Reports each key; the ConfigMap itself is left out.
pub(crate) fn report(object: &Value, notes: &mut Notes) {
    let assumes_role = text(object, &["data", "aws.assumeRoleARN"]).is_some_and(|role| !role.is_empty());
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        let field = format!("data.{key}");
        // Karpenter's chart wrote every key, whether it was set or not; a tag may have no value.
        if (value.is_null() || value == "") && !key.starts_with("aws.tags.") {
            notes.dropped(&field, "empty, which is the same as absent");
            continue;
        }
        if key == "aws.assumeRoleDuration" && !assumes_role {
            notes.dropped(&field, "without aws.assumeRoleARN no role was assumed");
            continue;
        }
        if let Some(tag) = key.strip_prefix("aws.tags") {
            notes.manual(
                &field,
                format!("tags of everything{tag} are written as spec.tags of each EC2NodeClass: {value}"),
            );
            continue;
        }
        match KEYS.iter().find(|(known, _)| known == key) {
            Some((_, Some(variable))) => notes.moved(
                &field,
                &format!("the operator's environment {variable}"),
                format!("{value}; the ConfigMap is no longer read"),
            ),
            Some((_, None)) => gone(key, &field, value, notes),
            None => notes.unknown(&field, format!("no version knows this key; its value is {value}")),
        }
    }
    notes.dropped("", "the ConfigMap is left out: it is no longer read");
}

fn gone(key: &str, field: &str, value: &Value, notes: &mut Notes) {
    match key {
        "featureGates.driftEnabled" if value == "false" => notes.manual(
            field,
            "drift cannot be switched off in v1: a budget with nodes \"0\" and reasons [Drifted] on each NodePool stops it",
        ),
        "featureGates.driftEnabled" => notes.dropped(field, "drift is always on"),
        "aws.defaultInstanceProfile" => notes.moved(
            field,
            "EC2NodeClass spec.instanceProfile",
            format!("{value}, in classes that have neither role nor instanceProfile"),
        ),
        "aws.enablePodENI" => notes.dropped(field, "always on"),
        "aws.enableENILimitedPodDensity" if value == "false" => notes.manual(
            field,
            "nodes had room for 110 pods; in v1 they have room for as many as their network interfaces have addresses: spec.kubelet.maxPods: 110 of each EC2NodeClass keeps the 110",
        ),
        "aws.enableENILimitedPodDensity" => notes.dropped(
            field,
            "always on; spec.kubelet.maxPods of the EC2NodeClass overrides it",
        ),
        "aws.nodeNameConvention" => {
            notes.dropped(field, "not read since v0.28: a node is known by its provider ID");
        }
        _ => notes.manual(
            field,
            "v1 does not assume another role: give the operator's service account the role",
        ),
    }
}
