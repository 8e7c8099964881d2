//! The whole command on a file, against transcripts in `tests/explain`.

use std::path::{Path, PathBuf};

use spokeshave_example::{epoch, random_world};
use spokeshave_plan::Policy;
use spokeshave_story::replicas::Replicas;
use spokeshave_view::{Judged, World, detail, pod_story};

use super::*;
use crate::plan::SourceArgs;
use crate::plan::in_force::InForce;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explain")
}

fn arguments(words: &[&str], output: OutputFormat) -> ExplainArgs {
    on(&directory().join("stuck.yaml"), words, output)
}

fn on(file: &Path, words: &[&str], output: OutputFormat) -> ExplainArgs {
    ExplainArgs {
        object: words.iter().map(ToString::to_string).collect(),
        namespace: None,
        source: SourceArgs {
            filenames: vec![file.to_owned()],
            now: Some("2026-03-02T12:00:00Z".parse().unwrap()),
            ..SourceArgs::default()
        },
        output,
    }
}

fn answer(words: &[&str], output: OutputFormat) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(run(&arguments(words, output)))
}

fn table(words: &[&str]) -> String {
    answer(words, OutputFormat::Table).unwrap()
}

/// Compares with the transcript, or writes it when BLESS is set.
fn golden(name: &str, text: &str) {
    let path = directory().join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "{name} differs; BLESS=1 writes it anew");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{name} has a line beyond 80 columns"
    );
}

#[test]
fn d_320_a_drain_that_a_budget_holds_up() {
    golden("guarded.txt", &table(&["node", "guarded"]));
}

/// D-027: `explain` and `plan` say the same of a node to which a pending pod is sent: what would become of it, and that it stays for that pod.
#[test]
fn d_027_a_node_that_a_pending_pod_is_sent_to_waits_for_it() {
    let said = example("pending.yaml", &["node", "default-7xk2p"]);
    let words: Vec<&str> = said.split_whitespace().collect();
    let words = words.join(" ");
    let first = "Node default-7xk2p: would be replaced by c-4x-amd64-linux: saves $0.04/h; not in this plan, which sends pending pods to it ";
    assert!(words.starts_with(first), "{said}");
    let verdict = "\nVerdict: replace with c-4x-amd64-linux by SingleNodeConsolidation\n  not in this plan, which sends pending pods to it\n";
    assert!(said.contains(verdict), "{said}");
    assert!(said.contains(": is no longer kept for a pending pod\n"), "{said}");
}

/// The page and `top` tell the stories that `explain` tells, of nodes that pending pods are sent to as well.
#[test]
fn d_027_the_page_tells_of_nodes_and_pods_what_explain_tells() {
    let (mut told, mut waiting) = (0, 0);
    for seed in 0..50 {
        let source = Source {
            state: random_world(seed),
            attachments: Vec::new(),
            commands: Vec::new(),
            replicas: Replicas::default(),
            told: Vec::new(),
            classes: Vec::new(),
            client: None,
            in_force: InForce::default(),
            now: epoch(),
        };
        let world = World {
            state: source.state.clone(),
            now: source.now,
            ..World::default()
        };
        let judged = Judged::of(world, &Policy::default());
        let explained = |kind: &str, name: &str| {
            let wanted = Wanted::parse(&[kind.to_owned(), name.to_owned()], None).unwrap();
            tell(&source, &wanted).unwrap()
        };
        for node in &source.state.nodes {
            let name = node.metadata.name.as_deref().unwrap();
            let story = detail(&judged, name).unwrap().story;
            assert_eq!(explained("node", name), story, "seed {seed}");
            let verdict = story.verdict.as_ref();
            waiting += usize::from(verdict.is_some_and(|verdict| verdict.waits.is_some()));
            told += 1;
        }
        for pod in source.state.pods.iter().take(5) {
            let name = spokeshave_model::pod::key(pod);
            let story = pod_story(&judged, &name).unwrap();
            assert_eq!(explained("pod", &name), story, "seed {seed}");
            told += 1;
        }
    }
    assert!(told > 100, "{told} stories prove little");
    assert!(waiting > 0, "no node that pending pods are sent to would go");
}

#[test]
fn d_304_d_334_a_drain_with_a_deadline() {
    golden("protected.txt", &table(&["node/protected"]));
}

#[test]
fn d_338_volumes_that_do_not_detach() {
    golden("attached.txt", &table(&["node", "attached"]));
}

#[test]
fn d_348_an_instance_that_does_not_go() {
    golden("lingering.txt", &table(&["no", "lingering"]));
    let claim = table(&["nodeclaim", "claim-lingering"]);
    assert!(claim.contains("for 28m59s"), "{claim}");
}

#[test]
fn p_167_a_launch_that_fails() {
    golden("launch.txt", &table(&["nodeclaim", "default-x7k2p"]));
}

#[test]
fn p_065_a_pool_at_its_limit() {
    golden("pool.txt", &table(&["nodepool", "full"]));
    let open = table(&["np/default"]);
    assert!(open.contains("4 of 5 at once, 3 disrupting, 1 left"), "{open}");
    assert!(
        open.contains("2026-03-02T18:00:00Z  in 6h: the budgets of NodePool default allow"),
        "{open}"
    );
}

#[test]
fn a_pod_that_keeps_its_node() {
    let said = table(&["pod", "report-1"]);
    let first = "Pod shop/report-1: runs on protected and keeps it from being disrupted\n";
    assert!(said.starts_with(first), "{said}");
    assert!(
        said.contains("karpenter.sh/do-not-disrupt for as long as it is there"),
        "{said}"
    );
}

#[test]
fn a_running_node_has_a_verdict() {
    let said = table(&["node", "batch"]);
    assert!(said.contains("\nVerdict: "), "{said}");
    assert!(
        said.contains("drifted        NodePoolDrifted, since 2026-03-02T10:00:00Z"),
        "{said}"
    );
    assert!(
        said.contains("2026-03-03T05:59:00Z  in 17h59m: expireAfter 24h"),
        "{said}"
    );
}

/// Two that go, and three that stay for different reasons.
const NODES: [(&str, &str); 5] = [
    ("consolidation.yaml", "night-a"),
    ("consolidation.yaml", "night-c"),
    ("consolidation.yaml", "night-d"),
    ("drift.yaml", "old-1"),
    ("drift.yaml", "new-1"),
];

/// When the examples play.
const PLAYED: &str = "2026-01-01T01:00:00Z";

/// Of one of the examples that the README leads to.
fn example(file: &str, words: &[&str]) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(file);
    let mut arguments = on(&file, words, OutputFormat::Table);
    arguments.source.now = Some(PLAYED.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(run(&arguments)).unwrap()
}

#[test]
fn verdicts_on_nodes_that_go_and_nodes_that_stay() {
    for (file, node) in NODES {
        golden(&format!("verdict-{node}.txt"), &example(file, &["node", node]));
    }
}

#[test]
fn pods_that_wait_and_why() {
    for (pod, because) in [("typo-1", "topology.kubernetes.io/zoen"), ("whale-1", "cpu 300")] {
        let said = example("unschedulable.yaml", &["pod", pod]);
        assert!(
            said.starts_with(&format!("Pod shop/{pod}: has no place")),
            "{said}"
        );
        assert!(said.contains(because), "{said}");
    }
}

/// An object in detail in an example that was changed, when the examples play.
fn of_changed(
    file: &str,
    words: &[&str],
    change: impl FnOnce(&mut Vec<serde_json::Value>),
) -> serde_json::Value {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = std::fs::read_to_string(examples.join(file)).unwrap();
    let mut dump: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    change(dump["items"].as_array_mut().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.json");
    std::fs::write(&file, dump.to_string()).unwrap();
    let mut arguments = on(&file, words, OutputFormat::Json);
    arguments.source.now = Some(PLAYED.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    serde_json::from_str(&runtime.block_on(run(&arguments)).unwrap()).unwrap()
}

fn fact<'a>(story: &'a serde_json::Value, name: &str) -> &'a str {
    let mut facts = story["facts"].as_array().unwrap().iter();
    let found = facts.find(|fact| fact["name"] == name);
    found.map_or("", |fact| fact["value"].as_str().unwrap())
}

/// A command that has deleted all of its nodes holds none of them any more: budgets count them by themselves, as `plan`, `top` and the page say.
#[test]
fn d_118_nodes_of_a_command_that_only_drains_are_not_told_as_held() {
    for (phase, disrupting) in [
        ("Starting", 1),
        ("Replacing", 1),
        ("Deleting", 1),
        ("Draining", 0),
        ("Succeeded", 0),
        ("RolledBack", 0),
    ] {
        let command = serde_json::json!({
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
            "status": {"phase": phase},
        });
        let story = of_changed("drift.yaml", &["nodepool", "default"], |items| {
            items.push(command)
        });
        let budgets = fact(&story, "budgets now");
        let counted = format!(": 1 of 3 at once, {disrupting} disrupting, ");
        assert!(budgets.contains(&counted), "{phase}: {budgets}");
    }
}

/// The same nodes in the same order as `plan` names them.
#[test]
fn d_357_d_358_nodes_that_a_smaller_number_of_replicas_deletes_are_named() {
    let scaled = |items: &mut Vec<serde_json::Value>| {
        for pool in items.iter_mut().filter(|one| one["kind"] == "NodePool") {
            pool["spec"]["replicas"] = 1.into();
        }
    };
    let file = "consolidation.yaml";
    let pool = of_changed(file, &["nodepool", "default"], scaled);
    assert_eq!(
        fact(&pool, "too many"),
        "3 nodes, deleted without a command in this order: night-c, night-a, night-b"
    );
    let node = |name: &str| of_changed(file, &["node", name], scaled);
    let goes = "goes without a command: NodePool default has more nodes than spec.replicas";
    for name in ["night-a", "night-b", "night-c"] {
        let story = node(name);
        assert_eq!(
            (&story["summary"], &story["verdict"]["waits"]),
            (&goes.into(), &goes.into())
        );
    }
    let stays = node("night-d");
    assert!(stays["verdict"]["waits"].is_null(), "{stays}");
    // A command that nobody can read may be replacing one of them.
    let unread = of_changed(file, &["nodepool", "default"], |items| {
        scaled(items);
        items.push(serde_json::json!({
            "apiVersion": "spokeshave.dev/v1alpha1", "kind": "Disruption", "metadata": {"name": "odd"}, "spec": {"nodes": 7},
        }));
    });
    assert_eq!(fact(&unread, "too many"), "");
}

/// Their nodes are too old a month later: what keeps one from a command keeps it from nothing, and do-not-disrupt holds its drain alone.
#[test]
fn d_247_d_322_a_node_that_has_expired_goes_whatever_keeps_it() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/consolidation.yaml");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let story = |now: &str, words: &[&str]| -> serde_json::Value {
        let mut arguments = on(&file, words, OutputFormat::Json);
        arguments.source.now = Some(now.parse().unwrap());
        serde_json::from_str(&runtime.block_on(run(&arguments)).unwrap()).unwrap()
    };
    let (before, due) = ("2026-01-30T23:59:59Z", "2026-01-31T00:00:00Z");
    let goes = "is deleted at once, whatever budgets and do-not-disrupt say: expireAfter 720h has passed";
    let held = format!(
        "{goes}; its drain waits for Pod shop/batch-1 (do-not-disrupt) however long that takes: it has no terminationGracePeriod"
    );
    let kept = story(before, &["node", "night-d"]);
    assert_eq!(kept["summary"], "stays because of Pod shop/batch-1");
    let gone = story(due, &["node", "night-d"]);
    assert_eq!(gone["verdict"]["decision"], "keep");
    assert_eq!(
        (&gone["summary"], &gone["verdict"]["waits"]),
        (&held.as_str().into(), &held.as_str().into())
    );
    let claim = story(due, &["nodeclaim", "night-d"]);
    let said = claim["summary"].as_str().unwrap();
    assert!(said.ends_with(&format!("; it {goes}")), "{said}");
    let pool = ["nodepool", "default"];
    assert_eq!(fact(&story(before, &pool), "expired"), "");
    assert_eq!(
        fact(&story(due, &pool), "expired"),
        "4 nodes, deleted at once whatever budgets and do-not-disrupt say: night-a, night-b, night-c, night-d"
    );
}

/// `plan` and `explain` advise the same, whatever NodePools say first that would not take the pod anyway.
#[test]
fn p_056_explain_advises_what_plan_advises() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let plan = std::fs::read_to_string(examples.join("unschedulable.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let file = examples.join("unschedulable.yaml");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut told = 0;
    for pod in plan["provisioning"]["unschedulable"].as_array().unwrap() {
        let advised = pod["inTheWay"].as_array().unwrap();
        let arguments = on(&file, &["pod", pod["pod"].as_str().unwrap()], OutputFormat::Json);
        let story: serde_json::Value =
            serde_json::from_str(&runtime.block_on(run(&arguments)).unwrap()).unwrap();
        for (number, one) in advised.iter().enumerate() {
            assert_eq!(one["hint"], story["hints"][number], "{pod} {story}");
            told += 1;
        }
    }
    assert_eq!(told, 4);
    let typo = example("unschedulable.yaml", &["pod", "typo-1"]);
    assert!(!typo.contains("add a toleration"), "{typo}");
    let train = example("unschedulable.yaml", &["pod", "train-1"]);
    assert!(train.contains("raise spec.limits of NodePool ml"), "{train}");
}

/// What the controllers have said of a pod is repeated with it, and nothing that they have said of its namesakes.
#[test]
fn a_pod_is_told_what_the_controllers_have_said_of_it() {
    let event = |namespace: &str, message: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"namespace": namespace, "name": "web-1.1"},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "web-1"},
            "source": {"component": "karpenter"}, "lastTimestamp": "2026-03-02T11:59:00Z",
            "reason": "NodesInVain", "message": message,
        })
    };
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web-1"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let items = [pod, event("shop", "two nodes"), event("other", "three nodes")];
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.json");
    std::fs::write(&file, list.to_string()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let arguments = on(&file, &["pod", "shop/web-1"], OutputFormat::Table);
    let said = runtime.block_on(run(&arguments)).unwrap();
    assert!(
        said.contains("\n  told           1m ago, NodesInVain: two nodes\n"),
        "{said}"
    );
    assert!(!said.contains("three nodes"), "{said}");
}

#[test]
fn json_and_yaml_say_the_same() {
    let json: serde_json::Value =
        serde_json::from_str(&answer(&["guarded"], OutputFormat::Json).unwrap()).unwrap();
    let yaml: serde_json::Value =
        serde_saphyr::from_str(&answer(&["guarded"], OutputFormat::Yaml).unwrap()).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(json["apiVersion"], "plan.spokeshave.dev/v1alpha1");
    assert_eq!(
        (&json["kind"], &json["objectKind"]),
        (&"Story".into(), &"Node".into())
    );
    assert_eq!(json["steps"][2]["state"], "active");
    assert_eq!(json["waits"][0]["object"], "Pod shop/web-1");
}

#[test]
fn what_is_not_there_is_said() {
    let error = answer(&["node", "gaurded"], OutputFormat::Table)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "there is no Node \"gaurded\"; did you mean guarded?");
}
