//! Whole files converted: the result and the report as they are kept beside each file, and what holds for every one of them.
//!
//! After a wanted change, `BLESS=1 cargo test -p spokeshave-convert` rewrites the expected files; read the difference.

#![expect(clippy::disallowed_methods, reason = "a test reads its files")]

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use spokeshave_apiserver::CompiledCrd;
use spokeshave_convert::{Change, Conversion, Level, Options, convert, definitions, served_version};

const FILES: [&str; 8] = [
    "provisioner",
    "provider",
    "machine",
    "beta",
    "aks",
    "workloads",
    "holder",
    "autoscaler",
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
