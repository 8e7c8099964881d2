//! Every row of the table of P §15.1, by flag and by variable, and what is refused.

use super::*;
use clap::{Args as _, FromArgMatches as _};

const SPECIFICATION: &str = include_str!("../../../../docs/spec/provisioning.md");

/// Where our defaults are others (docs/compat.md), or are said in words.
const OTHER_DEFAULTS: [(&str, &str); 2] = [
    ("disable-cluster-state-observability", "true"),
    (
        "leader-election-namespace",
        "the pod's namespace, or kube-system outside a cluster",
    ),
];

/// Settings of our own, and those of AWS (A10).
const OWN: [&str; 19] = [
    "cluster-name",
    "cluster-endpoint",
    "cluster-ca-bundle",
    "cluster-dns-ip",
    "isolated-vpc",
    "vm-memory-overhead-percent",
    "interruption-queue",
    "reserved-enis",
    "disable-dry-run",
    "enable-zonal-shift",
    "ami-refresh-interval",
    "subnet-refresh-interval",
    "aws-feature-gates",
    "eks-control-plane",
    "eviction-qps",
    "eviction-burst",
    "log-format",
    "consolidation-replacements",
    "nominate-pods",
];

fn environment(pairs: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// Flags as they are typed.
fn flags(typed: &[&str]) -> SettingsArgs {
    let command = SettingsArgs::augment_args(clap::Command::new("operator"));
    let matches = command.try_get_matches_from([&["operator"], typed].concat());
    SettingsArgs::from_arg_matches(&matches.expect("flags that exist")).expect("texts")
}

fn resolve(typed: &[&str], variables: &[(&str, &str)]) -> Result<Settings> {
    Settings::resolve(&flags(typed), &environment(variables))
}

fn valid(typed: &[&str], variables: &[(&str, &str)]) -> Settings {
    resolve(typed, variables).unwrap_or_else(|error| panic!("{typed:?} {variables:?}: {error}"))
}

/// A value that differs from the default, and one that is malformed where there is any.
fn sample(flag: &str) -> (&'static str, Option<&'static str>) {
    match flag {
        "metrics-port" | "health-probe-port" => ("9000", Some("http")),
        "kube-client-qps" | "kube-client-burst" | "eviction-qps" | "eviction-burst" => ("7", Some("-3")),
        "consolidation-replacements" => ("3", Some("many")),
        "enable-profiling" | "disable-leader-election" => ("true", Some("yes")),
        "disable-controller-warmup" | "disable-cluster-state-observability" | "ignore-dra-requests" => {
            ("false", Some("no"))
        }
        "nominate-pods" | "isolated-vpc" | "disable-dry-run" | "enable-zonal-shift" | "eks-control-plane" => {
            ("true", Some("yes"))
        }
        "ami-refresh-interval" | "subnet-refresh-interval" => ("2m", Some("59s")),
        "aws-feature-gates" => ("NodeClassCEL=true", Some("NodeClassCEL=on")),
        "cluster-dns-ip" => ("10.100.0.10", Some("dns")),
        "vm-memory-overhead-percent" => ("0.1", Some("-0.1")),
        "reserved-enis" => ("1", Some("-1")),
        "memory-limit" => ("1000000", Some("1Gi")),
        "cpu-requests" => ("2000", Some("1000m")),
        "log-level" => ("debug", Some("loud")),
        "log-output-paths" => ("stdout,/var/log/x", Some("stdout,,stderr")),
        "log-format" => ("text", Some("xml")),
        "batch-max-duration" | "batch-idle-duration" => ("2m", Some("10")),
        "preference-policy" => ("Ignore", Some("respect")),
        "min-values-policy" => ("BestEffort", Some("Loose")),
        "feature-gates" => ("NodeRepair=true", Some("NodeRepair=on")),
        _ => ("else", None),
    }
}

/// Flag, variable and default of each row of P §15.1.
fn specified() -> Vec<(&'static str, &'static str, &'static str)> {
    let section = SPECIFICATION.split("\n### 15.1 ").nth(1).expect("P §15.1");
    let section = section.split("\n### ").next().unwrap_or_default();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| Flag"));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let flag = cells[1].split(" (").next().unwrap_or_default();
        (flag, cells[2], cells[3])
    };
    rows.map(row).collect()
}

#[test]
fn p_200_p_202_every_setting_is_a_flag_and_a_variable_and_has_upstreams_default() {
    let table = table();
    let rows = specified();
    assert_eq!(rows.len(), 24, "{rows:?}");
    let default = valid(&[], &[]);
    for (flag, variable, shown) in &rows {
        let row = table
            .iter()
            .find(|row| row.names() == (*flag, (*variable).to_owned()));
        let row = row.unwrap_or_else(|| panic!("there is no --{flag} with {variable}"));
        let other = OTHER_DEFAULTS.iter().find(|(name, _)| name == flag);
        let shown = shown
            .replace("**", "")
            .replace(", ", ",")
            .replace('\u{2212}', "-");
        let wanted = match (other, &*shown) {
            (Some((_, default)), _) => default,
            (None, text) if text.starts_with("\"\"") => "",
            (None, text) => text.split(" (").next().unwrap_or_default(),
        };
        let is_said_otherwise = *flag == "instance-types-file-path";
        assert!(
            row.default == wanted || is_said_otherwise,
            "{flag}: {:?}, not {wanted:?}",
            row.default
        );
    }
    for row in &table {
        let (flag, variable) = row.names();
        let variable = variable.as_str();
        let is_known = rows.iter().any(|(known, ..)| *known == flag) || OWN.contains(&flag);
        assert!(is_known, "--{flag} is neither upstream's nor declared as ours");
        let (good, bad) = sample(flag);
        let typed = format!("--{flag}={good}");
        let by_flag = valid(&[&typed], &[]);
        assert_ne!(by_flag, default, "{typed} changes nothing");
        assert_eq!(valid(&[], &[(variable, good)]), by_flag, "{variable}={good}");
        assert_eq!(valid(&[], &[(variable, "")]), default, "an empty {variable}");
        let Some(bad) = bad else { continue };
        assert_eq!(valid(&[&typed], &[(variable, bad)]), by_flag, "the flag wins");
        let refused = [
            (
                resolve(&[&format!("--{flag}={bad}")], &[]),
                format!("flag --{flag}: "),
            ),
            (
                resolve(&[], &[(variable, bad)]),
                format!("environment variable {variable}: "),
            ),
        ];
        for (answer, origin) in refused {
            let error = answer.expect_err(&format!("{flag}={bad}")).to_string();
            assert!(error.starts_with(&origin), "{error}");
            assert!(
                error.contains(&format!("{bad:?}")) && error.contains("expected"),
                "{error}"
            );
        }
    }
}

#[test]
fn p_202_defaults() {
    let settings = valid(&[], &[]);
    assert_eq!((settings.metrics_port, settings.health_probe_port), (8080, 8081));
    assert_eq!((settings.kube_client_qps, settings.kube_client_burst), (200, 300));
    assert!(settings.disable_controller_warmup && !settings.disable_leader_election);
    assert_eq!(settings.leader_election_name, "karpenter-leader-election");
    assert_eq!(settings.leader_election_namespace, None);
    assert_eq!(settings.batch_max_duration, Duration::from_secs(10));
    assert_eq!(settings.batch_idle_duration, Duration::from_secs(1));
    assert_eq!(
        (settings.cpu_requests_milli(), settings.eviction_rate()),
        (1000, None)
    );
    assert_eq!(
        (settings.log_level, settings.log_output_paths),
        (LogLevel::Info, vec![LogOutput::Stdout])
    );
    assert_eq!(settings.preference_policy, PreferencePolicy::Respect);
    assert_eq!(settings.min_values_policy, MinValuesPolicy::Strict);
    assert!(settings.ignore_dra_requests && settings.karpenter_service.is_none());
    assert_eq!(settings.feature_gates, FeatureGates::default());
}

/// Upstream takes it: the longest time then ends every window.
#[test]
fn p_202_an_idle_duration_may_exceed_the_longest() {
    let settings = valid(&[], &[("BATCH_MAX_DURATION", "500ms")]);
    assert_eq!(settings.batch_max_duration, Duration::from_millis(500));
    assert_eq!(settings.batch_idle_duration, Duration::from_secs(1));
}

#[test]
fn p_202_the_log_goes_to_every_path_of_the_list() {
    let settings = valid(
        &[],
        &[("LOG_OUTPUT_PATHS", "stderr, /var/log/karpenter.log,stdout")],
    );
    let wanted = [
        LogOutput::Stderr,
        LogOutput::File("/var/log/karpenter.log".into()),
        LogOutput::Stdout,
    ];
    assert_eq!(settings.log_output_paths, wanted);
}

#[test]
fn p_202_no_requests_at_all_are_refused() {
    let error = resolve(&["--kube-client-qps=0"], &[])
        .expect_err("no request")
        .to_string();
    assert!(error.contains("KUBE_CLIENT_QPS"), "{error}");
}

/// None would mean one, or that no pod is ever evicted. No rate of evictions is one that is not limited.
#[test]
fn p_202_none_of_what_there_must_be_one_of_is_refused() {
    for variable in ["EVICTION_BURST", "CONSOLIDATION_REPLACEMENTS"] {
        let error = resolve(&[], &[(variable, "0")]).expect_err(variable).to_string();
        assert!(
            error.contains(variable) && error.ends_with("expected a positive whole number"),
            "{error}"
        );
    }
    assert_eq!(valid(&[], &[("EVICTION_QPS", "0")]).eviction_rate(), None);
}

/// Go's `strconv.ParseBool` reads upstream's variables and gates; its flags take two spellings only.
#[test]
fn p_202_p_203_booleans_of_variables_and_gates_are_spelt_as_upstream_takes_them() {
    let disabled = |text| valid(&[], &[("DISABLE_LEADER_ELECTION", text)]).disable_leader_election;
    let warmth = |text| valid(&[], &[("DISABLE_CONTROLLER_WARMUP", text)]).disable_controller_warmup;
    for text in ["1", "t", "T", "true", "TRUE", "True"] {
        assert!(disabled(text), "{text}");
        let gates = parse_feature_gates(&format!("NodeRepair={text}")).expect(text);
        assert!(gates.node_repair, "{text}");
        let of_aws = aws_feature_gates(&format!("NodeClassCEL={text}")).expect(text);
        assert!(of_aws.node_class_cel, "{text}");
    }
    for text in ["0", "f", "F", "false", "FALSE", "False"] {
        assert!(!warmth(text), "{text}");
        let gates = parse_feature_gates(&format!("ReservedCapacity={text}")).expect(text);
        assert!(!gates.reserved_capacity, "{text}");
    }
    for text in ["yes", "on", "tRUE", "2", " true"] {
        assert!(
            resolve(&[], &[("DISABLE_LEADER_ELECTION", text)]).is_err(),
            "{text}"
        );
    }
    for text in ["1", "t", "True"] {
        let flag = format!("--disable-leader-election={text}");
        assert!(resolve(&[&flag], &[]).is_err(), "{flag}");
    }
}

#[test]
fn p_200_settings_without_effect_say_so() {
    let given = [
        ("MEMORY_LIMIT", "1000000"),
        ("ENABLE_PROFILING", "true"),
        ("LOG_ERROR_OUTPUT_PATHS", "/var/log/errors"),
        ("DISABLE_CONTROLLER_WARMUP", "false"),
        ("IGNORE_DRA_REQUESTS", "false"),
        ("KARPENTER_SERVICE", "karpenter"),
        (
            "FEATURE_GATES",
            "NodeOverlay=true,CapacityBuffer=true,NodeRepair=true",
        ),
    ];
    let warnings = valid(&[], &given).without_effect();
    assert_eq!(warnings.len(), 6, "{warnings:?}");
    for (name, _) in &given[..6] {
        assert!(warnings.iter().any(|warning| warning.contains(name)), "{name}");
    }
    assert!(valid(&[], &[]).without_effect().is_empty());
    assert_eq!(
        valid(&[], &[("EVICTION_QPS", "50")]).eviction_rate(),
        Some((50, 10))
    );
}

#[test]
fn p_202_cpu_requests_that_are_not_positive_mean_the_default() {
    assert_eq!(valid(&["--cpu-requests", "-5"], &[]).cpu_requests_milli(), 1000);
}

#[test]
fn p_203_gates_that_are_not_named_keep_their_defaults() {
    let gates = parse_feature_gates("NodeRepair=true, Drift=false").expect("valid");
    let wanted = FeatureGates {
        node_repair: true,
        ..FeatureGates::default()
    };
    assert_eq!(gates, wanted);
    let shown = parse_feature_gates(DEFAULT_GATES);
    assert_eq!(shown, Ok(FeatureGates::default()), "help shows the defaults");
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

/// The rows of A10: names and defaults; what each does is proved where it is read.
#[test]
fn a_120_settings_of_aws_have_the_defaults_of_the_specification() {
    let default = valid(&[], &[]);
    assert_eq!(
        (
            default.cluster_name,
            default.interruption_queue,
            default.cluster_dns_ip
        ),
        (None, None, None)
    );
    let switches = [
        default.isolated_vpc,
        default.disable_dry_run,
        default.enable_zonal_shift,
        default.aws_feature_gates.node_class_cel,
    ];
    assert_eq!(switches, [false; 4]);
    assert_eq!(
        (default.vm_memory_overhead_percent, default.reserved_enis),
        (0.075, 0)
    );
    let minute = Duration::from_secs(60);
    assert_eq!(
        (default.ami_refresh_interval, default.subnet_refresh_interval),
        (minute, minute)
    );
    assert!(default.feature_gates.reserved_capacity);
    let set = valid(
        &[],
        &[
            ("CLUSTER_NAME", "blue"),
            ("VM_MEMORY_OVERHEAD_PERCENT", "0.1"),
            ("AMI_REFRESH_INTERVAL", "5m"),
            ("INTERRUPTION_QUEUE", "q"),
        ],
    );
    assert_eq!(
        (set.cluster_name.as_deref(), set.interruption_queue.as_deref()),
        (Some("blue"), Some("q"))
    );
    assert_eq!(
        (set.vm_memory_overhead_percent, set.ami_refresh_interval),
        (0.1, Duration::from_secs(300))
    );
    for wrong in [
        ("VM_MEMORY_OVERHEAD_PERCENT", "-0.1"),
        ("AMI_REFRESH_INTERVAL", "59s"),
        ("RESERVED_ENIS", "-1"),
    ] {
        let error = resolve(&[], &[wrong]).unwrap_err().to_string();
        assert!(error.contains(wrong.0), "{error}");
    }
}
