//! cluster-autoscaler's flags: what each becomes, or why it becomes nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fields::set;
use crate::report::Notes;

/// A flag as it was given.
pub(crate) struct Flag {
    /// Where, such as `spec.template.spec.containers[0].command[3]`.
    pub(crate) field: String,
    pub(crate) value: String,
}

/// Flags by name; those that may be repeated have several values.
pub(crate) type Flags = BTreeMap<String, Vec<Flag>>;

/// Flags that say what nothing here can say, with what comes nearest.
const NO_COUNTERPART: [(&str, &str); 12] = [
    (
        "scale-down-utilization-threshold",
        "no threshold decides here, but the price: a node goes when its pods fit elsewhere or on a cheaper node; consolidationPolicy Balanced weighs the saving against the pods that move",
    ),
    (
        "scale-down-gpu-utilization-threshold",
        "no threshold decides here, but the price",
    ),
    (
        "max-graceful-termination-sec",
        "drains wait for each pod's own grace period; spec.template.spec.terminationGracePeriod ends a drain, and then ignores PodDisruptionBudgets and do-not-disrupt too, which is why it is not written",
    ),
    (
        "min-replica-count",
        "how many replicas there are makes no difference here; PodDisruptionBudgets protect workloads",
    ),
    (
        "expendable-pods-priority-cutoff",
        "every pending pod counts here, whatever its priority",
    ),
    (
        "new-pod-scale-up-delay",
        "the batching window is for all pods: BATCH_IDLE_DURATION and BATCH_MAX_DURATION",
    ),
    (
        "balance-similar-node-groups",
        "pods ask for balance: topologySpreadConstraints",
    ),
    (
        "balancing-ignore-label",
        "pods ask for balance: topologySpreadConstraints",
    ),
    (
        "expander",
        "the cheapest machines that fit are taken; spec.weight of NodePools puts one before another",
    ),
    (
        "max-node-provision-time",
        "a node that does not register in 15 minutes is given up; that time is fixed",
    ),
    (
        "scale-down-unready-time",
        "nodes that stay unready are repaired where the cloud provider has a policy for it",
    ),
    (
        "scale-down-unready-enabled",
        "nodes that stay unready are repaired where the cloud provider has a policy for it",
    ),
];

/// Flags that are true unless they are written, and the nodes that they keep.
const PROTECTIONS: [(&str, &str); 3] = [
    (
        "skip-nodes-with-local-storage",
        "nodes whose pods have emptyDir or hostPath",
    ),
    (
        "skip-nodes-with-system-pods",
        "nodes with pods of kube-system that no PodDisruptionBudget selects",
    ),
    (
        "skip-nodes-with-custom-controller-pods",
        "nodes with pods of other controllers than Kubernetes' own",
    ),
];

/// Nodes that are kept whatever the flags say.
const ALWAYS_KEPT: &str = "nodes with pods that have no controller were kept, and are emptied here: such pods are gone then; protect those that must stay with karpenter.sh/do-not-disrupt";

/// Flags about how the program itself works.
const OWN_WORKINGS: [&str; 49] = [
    "address",
    "async-node-groups",
    "aws-use-static-instance-list",
    "cloud-config",
    "cloud-provider",
    "cluster-name",
    "clusterapi-cloud-config-authoritative",
    "config-map",
    "cordon-node-before-terminating",
    "daemonset-eviction-for-empty-nodes",
    "daemonset-eviction-for-occupied-nodes",
    "debugging-snapshot-enabled",
    "emit-per-nodegroup-metrics",
    "enforce-node-group-min-size",
    "estimator",
    "force-ds",
    "gce-concurrent-refreshes",
    "ignore-daemonsets-utilization",
    "ignore-mirror-pods-utilization",
    "ignore-taint",
    "initial-node-group-backoff-duration",
    "kube-client-burst",
    "kube-client-qps",
    "kubeconfig",
    "kubernetes",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-elect-retry-period",
    "log-file",
    "logtostderr",
    "max-bulk-soft-taint-count",
    "max-bulk-soft-taint-time",
    "max-inactivity",
    "max-failing-time",
    "max-node-group-backoff-duration",
    "namespace",
    "node-group-backoff-reset-timeout",
    "profiling",
    "record-duplicated-events",
    "regional",
    "scan-interval",
    "skip-nodes-with",
    "stderrthreshold",
    "v",
    "write-status-configmap",
];

/// The disruption block of a NodePool that keeps the autoscaler's pace; reports every flag that is not a limit, a
/// group, or read elsewhere.
pub(crate) fn pace(found: &Flags, read_elsewhere: &[&str], notes: &mut Notes) -> Value {
    let mut block = json!({"consolidationPolicy": "WhenEmptyOrUnderutilized"});
    let after = consolidate_after(found, notes);
    set(&mut block, &["consolidateAfter"], json!(after));
    let drains = parallel(found, &["max-drain-parallelism"], 1, "Underutilized", notes);
    let removals = parallel(
        found,
        &["max-scale-down-parallelism", "max-empty-bulk-delete"],
        10,
        "Empty",
        notes,
    );
    let budgets = json!([
        {"nodes": removals, "reasons": ["Empty"]},
        {"nodes": drains, "reasons": ["Underutilized"]},
        {"nodes": "10%", "reasons": ["Drifted"]},
    ]);
    set(&mut block, &["budgets"], budgets);
    notes.added(
        "spec.disruption.budgets",
        "10% for drift, which cluster-autoscaler does not have: nodes whose NodePool or NodeClass has changed are replaced",
    );
    protections(found, notes);
    others(found, read_elsewhere, notes);
    block
}

/// Nodes that cluster-autoscaler keeps because of their pods, mostly without a flag that says so; here only do-not-disrupt and budgets do.
fn protections(found: &Flags, notes: &mut Notes) {
    const BECAME: &str = "karpenter.sh/do-not-disrupt of pods";
    if no_scale_down(found).is_some() {
        for flag in PROTECTIONS.iter().filter_map(|(name, _)| last(found, name)) {
            notes.dropped(&flag.field, "scale-down-enabled is false");
        }
        return;
    }
    for (name, nodes) in PROTECTIONS {
        let (field, said) = match last(found, name).map(|flag| (flag, boolean(&flag.value))) {
            None => ("", format!("true, the default of {name},")),
            Some((flag, Some(true))) => (flag.field.as_str(), "true".to_owned()),
            Some((flag, Some(false))) => {
                notes.dropped(&flag.field, format!("false: {nodes} are emptied here, too"));
                continue;
            }
            Some((flag, None)) => {
                notes.unknown(
                    &flag.field,
                    format!(
                        "expected true or false, found {:?}; the default, true, is what counts",
                        flag.value
                    ),
                );
                continue;
            }
        };
        let text = format!(
            "not written: {said} kept {nodes}; here they are emptied: protect the pods that must stay, with karpenter.sh/do-not-disrupt or a PodDisruptionBudget"
        );
        notes.changed(field, BECAME, text);
    }
    notes.changed("", BECAME, format!("not written: {ALWAYS_KEPT}"));
}

/// A flag that is on or off, as Go reads it; none for what it would refuse.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The flag by which nothing is scaled down.
pub(crate) fn no_scale_down(found: &Flags) -> Option<&Flag> {
    last(found, "scale-down-enabled").filter(|flag| boolean(&flag.value) == Some(false))
}

pub(crate) fn last<'a>(found: &'a Flags, name: &str) -> Option<&'a Flag> {
    found.get(name).and_then(|flags| flags.last())
}

fn consolidate_after(found: &Flags, notes: &mut Notes) -> String {
    let became = "spec.disruption.consolidateAfter";
    if let Some(flag) = no_scale_down(found) {
        notes.moved(&flag.field, became, "Never");
        if let Some(unneeded) = last(found, "scale-down-unneeded-time") {
            notes.dropped(&unneeded.field, "scale-down-enabled is false");
        }
        return "Never".to_owned();
    }
    let Some(flag) = last(found, "scale-down-unneeded-time") else {
        notes.added(
            became,
            "10m, the default of scale-down-unneeded-time; it counts from the last pod that came or went, and not from when the node was unneeded",
        );
        return "10m".to_owned();
    };
    if is_duration(&flag.value) {
        notes.changed(
            &flag.field,
            became,
            "counts from the last pod that came or went, and not from when the node was unneeded",
        );
        flag.value.clone()
    } else {
        notes.unknown(
            &flag.field,
            format!(
                "expected a duration such as 10m, found {:?}; 10m is written",
                flag.value
            ),
        );
        "10m".to_owned()
    }
}

/// The pattern of the CRD, `([0-9]+(s|m|h))+`.
pub(crate) fn is_duration(text: &str) -> bool {
    let mut digits = 0;
    for letter in text.chars() {
        match letter {
            '0'..='9' => digits += 1,
            's' | 'm' | 'h' if digits > 0 => digits = 0,
            _ => return false,
        }
    }
    digits == 0 && !text.is_empty()
}

/// A number of nodes that may go at once, as a budget for one reason.
fn parallel(found: &Flags, names: &[&str], default: u64, reason: &str, notes: &mut Notes) -> String {
    let became = format!("spec.disruption.budgets for {reason}");
    let mut number = None;
    for name in names {
        let Some(flag) = last(found, name) else {
            continue;
        };
        match flag.value.parse::<u64>() {
            Ok(value) if number.is_none() => {
                notes.changed(
                    &flag.field,
                    &became,
                    format!("{value} nodes of each NodePool at once, and not of the cluster"),
                );
                number = Some(value);
            }
            Ok(_) => notes.dropped(&flag.field, format!("{} is what counts", names[0])),
            Err(_) => notes.unknown(&flag.field, format!("expected a number, found {:?}", flag.value)),
        }
    }
    if number.is_none() {
        notes.added(
            &became,
            format!(
                "{default}, the default of {}; for each NodePool, and not for the cluster",
                names[0]
            ),
        );
    }
    number.unwrap_or(default).to_string()
}

/// Limits of the whole cluster, which a NodePool has for itself; below what its group has at most, if it is the only one.
pub(crate) fn limits(found: &Flags, pools: usize, most_of_only: Option<u64>, notes: &mut Notes) -> Value {
    let mut limits = json!({});
    for (name, resource, unit) in [
        ("cores-total", "cpu", ""),
        ("memory-total", "memory", "Gi"),
        ("max-nodes-total", "nodes", ""),
    ] {
        let Some(flag) = last(found, name) else {
            continue;
        };
        let most = flag.value.rsplit(':').next().unwrap_or_default();
        let group = most_of_only.filter(|_| resource == "nodes");
        match most.parse::<u64>() {
            Ok(0) => notes.dropped(&flag.field, "0 is no limit"),
            Ok(most) => {
                let became = format!("spec.limits.{resource}");
                if pools > 1 {
                    notes.manual(
                        &flag.field,
                        format!("a limit of the whole cluster, and there are {pools} NodePools: share {most}{unit} out among their {became}"),
                    );
                } else if let Some(group) = group.filter(|group| *group <= most) {
                    let why = format!("{most}: the {group} of its group counts, which is not more");
                    notes.dropped(&flag.field, why);
                } else {
                    let text = match group {
                        Some(group) => {
                            format!("of this NodePool's nodes only; less than its group's {group}")
                        }
                        None => "of this NodePool's nodes only".to_owned(),
                    };
                    notes.changed(&flag.field, &became, text);
                    set(&mut limits, &[resource], json!(format!("{most}{unit}")));
                }
            }
            Err(_) => notes.unknown(
                &flag.field,
                format!("expected MINIMUM:MAXIMUM or a number, found {:?}", flag.value),
            ),
        }
    }
    for flag in found.get("gpu-total").into_iter().flatten() {
        notes.manual(
            &flag.field,
            "a limit on GPUs is written as spec.limits under the name of their resource, such as nvidia.com/gpu",
        );
    }
    limits
}

/// Flags that neither `pace` nor `limits` nor the groups have read.
fn others(found: &Flags, read_elsewhere: &[&str], notes: &mut Notes) {
    const READ: [&str; 10] = [
        "nodes",
        "node-group-auto-discovery",
        "scale-down-unneeded-time",
        "max-drain-parallelism",
        "max-scale-down-parallelism",
        "max-empty-bulk-delete",
        "cores-total",
        "memory-total",
        "max-nodes-total",
        "gpu-total",
    ];
    for (name, flags) in found {
        let is_protection = PROTECTIONS.iter().any(|(known, _)| known == name);
        if is_protection || READ.contains(&name.as_str()) || read_elsewhere.contains(&name.as_str()) {
            continue;
        }
        for flag in flags {
            if name == "scale-down-enabled" {
                match boolean(&flag.value) {
                    Some(true) => notes.dropped(&flag.field, "true is the default"),
                    Some(false) => {}
                    None => notes.unknown(
                        &flag.field,
                        format!(
                            "expected true or false, found {:?}; the default, true, is what is converted",
                            flag.value
                        ),
                    ),
                }
                continue;
            }
            match NO_COUNTERPART.iter().find(|(known, _)| known == name) {
                Some((_, why)) => notes.dropped(&flag.field, format!("{}: {why}", flag.value)),
                None if OWN_WORKINGS.contains(&name.as_str()) => {
                    notes.dropped(
                        &flag.field,
                        "how cluster-autoscaler itself works, or finds groups",
                    );
                }
                None => notes.unknown(
                    &flag.field,
                    format!("--{name} is not known here; its value is {:?}", flag.value),
                ),
            }
        }
    }
}
