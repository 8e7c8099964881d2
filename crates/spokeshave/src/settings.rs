//! Settings that Karpenter knows too: each a flag and an environment variable (P §15.1).
//!
//! Owns the one table of them: a line has the name, from which flag and variable follow, how the text is read, the default and the help. What is
//! done with them is others' work. A malformed value is an error that names where it came from; upstream falls back to the default silently for
//! variables, which hides mistakes.

mod deciding;
mod reader;
/// The gates that the controllers know.
pub(crate) fn gates_of(gates: FeatureGates) -> spokeshave_controllers::FeatureGates {
    spokeshave_controllers::FeatureGates {
        reserved_capacity: gates.reserved_capacity,
        node_repair: gates.node_repair,
        static_capacity: gates.static_capacity,
        node_overlay: gates.node_overlay,
        capacity_buffer: gates.capacity_buffer,
    }
}

/// How many threads the machine can run at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use spokeshave_plan::{MinValuesPolicy, PreferencePolicy};
use spokeshave_story::explain::near_matches;

use crate::arguments::read_duration;

pub(crate) use deciding::{DecidingArgs, Words, deciding_variables, put_together, said_of_gate};
pub(crate) use reader::{Environment, SettingsArgs, parse_bool};
use reader::{Lookup, Reader, boolean, choice, duration, number, optional, parsed, positive, text};

const PORT: &str = "a port number from 0 to 65535";
const COUNT: &str = "a positive whole number";
const DEFAULT_GATES: &str = "NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=false,NodeOverlay=false,StaticCapacity=false,CapacityBuffer=false";

/// `name: type = how it is read, "VALUE", "help";` makes the field, the flag `--na-me` and the variable `NA_ME`.
macro_rules! settings {
    ($($field:ident: $type:ty = $reader:expr, $value_name:literal, $help:literal;)*) => {
        /// The settings after flags, environment and defaults were put together.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct Settings {
            $(#[doc = $help] pub(crate) $field: $type,)*
        }

        impl Settings {
            fn read(lookup: &Lookup<'_>) -> Result<Self> {
                Ok(Self { $($field: lookup.read(stringify!($field), &$reader)?,)* })
            }
        }

        /// Every setting: its field, the name of its value, the default as help shows it, and the help.
        pub(crate) fn table() -> Vec<reader::Row> {
            vec![$(reader::Row::new::<$type>(stringify!($field), $value_name, &$reader, $help),)*]
        }
    };
}

settings! {
    karpenter_service: Option<String> = optional(text("")), "NAME", "Accepted for compatibility, with a warning: it named the Service of a webhook that no longer exists";
    eviction_qps: u32 = number::<u32>(COUNT, "0").shown_as("none"), "N", "Evictions per second over all nodes; without it only the client's rate limit applies";
    eviction_burst: u32 = positive(COUNT, "10"), "N", "Burst of evictions, with EVICTION_QPS";
    metrics_port: u16 = number(PORT, "8080"), "PORT", "Port of /metrics";
    health_probe_port: u16 = number(PORT, "8081"), "PORT", "Port of /healthz and /readyz";
    kube_client_qps: u32 = number(COUNT, "200"), "N", "Requests per second that the client may send";
    kube_client_burst: u32 = number(COUNT, "300"), "N", "Burst of requests that the client may send";
    enable_profiling: bool = boolean("false"), "BOOL", "Accepted for compatibility, with a warning: there is no Go profiler here";
    disable_controller_warmup: bool = boolean("true"), "BOOL", "Do not start watches before becoming the leader";
    disable_leader_election: bool = boolean("false"), "BOOL", "Run without a Lease: only safe with one replica";
    disable_cluster_state_observability: bool = boolean("true"), "BOOL", "Omit metrics of single pods, nodes and conditions, whose cardinality grows with the cluster, and of single instance types";
    leader_election_name: String = text("karpenter-leader-election"), "NAME", "Name of the Lease";
    leader_election_namespace: Option<String> = optional(text("")).shown_as("the pod's namespace, or kube-system outside a cluster"), "NAMESPACE", "Namespace of the Lease";
    memory_limit: i64 = number("a whole number of bytes", "-1"), "BYTES", "Accepted for compatibility, with a warning: there is no garbage collector to limit here";
    cpu_requests: i64 = number("a whole number of milli-cores", "1000"), "MILLICORES", "CPU available to the controllers, in millicores";
    log_level: LogLevel = choice(&[("debug", LogLevel::Debug), ("info", LogLevel::Info), ("error", LogLevel::Error), ("", LogLevel::Info)], "info"), "LEVEL", "debug, info or error";
    log_output_paths: Vec<LogOutput> = parsed("stdout, stderr or paths of files, separated by commas", "stdout", log_outputs), "PATHS", "stdout, stderr or files, separated by commas";
    log_error_output_paths: String = text("stderr"), "PATHS", "Accepted for compatibility, with a warning: errors are written to the log";
    log_format: LogFormat = choice(&[("json", LogFormat::Json), ("text", LogFormat::Text)], "json"), "FORMAT", "json or text";
    batch_max_duration: Duration = duration("10s"), "DURATION", "Longest time for which pods are batched before nodes are planned";
    batch_idle_duration: Duration = duration("1s"), "DURATION", "Nodes are planned once no new pod has arrived for this long";
    preference_policy: PreferencePolicy = choice(&[("Respect", PreferencePolicy::Respect), ("Ignore", PreferencePolicy::Ignore)], "Respect"), "POLICY", "Respect or Ignore preferences of pods";
    min_values_policy: MinValuesPolicy = choice(&[("Strict", MinValuesPolicy::Strict), ("BestEffort", MinValuesPolicy::BestEffort)], "Strict"), "POLICY", "Strict or BestEffort";
    ignore_dra_requests: bool = boolean("true"), "BOOL", "Do not plan for pods with resource claims";
    consolidation_replacements: u32 = positive(COUNT, "1"), "NUMBER", "Maximum number of replacement nodes for a set of underutilized nodes; always fewer than are removed";
    nominate_pods: bool = boolean("false"), "BOOL", "Let pending pods name the node that they were planned on in status.nominatedNodeName, so that the scheduler puts them there; needs the permission to patch pods/status";
    feature_gates: FeatureGates = parsed("a list such as NodeRepair=true,StaticCapacity=false", DEFAULT_GATES, parse_feature_gates), "GATES", "Gate=true,Gate=false";
    scheduler_config: Option<PathBuf> = optional(path()), "FILE", "Configuration of kube-scheduler (KubeSchedulerConfiguration), as YAML or JSON: default topology spread, added node affinity and ignored resources count for pods; or podTopologySpread.defaultConstraints alone";
    instance_types_file_path: Option<PathBuf> = optional(path()).shown_as("its 144 built-in types"), "FILE", "Instance types that the kwok provider offers";
    cluster_name: Option<String> = optional(text("")), "NAME", "AWS, Azure: name of the cluster, which tags and user data carry; required";
    cluster_endpoint: Option<String> = optional(text("")).shown_as("for AWS discovered from EKS"), "URL", "AWS, Azure: address of the API server for new nodes; required for Azure";
    cluster_ca_bundle: Option<String> = optional(text("")).shown_as("for AWS discovered from EKS"), "BASE64", "AWS, Azure: certificates of the API server for new nodes";
    cluster_dns_ip: Option<IpAddr> = optional(number("an IP address", "")).shown_as("for AWS that of Service kube-system/kube-dns"), "ADDRESS", "AWS, Azure: address of the cluster's DNS service; with an IPv6 address nodes get IPv6 (AWS)";
    isolated_vpc: bool = boolean("false"), "BOOL", "AWS: do not call IAM and the pricing service, which have no endpoint in the VPC";
    vm_memory_overhead_percent: f64 = parsed("a number from 0 on", "0.075", not_negative), "SHARE", "AWS, Azure: share of a machine's memory that the hypervisor takes";
    interruption_queue: Option<String> = optional(text("")), "NAME", "AWS: SQS queue of spot interruptions and maintenance events; without it they are not handled";
    reserved_enis: i64 = parsed("a whole number from 0 on", "0", not_negative), "NUMBER", "AWS: network interfaces of a node that pods do not use";
    enable_zonal_shift: bool = boolean("false"), "BOOL", "AWS: launch and terminate nothing in zones from which an ARC zonal shift moves traffic away";
    ami_refresh_interval: Duration = parsed("a duration of at least 1m", "1m", at_least_a_minute), "DURATION", "AWS: how often the AMIs of an EC2NodeClass are refreshed";
    subnet_refresh_interval: Duration = parsed("a duration of at least 1m", "1m", at_least_a_minute), "DURATION", "AWS: how often the subnets of an EC2NodeClass are refreshed";
    aws_feature_gates: AwsFeatureGates = parsed("a list such as NodeClassCEL=false", "NodeClassCEL=false", aws_feature_gates), "GATES", "AWS: Gate=false; NodeClassCEL=true is rejected, because this version does not evaluate expressions in spec.kubelet";
    eks_control_plane: bool = boolean("false"), "BOOL", "Accepted for compatibility, with a warning: details of the cluster are always read from EKS";
    disable_dry_run: bool = boolean("false"), "BOOL", "AWS: do not validate an EC2NodeClass with a dry run";
}

/// A duration that EC2's limits bear.
fn at_least_a_minute(text: &str) -> Result<Duration, String> {
    let duration = read_duration(text).map_err(|error| error.to_string())?;
    if duration < Duration::from_secs(60) {
        return Err("below one minute".to_owned());
    }
    Ok(duration)
}

/// Gates of Karpenter's AWS provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AwsFeatureGates {
    /// Expressions in `spec.kubelet` of EC2NodeClasses.
    pub(crate) node_class_cel: bool,
}

/// Reads `Gate=true,Gate=false`.
fn aws_feature_gates(text: &str) -> Result<AwsFeatureGates, String> {
    let mut gates = AwsFeatureGates::default();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match gate(part)? {
            ("NodeClassCEL", value) => gates.node_class_cel = value,
            (name, _) => {
                return Err(format!(
                    "there is no AWS feature gate {name:?}; there is NodeClassCEL"
                ));
            }
        }
    }
    Ok(gates)
}

/// Reads `Gate=true`, with the value as upstream takes it.
fn gate(part: &str) -> Result<(&str, bool), String> {
    let (name, value) = part
        .split_once('=')
        .ok_or_else(|| format!("{part:?} has no '='"))?;
    let (name, value) = (name.trim(), value.trim());
    let is_on =
        parse_bool(value).ok_or_else(|| format!("gate {name} is {value:?}, neither true nor false"))?;
    Ok((name, is_on))
}

/// A number that is not below zero.
fn not_negative<T: std::str::FromStr<Err: std::fmt::Display> + PartialOrd + Default>(
    text: &str,
) -> Result<T, String> {
    let number: T = text.parse().map_err(|error: T::Err| error.to_string())?;
    if number >= T::default() {
        Ok(number)
    } else {
        Err("below zero".to_owned())
    }
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Error,
}

/// Outputs of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogOutput {
    Stdout,
    Stderr,
    File(PathBuf),
}

/// The shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Json,
    Text,
}

/// The feature gates; gates that are not mentioned keep their defaults, unknown ones are ignored (P-203).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FeatureGates {
    pub(crate) node_repair: bool,
    pub(crate) reserved_capacity: bool,
    pub(crate) spot_to_spot_consolidation: bool,
    pub(crate) node_overlay: bool,
    pub(crate) static_capacity: bool,
    pub(crate) capacity_buffer: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            node_overlay: false,
            static_capacity: false,
            capacity_buffer: false,
        }
    }
}

impl Settings {
    /// Puts flags, environment and defaults together.
    ///
    /// # Errors
    /// Names the flag or the variable whose value is malformed, and what was expected.
    pub(crate) fn resolve(args: &SettingsArgs, environment: &Environment) -> Result<Self> {
        let settings = Self::read(&Lookup { args, environment })?;
        if settings.kube_client_qps == 0 || settings.kube_client_burst == 0 {
            bail!(
                "KUBE_CLIENT_QPS and KUBE_CLIENT_BURST must be at least 1, otherwise no request could ever be sent"
            );
        }
        Ok(settings)
    }

    /// CPU available to the controllers, in millicores; what is not positive means the default.
    pub(crate) fn cpu_requests_milli(&self) -> u32 {
        match self.cpu_requests {
            ..=0 => 1000,
            milli => u32::try_from(milli).unwrap_or(u32::MAX),
        }
    }

    /// Evictions a second, and at once.
    pub(crate) fn eviction_rate(&self) -> Option<(u32, u32)> {
        (self.eviction_qps > 0).then_some((self.eviction_qps, self.eviction_burst))
    }

    /// Settings without effect, each with an alternative.
    pub(crate) fn without_effect(&self) -> Vec<&'static str> {
        let asked = [
            (
                self.karpenter_service.is_some(),
                "KARPENTER_SERVICE has no effect, as in Karpenter: there is no webhook that it could name",
            ),
            (
                self.memory_limit > 0,
                "MEMORY_LIMIT has no effect: there is no garbage collector to bound; set the container's memory limit",
            ),
            (
                self.eks_control_plane,
                "EKS_CONTROL_PLANE has no effect: EKS is asked for details of the cluster in any case",
            ),
            (
                self.enable_profiling,
                "ENABLE_PROFILING has no effect: there is no Go profiler; use perf or another sampling profiler",
            ),
            (
                self.log_error_output_paths != "stderr",
                "LOG_ERROR_OUTPUT_PATHS has no effect: errors go where the log goes; set LOG_OUTPUT_PATHS",
            ),
            (
                !self.ignore_dra_requests,
                "IGNORE_DRA_REQUESTS=false only makes initialisation wait for DRA drivers: pods with resource claims are never planned for",
            ),
            (
                !self.disable_controller_warmup,
                "DISABLE_CONTROLLER_WARMUP=false has no effect: watches start when this replica leads",
            ),
        ];
        let given = asked.into_iter().filter(|(given, _)| *given);
        given.map(|(_, warning)| warning).collect()
    }
}

fn path() -> Reader<PathBuf> {
    parsed("a path", "", |text| Ok::<_, String>(PathBuf::from(text)))
}

fn log_outputs(text: &str) -> Result<Vec<LogOutput>, String> {
    let output = |path: &str| match path.trim() {
        "" => Err("there is an empty path".to_owned()),
        "stdout" => Ok(LogOutput::Stdout),
        "stderr" => Ok(LogOutput::Stderr),
        path => Ok(LogOutput::File(path.into())),
    };
    text.split(',').map(output).collect()
}

/// Reads `Gate=true,Gate=false`.
///
/// # Errors
/// A part is no assignment, its value neither true nor false, or its name no gate that this or an earlier Karpenter has.
pub(crate) fn parse_feature_gates(text: &str) -> Result<FeatureGates, String> {
    FeatureGates::default().with(text)
}

#[cfg(any(test, feature = "embedded"))]
impl std::fmt::Display for FeatureGates {
    /// Those that differ from their defaults, as they are given.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by_default = Self::default();
        let is_other =
            |text: &String| self.with(text) == Ok(*self) && by_default.with(text) != Ok(by_default);
        let texts = GATES
            .iter()
            .flat_map(|name| [true, false].map(|value| format!("{name}={value}")));
        let others: Vec<String> = texts.filter(is_other).collect();
        f.write_str(&others.join(","))
    }
}

impl FeatureGates {
    /// The same with what a text says of some of them.
    ///
    /// # Errors
    /// Those of [`parse_feature_gates`].
    pub(crate) fn with(mut self, text: &str) -> Result<Self, String> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = gate(part)?;
            match name {
                "NodeRepair" => self.node_repair = value,
                "ReservedCapacity" => self.reserved_capacity = value,
                "SpotToSpotConsolidation" => self.spot_to_spot_consolidation = value,
                "NodeOverlay" => self.node_overlay = value,
                "StaticCapacity" => self.static_capacity = value,
                "CapacityBuffer" => self.capacity_buffer = value,
                // What it switched is on for good, since Karpenter 1.0.
                "Drift" => {}
                unknown => return Err(unknown_gate(unknown)),
            }
        }
        Ok(self)
    }
}

/// The gates that do something.
const GATES: [&str; 6] = [
    "NodeRepair",
    "ReservedCapacity",
    "SpotToSpotConsolidation",
    "NodeOverlay",
    "StaticCapacity",
    "CapacityBuffer",
];

fn unknown_gate(name: &str) -> String {
    let near = near_matches(name, GATES)
        .first()
        .map(|meant| format!("did you mean {meant}?"));
    let said = near.unwrap_or_else(|| format!("there are {}", GATES.join(", ")));
    format!("there is no feature gate {name:?}; {said}")
}
