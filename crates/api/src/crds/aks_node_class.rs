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
    ("fsAioMaxNr", 65_536, 6_553_500, "Most asynchronous requests."),
    ("fsFileMax", 8192, 12_000_500, "Most open files."),
    (
        "fsInotifyMaxUserWatches",
        781_250,
        2_097_152,
        "Most watches of files of a user.",
    ),
    ("fsNrOpen", 8192, 20_000_500, "Most open files of a process."),
    ("kernelThreadsMax", 20, 513_785, "Most threads."),
    (
        "netCoreNetdevMaxBacklog",
        1000,
        3_240_000,
        "Most packets that wait for the kernel.",
    ),
    (
        "netCoreOptmemMax",
        20_480,
        4_194_304,
        "Most option memory of a socket.",
    ),
    (
        "netCoreRmemDefault",
        212_992,
        134_217_728,
        "Usual receive buffer of a socket.",
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
        "Most connections that wait to be accepted.",
    ),
    (
        "netCoreWmemDefault",
        212_992,
        134_217_728,
        "Usual send buffer of a socket.",
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
        "Neighbours that are always kept.",
    ),
    (
        "netIPv4NeighDefaultGcThresh2",
        512,
        90_000,
        "Neighbours above which old ones go soon.",
    ),
    ("netIPv4NeighDefaultGcThresh3", 1024, 100_000, "Most neighbours."),
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
        "Seconds between probes of a quiet connection.",
    ),
    (
        "netIPv4TCPKeepaliveProbes",
        1,
        15,
        "Probes before a connection is given up.",
    ),
    (
        "netIPv4TCPKeepaliveTime",
        30,
        432_000,
        "Seconds of quiet before the first probe.",
    ),
    (
        "netIPv4TCPMaxSynBacklog",
        128,
        3_240_000,
        "Most connections that are being opened.",
    ),
    (
        "netIPv4TCPMaxTwBuckets",
        8000,
        1_440_000,
        "Most connections in TIME_WAIT.",
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
        "Most tracked connections.",
    ),
    ("vmMaxMapCount", 65_530, 262_144, "Most memory maps of a process."),
    ("vmSwappiness", 0, 100, "How readily memory is swapped out."),
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
            "What Azure machines are made from.",
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
        "vnetSubnetID": text_like("ARM resource ID of the subnet. By default that of the settings. Change it only to mend a wrong one.", SUBNET_PATTERN),
        "osDiskSizeGB": with_default(number("Size of the disk of the operating system in GB.", 30, 2048), json!(128)),
        "imageFamily": with_default(one_of("Operating system of the nodes.", &["Ubuntu", "Ubuntu2204", "Ubuntu2404", "AzureLinux"]), json!("Ubuntu")),
        "fipsMode": one_of("Whether only validated cryptography is used.", &["FIPS", "Disabled"]),
        "tags": tags(),
        "maxPods": number("Most pods of a node. By default what the network plugin allows.", 10, 250),
        "kubelet": kubelet(),
        "security": object("Encryption and trusted launch.", &json!({
            "encryptionAtHost": flag("Whether disks are encrypted on the host. Only sizes that can are used."),
            "trustedLaunch": object("A verified start of the machine, for sizes and images of generation 2.", &json!({
                "vtpm": flag("A virtual trusted platform module."),
                "secureBoot": flag("Only signed code starts."),
            })),
        })),
        "gpu": object("Drivers of GPUs.", &json!({
            "mode": with_default(one_of("Whether a driver is installed.", &["Driver", "None"]), json!("Driver")),
        })),
        "artifactStreaming": object("Streaming of images.", &json!({"enabled": flag("Whether it is on. Not for arm64.")})),
        "localDNS": local_dns(),
        "linuxOSConfig": linux_os_config(),
    });
    let mut schema = object("What the machines are.", &properties);
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
        json!({"description": "Tags of everything that is created.", "type": "object", "additionalProperties": {"type": "string"}}),
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
        "cpuManagerPolicy": with_default(one_of("Whether containers may get cores of their own.", &["none", "static"]), json!("none")),
        "cpuCFSQuota": with_default(flag("Whether limits of CPU are enforced."), json!(true)),
        "cpuCFSQuotaPeriod": {"description": "Period over which limits of CPU are enforced.", "type": "string", "default": "100ms"},
        "imageGCHighThresholdPercent": number("Use of the disk above which images are collected.", 0, 100),
        "imageGCLowThresholdPercent": number("Use of the disk down to which images are collected.", 0, 100),
        "topologyManagerPolicy": with_default(one_of("How resources of one NUMA node are kept together.", &["restricted", "best-effort", "none", "single-numa-node"]), json!("none")),
        "allowedUnsafeSysctls": {"description": "Sysctls that pods may set though they are not safe.", "type": "array", "items": {"type": "string"}},
        "containerLogMaxSize": with_default(text_like("Size of a container's log at which it is rotated.", SIZE_PATTERN), json!("50Mi")),
        "containerLogMaxFiles": {"description": "Number of log files of a container.", "type": "integer", "format": "int32", "minimum": 2, "default": 5},
        "podPidsLimit": {"description": "Most processes of a pod.", "type": "integer", "format": "int64"},
        "failSwapOn": flag("Whether the kubelet refuses to start where there is swap."),
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
        "forwardDestination": one_of("Where queries go.", &["ClusterCoreDNS", "VnetDNS"]),
        "forwardPolicy": one_of("How a server is chosen.", &["Sequential", "RoundRobin", "Random"]),
        "maxConcurrent": {"description": "Most queries at once.", "type": "integer", "format": "int32", "minimum": 0},
        "cacheDuration": duration("How long answers are kept."),
        "serveStale": one_of("Whether old answers are given when no server answers.", &["Verify", "Immediate", "Disable"]),
        "serveStaleDuration": duration("How long old answers are given."),
    });
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    let mut items = object("How names of one domain are resolved.", &properties);
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
        "DNS on the node.",
        &json!({
            "mode": one_of("Whether there is DNS on the node.", &["Preferred", "Required", "Disabled"]),
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
        number("How readily caches of directories are given up.", 0, 100),
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
            "key": {"description": "Label key that is compared.", "type": "string"},
            "operator": {"description": "How the label is compared.", "type": "string"},
            "values": {"description": "What it is compared with.", "type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
        },
    });
    object(
        "What was found for the class.",
        &json!({
            "images": {
                "description": "Images, in order of preference.",
                "type": "array",
                "items": {
                    "description": "An image, and the machines that it is for.",
                    "type": "object",
                    "required": ["id", "requirements"],
                    "properties": {
                        "id": {"description": "ID of the image.", "type": "string"},
                        "requirements": {"description": "Requirements that a machine must meet.", "type": "array", "items": requirement},
                    },
                },
            },
            "kubernetesVersion": {"description": "Version of Kubernetes that new nodes get.", "type": "string"},
            "localDNSState": one_of("Whether nodes have DNS of their own.", &["Enabled", "Disabled"]),
            "conditions": shared::conditions(false),
        }),
    )
}
