//! What fields of an AKSNodeClass become in a machine that AKS makes (Z6.4, Z-040): kubelet, Linux, DNS on the node.
//!
//! Owns the names and units of Microsoft.ContainerService for them. [`aks_machines`](crate::aks_machines) puts them into a machine.

use serde_json::{Map, Value, json};
use spokeshave_api::aks_node_class::KubeletConfiguration;
use spokeshave_api::{AKSNodeClass, GoDuration, Quantity};

/// Kernel parameters: as the class names them, and as AKS does where that differs.
const SYSCTLS: [(&str, &str); 28] = [
    ("fsAioMaxNr", "fsAioMaxNr"),
    ("fsFileMax", "fsFileMax"),
    ("fsInotifyMaxUserWatches", "fsInotifyMaxUserWatches"),
    ("fsNrOpen", "fsNrOpen"),
    ("kernelThreadsMax", "kernelThreadsMax"),
    ("netCoreNetdevMaxBacklog", "netCoreNetdevMaxBacklog"),
    ("netCoreOptmemMax", "netCoreOptmemMax"),
    ("netCoreRmemDefault", "netCoreRmemDefault"),
    ("netCoreRmemMax", "netCoreRmemMax"),
    ("netCoreSomaxconn", "netCoreSomaxconn"),
    ("netCoreWmemDefault", "netCoreWmemDefault"),
    ("netCoreWmemMax", "netCoreWmemMax"),
    ("netIPv4IPLocalPortRange", "netIpv4IpLocalPortRange"),
    ("netIPv4NeighDefaultGcThresh1", "netIpv4NeighDefaultGcThresh1"),
    ("netIPv4NeighDefaultGcThresh2", "netIpv4NeighDefaultGcThresh2"),
    ("netIPv4NeighDefaultGcThresh3", "netIpv4NeighDefaultGcThresh3"),
    ("netIPv4TCPFinTimeout", "netIpv4TcpFinTimeout"),
    ("netIPv4TCPKeepaliveIntvl", "netIpv4TcpkeepaliveIntvl"),
    ("netIPv4TCPKeepaliveProbes", "netIpv4TcpKeepaliveProbes"),
    ("netIPv4TCPKeepaliveTime", "netIpv4TcpKeepaliveTime"),
    ("netIPv4TCPMaxSynBacklog", "netIpv4TcpMaxSynBacklog"),
    ("netIPv4TCPMaxTwBuckets", "netIpv4TcpMaxTwBuckets"),
    ("netIPv4TCPTwReuse", "netIpv4TcpTwReuse"),
    ("netNetfilterNfConntrackBuckets", "netNetfilterNfConntrackBuckets"),
    ("netNetfilterNfConntrackMax", "netNetfilterNfConntrackMax"),
    ("vmMaxMapCount", "vmMaxMapCount"),
    ("vmSwappiness", "vmSwappiness"),
    ("vmVfsCachePressure", "vmVfsCachePressure"),
];
/// Fields of an override of DNS that AKS names as the class does.
const SAME_DNS_FIELDS: [&str; 6] = [
    "queryLogging",
    "protocol",
    "forwardDestination",
    "forwardPolicy",
    "maxConcurrent",
    "serveStale",
];
/// Durations of an override, which AKS takes in seconds.
const DNS_DURATIONS: [(&str, &str); 2] = [
    ("cacheDuration", "cacheDurationInSeconds"),
    ("serveStaleDuration", "serveStaleDurationInSeconds"),
];
const OVERRIDES: [&str; 2] = ["vnetDNSOverrides", "kubeDNSOverrides"];
const BYTES_IN_MIB: i64 = 1 << 20;

/// What a field becomes, and the fields of the class that have no meaning to AKS.
#[derive(Debug, Default)]
struct Converted {
    fields: Map<String, Value>,
    unknown: Vec<String>,
}

impl Converted {
    fn put(&mut self, field: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.fields.insert(field.to_owned(), value);
        }
    }

    fn value(self) -> Option<Value> {
        (!self.fields.is_empty()).then_some(Value::Object(self.fields))
    }
}

/// A size in MiB, rounded as Karpenter's provider does.
fn mebibytes(text: &str) -> Option<i64> {
    let bytes = text.parse::<Quantity>().ok()?.to_units();
    Some(bytes.saturating_add(BYTES_IN_MIB / 2) / BYTES_IN_MIB)
}

/// Configuration of the kubelet; `None` for a class that says nothing about it.
#[must_use]
pub fn kubelet_config(kubelet: &KubeletConfiguration) -> Option<Value> {
    let mut to = Converted::default();
    let text = |value: &Option<String>| value.as_ref().filter(|it| !it.is_empty()).map(|it| json!(it));
    to.put("cpuManagerPolicy", text(&kubelet.cpu_manager_policy));
    to.put("cpuCfsQuota", kubelet.cpu_cfs_quota.map(Value::from));
    to.put("cpuCfsQuotaPeriod", text(&kubelet.cpu_cfs_quota_period));
    to.put(
        "imageGcHighThreshold",
        kubelet.image_gc_high_threshold_percent.map(Value::from),
    );
    to.put(
        "imageGcLowThreshold",
        kubelet.image_gc_low_threshold_percent.map(Value::from),
    );
    to.put("topologyManagerPolicy", text(&kubelet.topology_manager_policy));
    let sysctls = &kubelet.allowed_unsafe_sysctls;
    to.put(
        "allowedUnsafeSysctls",
        (!sysctls.is_empty()).then(|| json!(sysctls)),
    );
    let size = kubelet.container_log_max_size.as_deref().and_then(mebibytes);
    to.put("containerLogMaxSizeMB", size.map(Value::from));
    to.put(
        "containerLogMaxFiles",
        kubelet.container_log_max_files.map(Value::from),
    );
    // AKS takes 32 bits, and -1 for no limit.
    let pids = kubelet
        .pod_pids_limit
        .map(|limit| limit.clamp(-1, i64::from(i32::MAX)));
    to.put("podMaxPids", pids.map(Value::from));
    to.put("failSwapOn", kubelet.fail_swap_on.map(Value::from));
    to.value()
}

fn linux(class: &AKSNodeClass) -> Converted {
    let mut to = Converted::default();
    let config = class.spec.linux_os_config.as_ref().and_then(Value::as_object);
    for (field, value) in config.into_iter().flatten() {
        match field.as_str() {
            "swapFileSize" => {
                let size = value.as_str().filter(|it| !it.is_empty()).map(mebibytes);
                match size {
                    Some(None) => to.unknown.push(field.clone()),
                    size => to.put("swapFileSizeMB", size.flatten().map(Value::from)),
                }
            }
            "transparentHugePageEnabled" | "transparentHugePageDefrag" => to.put(field, Some(value.clone())),
            "sysctls" => {
                let sysctls = sysctls(value, &mut to.unknown);
                to.put("sysctls", sysctls.value());
            }
            _ => to.unknown.push(field.clone()),
        }
    }
    to
}

fn sysctls(value: &Value, unknown: &mut Vec<String>) -> Converted {
    let mut to = Converted::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        match SYSCTLS.iter().find(|(own, _)| own == name) {
            Some((_, theirs)) => to.put(theirs, Some(value.clone())),
            None => unknown.push(format!("sysctls.{name}")),
        }
    }
    to
}

/// Configuration of Linux; `None` for a class that says nothing about it.
#[must_use]
pub fn linux_os_config(class: &AKSNodeClass) -> Option<Value> {
    linux(class).value()
}

/// How the class wants DNS on the node: `Required`, `Preferred`, `Disabled`; `None` when it says nothing.
#[must_use]
pub fn local_dns_mode(class: &AKSNodeClass) -> Option<&str> {
    class.spec.local_dns.as_ref()?.get("mode")?.as_str()
}

fn dns(class: &AKSNodeClass) -> Converted {
    let mut to = Converted::default();
    let Some(dns) = class.spec.local_dns.as_ref().and_then(Value::as_object) else {
        return to;
    };
    // It is off where it is only preferred, and AKS is not left to decide otherwise.
    let mode = local_dns_mode(class).map(|mode| if mode == "Preferred" { "Disabled" } else { mode });
    to.put("mode", mode.map(Value::from));
    for (field, value) in dns {
        if field == "mode" {
            continue;
        }
        if !OVERRIDES.contains(&field.as_str()) {
            to.unknown.push(field.clone());
            continue;
        }
        let mut zones = Map::new();
        for one in value.as_array().into_iter().flatten() {
            let zone = one["zone"].as_str().unwrap_or_default();
            let converted = dns_override(one);
            let at = format!("{field}[{zone}]");
            to.unknown
                .extend(converted.unknown.iter().map(|name| format!("{at}.{name}")));
            zones.insert(zone.to_owned(), Value::Object(converted.fields));
        }
        to.put(field, (!zones.is_empty()).then_some(Value::Object(zones)));
    }
    to
}

fn dns_override(one: &Value) -> Converted {
    let mut to = Converted::default();
    for (field, value) in one.as_object().into_iter().flatten() {
        if field == "zone" {
            continue;
        }
        if SAME_DNS_FIELDS.contains(&field.as_str()) {
            to.put(field, Some(value.clone()));
            continue;
        }
        let theirs = DNS_DURATIONS.iter().find(|(own, _)| own == field);
        let duration = value.as_str().and_then(|text| text.parse::<GoDuration>().ok());
        match (theirs, duration) {
            (Some((_, theirs)), Some(duration)) => {
                to.put(theirs, Some(json!(duration.to_signed().as_secs())))
            }
            _ => to.unknown.push(field.clone()),
        }
    }
    to
}

/// DNS on the node; `None` for a class that says nothing about it.
#[must_use]
pub fn local_dns_profile(class: &AKSNodeClass) -> Option<Value> {
    dns(class).value()
}

/// Fields of the spec that AKS has no place for, or whose value it could not take.
#[must_use]
pub fn without_meaning(class: &AKSNodeClass) -> Vec<String> {
    let of = |prefix: &str, unknown: Vec<String>| -> Vec<String> {
        unknown.iter().map(|it| format!("spec.{prefix}.{it}")).collect()
    };
    let mut fields = of("linuxOSConfig", linux(class).unknown);
    fields.extend(of("localDNS", dns(class).unknown));
    let size = class
        .spec
        .kubelet
        .as_ref()
        .and_then(|it| it.container_log_max_size.as_deref());
    if size.is_some_and(|size| !size.is_empty() && mebibytes(size).is_none()) {
        fields.push("spec.kubelet.containerLogMaxSize".to_owned());
    }
    fields
}
