//! Settings that Karpenter knows too: each a flag and an environment variable (P §15.1).
//!
//! Owns their names, their defaults and the rule that a flag wins over its variable. A malformed value of either is an error
//! that names where it came from; upstream falls back to the default silently for variables, which hides mistakes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use spokeshave_plan::explain::near_matches;

use crate::cli::read_duration;

/// The flags as typed. `None` means that the flag is absent and the environment decides.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings that Karpenter knows too")]
pub(crate) struct SettingsArgs {
    /// Evictions a second over all nodes; without it the client's rate is the only bound [env: EVICTION_QPS] [default: none]
    #[arg(long, value_name = "N")]
    eviction_qps: Option<String>,
    /// Evictions at once, with EVICTION_QPS [env: EVICTION_BURST] [default: 10]
    #[arg(long, value_name = "N")]
    eviction_burst: Option<String>,
    /// Port of /metrics [env: METRICS_PORT] [default: 8080]
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<String>,
    /// Port of /healthz and /readyz [env: HEALTH_PROBE_PORT] [default: 8081]
    #[arg(long, value_name = "PORT")]
    health_probe_port: Option<String>,
    /// Requests a second that the client may send [env: KUBE_CLIENT_QPS] [default: 200]
    #[arg(long, value_name = "N")]
    kube_client_qps: Option<String>,
    /// Requests that the client may send at once [env: KUBE_CLIENT_BURST] [default: 300]
    #[arg(long, value_name = "N")]
    kube_client_burst: Option<String>,
    /// Accepted for compatibility, with a warning: there is no Go profiler here [env: ENABLE_PROFILING] [default: false]
    #[arg(long, value_name = "BOOL")]
    enable_profiling: Option<String>,
    /// Do not start watches before leading [env: DISABLE_CONTROLLER_WARMUP] [default: true]
    #[arg(long, value_name = "BOOL")]
    disable_controller_warmup: Option<String>,
    /// Run without a Lease: only safe with one replica [env: DISABLE_LEADER_ELECTION] [default: false]
    #[arg(long, value_name = "BOOL")]
    disable_leader_election: Option<String>,
    /// Leave out metrics of single pods, nodes and conditions, whose number grows with the cluster [env: DISABLE_CLUSTER_STATE_OBSERVABILITY] [default: true]
    #[arg(long, value_name = "BOOL")]
    disable_cluster_state_observability: Option<String>,
    /// Name of the Lease [env: LEADER_ELECTION_NAME] [default: karpenter-leader-election]
    #[arg(long, value_name = "NAME")]
    leader_election_name: Option<String>,
    /// Namespace of the Lease [env: LEADER_ELECTION_NAMESPACE] [default: the pod's namespace, or kube-system outside a cluster]
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// Accepted for compatibility, with a warning: there is no garbage collector to bound here [env: MEMORY_LIMIT] [default: -1]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    memory_limit: Option<String>,
    /// Milli-cores that the controllers may count on [env: CPU_REQUESTS] [default: 1000]
    #[arg(long, value_name = "MILLICORES", allow_hyphen_values = true)]
    cpu_requests: Option<String>,
    /// debug, info or error [env: LOG_LEVEL] [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// stdout, stderr or a file [env: LOG_OUTPUT_PATHS] [default: stdout]
    #[arg(long, value_name = "PATH")]
    log_output_paths: Option<String>,
    /// Accepted for compatibility, with a warning: errors go where the log goes [env: LOG_ERROR_OUTPUT_PATHS] [default: stderr]
    #[arg(long, value_name = "PATH")]
    log_error_output_paths: Option<String>,
    /// json or text [env: LOG_FORMAT] [default: json]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Longest time that pods are collected before nodes are planned [env: BATCH_MAX_DURATION] [default: 10s]
    #[arg(long, value_name = "DURATION")]
    batch_max_duration: Option<String>,
    /// Nodes are planned when no new pod came for this long [env: BATCH_IDLE_DURATION] [default: 1s]
    #[arg(long, value_name = "DURATION")]
    batch_idle_duration: Option<String>,
    /// Respect or Ignore preferences of pods [env: PREFERENCE_POLICY] [default: Respect]
    #[arg(long, value_name = "POLICY")]
    preference_policy: Option<String>,
    /// Strict or BestEffort [env: MIN_VALUES_POLICY] [default: Strict]
    #[arg(long, value_name = "POLICY")]
    min_values_policy: Option<String>,
    /// Do not plan for pods with resource claims [env: IGNORE_DRA_REQUESTS] [default: true]
    #[arg(long, value_name = "BOOL")]
    ignore_dra_requests: Option<String>,
    /// How many nodes may come in place of a set of under-used ones, always fewer than go [env: CONSOLIDATION_REPLACEMENTS] [default: 1]
    #[arg(long, value_name = "NUMBER")]
    consolidation_replacements: Option<String>,
    /// Gate=true,Gate=false [env: FEATURE_GATES] [default: NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=false,NodeOverlay=false,StaticCapacity=false,CapacityBuffer=false]
    #[arg(long, value_name = "GATES")]
    feature_gates: Option<String>,
    /// Topology spread for pods that have none: podTopologySpread.defaultConstraints, as YAML or JSON [env: SCHEDULER_CONFIG]
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<String>,
    /// Instance types that the kwok provider sells [env: INSTANCE_TYPES_FILE_PATH] [default: its 144 built-in types]
    #[arg(long, value_name = "FILE")]
    instance_types_file_path: Option<String>,
}

/// The settings after flags, environment and defaults were put together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) metrics_port: u16,
    pub(crate) health_probe_port: u16,
    pub(crate) kube_client_qps: u32,
    pub(crate) kube_client_burst: u32,
    pub(crate) enable_profiling: bool,
    pub(crate) disable_controller_warmup: bool,
    pub(crate) disable_leader_election: bool,
    pub(crate) disable_cluster_state_observability: bool,
    pub(crate) leader_election_name: String,
    pub(crate) leader_election_namespace: Option<String>,
    pub(crate) cpu_requests_milli: u32,
    pub(crate) log_level: LogLevel,
    pub(crate) log_output: LogOutput,
    pub(crate) log_format: LogFormat,
    pub(crate) batch_max_duration: Duration,
    pub(crate) batch_idle_duration: Duration,
    pub(crate) preference_policy: PreferencePolicy,
    pub(crate) min_values_policy: MinValuesPolicy,
    pub(crate) ignore_dra_requests: bool,
    pub(crate) consolidation_replacements: u32,
    pub(crate) feature_gates: FeatureGates,
    /// Evictions a second, and at once.
    pub(crate) eviction_rate: Option<(u32, u32)>,
    /// Settings that were given and have no effect, with why.
    pub(crate) without_effect: Vec<&'static str>,
    pub(crate) scheduler_config: Option<PathBuf>,
    pub(crate) instance_types_file_path: Option<PathBuf>,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Error,
}

/// Where the log goes.
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

/// Whether preferences of pods count as requirements until they cannot be met (P §6.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreferencePolicy {
    Respect,
    Ignore,
}

/// What happens when minValues cannot be met (P §6.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinValuesPolicy {
    Strict,
    BestEffort,
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

/// The environment, as a value: only `main` reads the real one.
pub(crate) type Environment = BTreeMap<String, String>;

/// One setting while it is looked up: where it came from, for messages, and its text.
struct Source<'a> {
    origin: String,
    text: &'a str,
}

impl Source<'_> {
    fn parse<T, E: Display>(&self, expected: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T> {
        parse(self.text).map_err(|error| {
            anyhow!(
                "{}: invalid value {:?}: {error}; expected {expected}",
                self.origin,
                self.text
            )
        })
    }
}

struct Lookup<'a> {
    environment: &'a Environment,
}

impl<'a> Lookup<'a> {
    /// The flag, else the variable; an empty variable counts as absent, as in a Helm chart with an empty value.
    fn find(&self, flag: &str, value: Option<&'a String>, variable: &str) -> Option<Source<'a>> {
        if let Some(text) = value {
            return Some(Source {
                origin: format!("flag --{flag}"),
                text,
            });
        }
        let text = self.environment.get(variable).filter(|text| !text.is_empty())?;
        Some(Source {
            origin: format!("environment variable {variable}"),
            text,
        })
    }

    fn number<T: std::str::FromStr<Err: Display>>(
        &self,
        flag: &str,
        value: Option<&'a String>,
        variable: &str,
        expected: &str,
        default: T,
    ) -> Result<T> {
        self.find(flag, value, variable)
            .map_or(Ok(default), |source| source.parse(expected, str::parse))
    }

    fn boolean(&self, flag: &str, value: Option<&'a String>, variable: &str, default: bool) -> Result<bool> {
        self.find(flag, value, variable).map_or(Ok(default), |source| {
            source.parse("true or false", |text| match text {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err("not a boolean"),
            })
        })
    }

    fn duration(
        &self,
        flag: &str,
        value: Option<&'a String>,
        variable: &str,
        default: Duration,
    ) -> Result<Duration> {
        self.find(flag, value, variable).map_or(Ok(default), |source| {
            source.parse("a duration such as 10s", read_duration)
        })
    }

    fn text(&self, flag: &str, value: Option<&'a String>, variable: &str) -> Option<String> {
        self.find(flag, value, variable)
            .map(|source| source.text.to_owned())
    }

    fn choice<T: Copy>(
        &self,
        flag: &str,
        value: Option<&'a String>,
        variable: &str,
        choices: &[(&str, T)],
        default: T,
    ) -> Result<T> {
        let Some(source) = self.find(flag, value, variable) else {
            return Ok(default);
        };
        let names: Vec<&str> = choices
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| !name.is_empty())
            .collect();
        source.parse(&format!("one of {}", names.join(", ")), |text| {
            choices
                .iter()
                .find(|(name, _)| *name == text)
                .map(|(_, choice)| *choice)
                .ok_or("unknown choice")
        })
    }
}

impl Settings {
    /// Puts flags, environment and defaults together.
    ///
    /// # Errors
    /// Names the flag or the variable whose value is malformed, and what was expected.
    pub(crate) fn resolve(args: &SettingsArgs, environment: &Environment) -> Result<Self> {
        let lookup = Lookup { environment };
        let port = "a port number from 0 to 65535";
        let count = "a positive whole number";
        let cpu_requests: i64 = lookup.number(
            "cpu-requests",
            args.cpu_requests.as_ref(),
            "CPU_REQUESTS",
            "a whole number of milli-cores",
            1000,
        )?;
        let memory_limit: i64 = lookup.number(
            "memory-limit",
            args.memory_limit.as_ref(),
            "MEMORY_LIMIT",
            "a whole number of bytes",
            -1,
        )?;
        let eviction_qps: u32 = lookup.number(
            "eviction-qps",
            args.eviction_qps.as_ref(),
            "EVICTION_QPS",
            count,
            0,
        )?;
        let eviction_burst: u32 = lookup.number(
            "eviction-burst",
            args.eviction_burst.as_ref(),
            "EVICTION_BURST",
            count,
            10,
        )?;
        let mut settings = Self {
            metrics_port: lookup.number(
                "metrics-port",
                args.metrics_port.as_ref(),
                "METRICS_PORT",
                port,
                8080,
            )?,
            health_probe_port: lookup.number(
                "health-probe-port",
                args.health_probe_port.as_ref(),
                "HEALTH_PROBE_PORT",
                port,
                8081,
            )?,
            kube_client_qps: lookup.number(
                "kube-client-qps",
                args.kube_client_qps.as_ref(),
                "KUBE_CLIENT_QPS",
                count,
                200,
            )?,
            kube_client_burst: lookup.number(
                "kube-client-burst",
                args.kube_client_burst.as_ref(),
                "KUBE_CLIENT_BURST",
                count,
                300,
            )?,
            enable_profiling: lookup.boolean(
                "enable-profiling",
                args.enable_profiling.as_ref(),
                "ENABLE_PROFILING",
                false,
            )?,
            disable_controller_warmup: lookup.boolean(
                "disable-controller-warmup",
                args.disable_controller_warmup.as_ref(),
                "DISABLE_CONTROLLER_WARMUP",
                true,
            )?,
            disable_leader_election: lookup.boolean(
                "disable-leader-election",
                args.disable_leader_election.as_ref(),
                "DISABLE_LEADER_ELECTION",
                false,
            )?,
            disable_cluster_state_observability: lookup.boolean(
                "disable-cluster-state-observability",
                args.disable_cluster_state_observability.as_ref(),
                "DISABLE_CLUSTER_STATE_OBSERVABILITY",
                true,
            )?,
            leader_election_name: lookup
                .text(
                    "leader-election-name",
                    args.leader_election_name.as_ref(),
                    "LEADER_ELECTION_NAME",
                )
                .unwrap_or_else(|| "karpenter-leader-election".to_owned()),
            leader_election_namespace: lookup.text(
                "leader-election-namespace",
                args.leader_election_namespace.as_ref(),
                "LEADER_ELECTION_NAMESPACE",
            ),
            cpu_requests_milli: if cpu_requests <= 0 {
                1000
            } else {
                u32::try_from(cpu_requests).unwrap_or(u32::MAX)
            },
            log_level: lookup.choice(
                "log-level",
                args.log_level.as_ref(),
                "LOG_LEVEL",
                &[
                    ("debug", LogLevel::Debug),
                    ("info", LogLevel::Info),
                    ("error", LogLevel::Error),
                    ("", LogLevel::Info),
                ],
                LogLevel::Info,
            )?,
            log_output: match lookup
                .text(
                    "log-output-paths",
                    args.log_output_paths.as_ref(),
                    "LOG_OUTPUT_PATHS",
                )
                .as_deref()
            {
                None | Some("stdout") => LogOutput::Stdout,
                Some("stderr") => LogOutput::Stderr,
                Some(path) => LogOutput::File(path.into()),
            },
            log_format: lookup.choice(
                "log-format",
                args.log_format.as_ref(),
                "LOG_FORMAT",
                &[("json", LogFormat::Json), ("text", LogFormat::Text)],
                LogFormat::Json,
            )?,
            batch_max_duration: lookup.duration(
                "batch-max-duration",
                args.batch_max_duration.as_ref(),
                "BATCH_MAX_DURATION",
                Duration::from_secs(10),
            )?,
            batch_idle_duration: lookup.duration(
                "batch-idle-duration",
                args.batch_idle_duration.as_ref(),
                "BATCH_IDLE_DURATION",
                Duration::from_secs(1),
            )?,
            preference_policy: lookup.choice(
                "preference-policy",
                args.preference_policy.as_ref(),
                "PREFERENCE_POLICY",
                &[
                    ("Respect", PreferencePolicy::Respect),
                    ("Ignore", PreferencePolicy::Ignore),
                ],
                PreferencePolicy::Respect,
            )?,
            min_values_policy: lookup.choice(
                "min-values-policy",
                args.min_values_policy.as_ref(),
                "MIN_VALUES_POLICY",
                &[
                    ("Strict", MinValuesPolicy::Strict),
                    ("BestEffort", MinValuesPolicy::BestEffort),
                ],
                MinValuesPolicy::Strict,
            )?,
            consolidation_replacements: lookup.number(
                "consolidation-replacements",
                args.consolidation_replacements.as_ref(),
                "CONSOLIDATION_REPLACEMENTS",
                count,
                1,
            )?,
            ignore_dra_requests: lookup.boolean(
                "ignore-dra-requests",
                args.ignore_dra_requests.as_ref(),
                "IGNORE_DRA_REQUESTS",
                true,
            )?,
            feature_gates: lookup
                .find("feature-gates", args.feature_gates.as_ref(), "FEATURE_GATES")
                .map_or(Ok(FeatureGates::default()), |source| {
                    source.parse(
                        "a list such as NodeRepair=true,StaticCapacity=false",
                        parse_feature_gates,
                    )
                })?,
            eviction_rate: (eviction_qps > 0).then_some((eviction_qps, eviction_burst)),
            without_effect: Vec::new(),
            scheduler_config: lookup
                .text(
                    "scheduler-config",
                    args.scheduler_config.as_ref(),
                    "SCHEDULER_CONFIG",
                )
                .map(PathBuf::from),
            instance_types_file_path: lookup
                .text(
                    "instance-types-file-path",
                    args.instance_types_file_path.as_ref(),
                    "INSTANCE_TYPES_FILE_PATH",
                )
                .map(PathBuf::from),
        };
        settings.check()?;
        settings.without_effect = settings.find_without_effect(
            memory_limit > 0,
            lookup.text(
                "log-error-output-paths",
                args.log_error_output_paths.as_ref(),
                "LOG_ERROR_OUTPUT_PATHS",
            ),
        );
        Ok(settings)
    }

    /// What was asked for and is not done, each with what to do instead.
    fn find_without_effect(&self, memory_limit: bool, error_output: Option<String>) -> Vec<&'static str> {
        let asked = [
            (
                memory_limit,
                "MEMORY_LIMIT has no effect: there is no garbage collector to bound; set the container's memory limit",
            ),
            (
                self.enable_profiling,
                "ENABLE_PROFILING has no effect: there is no Go profiler; use perf or another sampling profiler",
            ),
            (
                error_output.is_some_and(|path| path != "stderr"),
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

    fn check(&self) -> Result<()> {
        if self.kube_client_qps == 0 || self.kube_client_burst == 0 {
            bail!(
                "KUBE_CLIENT_QPS and KUBE_CLIENT_BURST must be at least 1, otherwise no request could ever be sent"
            );
        }
        if self.batch_idle_duration > self.batch_max_duration {
            bail!(
                "BATCH_IDLE_DURATION ({:?}) must not be longer than BATCH_MAX_DURATION ({:?})",
                self.batch_idle_duration,
                self.batch_max_duration
            );
        }
        Ok(())
    }
}

/// Reads `Gate=true,Gate=false`.
///
/// # Errors
/// A part is no assignment, its value neither true nor false, or its name no gate that this or an earlier Karpenter has.
pub(crate) fn parse_feature_gates(text: &str) -> Result<FeatureGates, String> {
    let mut gates = FeatureGates::default();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} has no '='"))?;
        let value = match value.trim() {
            "true" => true,
            "false" => false,
            other => return Err(format!("gate {name} is {other:?}, neither true nor false")),
        };
        match name.trim() {
            "NodeRepair" => gates.node_repair = value,
            "ReservedCapacity" => gates.reserved_capacity = value,
            "SpotToSpotConsolidation" => gates.spot_to_spot_consolidation = value,
            "NodeOverlay" => gates.node_overlay = value,
            "StaticCapacity" => gates.static_capacity = value,
            "CapacityBuffer" => gates.capacity_buffer = value,
            // What it switched is on for good, since Karpenter 1.0.
            "Drift" => {}
            unknown => return Err(unknown_gate(unknown)),
        }
    }
    Ok(gates)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn p_202_defaults() {
        let settings =
            Settings::resolve(&SettingsArgs::default(), &Environment::new()).expect("defaults are valid");
        assert_eq!(settings.metrics_port, 8080);
        assert_eq!(settings.health_probe_port, 8081);
        assert_eq!((settings.kube_client_qps, settings.kube_client_burst), (200, 300));
        assert!(settings.disable_controller_warmup && !settings.disable_leader_election);
        assert_eq!(settings.leader_election_name, "karpenter-leader-election");
        assert_eq!(settings.batch_max_duration, Duration::from_secs(10));
        assert_eq!(settings.batch_idle_duration, Duration::from_secs(1));
        assert_eq!(settings.cpu_requests_milli, 1000);
        assert!(settings.ignore_dra_requests);
        assert_eq!(settings.feature_gates, FeatureGates::default());
    }

    #[test]
    fn p_202_a_flag_wins_over_its_variable() {
        let args = SettingsArgs {
            metrics_port: Some("9000".to_owned()),
            ..SettingsArgs::default()
        };
        let settings = Settings::resolve(
            &args,
            &environment(&[("METRICS_PORT", "9001"), ("HEALTH_PROBE_PORT", "9002")]),
        )
        .expect("valid");
        assert_eq!((settings.metrics_port, settings.health_probe_port), (9000, 9002));
    }

    #[test]
    fn p_202_a_malformed_value_names_its_origin() {
        for (variable, value) in [
            ("METRICS_PORT", "http"),
            ("KUBE_CLIENT_QPS", "-3"),
            ("DISABLE_LEADER_ELECTION", "yes"),
            ("BATCH_MAX_DURATION", "10"),
            ("PREFERENCE_POLICY", "respect"),
            ("MIN_VALUES_POLICY", "Loose"),
            ("LOG_LEVEL", "loud"),
            ("FEATURE_GATES", "NodeRepair"),
            ("FEATURE_GATES", "NodeRepair=on"),
            ("CPU_REQUESTS", "1000m"),
        ] {
            let error = Settings::resolve(&SettingsArgs::default(), &environment(&[(variable, value)]))
                .expect_err(&format!("{variable}={value} must be refused"))
                .to_string();
            assert!(
                error.starts_with(&format!("environment variable {variable}: ")),
                "{error}"
            );
            assert!(error.contains(value) && error.contains("expected"), "{error}");
        }
        let args = SettingsArgs {
            batch_max_duration: Some("soon".to_owned()),
            ..SettingsArgs::default()
        };
        let error = Settings::resolve(&args, &Environment::new())
            .expect_err("malformed")
            .to_string();
        assert!(error.starts_with("flag --batch-max-duration: "), "{error}");
    }

    #[test]
    fn p_200_settings_without_effect_say_so() {
        let given = [
            ("MEMORY_LIMIT", "1000000"),
            ("ENABLE_PROFILING", "true"),
            ("LOG_ERROR_OUTPUT_PATHS", "/var/log/errors"),
            (
                "FEATURE_GATES",
                "NodeOverlay=true,CapacityBuffer=true,NodeRepair=true",
            ),
        ];
        let settings = Settings::resolve(&SettingsArgs::default(), &environment(&given)).expect("valid");
        assert_eq!(settings.without_effect.len(), 3, "{:?}", settings.without_effect);
        for name in ["MEMORY_LIMIT", "ENABLE_PROFILING", "LOG_ERROR_OUTPUT_PATHS"] {
            assert!(
                settings
                    .without_effect
                    .iter()
                    .any(|warning| warning.contains(name)),
                "{name}"
            );
        }
        let plain = Settings::resolve(&SettingsArgs::default(), &Environment::new()).expect("valid");
        assert!(plain.without_effect.is_empty() && plain.eviction_rate.is_none());
        let bounded = environment(&[("EVICTION_QPS", "50")]);
        let bounded = Settings::resolve(&SettingsArgs::default(), &bounded).expect("valid");
        assert_eq!(bounded.eviction_rate, Some((50, 10)));
    }

    #[test]
    fn p_202_cpu_requests_that_are_not_positive_mean_the_default() {
        let settings = Settings::resolve(&SettingsArgs::default(), &environment(&[("CPU_REQUESTS", "-5")]))
            .expect("valid");
        assert_eq!(settings.cpu_requests_milli, 1000);
    }

    #[test]
    fn p_203_gates_that_are_not_named_keep_their_defaults() {
        let gates = parse_feature_gates("NodeRepair=true, Drift=false").expect("valid");
        assert_eq!(
            gates,
            FeatureGates {
                node_repair: true,
                ..FeatureGates::default()
            }
        );
    }

    #[test]
    fn p_203_a_misspelt_gate_is_an_error_that_names_the_right_one() {
        for (text, meant) in [
            ("staticCapacity=true", "did you mean StaticCapacity?"),
            ("NodeRepair=true,nodeoverlays=false", "did you mean NodeOverlay?"),
            ("Foo=true", "there are NodeRepair, ReservedCapacity"),
        ] {
            let error = parse_feature_gates(text).expect_err(text);
            assert!(error.contains(meant), "{error}");
        }
    }
}
