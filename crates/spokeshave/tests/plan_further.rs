//! What `spokeshave plan` says the operator does right after its first commands, and for NodePools with a fixed number of nodes.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const NOW: &str = "2026-01-01T01:00:00Z";

struct Output {
    stdout: String,
    stderr: String,
}

impl Output {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect("JSON")
    }
}

fn plan(arguments: &[&str], dump: &Value) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["plan", "-f", "-", "--now", NOW])
        .args(arguments)
        .env_remove("COLUMNS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(dump.to_string().as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    Output {
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr,
    }
}

fn example(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{name}.yaml"));
    let text = std::fs::read_to_string(path).expect("an example");
    serde_saphyr::from_str(&text).expect("YAML")
}

fn items(dump: &mut Value) -> &mut Vec<Value> {
    dump["items"].as_array_mut().expect("items")
}

fn object<'a>(dump: &'a mut Value, kind: &str, name: &str) -> &'a mut Value {
    let mut all = items(dump).iter_mut();
    let found = all.find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    found.expect("it is there")
}

/// Three drifted nodes, one of them empty, and so many that may go at once.
fn drifted(at_once: &str) -> Value {
    let mut dump = example("drift");
    object(&mut dump, "NodePool", "default")["spec"]["disruption"]["budgets"] = json!([{"nodes": at_once}]);
    let conditions = &mut object(&mut dump, "NodeClaim", "new-1")["status"]["conditions"];
    conditions.as_array_mut().expect("conditions").push(json!({
        "type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    items(&mut dump).retain(|one| one["metadata"]["name"] != "web-1");
    dump
}

fn commands(list: &Value) -> Vec<(String, String, usize)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let command = |one: &Value| {
        let replacements = one["replacements"].as_array().expect("a list");
        (text(&one["reason"]), text(&one["nodes"][0]), replacements.len())
    };
    list.map(command).collect()
}

/// The operator looks at drift in the second after the command for empty nodes: who has changed a template has to see it before.
#[test]
fn d_063_a_plan_goes_on_after_the_first_method_that_acts() {
    let dump = drifted("100%");
    let value = plan(&["-o", "json"], &dump).json();
    let first = commands(&value["disruption"]["commands"]);
    assert_eq!(first, [("Empty".to_owned(), "old-1".to_owned(), 0)]);
    let mut later = commands(&value["disruption"]["later"]);
    later.sort();
    let drift = |name: &str| ("Drifted".to_owned(), name.to_owned(), 1);
    assert_eq!(later, [drift("new-1"), drift("old-2")]);
    let page = plan(&[], &dump).stdout;
    let begins: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("DISRUPT"))
        .filter_map(|line| line.split(", ").next())
        .collect();
    let then = "then DISRUPT 1 node: replace (Drifted)";
    assert_eq!(begins, ["DISRUPT 1 node: delete (Empty)", then, then], "{page}");
    assert!(!page.contains("perhaps more"), "nothing is left: {page}");
}

/// The memory of a command is its object: nodes that it holds are in no other.
#[test]
fn d_023_a_node_of_a_command_under_way_is_not_disrupted_again() {
    let mut dump = drifted("100%");
    items(&mut dump).push(json!({
        "apiVersion": "spokeshave.dev/v1alpha1", "kind": "Disruption", "metadata": {"name": "drifted-1", "uid": "d"},
        "spec": {
            "method": "Drift", "reason": "Drifted", "decision": "Replace", "decidedAt": "2026-01-01T00:59:00.000000Z",
            "nodes": [{
                "name": "old-2", "nodeClaim": "old-2", "nodeClaimUID": "claim-old-2", "providerID": "kwok://old-2",
                "nodePool": "default", "price": "0.1172", "pods": 1,
            }],
            "priceBefore": "0.1172", "priceAfter": "0.1172", "savings": "0", "evictions": 1,
            "nodeSummary": "old-2", "replacementSummary": "",
        },
        "status": {"phase": "Replacing"},
    }));
    let output = plan(&["-o", "json"], &dump);
    let value = output.json();
    let disruption = &value["disruption"];
    let mut found = commands(&disruption["commands"]);
    found.extend(commands(&disruption["later"]));
    assert!(
        !found.is_empty() && found.iter().all(|(_, node, _)| node != "old-2"),
        "{found:?}"
    );
    let budgets = disruption["budgets"].as_array().expect("budgets");
    assert!(
        budgets.iter().all(|budget| budget["disrupting"] == 1),
        "{budgets:?}"
    );
    assert!(!output.stderr.contains("Disruption"), "{}", output.stderr);
}

/// A pass replaces one drifted node, and twenty passes are made: whoever counts the nodes learns that these may not be all.
#[test]
fn d_063_a_plan_that_ends_before_the_commands_do_says_so() {
    let mut dump = drifted("100%");
    let all = items(&mut dump);
    let texts = all.iter().map(Value::to_string);
    let pattern: Vec<String> = texts.filter(|text| text.contains("old-2")).collect();
    for number in 10..30 {
        let (node, pod) = (format!("old-{number}"), format!("web-{number}"));
        let copies = pattern
            .iter()
            .map(|text| text.replace("old-2", &node).replace("web-2", &pod));
        all.extend(copies.map(|text| serde_json::from_str::<Value>(&text).expect("JSON")));
    }
    let value = plan(&["-o", "json"], &dump).json();
    assert_eq!(commands(&value["disruption"]["later"]).len(), 20);
    let page = plan(&[], &dump).stdout;
    assert!(
        page.ends_with("\n  … and perhaps more: passes after these are not looked at\n"),
        "{page}"
    );
}

#[test]
fn d_200_later_commands_have_what_earlier_ones_leave_of_a_budget() {
    for (at_once, later) in [("1", 0), ("2", 1), ("3", 2)] {
        let value = plan(&["-o", "json"], &drifted(at_once)).json();
        assert_eq!(commands(&value["disruption"]["commands"]).len(), 1, "{at_once}");
        let found = commands(&value["disruption"]["later"]);
        assert_eq!(found.len(), later, "{at_once}: {found:?}");
        assert_eq!(value["disruption"]["later"].is_null(), later == 0, "{at_once}");
    }
}

/// Programs get what budgets allow; people are told how many of the nodes that are there may go.
#[test]
fn d_195_of_three_nodes_no_fifty_may_go() {
    let dump = drifted("50");
    let value = plan(&["-o", "json"], &dump).json();
    let budget = &value["disruption"]["budgets"][0];
    assert_eq!(
        (&budget["allowed"], &budget["remaining"]),
        (&json!(50), &json!(50))
    );
    let page = plan(&[], &dump).stdout;
    let line = "budget of NodePool default for Empty: 3 of 3 left, 0 of 3 nodes disrupting";
    assert!(page.contains(line), "{page}");
}

#[test]
fn where_nothing_is_disrupted_nothing_follows() {
    let mut dump = drifted("100%");
    object(&mut dump, "NodePool", "default")["spec"]["disruption"]["budgets"] = json!([{"nodes": "0"}]);
    let output = plan(&["-o", "json"], &dump);
    assert!(commands(&output.json()["disruption"]["commands"]).is_empty());
    assert!(!output.stdout.contains("\"later\""), "{}", output.stdout);
    // One method alone is asked in each pass.
    let value = plan(&["-o", "json", "--methods", "emptiness"], &drifted("100%")).json();
    assert!(value["disruption"]["later"].is_null(), "{value}");
}

/// A NodePool with a fixed number of nodes that has none, and one requirement.
fn fixed(replicas: i64, key: &str, value: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "edge"},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": key, "operator": "In", "values": [value]}],
            }},
        },
    })
}

/// The text of a page on one line.
fn on_one_line(page: &str) -> String {
    page.split_whitespace().collect::<Vec<&str>>().join(" ")
}

const IN_FORCE: &str =
    "note: spec.replicas of NodePool edge in force, as with the feature gate StaticCapacity on";

#[test]
fn d_356_nodes_that_a_fixed_number_lacks_are_launched() {
    let why = "limits.nodes is reached";
    for (limit, nodes, beneath) in [
        ("4", 3, "the cloud chooses among its instance types\n\n"),
        ("2", 2, "\n  1 more is missing: limits.nodes is reached\n\n"),
        ("1", 1, "\n  2 more are missing: limits.nodes is reached\n\n"),
        ("0", 0, "lacks:\n    limits.nodes is reached\n\n"),
    ] {
        let mut dump = fixed(3, "karpenter.sh/capacity-type", "on-demand");
        dump["spec"]["limits"] = json!({"nodes": limit});
        let output = plan(&["-o", "json"], &dump);
        let mut expected = json!({"nodePool": "edge", "replicas": 3, "missing": 3, "nodes": nodes});
        if nodes < 3 {
            expected["message"] = why.into();
        }
        assert_eq!(output.json()["provisioning"]["replicas"], json!([expected]));
        assert_eq!(output.json()["provisioning"]["skippedNodePools"], json!([]));
        assert!(output.stderr.contains(IN_FORCE), "{}", output.stderr);
        let page = plan(&[], &dump).stdout;
        let title = match nodes {
            0 => "LAUNCH none of the nodes that NodePool edge (spec.replicas 3) lacks".to_owned(),
            1 => "LAUNCH 1 node of NodePool edge (spec.replicas 3)\n".to_owned(),
            nodes => format!("LAUNCH {nodes} nodes of NodePool edge (spec.replicas 3)\n"),
        };
        assert!(page.contains(&title) && page.contains(beneath), "{page}");
    }
}

/// Nobody is promised nodes that no cloud sells, that the operator tries to launch in vain, or that it does not even try to.
#[test]
fn invariant_24_d_356_nodes_that_cannot_be_launched_are_not_promised() {
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        let since = "2026-01-01T00:00:00Z";
        json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
    };
    let ready = || condition("Ready", "True", "Ready", "");
    let launchable = |reason, message| condition("spokeshave.dev/Launchable", "False", reason, message);
    let unsold = fixed(3, "node.kubernetes.io/instance-type", "m5.large");
    let judged = |conditions: Vec<Value>| {
        let mut pool = fixed(3, "karpenter.sh/capacity-type", "on-demand");
        pool["metadata"]["uid"] = json!("u");
        pool["status"] = json!({"conditions": conditions});
        pool
    };
    let class = "KWOKNodeClass default is not there";
    let short = "none is left; tried again at 2026-01-01T01:00:30Z";
    let gate = "the feature gate StaticCapacity is off";
    for (pool, why) in [
        (
            unsold,
            "node.kubernetes.io/instance-type In [m5.large] leaves none of 144 instance types",
        ),
        (
            judged(vec![condition("Ready", "False", "NodeClassNotReady", class)]),
            "it is not Ready: KWOKNodeClass default is not there",
        ),
        (judged(vec![ready(), launchable("LaunchesFail", short)]), short),
        (
            judged(vec![ready(), launchable("StaticCapacityDisabled", gate)]),
            gate,
        ),
        (
            judged(vec![ready(), launchable("LaunchesFail", "")]),
            "LaunchesFail",
        ),
    ] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": [{"name": "web", "image": "web"}]},
        });
        // That pods wait, for which it launches nothing anyway, is no reason to say it twice, or to promise what it lacks.
        for objects in [vec![pool.clone()], vec![pool, pod]] {
            let dump = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            let output = plan(&["-o", "json"], &dump);
            let value = output.json();
            let told = &value["provisioning"];
            let lacks = json!({"nodePool": "edge", "replicas": 3, "missing": 3, "nodes": 0, "message": why});
            assert_eq!(told["replicas"], json!([lacks]));
            let skipped = json!([{"nodePool": "edge", "message": why}]);
            assert_eq!(told["skippedNodePools"], skipped);
            assert!(!output.stderr.contains(IN_FORCE), "{}", output.stderr);
            let page = on_one_line(&plan(&[], &dump).stdout);
            let says = format!(
                "NodePool edge (spec.replicas 3) takes no part: {why} 3 nodes are missing, and none is launched "
            );
            assert!(page.contains(&says), "{page}");
            assert_eq!(page.matches("takes no part").count(), 1, "{page}");
            assert!(!page.contains("LAUNCH"), "{page}");
        }
    }
}

/// A NodePool that was mended since, in the cluster or in the file, is not held to what was found out about it before.
#[test]
fn d_356_what_the_operator_said_before_a_change_keeps_no_node_from_being_promised() {
    let condition = |type_: &str, status: &str, reason: &str, seen: i64| {
        let since = "2026-01-01T00:00:00Z";
        json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": since, "observedGeneration": seen})
    };
    for (reason, seen, nodes) in [
        ("NoCompatibleInstanceTypes", 4, 3),
        ("NoCompatibleInstanceTypes", 5, 3),
        ("LaunchesFail", 4, 3),
        ("LaunchesFail", 5, 0),
        ("StaticCapacityDisabled", 4, 0),
    ] {
        let mut pool = fixed(3, "karpenter.sh/capacity-type", "on-demand");
        pool["metadata"]["uid"] = json!("u");
        pool["metadata"]["generation"] = json!(5);
        let ready = condition("Ready", "True", "Ready", 5);
        let launchable = condition("spokeshave.dev/Launchable", "False", reason, seen);
        pool["status"] = json!({"conditions": [ready, launchable]});
        let told = plan(&["-o", "json"], &pool).json();
        let told = &told["provisioning"]["replicas"][0];
        assert_eq!(told["nodes"], nodes, "{reason} {seen}: {told}");
    }
}

/// Only what is left of its reservations can be launched from a NodePool that may take nothing else.
#[test]
fn d_356_a_reservation_that_has_room_for_some_nodes_launches_these() {
    let offering = |capacity_type: &str| {
        json!({
            "Price": 0.1, "ReservationCapacity": 2,
            "Requirements": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
            ],
        })
    };
    let catalog = json!([{
        "name": "m", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "4", "memory": "16Gi"},
        "offerings": [offering("reserved"), offering("on-demand")],
    }]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("catalog.json").display().to_string();
    std::fs::write(&file, catalog.to_string()).expect("written");
    let why = "its capacity reservations have room for 2 nodes";
    for (capacity_type, replicas, nodes) in [("reserved", 3, 2), ("reserved", 2, 2), ("on-demand", 3, 3)] {
        let dump = fixed(replicas, "karpenter.sh/capacity-type", capacity_type);
        let value = plan(&["-o", "json", "--catalog", &file], &dump).json();
        let told = &value["provisioning"]["replicas"][0];
        assert_eq!(
            (&told["missing"], &told["nodes"]),
            (&json!(replicas), &json!(nodes))
        );
        let said = (nodes < replicas).then_some(why);
        assert_eq!(told["message"].as_str(), said, "{told}");
        let page = plan(&["--catalog", &file], &dump).stdout;
        assert_eq!(
            page.contains(&format!("\n  1 more is missing: {why}\n")),
            said.is_some(),
            "{page}"
        );
    }
    // Room that one NodePool takes is not there for the next one.
    for (first, second) in [(2, 0), (1, 1)] {
        let mut other = fixed(3, "karpenter.sh/capacity-type", "reserved");
        other["metadata"]["name"] = json!("far");
        let both = [fixed(first, "karpenter.sh/capacity-type", "reserved"), other];
        let dump = json!({"apiVersion": "v1", "kind": "List", "items": both});
        let value = plan(&["-o", "json", "--catalog", &file], &dump).json();
        let told = &value["provisioning"]["replicas"];
        assert_eq!(
            (&told[0]["nodes"], &told[1]["nodes"]),
            (&json!(first), &json!(second))
        );
        let message = told[1]["message"].as_str().expect("a message");
        assert!(message.ends_with(" beside those of other NodePools"), "{message}");
        assert!(told[0]["message"].is_null(), "{told}");
    }
}

#[test]
fn d_357_d_358_nodes_that_a_fixed_number_has_too_many_of_are_named_in_their_order() {
    let mut dump = example("consolidation");
    object(&mut dump, "NodePool", "default")["spec"]["replicas"] = json!(1);
    let value = plan(&["-o", "json", "--verdicts"], &dump).json();
    let [told] = value["disruption"]["scaleDown"]
        .as_array()
        .expect("a list")
        .as_slice()
    else {
        panic!("one NodePool: {value}");
    };
    // The fewest pods first; the one whose pod asks not to be disrupted stays.
    let expected = json!(["night-c", "night-a", "night-b"]);
    assert_eq!(
        (&told["nodePool"], &told["replicas"], &told["nodes"]),
        (&json!("default"), &json!(1), &expected)
    );
    assert_eq!(told["evictions"], 5);
    let verdicts = value["disruption"]["verdicts"].as_array().expect("a list").iter();
    let waiting = verdicts
        .filter(|one| !one["waits"].is_null())
        .map(|one| &one["node"]);
    assert_eq!(waiting.collect::<Vec<_>>(), ["night-a", "night-b", "night-c"]);
    let page = plan(&[], &dump).stdout;
    assert!(
        page.contains("SCALE DOWN NodePool default (spec.replicas 1): 3 nodes less, saves"),
        "{page}"
    );
    assert!(page.contains("\n  nodes: night-c, night-a, night-b\n"), "{page}");
    object(&mut dump, "NodePool", "default")["spec"]["replicas"] = json!(4);
    let output = plan(&["-o", "json"], &dump);
    assert!(output.json()["disruption"]["scaleDown"].is_null());
    assert!(output.json()["provisioning"]["replicas"].is_null());
    assert!(!output.stderr.contains("StaticCapacity"), "{}", output.stderr);
    // A command that nobody can read may be replacing one of them.
    object(&mut dump, "NodePool", "default")["spec"]["replicas"] = json!(1);
    items(&mut dump).push(json!({
        "apiVersion": "spokeshave.dev/v1alpha1", "kind": "Disruption", "metadata": {"name": "odd"}, "spec": {"nodes": 7},
    }));
    let output = plan(&["-o", "json"], &dump);
    assert!(output.json()["disruption"]["scaleDown"].is_null());
    assert!(
        output.stderr.contains("Disruption odd cannot be read"),
        "{}",
        output.stderr
    );
}

/// The operator has said that it does not scale the NodePool.
#[test]
fn d_353_a_nodepool_that_the_operator_leaves_alone_is_not_scaled() {
    let mut dump = example("consolidation");
    let pool = object(&mut dump, "NodePool", "default");
    pool["spec"]["replicas"] = json!(1);
    let conditions = pool["status"]["conditions"].as_array_mut().expect("conditions");
    conditions.push(json!({
        "type": "spokeshave.dev/Launchable", "status": "False", "reason": "StaticCapacityDisabled", "message": "the feature gate is off",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let value = plan(&["-o", "json"], &dump).json();
    assert!(value["disruption"]["scaleDown"].is_null(), "{value}");
}
