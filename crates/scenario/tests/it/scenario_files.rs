//! Reading scenario files: the example of the documentation, and what is said about wrong ones.

use spokeshave_scenario::file::ModelName;
use spokeshave_scenario::workload::{Arrivals, Kind, Replicas};
use spokeshave_scenario::{Problem, Scenario, Spread};

use super::document;

const COMPLETE: &str = r#"
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: shop-month}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 30d
  warmup: 1d
  seeds: 10
  cluster:
    manifests: [pools.yaml]
    snapshot: monday.yaml
    catalog: builtin
    scheduler: {scoring: LeastAllocated}
  workloads:
  - name: web
    deployments: {count: 40, cpu: [250m, 500m, 1], memory: 512Mi, spread: zone, maxUnavailable: 10%}
    replicas: {low: 6, high: 40, peakAt: "14:00", weekend: 0.5, noise: 0.1}
    ready: {median: 8s, p99: 40s}
  - name: nightly
    jobs: {cron: "0 1 * * *", count: 800, cpu: 2, memory: 4Gi, runs: {median: 12m, p99: 2h}}
  - name: db
    statefulSets: {count: 6, replicas: 3, cpu: 4, memory: 32Gi, volume: zonal, doNotDisrupt: true}
  - name: services
    import: {format: dlrm, file: disaggregated_DLRM_trace.csv, scaleCpu: 0.05, repeat: false}
  cloud:
    boot: {median: 35s, p99: 90s}
    spot: {interruptionsPerNodeHour: 0.01, notice: 2m}
    shortages: [{at: 10d9h, for: 2h, cheapest: 20}]
  policies:
  - {name: now}
  - {name: patient, merge: {NodePool: {spec: {disruption: {consolidateAfter: 10m}}}}}
  - {name: karpenter-model, model: karpenter-1.14}
  - {name: balanced-model, model: karpenter-balanced}
  - {name: ca-model, model: cluster-autoscaler}
  - {name: never, model: none}
  baseline: now
  expect:
  - patient.cost <= 1.02 * now.cost
  - patient.evictionsPerPodDay < now.evictionsPerPodDay
"#;

fn problems(text: &str) -> Vec<Problem> {
    Scenario::read(&document(text)).expect_err("wrong")
}

#[test]
fn the_complete_example_means_what_it_says() {
    let found = Scenario::read(&document(COMPLETE)).expect("valid");
    assert_eq!(
        (found.duration_ms, found.warmup_ms, found.seeds),
        (2_592_000_000, 86_400_000, 10)
    );
    assert_eq!(found.cluster.snapshot, ["monday.yaml"]);
    assert_eq!(found.cluster.catalog, None);
    let Kind::Deployments {
        count: 40,
        replicas: Replicas::Daily(daily),
    } = &found.workloads[0].kind
    else {
        panic!("{:?}", found.workloads[0]);
    };
    assert_eq!((daily.low, daily.high, daily.peak_at_ms), (6, 40, 50_400_000));
    let shape = found.workloads[0].shape.as_ref().expect("a shape");
    assert_eq!(shape.cpu_milli, [250, 500, 1_000]);
    assert!(shape.spread_zones && !shape.spread_hosts);
    assert_eq!(
        found.workloads[0].ready,
        Some(Spread {
            median_ms: 8_000,
            p99_ms: 40_000
        })
    );
    assert_eq!(found.workloads[1].ready, None, "nothing is said");
    assert!(matches!(
        &found.workloads[1].kind,
        Kind::Jobs {
            arrivals: Arrivals::Cron { count: 800, .. },
            ..
        }
    ));
    assert!(matches!(
        &found.workloads[2].kind,
        Kind::StatefulSets {
            count: 6,
            replicas: Replicas::Constant(3),
            zonal: true
        }
    ));
    let Kind::Import(source) = &found.workloads[3].kind else {
        panic!("{:?}", found.workloads[3]);
    };
    assert_eq!(
        (source.files[0].as_str(), source.scale_cpu),
        ("disaggregated_DLRM_trace.csv", 0.05)
    );
    assert_eq!(found.cloud.spot.expect("spot").per_million_node_hours, 10_000);
    assert_eq!(found.cloud.shortages[0].at_ms, (10 * 24 + 9) * 3_600_000);
    let models: Vec<ModelName> = found.policies.iter().map(|policy| policy.model).collect();
    assert_eq!(
        models,
        [
            ModelName::Ours,
            ModelName::Ours,
            ModelName::Karpenter,
            ModelName::KarpenterBalanced,
            ModelName::ClusterAutoscaler,
            ModelName::None
        ]
    );
    assert_eq!(
        found.policies[1].merge[0].patch["spec"]["disruption"]["consolidateAfter"],
        "10m"
    );
    assert_eq!((found.baseline.as_str(), found.expect.len()), ("now", 2));
}

#[test]
fn a_cluster_may_begin_with_several_dumps() {
    let text = COMPLETE.replace("snapshot: monday.yaml", "snapshot: [shop.yaml, system.yaml]");
    let found = Scenario::read(&document(&text)).expect("valid");
    assert_eq!(found.cluster.snapshot, ["shop.yaml", "system.yaml"]);
    let wrong = problems(&text.replace("system.yaml", "\"\""));
    assert_eq!(wrong[0].field, "spec.cluster.snapshot[1]");
}

#[test]
fn a_model_that_is_mistyped_is_named_with_the_one_that_was_meant() {
    for (wrong, expected) in [
        ("karpenter-balance", "did you mean \"karpenter-balanced\"?"),
        ("Karpenter-Blanced", "did you mean \"karpenter-balanced\"?"),
        ("karpenter-1.13", "did you mean \"karpenter-1.14\"?"),
        (
            "autopilot",
            "expected one of spokeshave, none, karpenter-1.14, karpenter-balanced, cluster-autoscaler",
        ),
    ] {
        let found = problems(&COMPLETE.replace("model: karpenter-balanced", &format!("model: {wrong}")));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].field, "spec.policies[3].model");
        assert!(found[0].message.ends_with(expected), "{found:?}");
    }
}

#[test]
fn several_problems_are_named_at_once() {
    let text = COMPLETE
        .replace("seeds: 10", "seeds: none")
        .replace("maxUnavailable: 10%", "maxUnavailble: 10%")
        .replace("p99: 2h", "p99: 2m");
    let fields: Vec<String> = problems(&text).into_iter().map(|problem| problem.field).collect();
    assert_eq!(
        fields,
        [
            "spec.seeds",
            "spec.workloads[0].deployments.maxUnavailble",
            "spec.workloads[1].jobs.runs",
        ]
    );
}

#[test]
fn changes_of_size_say_when_and_what_in_the_order_of_time() {
    let with = |changes: &str| COMPLETE.replace("spread: zone", &format!("spread: zone, changes: {changes}"));
    for (changes, field, expected) in [
        ("[{cpu: 1}]", ".deployments.changes[0]", "at is missing"),
        ("[{at: 1d}]", ".deployments.changes[0]", "changes nothing"),
        ("[{at: 0s, cpu: 1}]", ".deployments.changes[0].at", "is 0"),
        (
            "[{at: 1d, cpu: 0}]",
            ".deployments.changes[0].cpu",
            "\"0\" is not above 0",
        ),
        (
            "[{at: 1d, cpu: 1}, {at: 1d, memory: 1Gi}]",
            ".deployments.changes[1]",
            "is not after the change before it",
        ),
        (
            "[{at: 1d, gpu: 1}]",
            ".deployments.changes[0].gpu",
            "unknown field \"gpu\"",
        ),
        ("[{at: 30d, cpu: 1}]", "", "changes after the end of the scenario"),
    ] {
        let found = problems(&with(changes));
        assert_eq!(found[0].field, format!("spec.workloads[0]{field}"), "{changes}");
        assert!(found[0].message.contains(expected), "{changes}: {found:?}");
    }
    let found = Scenario::read(&document(&with("[{at: 29d, cpu: [1, 2]}]"))).expect("valid");
    let shape = found.workloads[0].shape.as_ref().expect("a shape");
    assert_eq!(
        (shape.changes.len(), shape.changes[0].at_ms),
        (1, 29 * 86_400_000)
    );
    assert_eq!(shape.changes[0].cpu_milli, [1_000, 2_000]);
    assert_eq!(shape.changes[0].memory_bytes, [] as [i64; 0], "it stays");
}

/// An empty value is no reason to pass over a field that does not exist.
#[test]
fn values_of_a_pod_that_mean_nothing_are_named() {
    let with = |pod: &str| COMPLETE.replace("spread: zone", &format!("spread: zone, pod: {{{pod}}}"));
    for (pod, field, expected) in [
        ("tolerationz: []", "pod", "unknown field \"tolerationz\""),
        (
            "affinity: {nodeAffinitee: {}}",
            "pod",
            "unknown field \"affinity.nodeAffinitee\"",
        ),
        (
            "terminationGracePeriodSeconds: -5",
            "pod.terminationGracePeriodSeconds",
            "-5 is not valid; expected a number of seconds from 0 on",
        ),
    ] {
        let found = problems(&with(pod));
        assert_eq!(
            found[0].field,
            format!("spec.workloads[0].deployments.{field}"),
            "{pod}"
        );
        assert!(found[0].message.contains(expected), "{pod}: {found:?}");
    }
    for pod in [
        "tolerations: []",
        "affinity: {}",
        "nodeSelector: null",
        "terminationGracePeriodSeconds: 0",
    ] {
        Scenario::read(&document(&with(pod))).unwrap_or_else(|problems| panic!("{pod}: {problems:?}"));
    }
}

/// A table knows no namespaces and gets that of its workload; other recordings have their own, which nothing replaces.
#[test]
fn only_an_import_without_namespaces_takes_one() {
    let of = |format: &str| {
        let import = COMPLETE.replace("format: dlrm", &format!("format: {format}"));
        import.replace("- name: services\n", "- name: services\n    namespace: other\n")
    };
    for format in ["dlrm", "openb", "azure-llm"] {
        let found = Scenario::read(&document(&of(format))).expect("valid");
        assert_eq!(found.workloads[3].namespace, "other", "{format}");
    }
    for format in ["dumps", "record", "audit", "kubereplay", "sktrace", "prometheus"] {
        let found = problems(&of(format));
        assert_eq!(found[0].field, "spec.workloads[3].namespace", "{format}");
        assert!(
            found[0].message.contains("namespaces of its own"),
            "{format}: {found:?}"
        );
    }
}

#[test]
fn a_document_that_is_something_else_is_refused() {
    for (text, field, expected) in [
        (
            "[]",
            "",
            "expected a mapping with apiVersion, kind, metadata, spec",
        ),
        ("kind: Scenario", "", "apiVersion is missing"),
        (
            "apiVersion: karpenter.sh/v1\nkind: NodePool",
            "apiVersion",
            "expected simulate.spokeshave.dev/v1alpha1",
        ),
        (
            "apiVersion: simulate.spokeshave.dev/v1alpha1\nkind: Scenarios",
            "kind",
            "did you mean \"Scenario\"?",
        ),
        (
            "apiVersion: simulate.spokeshave.dev/v1alpha1\nkind: Scenario",
            "",
            "metadata is missing",
        ),
    ] {
        let problems = problems(text);
        assert_eq!(problems[0].field, field, "{text}");
        assert!(problems[0].message.contains(expected), "{text}: {problems:?}");
    }
}

#[test]
fn no_change_of_a_single_value_makes_reading_panic() {
    // Each value of the complete example is replaced by each of some that do not belong there.
    let whole = document(COMPLETE);
    let strange = [
        serde_json::json!(null),
        serde_json::json!(-1),
        serde_json::json!(1e300),
        serde_json::json!(""),
        serde_json::json!("é\u{0}'\""),
        serde_json::json!([]),
        serde_json::json!({}),
        serde_json::json!([[{"a": null}]]),
        serde_json::json!(u64::MAX),
    ];
    let mut paths = Vec::new();
    collect(&whole, String::new(), &mut paths);
    assert!(paths.len() > 80, "{}", paths.len());
    let mut refused = 0;
    for path in &paths {
        for value in &strange {
            let mut document = whole.clone();
            *document.pointer_mut(path).expect("it is there") = value.clone();
            if let Err(problems) = Scenario::read(&document) {
                assert!(!problems.is_empty(), "{path} = {value}: refused without a word");
                refused += 1;
            }
        }
    }
    assert!(
        refused > paths.len() * 5,
        "{refused} of {}",
        paths.len() * strange.len()
    );
}

fn collect(value: &serde_json::Value, path: String, paths: &mut Vec<String>) {
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                collect(value, format!("{path}/{}", escape(key)), paths);
            }
        }
        serde_json::Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect(value, format!("{path}/{index}"), paths);
            }
        }
        _ => {}
    }
    paths.push(path);
}

/// What a cluster begins with: the nodes of its dump, unless the file says none.
#[test]
fn a_dump_is_begun_with_its_nodes_unless_the_scenario_says_none() {
    let begins_empty = |nodes: &str| {
        let text = COMPLETE.replace("snapshot: monday.yaml", &format!("snapshot: monday.yaml{nodes}"));
        Scenario::read(&document(&text)).map(|found| found.cluster.begins_empty)
    };
    assert_eq!(begins_empty(""), Ok(false));
    assert_eq!(begins_empty("\n    nodes: snapshot"), Ok(false));
    assert_eq!(begins_empty("\n    nodes: none"), Ok(true));
    let wrong = begins_empty("\n    nodes: nome").expect_err("no such word");
    assert_eq!(wrong[0].field, "spec.cluster.nodes");
    assert!(wrong[0].message.contains("did you mean \"none\"?"), "{wrong:?}");
    let text = COMPLETE.replace("    snapshot: monday.yaml\n", "    nodes: snapshot\n");
    let wrong = Scenario::read(&document(&text)).expect_err("there is no dump");
    assert_eq!(wrong[0].field, "spec.cluster.nodes");
}
