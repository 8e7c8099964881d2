//! `spokeshave plan` as a user runs it: the examples word for word, the documented format, and what it says about bad files.
//!
//! After a wanted change, `BLESS=1 cargo test -p spokeshave --test plan` rewrites the expected outputs; read the difference.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const EXAMPLES: [&str; 5] = ["pending", "unschedulable", "consolidation", "drift", "budgets"];
/// A Thursday, one hour after everything in the examples was created.
const NOW: &str = "2026-01-01T01:00:00Z";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn plan(arguments: &[&str], input: Option<&[u8]>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .arg("plan")
        .args(arguments)
        .args(["--now", NOW])
        .env_remove("COLUMNS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A program that refuses early does not read all of it.
    drop(stdin.write_all(input.unwrap_or_default()));
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

fn example(name: &str) -> String {
    root().join(format!("examples/{name}.yaml")).display().to_string()
}

fn check_golden(path: &Path, actual: &str) {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, actual).expect("the expected output can be written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs; expected:\n{expected}\nactual:\n{actual}",
        path.display()
    );
}

#[test]
fn the_examples_read_as_their_golden_pages() {
    for name in EXAMPLES {
        let output = plan(&["-f", &example(name), "--verdicts"], None);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{name}");
        for line in output.stdout.lines() {
            assert!(
                line.chars().count() <= 80,
                "{name}: wider than a terminal: {line}"
            );
        }
        check_golden(&root().join(format!("examples/{name}.txt")), &output.stdout);
    }
}

/// D-027: the provisioner nominates the nodes that are to receive pods, and nominated nodes are no candidates.
#[test]
fn d_027_no_node_is_used_and_disrupted_in_one_plan() {
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: late, namespace: shop, uid: late}\n\
        spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}\n\
        status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}\n";
    let mut used = BTreeSet::new();
    for name in EXAMPLES {
        let mut dump = std::fs::read_to_string(example(name)).expect("an example");
        dump.push_str(pod);
        let output = plan(&["-f", "-", "-o", "json"], Some(dump.as_bytes()));
        let plan: Value = serde_json::from_str(&output.stdout).expect("JSON");
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let text = |value: &Value| value.as_str().expect("a name").to_owned();
        let nodes = list(&plan["provisioning"]["existingNodes"]);
        let uses: BTreeSet<String> = nodes.iter().map(|one| text(&one["node"])).collect();
        for command in list(&plan["disruption"]["commands"]) {
            let goes: BTreeSet<String> = list(&command["nodes"]).iter().map(text).collect();
            assert!(uses.is_disjoint(&goes), "{name}: {uses:?} are used, {goes:?} go");
        }
        used.extend(uses);
    }
    assert!(!used.is_empty(), "a pod goes to a node that is there");
}

/// D-027, parity: a nomination that the plan makes itself keeps the node out of commands, and says nothing about the node as it is.
#[test]
fn d_027_a_verdict_is_about_the_node_before_the_plan_sends_pods_to_it() {
    let file = example("pending");
    let output = plan(&["-f", &file, "-o", "json", "--verdicts"], None);
    let plan: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let [used] = plan["provisioning"]["existingNodes"]
        .as_array()
        .expect("a list")
        .as_slice()
    else {
        panic!("one node is used");
    };
    assert_eq!(plan["disruption"]["commands"], serde_json::json!([]));
    let verdicts = plan["disruption"]["verdicts"].as_array().expect("a list");
    let verdict = verdicts
        .iter()
        .find(|one| one["node"] == used["node"])
        .expect("its verdict");
    assert_eq!(verdict["decision"], "replace");
    assert_eq!(verdict["blockers"], serde_json::json!([]));
    assert_eq!(verdict["ifRemoved"], Value::Null);
    assert_eq!(
        verdict["waits"],
        "not in this plan, which sends pending pods to it"
    );
    assert!(verdict["priceAfter"].as_f64() < verdict["priceBefore"].as_f64());
}

#[test]
fn the_examples_give_their_golden_json() {
    for name in EXAMPLES {
        let output = plan(&["-f", &example(name), "--verdicts", "-o", "json"], None);
        assert_eq!(output.code, Some(0), "{name}: {}", output.stderr);
        check_golden(&root().join(format!("examples/{name}.json")), &output.stdout);
    }
}

#[test]
fn json_and_yaml_say_the_same() {
    let json = plan(&["-f", &example("unschedulable"), "-o", "json"], None);
    let yaml = plan(&["-f", &example("unschedulable"), "-o", "yaml"], None);
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let yaml: Value = serde_saphyr::from_str(&yaml.stdout).expect("YAML");
    assert_eq!(json, yaml);
}

#[test]
fn a_dump_says_the_same_as_list_as_documents_and_as_json() {
    let yaml = std::fs::read_to_string(example("pending")).expect("an example");
    let list: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let items = list["items"].as_array().expect("items");
    let documents: Vec<String> = items
        .iter()
        .map(|item| serde_saphyr::to_string(item).expect("YAML"))
        .collect();
    let lines: Vec<String> = items.iter().map(Value::to_string).collect();
    let expected = plan(&["-f", &example("pending"), "-o", "json"], None).stdout;
    for (form, text) in [
        ("documents", documents.join("---\n")),
        ("JSON list", list.to_string()),
        (
            "pretty JSON list",
            serde_json::to_string_pretty(&list).expect("JSON"),
        ),
        ("JSON documents", lines.join("\n")),
        ("JSON array", format!("[{}]", lines.join(","))),
        (
            "mixed",
            format!("{}\n---\n{}", lines[0], documents[1..].join("---\n")),
        ),
        ("with a byte order mark", format!("\u{feff}{yaml}")),
        ("with Windows line ends", yaml.replace('\n', "\r\n")),
        ("items twice", format!("{yaml}---\n{yaml}")),
        (
            "flow style",
            format!("{{apiVersion: v1, kind: List, items: [{}]}}", lines.join(", ")),
        ),
    ] {
        let output = plan(&["-f", "-", "-o", "json"], Some(text.as_bytes()));
        assert_eq!(output.code, Some(0), "{form}: {}", output.stderr);
        assert_eq!(output.stdout, expected, "{form}");
    }
}

#[test]
fn a_typed_list_gives_its_kind_to_its_items() {
    let text = r#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a","namespace":"x"},"spec":{"containers":[]}}]}"#;
    let output = plan(&["-f", "-", "-o", "json"], Some(text.as_bytes()));
    let value: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(value["cluster"]["pods"], 1, "{}", output.stderr);
}

#[test]
fn kinds_that_nobody_reads_are_named_and_passed_over() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n---\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: c}\n";
    let output = plan(&["-f", "-"], Some(text.as_bytes()));
    assert_eq!(output.code, Some(0));
    assert_eq!(
        output.stderr,
        "note: skipped 2 objects of kind ConfigMap (v1), which no decision reads\n"
    );
}

/// NodeOverlays of a dump are applied, and each without effect is reported with the reason.
#[test]
fn p_187_nodeoverlays_of_a_dump_are_applied() {
    let pending = std::fs::read_to_string(example("pending")).expect("the example");
    let overlay = |name: &str, spec: &str| {
        format!(
            "---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        )
    };
    let on = |instance_type: &str| {
        format!(
            "requirements: [{{key: node.kubernetes.io/instance-type, operator: In, values: [{instance_type}]}}]"
        )
    };
    let dear = on("m-16x-amd64-linux");
    let dump = [
        pending,
        overlay("gift", &format!("{{{dear}, price: \"0.00001\"}}")),
        overlay(
            "absurd",
            &format!("{{{dear}, weight: 9, priceAdjustment: -200%}}"),
        ),
        overlay("again", &format!("{{{dear}, priceAdjustment: +1%}}")),
        overlay(
            "elsewhere",
            "{requirements: [{key: karpenter.sh/nodepool, operator: In, values: [missing]}], price: \"1\"}",
        ),
    ];
    let output = plan(&["-f", "-", "-o", "json"], Some(dump.concat().as_bytes()));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let value: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let cheapest = &value["provisioning"]["nodeClaims"][0]["cheapest"];
    assert_eq!(cheapest["instanceType"], "m-16x-amd64-linux", "{cheapest}");
    let notes: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.contains("NodeOverlay"))
        .collect();
    assert_eq!(
        notes,
        [
            "note: NodeOverlay absurd is invalid and has no effect: invalid value: \"-200%\" in priceAdjustment, expected a signed change such as +0.05 or -10%, of which at most -100% can be taken away",
            "note: NodeOverlay again has no effect: NodeOverlay gift has the same weight and corrects the price of instance type m-16x-amd64-linux in NodePool default too; give one of them another weight",
            "note: NodeOverlays gift, elsewhere in force, as with the feature gate NodeOverlay on",
        ]
    );
}

/// A dump's CapacityBuffers get their room, and each that gets none is named with the reason.
#[test]
fn p_185_capacity_buffers_of_a_dump_get_their_room() {
    let pending = std::fs::read_to_string(example("pending")).expect("the example");
    let template = "{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '3'}}}]}}";
    let buffer = |name: &str, spec: &str| {
        format!(
            "---\napiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {{name: {name}, namespace: room, uid: {name}}}\nspec: {spec}\n"
        )
    };
    let dump = [
        pending,
        buffer(
            "half",
            "{scalableRef: {apiGroup: apps, kind: Deployment, name: web}, percentage: 50}",
        ),
        buffer("shape", "{podTemplateRef: {name: large}, replicas: 1}"),
        buffer("typo", "{podTemplateRef: {name: larg}, replicas: 1}"),
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: room}}\nspec: {{replicas: 3, template: {template}}}\nstatus: {{observedGeneration: 1}}\n"
        ),
        format!(
            "---\napiVersion: v1\nkind: PodTemplate\nmetadata: {{name: large, namespace: room}}\ntemplate: {template}\n"
        ),
    ];
    let output = plan(&["-f", "-", "-o", "json"], Some(dump.concat().as_bytes()));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let value: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let claims = value["provisioning"]["nodeClaims"].as_array().expect("a list");
    let mut room: Vec<&str> = claims
        .iter()
        .flat_map(|claim| claim["pods"].as_array().expect("a list"))
        .filter_map(Value::as_str)
        .filter(|pod| pod.starts_with("room/"))
        .collect();
    room.sort_unstable();
    assert_eq!(
        room,
        [
            "room/capacity-buffer-half-1",
            "room/capacity-buffer-half-2",
            "room/capacity-buffer-shape-1"
        ]
    );
    let notes: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.contains("CapacityBuffer") || line.contains("skipped"))
        .collect();
    assert_eq!(
        notes,
        [
            "note: CapacityBuffer room/half keeps room for 2 pods, as with the feature gate CapacityBuffer on",
            "note: CapacityBuffer room/shape keeps room for 1 pod, as with the feature gate CapacityBuffer on",
            "note: CapacityBuffer room/typo keeps no room: PodTemplate \"larg\" not found",
        ]
    );
}

/// Six pods that one small node could hold, of a ReplicaSet: kube-scheduler would spread them over zones.
#[test]
fn p_121_the_scheduler_config_spreads_pods_that_say_nothing_themselves() {
    let owner = r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true}"#;
    let pod = |number: usize| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web-{number}","namespace":"shop","uid":"{number}","labels":{{"app":"web"}},"ownerReferences":[{owner}]}},
            "spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}}}}}}]}},
            "status":{{"phase":"Pending","conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable"}}]}}}}"#
        )
    };
    let pods: Vec<String> = (0..6).map(pod).collect();
    let dump = format!(
        r#"{{"apiVersion":"v1","kind":"List","items":[
        {{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{{"name":"default"}},"spec":{{"template":{{"spec":{{"requirements":[],
            "nodeClassRef":{{"group":"karpenter.kwok.sh","kind":"KWOKNodeClass","name":"default"}}}}}}}}}},
        {{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{{"name":"web","namespace":"shop","uid":"u"}},"spec":{{"selector":{{"matchLabels":{{"app":"web"}}}}}}}},
        {}]}}"#,
        pods.join(",")
    );
    let config = |when: &str| {
        let mut file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
        let text = format!(
            "podTopologySpread:\n  defaultConstraints:\n  - maxSkew: 1\n    topologyKey: topology.kubernetes.io/zone\n    whenUnsatisfiable: {when}\n"
        );
        file.write_all(text.as_bytes()).expect("it is written");
        file
    };
    let zones = |more: &[&str]| {
        let arguments = [&["-f", "-", "-o", "json"], more].concat();
        let output = plan(&arguments, Some(dump.as_bytes()));
        let value: Value = serde_json::from_str(&output.stdout).expect("JSON");
        let claims = value["provisioning"]["nodeClaims"]
            .as_array()
            .expect("claims")
            .iter();
        let pods = claims
            .clone()
            .map(|claim| claim["pods"].as_array().map_or(0, Vec::len));
        let zones: BTreeSet<String> = claims
            .map(|claim| claim["cheapest"]["zone"].to_string())
            .collect();
        (zones.len(), pods.max().unwrap_or(0), pods_left(&value))
    };
    assert_eq!(zones(&[]), (1, 6, 0));
    for when in ["DoNotSchedule", "ScheduleAnyway"] {
        let file = config(when);
        let path = file.path().display().to_string();
        let (zones, most, left) = zones(&["--scheduler-config", &path]);
        assert_eq!((zones, most, left), (4, 2, 0), "{when}");
    }
}

/// kube-scheduler's own file: pods of the profile that they name get its node affinity and need none of the resources that it ignores, others neither.
#[test]
fn b_60_pods_are_planned_as_the_profile_of_their_scheduler_judges_them() {
    let pod = |name: &str, scheduler: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{schedulerName: {scheduler}, containers: [{{name: c, resources: {{requests: {{cpu: 100m, example.com/licence: 1}}}}}}]}}\n"
        )
    };
    let dump = format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: default}}\nspec: {{template: {{spec: {{requirements: [], nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}}}}}\n{}{}",
        pod("ours", "batch"),
        pod("theirs", "default-scheduler")
    );
    let config = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true}
profiles:
- schedulerName: default-scheduler
- schedulerName: batch
  plugins: {filter: {disabled: [{name: TaintToleration}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResourceGroups: [example.com]}
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
      {matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [test-zone-c]}]}]}}}
";
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    file.write_all(config.as_bytes()).expect("it is written");
    let path = file.path().display().to_string();
    let decided = |more: &[&str]| {
        let arguments = [&["-f", "-", "-o", "json"], more].concat();
        let output = plan(&arguments, Some(dump.as_bytes()));
        let value: Value = serde_json::from_str(&output.stdout).expect("JSON");
        let said: Vec<String> = output
            .stderr
            .lines()
            .filter(|line| line.contains("scheduler config"))
            .map(str::to_owned)
            .collect();
        (value["provisioning"].clone(), pods_left(&value), said)
    };
    let (_, left, said) = decided(&[]);
    assert_eq!((left, said), (2, Vec::new()), "no NodePool has licences");
    let (provisioning, left, said) = decided(&["--scheduler-config", &path]);
    assert_eq!(left, 1, "{provisioning}");
    assert_eq!(provisioning["unschedulable"][0]["pod"], "shop/theirs");
    let claim = &provisioning["nodeClaims"][0];
    assert_eq!(claim["pods"][0], "shop/ours");
    assert_eq!(claim["cheapest"]["zone"], "test-zone-c");
    assert!(
        claim["requests"].get("example.com/licence").is_none(),
        "a node without them would never count as initialized: {claim}"
    );
    assert_eq!(
        said,
        [
            "note: scheduler config: batch does not filter nodes by TaintToleration: what pods ask of nodes in this way is heeded all the same",
            "note: scheduler config: nodes for pods of batch must also have topology.kubernetes.io/zone In [test-zone-c] (addedAffinity)",
            "note: scheduler config: pods of batch need no room on nodes for example.com/*, which it does not look for",
        ]
    );
}

fn pods_left(plan: &Value) -> usize {
    plan["provisioning"]["unschedulable"]
        .as_array()
        .map_or(0, Vec::len)
}

#[test]
fn one_unreadable_object_is_named_and_the_rest_is_planned() {
    for (text, expected) in [
        (
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace: shop\nspec:\n  containers: 7\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n",
            "note: document 1, line 7: Pod shop/a cannot be read: spec.containers: invalid type: integer `7`, expected a sequence",
        ),
        (
            "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: b\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: a\n  spec: []\nkind: List\n",
            "note: document 1, item 2, line 11: Node a cannot be read: spec: invalid type: ",
        ),
        (
            "{\"kind\":\"List\",\"apiVersion\":\"v1\",\"items\":[\n{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"b\"}},\n{\"apiVersion\":\"v1\",\"kind\":\"Node\",\n\"metadata\":{\"name\":\"a\"},\"spec\":[]}\n]}",
            "note: document 1, item 2, line 4: Node a cannot be read: spec: invalid type: ",
        ),
    ] {
        let output = plan(&["-f", "-"], Some(text.as_bytes()));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(output.stderr.starts_with(expected), "{}", output.stderr);
        assert!(
            output.stderr.contains("planned as if it were absent"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn a_foreign_or_truncated_file_is_refused_with_document_and_line() {
    let yaml = std::fs::read_to_string(example("consolidation")).expect("an example");
    let list: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let json = serde_json::to_string_pretty(&list).expect("JSON");
    let half = |text: &str| text[..text.len() / 2].to_owned();
    let json_lines = half(&json).lines().count();
    for (name, text, expected) in [
        (
            "truncated JSON",
            half(&json),
            format!("document 1, line {json_lines}: the JSON ends in the middle"),
        ),
        (
            "truncated YAML",
            half(&yaml),
            "the file seems to be cut off".to_owned(),
        ),
        (
            "JSON of something else",
            "{\"name\": \"x\"}".to_owned(),
            "document 1, line 1: is not a Kubernetes object: expected apiVersion and kind, found only name"
                .to_owned(),
        ),
        (
            "a number",
            "[1, 2]".to_owned(),
            "document 1, line 1: is not a Kubernetes object".to_owned(),
        ),
        (
            "second document",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\nreplicas: 3\n".to_owned(),
            "document 2, line 5: is not a Kubernetes object".to_owned(),
        ),
        (
            "broken YAML",
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: [a\n".to_owned(),
            "document 1, line".to_owned(),
        ),
        (
            "a key twice, in a file with the braces of an alerting rule",
            "apiVersion: v1\nkind: Pod\nkind: Pod\nsummary: '{{ $labels.pod }}'\n".to_owned(),
            "is not valid YAML: duplicate mapping key: kind\n".to_owned(),
        ),
        (
            "a template",
            "kind: Pod\nmetadata:\n  name: {{ .Release.Name }}-a\n".to_owned(),
            "it holds parts of a Helm template".to_owned(),
        ),
        (
            "no kind",
            "apiVersion: apps/v1\n".to_owned(),
            "expected kind, found only apiVersion\n".to_owned(),
        ),
        (
            "prose",
            "Dear operator,\n\nplease find enclosed nothing.\n".to_owned(),
            "document 1, line 1: is not a Kubernetes object".to_owned(),
        ),
        ("nothing", String::new(), "holds no object".to_owned()),
        (
            "comments only",
            "# nothing\n---\n".to_owned(),
            "holds no object".to_owned(),
        ),
        (
            "broken JSON",
            "{\"kind\":\"List\",\n\"items\":[}\n".to_owned(),
            "document 1, line 2: is not valid JSON".to_owned(),
        ),
    ] {
        let output = plan(&["-f", "-"], Some(text.as_bytes()));
        assert_eq!(output.code, Some(1), "{name}: {}", output.stderr);
        assert!(output.stdout.is_empty(), "{name}");
        assert!(
            output.stderr.starts_with("error: standard input: "),
            "{name}: {}",
            output.stderr
        );
        assert!(output.stderr.contains(&expected), "{name}: {}", output.stderr);
    }
    let compressed = plan(&["-f", "-"], Some(&[0x1f, 0x8b, 8, 0]));
    assert!(
        compressed.stderr.contains("is compressed"),
        "{}",
        compressed.stderr
    );
    let binary = plan(&["-f", "-"], Some(b"apiVersion: v1\nkind: \xff\n"));
    assert!(
        binary.stderr.contains("line 2: is not UTF-8"),
        "{}",
        binary.stderr
    );
    let missing = plan(&["-f", "no/such/file"], None);
    assert!(
        missing.stderr.starts_with("error: cannot read no/such/file"),
        "{}",
        missing.stderr
    );
}

/// Any cut of a dump is either refused or planned; it never panics.
#[test]
fn no_cut_of_a_dump_makes_it_panic() {
    let yaml = std::fs::read_to_string(example("unschedulable")).expect("an example");
    let list: Value = Value::Array(
        yaml.split("---\n")
            .filter(|document| document.contains("kind:"))
            .map(|document| serde_saphyr::from_str(document).expect("YAML"))
            .collect(),
    );
    for text in [yaml, list.to_string()] {
        for part in 0..12 {
            let mut end = text.len() * part / 12 + part;
            while !text.is_char_boundary(end) {
                end += 1;
            }
            let output = plan(&["-f", "-"], Some(&text.as_bytes()[..end]));
            assert!(
                matches!(output.code, Some(0 | 1)),
                "cut at {end}: {}",
                output.stderr
            );
        }
    }
}
