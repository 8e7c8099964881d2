//! The kubelet block of an EC2NodeClass: the fields that the arithmetic of a node reads, and the rules that the block must meet (A1.4).
//!
//! The schema admits any object. [`check`] names each field that breaks a rule; [`Kubelet::read`] takes what it understands and leaves the
//! rest, because a class that breaks a rule is not launched from.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};
use spokeshave_api::ec2_node_class::AmiFamily;
use spokeshave_api::{GoDuration, Quantity};

/// Fields that decisions and user data know.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kubelet {
    /// Most pods of a node.
    pub max_pods: Option<i64>,
    /// Most pods for each vCPU.
    pub pods_per_core: Option<i64>,
    /// Reserved for Kubernetes daemons, by resource.
    pub kube_reserved: BTreeMap<String, String>,
    /// Reserved for the operating system, by resource.
    pub system_reserved: BTreeMap<String, String>,
    /// Thresholds at which pods are evicted at once, by signal.
    pub eviction_hard: BTreeMap<String, String>,
}

impl Kubelet {
    /// What is understood of a block. Values of a wrong type count as absent.
    #[must_use]
    pub fn read(block: Option<&Value>) -> Self {
        let number = |field: &str| block.and_then(|block| block.get(field)).and_then(Value::as_i64);
        let texts = |field: &str| -> BTreeMap<String, String> {
            let entries = block
                .and_then(|block| block.get(field))
                .and_then(Value::as_object);
            entries
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect()
        };
        Kubelet {
            max_pods: number("maxPods"),
            pods_per_core: number("podsPerCore"),
            kube_reserved: texts("kubeReserved"),
            system_reserved: texts("systemReserved"),
            eviction_hard: texts("evictionHard"),
        }
    }
}

/// Fields that the autoscaler itself understands; only AL2023 can carry others.
const MANAGED: [&str; 12] = [
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];

const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// A rule that a kubelet block breaks: the reason of condition `ValidationSucceeded` with its message (A1.5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    /// A field is not what it may be.
    #[error("spec.kubelet.{field}: {problem}")]
    Invalid {
        /// Path below `spec.kubelet`.
        field: String,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// An expression stands where this version takes only values.
    #[error("spec.kubelet.{field}: expressions are not supported; write a value")]
    ExpressionsDisabled {
        /// Path below `spec.kubelet`.
        field: String,
    },
    /// The family of the images cannot carry the field.
    #[error("spec.kubelet.{field}: {family} nodes do not support it{hint}")]
    Unsupported {
        /// Path below `spec.kubelet`.
        field: String,
        /// Family of the images.
        family: String,
        /// What to do.
        hint: &'static str,
    },
}

impl KubeletError {
    /// Reason of the condition.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            KubeletError::Invalid { .. } => "InvalidKubeletConfiguration",
            KubeletError::ExpressionsDisabled { .. } => "KubeletExpressionsDisabled",
            KubeletError::Unsupported { .. } => "UnsupportedKubeletConfiguration",
        }
    }
}

fn invalid(field: impl Into<String>, problem: impl Into<String>) -> KubeletError {
    KubeletError::Invalid {
        field: field.into(),
        problem: problem.into(),
    }
}

/// All rules that the block breaks, in the order of its fields; empty when it may be used (A1.4).
#[must_use]
pub fn check(block: Option<&Value>, family: &AmiFamily) -> Vec<KubeletError> {
    let Some(block) = block else {
        return Vec::new();
    };
    let Some(fields) = block.as_object() else {
        return vec![invalid("", "must be an object of KubeletConfiguration fields")];
    };
    let mut errors = Vec::new();
    for (field, value) in fields {
        check_field(field, value, &mut errors);
        check_family(field, value, family, &mut errors);
    }
    check_soft_eviction(fields, &mut errors);
    check_image_collection(fields, &mut errors);
    errors
}

fn check_field(field: &str, value: &Value, errors: &mut Vec<KubeletError>) {
    match field {
        "registerWithTaints" => errors.push(invalid(
            field,
            "may not be set: taints come from the NodePool and the NodeClaim",
        )),
        "evictionHard" | "evictionSoft" | "evictionMinimumReclaim" => {
            check_map(field, value, errors, |path, key, text, errors| {
                check_signal(path, key, errors);
                if !is_threshold(text) {
                    errors.push(invalid(
                        path,
                        format!(
                            "{text:?} is neither a percentage from 0% to 100% nor a quantity of 0 or more"
                        ),
                    ));
                }
            });
        }
        "evictionSoftGracePeriod" => check_map(field, value, errors, |path, key, text, errors| {
            check_signal(path, key, errors);
            if !text
                .parse::<GoDuration>()
                .is_ok_and(|duration| duration.nanoseconds() >= 0)
            {
                errors.push(invalid(path, format!("{text:?} is not a duration such as 1m30s")));
            }
        }),
        "kubeReserved" | "systemReserved" => check_map(field, value, errors, |path, key, text, errors| {
            if !RESERVABLE.contains(&key) {
                errors.push(invalid(
                    path,
                    format!("unknown resource, expected one of {}", RESERVABLE.join(", ")),
                ));
            } else if text.starts_with('-') {
                errors.push(invalid(path, format!("{text:?} must not be negative")));
            } else if text.parse::<Quantity>().is_err() {
                errors.push(if looks_like_an_expression(text) {
                    KubeletError::ExpressionsDisabled {
                        field: path.to_owned(),
                    }
                } else {
                    invalid(path, format!("{text:?} is not a quantity such as 200m or 1Gi"))
                });
            }
        }),
        "maxPods" if value.is_string() => errors.push(KubeletError::ExpressionsDisabled {
            field: field.to_owned(),
        }),
        "maxPods" | "podsPerCore" | "evictionMaxPodGracePeriod" => {
            if !value
                .as_i64()
                .is_some_and(|number| (0..=i64::from(i32::MAX)).contains(&number))
            {
                errors.push(invalid(
                    field,
                    format!("{value} is not a whole number of 0 or more"),
                ));
            }
        }
        "imageGCHighThresholdPercent" | "imageGCLowThresholdPercent" => {
            if !value.as_i64().is_some_and(|number| (0..=100).contains(&number)) {
                errors.push(invalid(
                    field,
                    format!("{value} is not a whole number from 0 to 100"),
                ));
            }
        }
        "clusterDNS" => {
            let is_address =
                |entry: &Value| entry.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok());
            let addresses = value.as_array().is_some_and(|list| list.iter().all(is_address));
            if !addresses {
                errors.push(invalid(field, "must be a list of IP addresses"));
            }
        }
        "cpuCFSQuota" => {
            if !value.is_boolean() {
                errors.push(invalid(field, format!("{value} is neither true nor false")));
            }
        }
        other if CONFIGURATION_FIELDS.binary_search(&other).is_err() => {
            errors.push(invalid(other, "unknown field of KubeletConfiguration"));
        }
        _ => {}
    }
}

/// Top-level fields of `kubelet.config.k8s.io/v1beta1` KubeletConfiguration (Kubernetes 1.36) that are not checked one by one, sorted.
const CONFIGURATION_FIELDS: [&str; 91] = [
    "address",
    "allowedUnsafeSysctls",
    "authentication",
    "authorization",
    "cgroupDriver",
    "cgroupRoot",
    "cgroupsPerQOS",
    "clusterDomain",
    "configMapAndSecretChangeDetectionStrategy",
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "containerRuntimeEndpoint",
    "contentType",
    "cpuCFSQuotaPeriod",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "crashLoopBackOff",
    "enableContentionProfiling",
    "enableControllerAttachDetach",
    "enableDebugFlagsHandler",
    "enableDebuggingHandlers",
    "enableProfilingHandler",
    "enableServer",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "enforceNodeAllocatable",
    "eventBurst",
    "eventRecordQPS",
    "evictionPressureTransitionPeriod",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "fileCheckFrequency",
    "hairpinMode",
    "healthzBindAddress",
    "healthzPort",
    "httpCheckFrequency",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "imagePullCredentialsVerificationPolicy",
    "imageServiceEndpoint",
    "iptablesDropBit",
    "iptablesMasqueradeBit",
    "kernelMemcgNotification",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "kubeReservedCgroup",
    "kubeletCgroups",
    "localStorageCapacityIsolation",
    "logging",
    "makeIPTablesUtilChains",
    "maxOpenFiles",
    "maxParallelImagePulls",
    "memoryManagerPolicy",
    "memorySwap",
    "memoryThrottlingFactor",
    "mergeDefaultEvictionSettings",
    "nodeLeaseDurationSeconds",
    "nodeStatusMaxImages",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
    "oomScoreAdj",
    "podCIDR",
    "podLogsDir",
    "podPidsLimit",
    "port",
    "preloadedImagesVerificationAllowlist",
    "protectKernelDefaults",
    "providerID",
    "qosReserved",
    "readOnlyPort",
    "registerNode",
    "registryBurst",
    "registryPullQPS",
    "reservedMemory",
    "reservedSystemCPUs",
    "resolvConf",
    "rotateCertificates",
    "runtimeRequestTimeout",
    "seccompDefault",
    "serializeImagePulls",
    "serverTLSBootstrap",
    "showHiddenMetricsForVersion",
    "shutdownGracePeriod",
    "shutdownGracePeriodByPodPriority",
    "shutdownGracePeriodCriticalPods",
    "staticPodPath",
    "staticPodURL",
];

fn check_map(
    field: &str,
    value: &Value,
    errors: &mut Vec<KubeletError>,
    mut each: impl FnMut(&str, &str, &str, &mut Vec<KubeletError>),
) {
    let Some(entries) = value.as_object() else {
        errors.push(invalid(field, "must be a map of texts"));
        return;
    };
    for (key, value) in entries {
        let path = format!("{field}[{key}]");
        match value.as_str() {
            Some(text) => each(&path, key, text, errors),
            None => errors.push(invalid(path, format!("{value} must be a text"))),
        }
    }
}

fn check_signal(path: &str, key: &str, errors: &mut Vec<KubeletError>) {
    if !SIGNALS.contains(&key) {
        errors.push(invalid(
            path,
            format!("unknown signal, expected one of {}", SIGNALS.join(", ")),
        ));
    }
}

fn is_threshold(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => percent
            .parse::<f64>()
            .is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
        None => text
            .parse::<Quantity>()
            .is_ok_and(|quantity| quantity.milli() >= 0),
    }
}

/// Whether a text that is no quantity was meant as an expression (A1.4): it computes or names one of the variables.
fn looks_like_an_expression(text: &str) -> bool {
    text.contains(['(', '*', '+', '/'])
        || ["vcpus", "memory_mib", "default_enis", "ips_per_eni", "max_pods"]
            .iter()
            .any(|variable| text.contains(variable))
}

fn check_family(field: &str, value: &Value, family: &AmiFamily, errors: &mut Vec<KubeletError>) {
    let unsupported = |hint| KubeletError::Unsupported {
        field: field.to_owned(),
        family: family.as_str().to_owned(),
        hint,
    };
    if matches!(family, AmiFamily::Custom | AmiFamily::Al2023) {
        return;
    }
    if !MANAGED.contains(&field) && field != "registerWithTaints" {
        errors.push(unsupported("; use an AL2023 image or user data"));
    } else if field == "podsPerCore" && *family == AmiFamily::Bottlerocket {
        errors.push(unsupported("; use maxPods"));
    } else if field == "clusterDNS" && value.as_array().is_some_and(|list| list.len() > 1) {
        errors.push(unsupported(" with more than one address"));
    }
}

fn keys(fields: &Map<String, Value>, field: &str) -> Vec<String> {
    let entries = fields.get(field).and_then(Value::as_object);
    entries
        .into_iter()
        .flat_map(|entries| entries.keys().cloned())
        .collect()
}

fn check_soft_eviction(fields: &Map<String, Value>, errors: &mut Vec<KubeletError>) {
    let (soft, grace) = (
        keys(fields, "evictionSoft"),
        keys(fields, "evictionSoftGracePeriod"),
    );
    for key in soft.iter().filter(|key| !grace.contains(key)) {
        errors.push(invalid(
            format!("evictionSoft[{key}]"),
            "needs an entry in evictionSoftGracePeriod",
        ));
    }
    for key in grace.iter().filter(|key| !soft.contains(key)) {
        errors.push(invalid(
            format!("evictionSoftGracePeriod[{key}]"),
            "needs an entry in evictionSoft",
        ));
    }
}

fn check_image_collection(fields: &Map<String, Value>, errors: &mut Vec<KubeletError>) {
    let percent = |field: &str| fields.get(field).and_then(Value::as_i64);
    if let (Some(high), Some(low)) = (
        percent("imageGCHighThresholdPercent"),
        percent("imageGCLowThresholdPercent"),
    ) && high <= low
    {
        errors.push(invalid(
            "imageGCHighThresholdPercent",
            format!("{high} must be greater than imageGCLowThresholdPercent, which is {low}"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(block: &Value, family: &AmiFamily) -> Vec<String> {
        check(Some(block), family)
            .iter()
            .map(|error| format!("{}: {error}", error.reason()))
            .collect()
    }

    #[test]
    fn a_006_every_rule_of_the_kubelet_block_names_its_field() {
        let cases = [
            (
                json!({"noSuchField": 1}),
                "InvalidKubeletConfiguration: spec.kubelet.noSuchField: unknown field of KubeletConfiguration",
            ),
            (
                json!({"registerWithTaints": []}),
                "InvalidKubeletConfiguration: spec.kubelet.registerWithTaints: may not be set: taints come from the NodePool and the NodeClaim",
            ),
            (
                json!({"evictionHard": {"memory.free": "5%"}}),
                "InvalidKubeletConfiguration: spec.kubelet.evictionHard[memory.free]: unknown signal, expected one of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available",
            ),
            (
                json!({"evictionHard": {"memory.available": "101%"}}),
                "InvalidKubeletConfiguration: spec.kubelet.evictionHard[memory.available]: \"101%\" is neither a percentage from 0% to 100% nor a quantity of 0 or more",
            ),
            (
                json!({"evictionHard": {"memory.available": "-1Mi"}}),
                "InvalidKubeletConfiguration: spec.kubelet.evictionHard[memory.available]: \"-1Mi\" is neither a percentage from 0% to 100% nor a quantity of 0 or more",
            ),
            (
                json!({"evictionSoft": {"memory.available": "5%"}}),
                "InvalidKubeletConfiguration: spec.kubelet.evictionSoft[memory.available]: needs an entry in evictionSoftGracePeriod",
            ),
            (
                json!({"evictionSoftGracePeriod": {"memory.available": "1m"}}),
                "InvalidKubeletConfiguration: spec.kubelet.evictionSoftGracePeriod[memory.available]: needs an entry in evictionSoft",
            ),
            (
                json!({"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "soon"}}),
                "InvalidKubeletConfiguration: spec.kubelet.evictionSoftGracePeriod[memory.available]: \"soon\" is not a duration such as 1m30s",
            ),
            (
                json!({"kubeReserved": {"gpu": "1"}}),
                "InvalidKubeletConfiguration: spec.kubelet.kubeReserved[gpu]: unknown resource, expected one of cpu, memory, ephemeral-storage, pid",
            ),
            (
                json!({"systemReserved": {"cpu": "-100m"}}),
                "InvalidKubeletConfiguration: spec.kubelet.systemReserved[cpu]: \"-100m\" must not be negative",
            ),
            (
                json!({"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}),
                "InvalidKubeletConfiguration: spec.kubelet.imageGCHighThresholdPercent: 50 must be greater than imageGCLowThresholdPercent, which is 50",
            ),
            (
                json!({"imageGCLowThresholdPercent": 101}),
                "InvalidKubeletConfiguration: spec.kubelet.imageGCLowThresholdPercent: 101 is not a whole number from 0 to 100",
            ),
            (
                json!({"podsPerCore": -1}),
                "InvalidKubeletConfiguration: spec.kubelet.podsPerCore: -1 is not a whole number of 0 or more",
            ),
        ];
        for (block, expected) in cases {
            assert_eq!(errors(&block, &AmiFamily::Al2023), [expected], "{block}");
        }
        let good = json!({"maxPods": 30, "kubeReserved": {"cpu": "100m", "pid": "100"}, "evictionHard": {"memory.available": "3.33%", "nodefs.available": "1Gi"}, "cpuManagerPolicy": "static", "clusterDNS": ["10.0.0.1", "10.0.0.2"]});
        assert!(errors(&good, &AmiFamily::Al2023).is_empty());
        assert!(errors(&good, &AmiFamily::Custom).is_empty());
    }

    #[test]
    fn a_006_other_families_carry_only_managed_fields() {
        for (block, family, field) in [
            (
                json!({"cpuManagerPolicy": "static"}),
                AmiFamily::Bottlerocket,
                "cpuManagerPolicy",
            ),
            (json!({"podsPerCore": 3}), AmiFamily::Bottlerocket, "podsPerCore"),
            (
                json!({"clusterDNS": ["10.0.0.1", "10.0.0.2"]}),
                AmiFamily::Al2,
                "clusterDNS",
            ),
        ] {
            let errors = check(Some(&block), &family);
            assert_eq!(errors.len(), 1, "{block}");
            assert_eq!(errors[0].reason(), "UnsupportedKubeletConfiguration");
            assert!(errors[0].to_string().contains(field) && errors[0].to_string().contains(family.as_str()));
        }
        assert!(errors(&json!({"podsPerCore": 3}), &AmiFamily::Al2).is_empty());
    }

    #[test]
    fn a_009_expressions_are_refused_by_name() {
        for block in [
            json!({"maxPods": "default_enis * (ips_per_eni - 1)"}),
            json!({"kubeReserved": {"memory": "11 * max_pods + 255"}}),
        ] {
            let errors = check(Some(&block), &AmiFamily::Al2023);
            assert_eq!(errors.len(), 1, "{block}");
            assert_eq!(errors[0].reason(), "KubeletExpressionsDisabled");
        }
    }

    #[test]
    fn the_list_of_fields_is_sorted_for_its_search() {
        assert!(CONFIGURATION_FIELDS.is_sorted());
    }
}
