//! The definition of AKSNodeClass v1beta1 (Z1.1 to Z1.3).
//!
//! Accepts exactly what upstream accepts, including quirks: FIPS is rejected where `imageFamily` is absent, which its default hides.

use serde_json::{Map, Value, json};

use super::shared::{self, rule};
use super::{Definition, column, wide_column};
use crate::AKSNodeClass;

const SUBNET_PATTERN: &str = r"(?i)^\/subscriptions\/[^\/]+\/resourceGroups\/[a-zA-Z0-9_\-().]{0,89}[a-zA-Z0-9_\-()]\/providers\/Microsoft\.Network\/virtualNetworks\/[^\/]+\/subnets\/[^\/]+$";
const SIZE_PATTERN: &str = r"^\d+(E|P|T|G|M|K|Ei|Pi|Ti|Gi|Mi|Ki)$";
const ZONE_PATTERN: &str = r"^(\.|[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*\.?)$";

/// Sysctls that are numbers: field, least, most, and what each bounds.
const SYSCTLS: [(&str, i64, i64, &str); 25] = [
    (
        "fsAioMaxNr",
        65_536,
        6_553_500,
        "Maximum number of asynchronous I/O requests.",
    ),
    ("fsFileMax", 8192, 12_000_500, "Maximum number of open files."),
    (
        "fsInotifyMaxUserWatches",
        781_250,
        2_097_152,
        "Maximum number of inotify watches per user.",
    ),
    (
        "fsNrOpen",
        8192,
        20_000_500,
        "Maximum number of open files per process.",
    ),
    ("kernelThreadsMax", 20, 513_785, "Maximum number of threads."),
    (
        "netCoreNetdevMaxBacklog",
        1000,
        3_240_000,
        "Maximum number of packets queued for the kernel.",
    ),
    (
        "netCoreOptmemMax",
        20_480,
        4_194_304,
        "Maximum ancillary buffer size per socket.",
    ),
    (
        "netCoreRmemDefault",
        212_992,
        134_217_728,
        "Default receive buffer of a socket.",
    ),
    (
        "netCoreRmemMax",
        212_992,
        134_217_728,
        "Largest receive buffer of a socket.",
    ),
    (
        "netCoreSomaxconn",
        4096,
        3_240_000,
        "Maximum number of connections waiting to be accepted.",
    ),
    (
        "netCoreWmemDefault",
        212_992,
        134_217_728,
        "Default send buffer of a socket.",
    ),
    (
        "netCoreWmemMax",
        212_992,
        134_217_728,
        "Largest send buffer of a socket.",
    ),
    (
        "netIPv4NeighDefaultGcThresh1",
        128,
        80_000,
        "Number of neighbor entries that are never garbage-collected.",
    ),
    (
        "netIPv4NeighDefaultGcThresh2",
        512,
        90_000,
        "Number of neighbor entries above which old ones are garbage-collected aggressively.",
    ),
    (
        "netIPv4NeighDefaultGcThresh3",
        1024,
        100_000,
        "Maximum number of neighbor entries.",
    ),
    (
        "netIPv4TCPFinTimeout",
        5,
        120,
        "Seconds that an orphaned connection waits.",
    ),
    (
        "netIPv4TCPKeepaliveIntvl",
        10,
        90,
        "Seconds between probes of an idle connection.",
    ),
    (
        "netIPv4TCPKeepaliveProbes",
        1,
        15,
        "Probes before a connection is dropped.",
    ),
    (
        "netIPv4TCPKeepaliveTime",
        30,
        432_000,
        "Idle seconds before the first probe.",
    ),
    (
        "netIPv4TCPMaxSynBacklog",
        128,
        3_240_000,
        "Maximum number of connections being opened.",
    ),
    (
        "netIPv4TCPMaxTwBuckets",
        8000,
        1_440_000,
        "Maximum number of connections in TIME_WAIT.",
    ),
    (
        "netNetfilterNfConntrackBuckets",
        65_536,
        524_288,
        "Size of the table of tracked connections.",
    ),
    (
        "netNetfilterNfConntrackMax",
        131_072,
        2_097_152,
        "Maximum number of tracked connections.",
    ),
    (
        "vmMaxMapCount",
        65_530,
        262_144,
        "Maximum number of memory maps per process.",
    ),
    ("vmSwappiness", 0, 100, "Tendency to swap memory out."),
];

pub(super) fn crd() -> Value {
    Definition {
        group: AKSNodeClass::GROUP,
        version: AKSNodeClass::VERSION,
        kind: AKSNodeClass::KIND,
        plural: AKSNodeClass::PLURAL,
        namespaced: false,
        categories: &["karpenter", "nap"],
        short_names: &["aksnc", "aksncs"],
        columns: vec![
            column(
                "Ready",
                "string",
                ".status.conditions[?(@.type==\"Ready\")].status",
            ),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide_column("ImageFamily", "string", ".spec.imageFamily"),
        ],
        scale: None,
        schema: shared::object_without_required_spec(
            "How Azure virtual machines are launched.",
            &spec(),
            &status(),
        ),
    }
    .build()
}

fn text_like(description: &str, pattern: &str) -> Value {
    json!({"description": description, "type": "string", "pattern": pattern})
}

fn one_of(description: &str, values: &[&str]) -> Value {
    json!({"description": description, "type": "string", "enum": values})
}

fn flag(description: &str) -> Value {
    json!({"description": description, "type": "boolean"})
}

fn number(description: &str, minimum: i64, maximum: i64) -> Value {
    json!({"description": description, "type": "integer", "format": "int32", "minimum": minimum, "maximum": maximum})
}

fn object(description: &str, properties: &Value) -> Value {
    json!({"description": description, "type": "object", "properties": properties})
}

fn with_default(mut schema: Value, default: Value) -> Value {
    schema["default"] = default;
    schema
}

fn with_rules(mut schema: Value, rules: &[Value]) -> Value {
    schema["x-kubernetes-validations"] = json!(rules);
    schema
}

fn spec() -> Value {
    let fips = "has(self.fipsMode) && self.fipsMode == 'FIPS'";
    let trusted = "has(self.security) && has(self.security.trustedLaunch) && ((has(self.security.trustedLaunch.vtpm) && self.security.trustedLaunch.vtpm) || (has(self.security.trustedLaunch.secureBoot) && self.security.trustedLaunch.secureBoot))";
    let properties = json!({
        "vnetSubnetID": text_like("ARM resource ID of the subnet. Default: the subnet of the settings. Change it only to correct a wrong value.", SUBNET_PATTERN),
        "osDiskSizeGB": with_default(number("Size of the disk of the operating system in GB.", 30, 2048), json!(128)),
        "imageFamily": with_default(one_of("Operating system of the nodes.", &["Ubuntu", "Ubuntu2204", "Ubuntu2404", "AzureLinux"]), json!("Ubuntu")),
        "fipsMode": one_of("Whether only validated cryptography is used.", &["FIPS", "Disabled"]),
        "tags": tags(),
        "maxPods": number("Maximum number of pods per node. Default: what the network plugin allows.", 10, 250),
        "kubelet": kubelet(),
        "security": object("Encryption at host and trusted launch.", &json!({
            "encryptionAtHost": flag("Whether disks are encrypted at the host. Only sizes that support it are used."),
            "trustedLaunch": object("Trusted launch, for generation 2 sizes and images.", &json!({
                "vtpm": flag("A virtual trusted platform module."),
                "secureBoot": flag("Secure boot: only signed code may boot."),
            })),
        })),
        "gpu": object("Drivers of GPUs.", &json!({
            "mode": with_default(one_of("Whether a driver is installed.", &["Driver", "None"]), json!("Driver")),
        })),
        "artifactStreaming": object("Artifact streaming of images.", &json!({"enabled": flag("Whether it is on. Not for arm64.")})),
        "localDNS": local_dns(),
        "linuxOSConfig": linux_os_config(),
    });
    let mut schema = object("Configuration of the machines.", &properties);
    schema["x-kubernetes-validations"] = json!([
        rule(
            &format!("!({fips}) || (has(self.imageFamily) && self.imageFamily != 'Ubuntu2404')"),
            "FIPS is not yet supported for Ubuntu2404",
        ),
        rule(
            &format!(
                "!({fips}) || (has(self.imageFamily) && (self.imageFamily != 'Ubuntu2204' || ({trusted})))"
            ),
            "TrustedLaunch is required for FIPS support with Ubuntu2204",
        ),
        rule(
            &format!(
                "!({fips} && {trusted}) || !has(self.imageFamily) || self.imageFamily in ['Ubuntu', 'Ubuntu2204']"
            ),
            "TrustedLaunch with FIPSMode FIPS is only supported for Ubuntu and Ubuntu2204",
        ),
        rule(
            "!has(self.linuxOSConfig) || !has(self.linuxOSConfig.swapFileSize) || (has(self.kubelet) && has(self.kubelet.failSwapOn) && !self.kubelet.failSwapOn)",
            "kubelet.failSwapOn must be set to false when linuxOSConfig.swapFileSize is specified",
        ),
    ]);
    schema
}

fn tags() -> Value {
    with_rules(
        json!({"description": "Tags of all created resources.", "type": "object", "additionalProperties": {"type": "string"}}),
        &[
            rule(
                "self.all(k, size(k) <= 512)",
                "tags keys must be less than 512 characters",
            ),
            rule(
                "self.all(k, !k.matches('[<>%&?]'))",
                "tags keys must not contain '<', '>', '%', '&', or '?'",
            ),
            rule(
                r"self.all(k, !k.contains('\\'))",
                r"tags keys must not contain '\'",
            ),
            rule(
                "self.all(k, size(self[k]) <= 256)",
                "tags values must be less than 256 characters",
            ),
        ],
    )
}

fn kubelet() -> Value {
    let properties = json!({
        "cpuManagerPolicy": with_default(one_of("Whether containers may get exclusive CPUs.", &["none", "static"]), json!("none")),
        "cpuCFSQuota": with_default(flag("Whether limits of CPU are enforced."), json!(true)),
        "cpuCFSQuotaPeriod": {"description": "Period over which limits of CPU are enforced.", "type": "string", "default": "100ms"},
        "imageGCHighThresholdPercent": number("Disk usage, in percent, above which image garbage collection runs.", 0, 100),
        "imageGCLowThresholdPercent": number("Disk usage, in percent, down to which image garbage collection frees space.", 0, 100),
        "topologyManagerPolicy": with_default(one_of("Topology manager policy, which aligns resources to NUMA nodes.", &["restricted", "best-effort", "none", "single-numa-node"]), json!("none")),
        "allowedUnsafeSysctls": {"description": "Unsafe sysctls that pods may set.", "type": "array", "items": {"type": "string"}},
        "containerLogMaxSize": with_default(text_like("Size of a container's log at which it is rotated.", SIZE_PATTERN), json!("50Mi")),
        "containerLogMaxFiles": {"description": "Number of log files of a container.", "type": "integer", "format": "int32", "minimum": 2, "default": 5},
        "podPidsLimit": {"description": "Maximum number of processes per pod.", "type": "integer", "format": "int64"},
        "failSwapOn": flag("Whether the kubelet refuses to start if swap is enabled."),
    });
    with_rules(
        object("Configuration of the kubelet.", &properties),
        &[rule(
            "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
            "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
        )],
    )
}

/// Overrides of one kind, with the rules that only this kind has.
fn dns_overrides(description: &str, more_rules: &[Value]) -> Value {
    let duration = |description| text_like(description, shared::DURATION_PATTERN);
    let properties = json!({
        "zone": {"description": "Domain, or . for all others.", "type": "string", "minLength": 1, "maxLength": 254, "pattern": ZONE_PATTERN},
        "queryLogging": one_of("What is logged.", &["Error", "Log"]),
        "protocol": one_of("Transport of queries.", &["PreferUDP", "ForceTCP"]),
        "forwardDestination": one_of("Where queries are forwarded to.", &["ClusterCoreDNS", "VnetDNS"]),
        "forwardPolicy": one_of("How a server is chosen.", &["Sequential", "RoundRobin", "Random"]),
        "maxConcurrent": {"description": "Maximum number of concurrent queries.", "type": "integer", "format": "int32", "minimum": 0},
        "cacheDuration": duration("How long answers are cached."),
        "serveStale": one_of("Whether stale answers are served when no server responds.", &["Verify", "Immediate", "Disable"]),
        "serveStaleDuration": duration("How long stale answers are served."),
    });
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    let mut items = object("DNS settings of one domain.", &properties);
    items["required"] = json!(required);
    items["x-kubernetes-validations"] = json!([
        rule(
            "!(self.zone.endsWith('cluster.local') && self.forwardDestination == 'VnetDNS')",
            "'cluster.local' cannot be forwarded to VnetDNS",
        ),
        rule(
            "!(self.serveStale == 'Verify' && self.protocol == 'ForceTCP')",
            "serveStale Verify cannot be used with protocol ForceTCP",
        ),
    ]);
    let mut rules = vec![rule(
        "['.', 'cluster.local'].all(z, self.exists(x, x.zone == z))",
        "must contain required zones '.' and 'cluster.local'",
    )];
    rules.extend_from_slice(more_rules);
    json!({
        "description": description,
        "type": "array",
        "maxItems": 100,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["zone"],
        "x-kubernetes-validations": rules,
        "items": items,
    })
}

fn local_dns() -> Value {
    let mut schema = object(
        "Node-local DNS.",
        &json!({
            "mode": one_of("Whether there is Node-local DNS.", &["Preferred", "Required", "Disabled"]),
            "vnetDNSOverrides": dns_overrides("For pods that use the DNS of the virtual network.", &[
                rule(
                    "!self.exists(x, x.zone == '.' && x.forwardDestination == 'ClusterCoreDNS')",
                    "root zone '.' cannot be forwarded to ClusterCoreDNS from vnetDNSOverrides",
                ),
                rule(
                    "!self.exists(x, x.zone != '.' && !x.zone.endsWith('cluster.local') && x.forwardDestination == 'ClusterCoreDNS')",
                    "external domains cannot be forwarded to ClusterCoreDNS from vnetDNSOverrides",
                ),
            ]),
            "kubeDNSOverrides": dns_overrides("For pods that use the DNS of the cluster.", &[]),
        }),
    );
    schema["required"] = json!(["kubeDNSOverrides", "mode", "vnetDNSOverrides"]);
    schema
}

fn linux_os_config() -> Value {
    let mut sysctls: Map<String, Value> = SYSCTLS
        .iter()
        .map(|(field, minimum, maximum, description)| {
            ((*field).to_owned(), number(description, *minimum, *maximum))
        })
        .collect();
    sysctls.insert(
        "vmVfsCachePressure".to_owned(),
        number("Tendency to reclaim memory from directory caches.", 0, 100),
    );
    sysctls.insert(
        "netIPv4IPLocalPortRange".to_owned(),
        text_like("First and last port of outgoing connections.", r"^\d+ \d+$"),
    );
    sysctls.insert(
        "netIPv4TCPTwReuse".to_owned(),
        flag("Whether connections in TIME_WAIT are used again."),
    );
    let ordered = |lower: &str, upper: &str| {
        rule(
            &format!("!has(self.{lower}) || !has(self.{upper}) || self.{lower} <= self.{upper}"),
            &format!("{lower} must be <= {upper}"),
        )
    };
    let port = |index: usize| format!("int(self.netIPv4IPLocalPortRange.split(' ')[{index}])");
    let ports = |condition: &str, message: &str| {
        rule(
            &format!("!has(self.netIPv4IPLocalPortRange) || ({condition})"),
            &format!("netIPv4IPLocalPortRange {message}"),
        )
    };
    let rules = [
        ordered("netCoreRmemDefault", "netCoreRmemMax"),
        ordered("netCoreWmemDefault", "netCoreWmemMax"),
        ordered("netIPv4NeighDefaultGcThresh1", "netIPv4NeighDefaultGcThresh2"),
        ordered("netIPv4NeighDefaultGcThresh2", "netIPv4NeighDefaultGcThresh3"),
        ports(
            &format!("{0} >= 1024 && {0} <= 60999", port(0)),
            "first port must be in [1024, 60999]",
        ),
        ports(
            &format!("{0} >= 32768 && {0} <= 65535", port(1)),
            "last port must be in [32768, 65535]",
        ),
        ports(
            &format!("{} <= {}", port(0), port(1)),
            "first port must be <= last port",
        ),
    ];
    object(
        "Swap, huge pages and sysctls.",
        &json!({
            "swapFileSize": text_like("Size of the swap file.", SIZE_PATTERN),
            "transparentHugePageEnabled": one_of("When huge pages are used.", &["always", "madvise", "never"]),
            "transparentHugePageDefrag": one_of("When memory is defragmented for huge pages.", &["always", "defer", "defer+madvise", "madvise", "never"]),
            "sysctls": with_rules(object("Settings of the kernel.", &Value::Object(sysctls)), &rules),
        }),
    )
}

fn status() -> Value {
    let requirement = json!({
        "description": "One requirement on the labels of a node.",
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"description": "The label key.", "type": "string"},
            "operator": {"description": "How the label is compared.", "type": "string"},
            "values": {"description": "The values to compare with.", "type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
        },
    });
    object(
        "What the class resolved to.",
        &json!({
            "images": {
                "description": "Images, in order of preference.",
                "type": "array",
                "items": {
                    "description": "An image, and the machines that it applies to.",
                    "type": "object",
                    "required": ["id", "requirements"],
                    "properties": {
                        "id": {"description": "ID of the image.", "type": "string"},
                        "requirements": {"description": "Requirements that a machine must meet.", "type": "array", "items": requirement},
                    },
                },
            },
            "kubernetesVersion": {"description": "Version of Kubernetes that new nodes get.", "type": "string"},
            "localDNSState": one_of("Whether nodes use node-local DNS.", &["Enabled", "Disabled"]),
            "conditions": shared::conditions(false),
        }),
    )
}
