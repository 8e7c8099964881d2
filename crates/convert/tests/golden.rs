//! Whole files converted: the result and the report as they are kept beside each file, and what holds for every one of them.
//!
//! After a wanted change, `BLESS=1 cargo test -p spokeshave-convert` rewrites the expected files; read the difference.

#![expect(clippy::disallowed_methods, reason = "a test reads its files")]

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use spokeshave_apiserver::CompiledCrd;
use spokeshave_convert::{Change, Conversion, Level, Options, convert, definitions, served_version};

const FILES: [&str; 11] = [
    "provisioner",
    "provider",
    "machine",
    "beta",
    "kubelet",
    "aks",
    "workloads",
    "holder",
    "autoscaler",
    "groups",
    "settings",
];

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn documents(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(data(&format!("{name}.yaml"))).expect("a file");
    serde_saphyr::from_multiple(&text).expect("YAML")
}

fn converted(name: &str) -> Conversion {
    convert(documents(name), &Options::default())
}

fn shown(conversion: &Conversion) -> String {
    let mut text = String::new();
    for output in &conversion.objects {
        let yaml = serde_saphyr::to_string(&output.object).expect("YAML");
        writeln!(text, "---\n{}", yaml.trim_end()).expect("written");
    }
    text.push_str("===\n");
    for line in &conversion.lines {
        let became = line.became.as_deref().unwrap_or("-");
        let (from, word) = (line.from, line.change.word());
        writeln!(text, "{from} {word} [{}] [{became}] {}", line.field, line.text).expect("written");
    }
    text
}

#[test]
fn files_become_what_is_written_beside_them() {
    for name in FILES {
        let found = shown(&converted(name));
        let path = data(&format!("{name}.expected"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &found).expect("written");
            continue;
        }
        let expected = std::fs::read_to_string(&path).expect("the expected result");
        assert!(found == expected, "{name} became\n{found}");
    }
}

/// Schema and CEL rules of the version that is served.
fn refusals(object: &Value) -> Vec<String> {
    let definitions = definitions();
    let own = object["apiVersion"].as_str();
    let is_own = |definition: &&Value| {
        definition["spec"]["names"]["kind"] == object["kind"] && served_version(definition).as_deref() == own
    };
    let Some(definition) = definitions.iter().find(is_own) else {
        return Vec::new();
    };
    let compiled = CompiledCrd::compile(definition).expect("a definition");
    let (_, name) = own.and_then(|own| own.split_once('/')).expect("a group");
    let version = compiled.version(name).expect("a version");
    let mut object = object.clone();
    let unknown = version.prune(&mut object);
    version.default(&mut object);
    let causes = version.validate(&object, None);
    unknown
        .into_iter()
        .chain(causes.iter().map(spokeshave_apiserver::Cause::sentence))
        .collect()
}

#[test]
fn what_comes_out_is_accepted_unless_a_line_says_what_is_missing() {
    for name in FILES {
        let conversion = converted(name);
        for output in &conversion.objects {
            let refusals = refusals(&output.object);
            let told = conversion
                .lines
                .iter()
                .any(|line| line.from == output.from && line.change == Change::Manual);
            assert!(
                refusals.is_empty() || told,
                "{name}: {refusals:?}\n{:#}",
                output.object
            );
        }
    }
}

/// What is v1 comes out as it went in, without a word; so a conversion converted again is itself.
#[test]
fn a_result_converts_to_itself_in_silence() {
    for name in FILES {
        let first = converted(name);
        let objects: Vec<Value> = first.objects.into_iter().map(|output| output.object).collect();
        let again = convert(objects.clone(), &Options::default());
        let silent = |line: &&spokeshave_convert::Line| {
            // No class is named, and no annotation is known.
            !matches!(line.change, Change::Manual | Change::Unknown)
        };
        let said: Vec<_> = again.lines.iter().filter(silent).collect();
        assert!(said.is_empty(), "{name}: {said:?}");
        let second: Vec<Value> = again.objects.into_iter().map(|output| output.object).collect();
        assert_eq!(second, objects, "{name}");
    }
}

/// Every scalar of a source is in the result, or a line speaks of its field or of one above it.
#[test]
fn nothing_is_dropped_in_silence() {
    for name in FILES {
        let conversion = converted(name);
        for (from, document) in documents(name).into_iter().enumerate() {
            let mut results = String::new();
            for output in conversion.objects.iter().filter(|output| output.from == from) {
                writeln!(results, "{}", output.object).expect("written");
            }
            let mut scalars = Vec::new();
            collect(&document, String::new(), &mut scalars);
            for (path, value) in scalars {
                let told = conversion.lines.iter().any(|line| {
                    line.from == from
                        && (path.starts_with(&line.field)
                            || line.field.starts_with(&path)
                            || line.text.contains(&value))
                });
                assert!(
                    told || results.contains(&value),
                    "{name}, document {from}: {path} = {value} is gone without a word"
                );
            }
        }
    }
}

fn collect(value: &Value, path: String, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                collect(value, path, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, format!("{path}[{index}]"), found);
            }
        }
        // Versions and kinds are what changes.
        _ if path.ends_with("apiVersion") || path.ends_with("kind") => {}
        // The holder's and the autoscaler's own containers are not carried over.
        _ if path.contains("containers[0].name")
            || path.contains("containers[0].image")
            || path == "image" => {}
        scalar => found.push((path, scalar.to_string().trim_matches('"').to_owned())),
    }
}

fn pool(spec: Value) -> Conversion {
    let object = serde_json::json!({
        "apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "p"}, "spec": spec,
    });
    convert(vec![object], &Options::default())
}

fn levels(conversion: &Conversion, field: &str) -> Vec<Level> {
    let lines = conversion.lines.iter().filter(|line| line.field == field);
    lines.map(|line| line.change.level()).collect()
}

#[test]
fn d_375_seconds_after_empty_become_a_policy_and_a_wait() {
    let found = pool(serde_json::json!({"ttlSecondsAfterEmpty": 120, "providerRef": {"name": "c"}}));
    let disruption = &found.objects[0].object["spec"]["disruption"];
    assert_eq!(
        *disruption,
        serde_json::json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "120s"})
    );
    assert_eq!(levels(&found, "spec.ttlSecondsAfterEmpty"), [Level::Warning]);
    // Neither field: nothing went; both: refused of old.
    let neither = pool(serde_json::json!({}));
    assert_eq!(
        neither.objects[0].object["spec"]["disruption"],
        serde_json::json!({"consolidateAfter": "Never"})
    );
    let both = pool(serde_json::json!({"ttlSecondsAfterEmpty": 1, "consolidation": {"enabled": true}}));
    assert_eq!(levels(&both, "spec.ttlSecondsAfterEmpty"), [Level::Error]);
    let wrong = pool(serde_json::json!({"ttlSecondsAfterEmpty": -1}));
    assert_eq!(levels(&wrong, "spec.ttlSecondsAfterEmpty"), [Level::Error]);
}

#[test]
fn d_376_seconds_until_expired_become_expire_after_and_their_absence_never() {
    let expiry =
        |spec: Value| pool(spec).objects[0].object["spec"]["template"]["spec"]["expireAfter"].clone();
    assert_eq!(
        expiry(serde_json::json!({"ttlSecondsUntilExpired": 3600})),
        "3600s"
    );
    assert_eq!(expiry(serde_json::json!({})), "Never");
}

#[test]
fn d_377_both_names_of_consolidation_are_one_policy() {
    let old = pool(serde_json::json!({"consolidation": {"enabled": true}}));
    let beta = converted("beta");
    for object in [&old.objects[0].object, &beta.objects[0].object] {
        let disruption = &object["spec"]["disruption"];
        assert_eq!(disruption["consolidationPolicy"], "WhenEmptyOrUnderutilized");
        assert_eq!(disruption["consolidateAfter"], "0s");
    }
}

#[test]
fn d_378_retired_annotations_become_do_not_disrupt() {
    let found = converted("workloads");
    let annotations = &found.objects[0].object["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(
        *annotations,
        serde_json::json!({"karpenter.sh/do-not-disrupt": "true"})
    );
    let provisioner = converted("provisioner");
    let template = &provisioner.objects[0].object["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(template["karpenter.sh/do-not-disrupt"], "true");
    assert!(template.get("karpenter.sh/do-not-consolidate").is_none());
}

#[test]
fn d_379_tolerations_of_the_old_taint_name_the_new_one() {
    let found = converted("workloads");
    let toleration = &found.objects[0].object["spec"]["template"]["spec"]["tolerations"][0];
    let expected =
        serde_json::json!({"key": "karpenter.sh/disrupted", "operator": "Exists", "effect": "NoSchedule"});
    assert_eq!(*toleration, expected);
}

#[test]
fn d_381_expire_after_in_the_place_of_v1beta1_is_moved_and_reported() {
    let found = converted("aks");
    let spec = &found.objects[0].object["spec"];
    assert_eq!(spec["template"]["spec"]["expireAfter"], "168h");
    assert!(spec["disruption"].get("expireAfter").is_none());
    assert_eq!(levels(&found, "spec.disruption.expireAfter"), [Level::Warning]);
}

#[test]
fn an_aks_node_class_of_v1alpha2_becomes_the_version_that_is_served() {
    let class = |spec: Value| {
        let object = serde_json::json!({
            "apiVersion": "karpenter.azure.com/v1alpha2", "kind": "AKSNodeClass",
            "metadata": {"name": "c"}, "spec": spec, "status": {"images": []},
        });
        convert(vec![object], &Options::default())
    };
    let fields = serde_json::json!({
        "imageFamily": "AzureLinux", "osDiskSizeGB": 60, "maxPods": 50, "tags": {"a": "b"},
        "kubelet": {"cpuCFSQuota": false}, "vnetSubnetID": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n",
    });
    let found = class(fields.clone());
    let object = &found.objects[0].object;
    assert_eq!(object["apiVersion"], "karpenter.azure.com/v1beta1");
    assert_eq!(object["spec"], fields, "the same fields");
    assert_eq!(refusals(object), Vec::<String>::new());
    assert_eq!(levels(&found, "apiVersion"), [Level::Note]);
    assert_eq!(levels(&found, "status"), [Level::Warning]);
    // What the version lost, and what it never had.
    let old = class(serde_json::json!({"imageVersion": "202311.01.0", "diskColour": "blue"}));
    assert_eq!(old.objects[0].object["spec"], serde_json::json!({}));
    assert_eq!(levels(&old, "spec.imageVersion"), [Level::Error]);
    assert_eq!(levels(&old, "spec.diskColour"), [Level::Error]);
    // An unknown version is omitted and reported.
    let future = serde_json::json!({"apiVersion": "karpenter.azure.com/v7", "kind": "AKSNodeClass", "metadata": {"name": "c"}});
    let left_out = convert(vec![future], &Options::default());
    assert!(left_out.objects.is_empty());
    assert_eq!(levels(&left_out, ""), [Level::Error]);
}

#[test]
fn kubelets_that_differ_give_a_shared_class_a_copy_for_each() {
    let found = converted("beta");
    let class_of = |name: &str| {
        let pool = found
            .objects
            .iter()
            .find(|output| output.object["metadata"]["name"] == name)
            .expect("a pool");
        pool.object["spec"]["template"]["spec"]["nodeClassRef"]["name"].clone()
    };
    assert_eq!(
        class_of("bare"),
        "default",
        "it has no settings and keeps the class"
    );
    for (pool, pods) in [("general", 110), ("jobs", 30)] {
        let class = class_of(pool);
        let class = found
            .objects
            .iter()
            .find(|output| {
                output.object["kind"] == "EC2NodeClass" && output.object["metadata"]["name"] == class
            })
            .expect("its class");
        assert_eq!(class.object["spec"]["kubelet"]["maxPods"], pods, "{pool}");
    }
}

#[test]
fn kubelets_that_are_the_same_share_a_class() {
    let classes_of = |kubelets: [Value; 3]| {
        let mut objects = vec![serde_json::json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "default"}, "spec": {},
        })];
        for (name, kubelet) in ["a", "b", "c"].into_iter().zip(kubelets) {
            let class = serde_json::json!({"name": "default"});
            objects.push(serde_json::json!({
                "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": name},
                "spec": {"template": {"spec": {"nodeClassRef": class, "kubelet": kubelet}}},
            }));
        }
        let found = convert(objects, &Options::default());
        let mut classes = Vec::new();
        for output in &found.objects {
            let class = &output.object["spec"]["template"]["spec"]["nodeClassRef"]["name"];
            classes.extend(class.as_str().map(str::to_owned));
        }
        let made = found.objects.len() - classes.len();
        (classes, made)
    };
    let pods = |number: u32| serde_json::json!({"maxPods": number});
    let runtime = serde_json::json!({"maxPods": 58, "containerRuntime": "containerd"});
    let named = |names: [&str; 3]| names.map(str::to_owned).to_vec();
    assert_eq!(
        classes_of([pods(58), runtime, pods(58)]),
        (named(["default"; 3]), 1),
        "nothing is copied for the same settings"
    );
    assert_eq!(
        classes_of([pods(58), pods(58), pods(110)]),
        (named(["default-a", "default-a", "default"]), 2),
        "one copy for both, and the last has the class for itself"
    );
    assert_eq!(
        classes_of([pods(58), pods(110), pods(58)]),
        (named(["default", "default-b", "default"]), 2),
        "also where another pool stands between them"
    );
    assert_eq!(
        classes_of([Value::Null, pods(58), pods(58)]),
        (named(["default", "default-b", "default-b"]), 2),
        "a pool without settings keeps the class as it is"
    );
}

#[test]
fn settings_that_no_kubelet_had_are_reported_and_left_out() {
    let found =
        pool(serde_json::json!({"kubeletConfiguration": {"maxPodz": 3}, "providerRef": {"name": "c"}}));
    let field = "spec.kubeletConfiguration.maxPodz";
    assert_eq!(levels(&found, field), [Level::Error]);
    let whole = levels(&found, "spec.kubeletConfiguration");
    assert!(whole.is_empty(), "nothing is left to write");
}

#[test]
fn d_377_consolidation_that_was_switched_off_stays_so_without_an_error() {
    let line = |after: &str| {
        let object = serde_json::json!({
            "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"disruption": {"consolidateAfter": after}, "template": {"spec": {}}},
        });
        let found = convert(vec![object], &Options::default());
        let kept = found.objects[0].object["spec"]["disruption"]["consolidateAfter"].clone();
        (kept, levels(&found, "spec.disruption.consolidateAfter"))
    };
    assert_eq!(line("Never"), (serde_json::json!("Never"), vec![]));
    assert_eq!(line("30s"), (serde_json::json!("30s"), vec![Level::Error]));
}

#[test]
fn a_reference_without_group_or_kind_means_the_class_of_the_cloud() {
    const REFERENCE: &str = "spec.template.spec.nodeClassRef";
    let object = |version: &str, kind: &str| {
        let metadata = serde_json::json!({"name": "default"});
        serde_json::json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {}})
    };
    let objects = [
        object("karpenter.k8s.aws/v1", "EC2NodeClass"),
        object("karpenter.azure.com/v1beta1", "AKSNodeClass"),
        object("karpenter.sh/v1alpha5", "Provisioner"),
    ];
    let short = serde_json::json!({"name": "default"});
    let versioned = serde_json::json!({"name": "default", "apiVersion": "karpenter.azure.com/v1alpha2"});
    let name_and_kind = |kind: &str| serde_json::json!({"name": "default", "kind": kind});
    let on_aws = "karpenter.k8s.aws/instance-cpu";
    let on_azure = "karpenter.azure.com/sku-family";
    let ec2 = ("karpenter.k8s.aws", "EC2NodeClass");
    let aks = ("karpenter.azure.com", "AKSNodeClass");
    let cases = [
        (0_usize..2, &short, on_azure, aks, Level::Note),
        (0..2, &short, on_aws, ec2, Level::Note),
        (0..2, &short, "team", ec2, Level::Warning),
        (1..2, &short, "team", aks, Level::Note),
        (0..1, &short, on_azure, aks, Level::Note),
        (2..3, &short, "team", ec2, Level::Note),
        (0..0, &short, on_azure, aks, Level::Note),
        (0..0, &short, "team", ec2, Level::Warning),
        (0..0, &versioned, "team", aks, Level::Note),
    ];
    let converted = |beside: &[Value], reference: &Value, key: &str, options: &Options| {
        let requirements = serde_json::json!([{"key": key, "operator": "Exists"}]);
        let mut given = vec![serde_json::json!({
            "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}},
        })];
        given.extend_from_slice(beside);
        let found = convert(given, options);
        let about = found.lines.iter().filter(|line| {
            let became = line.became.as_deref().unwrap_or_default();
            line.from == 0 && (line.field.starts_with(REFERENCE) || became.starts_with(REFERENCE))
        });
        let level = about.map(|line| line.change.level()).max();
        let written = found.objects[0].object["spec"]["template"]["spec"]["nodeClassRef"].clone();
        (written, level)
    };
    let is =
        |(group, kind): (&str, &str)| serde_json::json!({"group": group, "kind": kind, "name": "default"});
    for (beside, reference, key, class, level) in cases {
        let beside = &objects[beside];
        let found = converted(beside, reference, key, &Options::default());
        let expected = (is(class), Some(level));
        assert_eq!(found, expected, "{reference} with {key} beside {beside:?}");
    }
    // The kind tells the group; for a kind that is not known here nothing does.
    let with_kind = |kind: &str| converted(&[], &name_and_kind(kind), "team", &Options::default());
    assert_eq!(with_kind("AKSNodeClass"), (is(aks), Some(Level::Note)));
    let unknown = (name_and_kind("SomeNodeClass"), Some(Level::Error));
    assert_eq!(with_kind("SomeNodeClass"), unknown);
    let asked_for = Options {
        node_class: "karpenter.azure.com/AKSNodeClass/other".parse().ok(),
        ..Options::default()
    };
    let found = converted(&[], &short, "team", &asked_for);
    let expected = (is(aks), Some(Level::Note));
    assert_eq!(found, expected, "--node-class tells the kind");
}

/// The result of a chart's values, with the one class that there is.
fn autoscaler(values: Value) -> Conversion {
    let class = serde_json::json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "c"},
    });
    convert(vec![values, class], &Options::default())
}

#[test]
fn scale_down_is_off_in_every_spelling_that_go_reads() {
    let consolidation = |enabled: &str| {
        let found = autoscaler(serde_json::json!({
            "awsRegion": "r",
            "extraArgs": {"scale-down-enabled": enabled, "scale-down-delay-after-add": "10m"},
        }));
        let mut kinds = found.objects.iter().map(|output| &output.object["kind"]);
        let has_policy = kinds.any(|kind| kind == "DisruptionPolicy");
        let after = found.objects[0].object["spec"]["disruption"]["consolidateAfter"].clone();
        (after, has_policy)
    };
    for off in ["0", "f", "F", "false", "FALSE", "False"] {
        let expected = (serde_json::json!("Never"), false);
        assert_eq!(consolidation(off), expected, "{off}");
    }
    for on in ["1", "t", "T", "true", "TRUE", "True"] {
        let expected = (serde_json::json!("10m"), true);
        assert_eq!(consolidation(on), expected, "{on}");
    }
}

#[test]
fn the_smaller_of_a_group_and_the_whole_cluster_is_the_limit() {
    for (total, limit) in [(20, "20"), (100, "100"), (200, "100"), (0, "100")] {
        let found = autoscaler(serde_json::json!({
            "autoscalingGroups": [{"name": "workers", "minSize": 0, "maxSize": "100"}],
            "extraArgs": {"max-nodes-total": total},
        }));
        let limits = &found.objects[0].object["spec"]["limits"];
        assert_eq!(limits["nodes"], limit, "{total}");
        let said = levels(&found, "extraArgs.max-nodes-total");
        assert_eq!(said, [Level::Warning], "{total}");
    }
}

/// Any field value: no panic, and a report.
#[test]
fn fields_of_the_wrong_shape_are_reported() {
    let shapes = [
        serde_json::json!(null),
        serde_json::json!(1),
        serde_json::json!("x"),
        serde_json::json!([]),
        serde_json::json!([1, {"key": 2}]),
        serde_json::json!({"a": {"b": [null]}}),
    ];
    for name in FILES {
        for document in documents(name) {
            let mut paths = Vec::new();
            pointers(&document, String::new(), &mut paths);
            for path in paths {
                for shape in &shapes {
                    let mut broken = document.clone();
                    if let Some(place) = broken.pointer_mut(&path) {
                        *place = shape.clone();
                    }
                    let _ = convert(vec![broken], &Options::default());
                }
            }
        }
    }
    for whole in shapes {
        let found = convert(vec![whole.clone()], &Options::default());
        assert_eq!(
            found.lines.first().map(|line| line.change),
            Some(Change::Unreadable),
            "{whole}"
        );
    }
}

fn pointers(value: &Value, path: String, found: &mut Vec<String>) {
    if !path.is_empty() {
        found.push(path.clone());
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                pointers(value, format!("{path}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointers(item, format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}
