//! What several commands tell of the same thing in the same dump: nodes that are too old, policies that no cluster would take, prices that nobody knows, texts of
//! strangers.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// One hour after everything in the example was created.
const YOUNG: &str = "2026-01-01T01:00:00Z";
/// A second before and the instant at which its nodes are 720 hours old.
const BEFORE: &str = "2026-01-30T23:59:59Z";
const DUE: &str = "2026-01-31T00:00:00Z";

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Output {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect("JSON")
    }
}

/// A command on a dump.
fn run(words: &[&str], dump: &Value, now: &str) -> Output {
    let mut file = tempfile::NamedTempFile::with_suffix(".json").expect("a file");
    file.write_all(dump.to_string().as_bytes()).expect("written");
    run_on(words, &[file.path()], now)
}

fn run_on(words: &[&str], files: &[&Path], now: &str) -> Output {
    let files = files.iter().flat_map(|file| [Path::new("-f"), *file]);
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(words)
        .args(["--now", now])
        .args(files)
        .env("COLUMNS", "300")
        .output()
        .expect("the program runs");
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

fn example() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/consolidation.yaml");
    serde_saphyr::from_str(&std::fs::read_to_string(path).expect("an example")).expect("YAML")
}

fn each<'a>(dump: &'a mut Value, kind: &'a str) -> impl Iterator<Item = &'a mut Value> {
    let items = dump["items"].as_array_mut().expect("items");
    items.iter_mut().filter(move |one| one["kind"] == kind)
}

fn codes(answer: &Value) -> Vec<&str> {
    let findings = answer["findings"].as_array().expect("findings").iter();
    findings.filter_map(|one| one["code"].as_str()).collect()
}

const GOES: &str = "is deleted at once, whatever budgets and do-not-disrupt say: expireAfter 720h has passed";

#[test]
fn d_247_plan_names_nodes_that_are_too_old_and_what_holds_their_drains() {
    let dump = example();
    let words = ["plan", "-o", "json", "--verdicts"];
    let young = run(&words, &dump, BEFORE).json();
    assert!(young["disruption"]["expired"].is_null(), "{young:#}");
    let plan = run(&words, &dump, DUE).json();
    let expired = plan["disruption"]["expired"].as_array().expect("a list");
    assert_eq!(expired.len(), 1, "{expired:#?}");
    let nodes = json!(["night-a", "night-b", "night-c", "night-d"]);
    assert_eq!(
        (&expired[0]["nodePool"], &expired[0]["nodes"]),
        (&json!("default"), &nodes)
    );
    assert_eq!(expired[0]["price"], plan["cluster"]["price"]);
    let held = "however long that takes: it has no terminationGracePeriod";
    assert_eq!(
        expired[0]["held"],
        json!([
            {"node": "night-c", "message": format!("its drain waits for Pod shop/db-1 (PodDisruptionBudget) {held}")},
            {"node": "night-d", "message": format!("its drain waits for Pod shop/batch-1 (do-not-disrupt) {held}")},
        ])
    );
    for verdict in plan["disruption"]["verdicts"].as_array().expect("verdicts") {
        let waits = verdict["waits"].as_str().expect("it goes");
        assert!(waits.starts_with(GOES), "{verdict:#}");
    }
    let page = run(&["plan"], &dump, DUE).stdout;
    let title = "\nEXPIRE 4 nodes of NodePool default at once: expireAfter has passed\n  nodes: night-a, night-b, night-c, night-d\n";
    assert!(page.contains(title), "{page}");
}

/// D-301, D-322: with a deadline, do-not-disrupt holds the drain until then; with one of no time, not at all.
#[test]
fn d_322_a_termination_grace_period_ends_what_holds_the_drain() {
    for (period, says) in [
        (
            "1h",
            "its drain waits for Pod shop/batch-1 (do-not-disrupt) until terminationGracePeriod 1h is over, which overrules them",
        ),
        (
            "0s",
            "its drain does not wait for Pod shop/batch-1 (do-not-disrupt): terminationGracePeriod is 0s",
        ),
    ] {
        let mut dump = example();
        for claim in each(&mut dump, "NodeClaim") {
            claim["spec"]["terminationGracePeriod"] = json!(period);
        }
        let story = run(&["explain", "node", "night-d", "-o", "json"], &dump, DUE).json();
        assert_eq!(story["summary"], format!("{GOES}; {says}"));
    }
}

#[test]
fn d_247_doctor_adopt_and_top_name_nodes_that_are_too_old() {
    let dump = example();
    for words in [&["doctor", "-o", "json"][..], &["adopt", "--check", "-o", "json"]] {
        let young = run(words, &dump, BEFORE).json();
        assert!(!codes(&young).contains(&"expired"), "{young:#}");
        let answer = run(words, &dump, DUE).json();
        let findings = answer["findings"].as_array().expect("findings");
        let found: Vec<&Value> = findings.iter().filter(|one| one["code"] == "expired").collect();
        assert_eq!(found.len(), 1, "{answer:#}");
        assert_eq!(
            (&found[0]["level"], &found[0]["object"]),
            (
                &json!("warning"),
                &json!("NodeClaim night-a, night-b, night-c and 1 other")
            )
        );
    }
    let words = ["adopt", "--check", "-o", "json"];
    assert_eq!(run(&words, &dump, BEFORE).json()["wouldExpire"], 0);
    assert_eq!(run(&words, &dump, DUE).json()["wouldExpire"], 4);
    let view = run(&["top", "--once", "-o", "json"], &dump, DUE).json();
    let waits = view["nodes"]["waits"]["values"].as_array().expect("texts");
    let goes = |text: &Value| text.as_str().is_some_and(|text| text.starts_with(GOES));
    assert!(!waits.is_empty() && waits.iter().all(goes), "{waits:#?}");
    assert!(
        view["nodes"]["waits"]["of"]
            .as_array()
            .expect("rows")
            .iter()
            .all(|of| !of.is_null())
    );
    let page = run(&["top", "--once"], &dump, DUE).stdout;
    assert!(page.contains("is deleted at once"), "{page}");
}

/// D-322: an annotation without an end holds a drain as a PodDisruptionBudget does that never allows anything.
#[test]
fn d_322_doctor_names_do_not_disrupt_that_holds_drains_for_ever() {
    let mut dump = example();
    let of = |answer: &Value, code: &str| -> Vec<String> {
        let findings = answer["findings"].as_array().expect("findings").iter();
        let found = findings.filter(|one| one["code"] == code);
        found
            .map(|one| one["proof"].as_str().expect("a proof").to_owned())
            .collect()
    };
    let words = ["doctor", "-o", "json"];
    let without_end = "1 pod with do-not-disrupt without an end on 1 node: shop/batch-1";
    let never = "1 pod that no PodDisruptionBudget ever lets go on 1 node: shop/db-1";
    assert_eq!(
        of(&run(&words, &dump, YOUNG).json(), "drain-never-ends"),
        [never, without_end]
    );
    for pool in each(&mut dump, "NodePool") {
        pool["spec"]["template"]["spec"]["terminationGracePeriod"] = json!("1h");
    }
    let answer = run(&words, &dump, YOUNG).json();
    assert!(of(&answer, "drain-never-ends").is_empty(), "{answer:#}");
    assert_eq!(of(&answer, "grace-period-overrules-pdb"), [never]);
    assert_eq!(
        of(&answer, "grace-period-overrules-do-not-disrupt"),
        [without_end]
    );
    // A pod of a Job ends on its own.
    for pool in each(&mut dump, "NodePool") {
        pool["spec"]["template"]["spec"]["terminationGracePeriod"] = Value::Null;
    }
    for pod in each(&mut dump, "Pod").filter(|pod| pod["metadata"]["name"] == "batch-1") {
        pod["metadata"]["ownerReferences"][0]["kind"] = json!("Job");
    }
    assert_eq!(of(&run(&words, &dump, YOUNG).json(), "drain-never-ends"), [never]);
}

/// Without its misspelt selector it would freeze all NodePools; a cluster would never have it.
#[test]
fn a_policy_with_a_field_that_does_not_exist_is_named_with_its_line_and_left_out() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = root.join("examples/consolidation.yaml");
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    let text = "apiVersion: spokeshave.dev/v1alpha1\nkind: DisruptionPolicy\nmetadata:\n  name: typo\nspec:\n  nodePool: {names: [nothing]}\n  freeze: {reason: r}\n";
    file.write_all(text.as_bytes()).expect("written");
    let files = [example.as_path(), file.path()];
    let note = format!(
        "{}:6: DisruptionPolicy typo is left out, because the API server would refuse it: spec.nodePool: unknown field",
        file.path().display()
    );
    let with = run_on(&["plan", "-o", "json"], &files, YOUNG);
    assert!(with.stderr.contains(&note), "{}", with.stderr);
    assert_eq!(
        with.json(),
        run_on(&["plan", "-o", "json"], &files[..1], YOUNG).json()
    );
    assert_ne!(with.json()["disruption"]["commands"], json!([]));
    let doctor = run_on(&["doctor", "-o", "json"], &files, YOUNG).json();
    assert!(codes(&doctor).contains(&"object-left-out"), "{doctor:#}");
    let budgets = run_on(&["budgets", "-o", "json"], &files, YOUNG);
    assert_eq!(budgets.code, Some(3), "{}", budgets.stdout);
    let policies = &budgets.json()["disruptionPolicies"];
    assert_eq!(policies[0]["nodePools"], json!([]));
    let finding = &policies[0]["findings"][0];
    assert_eq!(
        (&finding["code"], &finding["field"], &finding["line"]),
        (&json!("policy-refused"), &json!("spec.nodePool"), &json!(6))
    );
    // One that a cluster has accepted says what it says, whatever this version knows.
    let accepted = text.replace("name: typo", "name: typo\n  uid: u");
    std::fs::write(file.path(), accepted).expect("written");
    let with = run_on(&["plan", "-o", "json"], &files, YOUNG).json();
    assert_eq!(with["disruption"]["commands"], json!([]));
}

/// What nobody knows the price of does not cost nothing.
#[test]
fn d_032_a_price_that_nobody_knows_is_not_told_as_none() {
    let mut dump = example();
    for kind in ["Node", "NodeClaim"] {
        for one in each(&mut dump, kind).filter(|one| one["metadata"]["name"] == "night-d") {
            one["metadata"]["labels"]["node.kubernetes.io/instance-type"] = json!("unheard-of");
        }
    }
    let items = dump["items"].as_array_mut().expect("items");
    items.retain(|one| one["metadata"]["name"] != "batch-1");
    let words = ["plan", "-o", "json", "--verdicts"];
    let plan = run(&words, &dump, YOUNG).json();
    assert_eq!(plan["cluster"]["nodesWithoutPrice"], 1);
    let command = &plan["disruption"]["commands"][0];
    assert_eq!(
        (&command["nodes"], &command["priceUnknown"]),
        (&json!(["night-d"]), &json!(true))
    );
    let page = run(&["plan", "--verdicts"], &dump, YOUNG).stdout;
    for said in [
        "pending · >= $0.9374/h\n",
        "\nDISRUPT 1 node: delete (Empty), saves an unknown amount\n",
        "0 pods would move · price unknown before, $0.0000/h after",
        "\n  night-d: delete (Emptiness), saves an unknown amount\n",
    ] {
        assert!(page.contains(said), "{said:?} in {page}");
    }
    let node = run(&["explain", "node", "night-d"], &dump, YOUNG).stdout;
    assert!(
        node.starts_with("Node night-d: would be deleted: saves an unknown amount\n"),
        "{node}"
    );
    let pool = run(&["explain", "nodepool", "default"], &dump, YOUNG).stdout;
    assert!(pool.contains("4 nodes, >= $0.9374/h"), "{pool}");
}

/// `kubectl` spells them out as well: what a terminal would carry out is not the word of whoever may write an Event.
#[test]
fn no_text_of_a_stranger_reaches_the_terminal_as_it_is() {
    let mut dump = example();
    let message = "x\u{1b}[2J\u{1b}]0;title\u{7}\nVerdict: delete\u{202e}";
    let items = dump["items"].as_array_mut().expect("items");
    items.push(json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "shop", "name": "web-1.1"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1"},
        "source": {"component": "karpenter"}, "lastTimestamp": "2026-01-01T00:59:00Z", "reason": "Owned", "message": message,
    }));
    items.push(json!({
        "apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy", "metadata": {"name": "calm", "uid": "u"},
        "spec": {"freeze": {"reason": message}},
    }));
    for words in [
        &["explain", "pod", "shop/web-1"][..],
        &["explain", "nodepool", "default"],
        &["plan"],
        &["top", "--once"],
    ] {
        let said = run(words, &dump, YOUNG).stdout;
        let raw = |letter: char| letter == '\u{202e}' || letter.is_control() && letter != '\n';
        assert!(!said.contains(raw), "{words:?}: {said:?}");
        assert!(!said.contains("\nVerdict: delete\\u{202e}"), "{words:?}: {said}");
    }
    let said = run(&["explain", "pod", "shop/web-1"], &dump, YOUNG).stdout;
    assert!(
        said.contains(r"x\u{1b}[2J\u{1b}]0;title\u{7} Verdict: delete\u{202e}"),
        "{said}"
    );
}

/// The usual question about a DaemonSet has the answer that the page gives.
#[test]
fn d_007_a_pending_pod_of_a_daemonset_is_told_that_it_gets_no_node_of_its_own() {
    let mut dump = example();
    let items = dump["items"].as_array_mut().expect("items");
    items.push(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": "agent-1", "uid": "agent-1",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": true}],
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "1 Insufficient cpu"}]},
    }));
    let said = run(&["explain", "pod", "shop/agent-1"], &dump, YOUNG).stdout;
    let first =
        "Pod shop/agent-1: waits for room on its node: pods of DaemonSets get no nodes of their own\n";
    assert!(said.starts_with(first), "{said}");
    assert!(
        said.contains("kube-scheduler: says Unschedulable: 1 Insufficient cpu"),
        "{said}"
    );
    assert!(said.contains("\nTry\n  larger instance types"), "{said}");
}

/// Of two dumps of one cluster the later one counts, whatever command reads them: nothing is there twice, and nobody has to find out which of two it was.
#[test]
fn of_objects_that_are_there_more_than_once_the_last_one_counts_and_they_are_named() {
    let pod = |namespace: Option<&str>, cpu: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dup", "namespace": namespace},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}})
    };
    let deployment = |replicas: i64| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    let pool = |capacity_type: &str| {
        let requirement =
            json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]});
        let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"template": {"spec": {"requirements": [requirement], "nodeClassRef": class}}}})
    };
    let list = |items: Value| json!({"apiVersion": "v1", "kind": "List", "items": items});
    // A Pod that names no namespace is in the default one.
    let objects = [
        pod(None, "64"),
        deployment(7),
        pool("on-demand"),
        pod(Some("default"), "1"),
        deployment(2),
        pool("spot"),
    ];
    let dump = list(json!(objects));
    let note = "note: 3 objects are there more than once (Deployment shop/web, NodePool default, Pod default/dup): of each the last one counts\n";
    for words in [
        &["plan", "-o", "json"][..],
        &["doctor", "-o", "json"],
        &["explain", "pod", "dup", "-o", "json"],
    ] {
        let output = run(words, &dump, YOUNG);
        assert!(output.stderr.contains(note), "{words:?}: {}", output.stderr);
        assert!(
            output.stderr.contains("note: 1 Pod has no status (default/dup)"),
            "{words:?}: {}",
            output.stderr
        );
        let answer = output.json();
        match words[0] {
            "plan" => {
                assert_eq!(answer["cluster"]["pods"], 3, "{answer:#}");
                assert_eq!(answer["provisioning"]["unschedulable"], json!([]), "{answer:#}");
                let launched = answer["provisioning"]["nodeClaims"].to_string();
                assert!(
                    launched.contains("spot") && !launched.contains("on-demand"),
                    "{launched}"
                );
            }
            "explain" => {
                let requests = json!({"name": "requests", "value": "cpu 1, memory 1Gi"});
                let facts = answer["facts"].as_array().expect("facts");
                assert!(facts.contains(&requests), "{answer:#}");
            }
            _ => assert_eq!(output.code, Some(0), "{answer:#}"),
        }
    }
    let budgets = run(&["budgets", "-o", "json"], &dump, YOUNG);
    assert!(budgets.stderr.contains(note), "{}", budgets.stderr);
    let one = list(json!([pool("spot"), pool("spot")]));
    let said = run(&["doctor"], &one, YOUNG).stderr;
    let note = "note: NodePool default is there more than once: the last one counts\n";
    assert!(said.contains(note), "{said}");
}

/// A budget as it was written by hand, beside the same one of the cluster's dump: two would keep its pods for ever.
#[test]
fn an_object_that_names_no_namespace_is_the_one_in_the_default_namespace() {
    let budget = |namespace: Option<&str>| {
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard", "namespace": namespace},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}})
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"providerID": "kwok://n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    let pod = |namespace: Option<&str>| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true});
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": namespace, "labels": {"app": "web"}, "ownerReferences": [owner]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let note = "note: PodDisruptionBudget default/guard is there more than once: the last one counts\n";
    for (first, second) in [(None, Some("default")), (Some("default"), Some(""))] {
        let items = json!([node, pod(second), budget(first), budget(second)]);
        let dump = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let output = run(&["doctor", "-o", "json"], &dump, YOUNG);
        assert!(output.stderr.contains(note), "{}", output.stderr);
        assert_eq!(output.code, Some(0), "{}", output.stdout);
        assert!(
            !codes(&output.json()).contains(&"pdb-overlap"),
            "{}",
            output.stdout
        );
    }
}

/// `kubectl apply` refuses the one and keeps the other, in whatever order they come.
#[test]
fn of_two_node_pools_of_one_name_the_one_that_a_cluster_would_take_counts() {
    let pool = |more: &str| {
        let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {(more): 3, "template": {"spec": {"requirements": [], "nodeClassRef": class}}}})
    };
    let (taken, refused) = (pool("weight"), pool("nonsense"));
    for items in [[&taken, &refused], [&refused, &taken]] {
        let dump = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let output = run(&["plan", "-o", "json"], &dump, YOUNG);
        assert_eq!(output.json()["cluster"]["nodePools"], 1, "{}", output.stderr);
        let said = &output.stderr;
        assert!(said.contains("NodePool default is left out"), "{said}");
        assert!(!said.contains("more than once"), "{said}");
    }
}
