//! Manifests as a stranger has them before anything is applied: `plan`, `explain` and `budgets` read the same files, assume aloud, and go on past what
//! cannot be used.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const NOW: &str = "2026-01-01T01:00:00Z";

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(command: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(command)
        .args(["--now", NOW])
        .env("COLUMNS", "80")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A program that refuses early does not read all of it.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

fn plan(input: &str) -> (Value, String) {
    let output = run(&["plan", "-f", "-", "-o", "json"], input);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    (
        serde_json::from_str(&output.stdout).expect("a plan"),
        output.stderr,
    )
}

fn pool(name: &str, requirements: &str, more: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}\n      requirements: [{requirements}]\n{more}"
    )
}

fn placed(plan: &Value) -> Vec<String> {
    let claims = plan["provisioning"]["nodeClaims"].as_array().expect("a list");
    let pods = claims
        .iter()
        .flat_map(|claim| claim["pods"].as_array().expect("pods"));
    let mut pods: Vec<String> = pods.map(|pod| pod.as_str().expect("a name").to_owned()).collect();
    pods.sort_unstable();
    pods
}

const TEMPLATE: &str = "{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 500m, memory: 256Mi}}}]}}";

#[test]
fn hand_written_pods_and_workloads_are_planned_with_a_note_each() {
    let text = [
        pool("default", "", ""),
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: bare}\nspec: {containers: [{name: c, image: i, resources: {limits: {cpu: '1'}}}]}\n".to_owned(),
        format!("---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\nspec: {{replicas: 3, selector: {{matchLabels: {{app: web}}}}, template: {TEMPLATE}}}\n"),
        format!("---\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: web-1a2b, namespace: shop, ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: web, uid: u}}]}}\nspec: {{replicas: 3, template: {TEMPLATE}}}\n"),
        format!("---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db, namespace: shop}}\nspec: {{template: {TEMPLATE}, volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{storageClassName: fast}}}}]}}\n"),
        format!("---\napiVersion: v1\nkind: ReplicationController\nmetadata: {{name: old, namespace: shop}}\nspec: {{replicas: 2, selector: {{app: web}}, template: {TEMPLATE}}}\n"),
        format!("---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: load, namespace: shop}}\nspec: {{parallelism: 5, completions: 2, template: {TEMPLATE}}}\n"),
        format!("---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: report, namespace: shop}}\nspec: {{schedule: '0 0 * * *', jobTemplate: {{spec: {{template: {TEMPLATE}}}}}}}\n"),
        format!("---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: logs, namespace: shop}}\nspec: {{selector: {{matchLabels: {{app: logs}}}}, template: {TEMPLATE}}}\n"),
    ];
    let (plan, notes) = plan(&text.concat());
    assert_eq!(
        placed(&plan),
        [
            "default/bare",
            "shop/db-0",
            "shop/load-0",
            "shop/load-1",
            "shop/old-0",
            "shop/old-1",
            "shop/report-0",
            "shop/web-0",
            "shop/web-1",
            "shop/web-2"
        ]
    );
    for note in [
        "1 Pod has no status (default/bare): taken as pending",
        "Deployment shop/web asks for 3 pods, and none of them is in the file: taken as pending",
        "StatefulSet shop/db asks for 1 pod, which is not in the file: taken as pending",
        "the volumes of StatefulSet shop/db (data) are taken to be possible in every zone",
        "ReplicationController shop/old asks for 2 pods",
        "Job shop/load asks for 2 pods",
        "CronJob shop/report asks for 1 pod",
        "NodePool default has no status: taken as ready",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
    // The limits of a hand-written Pod are used as its requests, and the DaemonSet uses capacity on each node.
    let claims = plan["provisioning"]["nodeClaims"].as_array().expect("a list");
    let cpu = claims.iter().map(|claim| {
        let text = claim["requests"]["cpu"].as_str().expect("cpu");
        let milli = text
            .strip_suffix('m')
            .map(|milli| milli.parse::<i64>().expect("a number"));
        milli.unwrap_or_else(|| text.parse::<i64>().expect("a number") * 1000)
    });
    let asked: i64 = cpu.sum();
    assert_eq!(
        asked,
        1000 + 9 * 500 + 500 * i64::try_from(claims.len()).expect("few")
    );
}

#[test]
fn workloads_whose_pods_are_in_the_file_are_left_alone() {
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web-5d9c-x, namespace: shop, uid: x, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d9c, uid: r, controller: true}]}\n\
        spec: {containers: [{name: c, image: i}]}\nstatus: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}\n";
    let deployment = |name: &str, status: &str| {
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{replicas: 3, template: {TEMPLATE}}}\n{status}"
        )
    };
    let text = [
        pool("default", "", ""),
        pod.to_owned(),
        deployment("web", ""),
        // A cluster has reported on this one, and its pods were not created there.
        deployment("held", "status: {observedGeneration: 4}\n"),
    ];
    let (plan, notes) = plan(&text.concat());
    assert_eq!(placed(&plan), ["shop/web-5d9c-x"], "{notes}");
    assert!(!notes.contains("asks for"), "{notes}");
}

#[test]
fn nodepools_that_the_api_server_would_refuse_are_left_out_by_name() {
    let text = [
        pool("good", "", ""),
        pool("spelled", "", "      taints: [{key: a, effect: NoSchedulee}]\n"),
        pool("fields", "", "      kubelet: {maxPods: 20}\n"),
        pool("window", "", "  disruption: {budgets: [{nodes: '1', schedule: '@daily'}]}\n"),
        pool("accepted", "", "      kubelet: {maxPods: 20}\n").replace("name: accepted", "name: accepted, uid: u"),
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeSelector: {karpenter.sh/nodepool: spelled}, containers: [{name: c, image: i}]}\n".to_owned(),
    ];
    let (plan, notes) = plan(&text.concat());
    assert_eq!(plan["cluster"]["nodePools"], 2, "{notes}");
    assert_eq!(placed(&plan), Vec::<String>::new());
    for (pool, why) in [
        ("spelled", "NoSchedulee"),
        ("fields", "kubelet: unknown field"),
        ("window", "schedule"),
    ] {
        let line = notes
            .lines()
            .find(|line| line.contains(&format!("NodePool {pool} is left out")));
        let line = line.unwrap_or_else(|| panic!("{pool}: {notes}"));
        assert!(
            line.contains(why) && line.starts_with("note: standard input:"),
            "{line}"
        );
    }
    // The line is that of the field.
    assert!(notes.contains("standard input:19: NodePool spelled"), "{notes}");
}

#[test]
fn nodepools_of_another_provider_are_priced_with_a_note() {
    let class = "nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}";
    let text = pool("default", "", "").replace(
        "nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}",
        class,
    );
    let (_, notes) = plan(&text);
    assert!(
        notes.contains("NodePool default refers to AKSNodeClass (karpenter.azure.com), of whose provider no instance types or prices are known: planned with those of the kwok provider"),
        "{notes}"
    );
}

#[test]
fn the_nodepool_that_a_pod_asks_for_speaks_first() {
    let mut text = pool(
        "gpu",
        "{key: node.kubernetes.io/instance-type, operator: In, values: [g5.xlarge]}",
        "",
    );
    text += &pool(
        "varied",
        "{key: karpenter.kwok.sh/instance-family, operator: Exists, minValues: 5}",
        "",
    );
    for number in 0..120 {
        text += &pool(&format!("team-{number:03}"), "", "");
    }
    for (pod, pool) in [("train", "gpu"), ("mix", "varied")] {
        text += &format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}}}\nspec: {{nodeSelector: {{karpenter.sh/nodepool: {pool}}}, containers: [{{name: c, image: i}}]}}\n"
        );
    }
    let story = run(&["explain", "pod", "train", "-f", "-"], &text).stdout;
    assert!(
        story.starts_with("Pod default/train: has no place: it asks for NodePool gpu"),
        "{story}"
    );
    let way: Vec<&str> = story
        .split("In the way\n")
        .nth(1)
        .expect("a section")
        .lines()
        .collect();
    assert!(
        way.join(" ").split_whitespace().collect::<Vec<_>>().join(" ").starts_with(
            "NodePool gpu: node.kubernetes.io/instance-type In [g5.xlarge] leaves none of 144 instance types"
        ),
        "{story}"
    );
    assert!(
        story.contains("120 other NodePools: 120 whose labels do not satisfy it"),
        "{story}"
    );
    assert!(
        !story.contains("compare the pod's") && story.lines().count() < 30,
        "{story}"
    );
    let story = run(&["explain", "pod", "mix", "-f", "-"], &text).stdout;
    let words = story.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("NodePool varied: the"), "{story}");
    assert!(
        words.contains("of the 5 for minValues of karpenter.kwok.sh/instance-family"),
        "{story}"
    );
    let story = run(&["explain", "nodepool", "gpu", "-f", "-"], &text).stdout;
    assert!(story.starts_with("NodePool gpu: cannot launch nodes:"), "{story}");
    assert!(story.contains("0 of 144 meet its requirements"), "{story}");

    let (plan, _) = plan(&text);
    let pods = plan["provisioning"]["unschedulable"].as_array().expect("a list");
    let train = pods
        .iter()
        .find(|pod| pod["pod"] == "default/train")
        .expect("it has no place");
    assert_eq!(train["reasons"][0]["nodePool"], "gpu");
    assert_eq!(train["reasons"][0]["kind"], "TakesNoPart");
    let skipped = plan["provisioning"]["skippedNodePools"]
        .as_array()
        .expect("a list");
    let why = |pool: &str| {
        let of_pool = skipped.iter().find(|one| one["nodePool"] == pool);
        of_pool.expect("it takes no part")["message"]
            .as_str()
            .expect("text")
    };
    assert_eq!(
        why("gpu"),
        "node.kubernetes.io/instance-type In [g5.xlarge] leaves none of 144 instance types"
    );
    let varied = why("varied");
    assert!(
        varied.ends_with("of the 5 for minValues of karpenter.kwok.sh/instance-family"),
        "{varied}"
    );
    let hints = train["inTheWay"].as_array().expect("a list");
    assert!(
        hints
            .iter()
            .all(|one| !one["hint"].as_str().expect("text").contains("add a NodePool")),
        "{train}"
    );
}

#[test]
fn a_resource_that_nothing_has_is_named() {
    let text = pool("default", "", "")
        + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: gpu}\nspec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: '1'}}}]}\n";
    let (plan, _) = plan(&text);
    let pod = &plan["provisioning"]["unschedulable"][0];
    assert_eq!(
        pod["inTheWay"][0]["hint"], "no instance type of any NodePool has nvidia.com/gpu",
        "{pod}"
    );
    let story = run(&["explain", "pod", "gpu", "-f", "-"], &text).stdout;
    assert!(
        story.contains("no instance type of any NodePool has nvidia.com/gpu"),
        "{story}"
    );
}

#[test]
fn budgets_reads_what_plan_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        path.display().to_string()
    };
    let budgets = |arguments: &[&str], input: &str| run(&[&["budgets"], arguments].concat(), input);
    let good = pool("good", "", "  disruption: {budgets: [{nodes: '1'}]}\n");
    let json = serde_json::json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "json"}, "spec": {}});
    let bad_claim = "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: broken}\nspec: 7\n";
    let good_file = file("good.yaml", good.as_bytes());
    let json_file = file("lines.json", format!("{json}\n{json}\n").as_bytes());

    let output = budgets(&["-f", "-"], &good);
    assert!(
        output.stdout.starts_with("NodePool good: 100 nodes assumed"),
        "{}",
        output.stderr
    );
    let output = budgets(&["-f", &good_file, "-f", &json_file], "");
    assert!(
        output.stdout.contains("NodePool good:") && output.stdout.contains("NodePool json:"),
        "{}",
        output.stderr
    );
    let output = budgets(&["-f", &folder.path().display().to_string()], "");
    assert!(
        output.stdout.contains("NodePool good:") && output.stdout.contains("NodePool json:"),
        "{}",
        output.stderr
    );
    let output = budgets(&["-f", "-"], &format!("{bad_claim}{good}"));
    assert_eq!(output.code, Some(0));
    assert!(
        output.stderr.contains("NodeClaim broken cannot be read"),
        "{}",
        output.stderr
    );
    assert!(output.stdout.contains("NodePool good:"), "{}", output.stdout);

    for (text, said) in [
        (&b"\x1f\x8bxxxx"[..], "is compressed; decompress it first"),
        (b"", "holds no object"),
        (
            b"apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: old}\n",
            "1 NodePool of karpenter.sh/v1beta1: `spokeshave convert -f FILE`",
        ),
        (
            b"apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: old}\n",
            "1 Provisioner of karpenter.sh/v1alpha5: `spokeshave convert -f FILE`",
        ),
    ] {
        let path = file("odd", text);
        let output = budgets(&["-f", &path], "");
        assert_eq!(output.code, Some(1), "{said}: {}", output.stdout);
        assert!(output.stderr.contains(said), "{said}: {}", output.stderr);
    }
    let (_, notes) = plan("apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: old}\n");
    assert!(
        notes.contains("(karpenter.sh/v1beta1): `spokeshave convert -f FILE`"),
        "{notes}"
    );
}

#[test]
fn several_files_and_directories_are_one_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let sub = folder.path().join("app");
    std::fs::create_dir(&sub).expect("a folder");
    let write = |path: &Path, text: &str| std::fs::write(path, text).expect("it is written");
    write(&folder.path().join("pools.yaml"), &pool("default", "", ""));
    write(
        &sub.join("a.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n",
    );
    write(
        &sub.join("b.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: 7}\n",
    );
    write(&sub.join("notes.txt"), "not a manifest");
    let pools = folder.path().join("pools.yaml").display().to_string();
    let output = run(
        &[
            "plan",
            "-o",
            "json",
            "-f",
            &pools,
            "-f",
            &sub.display().to_string(),
        ],
        "",
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let plan: Value = serde_json::from_str(&output.stdout).expect("a plan");
    assert_eq!(placed(&plan), ["default/a"]);
    let bad = sub.join("b.yaml").display().to_string();
    assert!(
        output.stderr.contains(&format!("note: {bad}, document 1")),
        "{}",
        output.stderr
    );
}

#[test]
fn a_closed_standard_error_is_no_panic() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["budgets", "-f", "/nonexistent.yaml"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(writer)
        .spawn()
        .expect("the program starts");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

#[test]
fn p_203_a_misspelt_feature_gate_stops_up_and_operator() {
    for command in [
        &[
            "up",
            "--feature-gates",
            "staticCapacity=true",
            "--exit-after",
            "1s",
        ][..],
        &[
            "operator",
            "--cloud-provider",
            "kwok",
            "--feature-gates",
            "staticCapacity=true",
        ],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
            .args(command)
            .stdin(Stdio::null())
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("did you mean StaticCapacity?"), "{said}");
    }
}

#[test]
fn pages_are_as_wide_as_columns_says() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/unschedulable.yaml");
    let page = |columns: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
            .args(["plan", "--now", NOW, "-f"])
            .arg(&example)
            .env("COLUMNS", columns)
            .output()
            .expect("the program runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let widest = |page: &str| {
        page.lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or_default()
    };
    assert!((70..=80).contains(&widest(&page("80"))));
    assert!((90..=130).contains(&widest(&page("130"))), "{}", page("130"));
}

/// The first line that `up` prints about manifests, of those that hold this text.
fn up_says(manifests: &str, text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("manifests.yaml");
    std::fs::write(&file, manifests).expect("it is written");
    let mut child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["up", "--bare", "--exit-after", "5m", "-f"])
        .arg(&file)
        .arg("--kubeconfig")
        .arg(folder.path().join("kubeconfig"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let said = BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .map(|line| line.expect("UTF-8"))
        .find(|line| line.contains(text));
    child.kill().expect("it is running");
    child.wait().expect("it ends");
    said.unwrap_or_else(|| panic!("up says nothing with {text:?}"))
}

/// P-059: the operator ignores NodePools of another provider, and logs it in `up`.
#[test]
fn p_059_up_says_that_a_nodepool_of_another_provider_is_ignored() {
    let class = "nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}";
    let own = "nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}";
    let said = up_says(&pool("large", "", "").replace(own, class), "is ignored");
    assert!(
        said.contains("large")
            && said.contains("EC2NodeClass (karpenter.k8s.aws) is not a kind of this operator's provider"),
        "{said}"
    );
}

/// The message of `up` about an unschedulable pod starts, like its event, with the NodePool that the pod selects.
#[test]
fn up_names_the_nodepool_first_that_a_pod_asks_for() {
    let unsold = "{key: node.kubernetes.io/instance-type, operator: In, values: [g5.xlarge]}";
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: train}\nspec: {nodeSelector: {karpenter.sh/nodepool: gpu}, containers: [{name: c, image: i}]}\n";
    let class =
        "---\napiVersion: karpenter.kwok.sh/v1alpha1\nkind: KWOKNodeClass\nmetadata: {name: default}\n";
    let manifests = [class, &pool("gpu", unsold, ""), &pool("other", "", ""), pod].concat();
    let said = up_says(&manifests, "default/train: cannot be placed");
    let reason = said.split(" — ").nth(1).expect("a reason");
    assert!(
        reason.starts_with("node.kubernetes.io/instance-type In [g5.xlarge] leaves none of 144 instance types (NodePool=gpu); "),
        "{said}"
    );
}

/// A plan in which nothing is disrupted says what has stopped it, as the verdicts of nodes do.
#[test]
fn invariant_4_a_plan_names_the_policy_that_has_frozen_a_nodepool() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/consolidation.yaml");
    let example = std::fs::read_to_string(example).expect("an example");
    let freeze = "---\napiVersion: spokeshave.dev/v1alpha1\nkind: DisruptionPolicy\nmetadata: {name: freeze}\nspec: {freeze: {reason: incident 42, until: '2026-01-01T03:00:00Z'}}\n";
    let (free, _) = plan(&example);
    assert_ne!(free["disruption"]["commands"], serde_json::json!([]));
    assert!(free["disruption"]["stops"].is_null());
    let text = format!("{example}{freeze}");
    let (frozen, _) = plan(&text);
    let message = "DisruptionPolicy freeze (spec.freeze) stops Empty, Drifted, Underutilized: frozen: incident 42, until 2026-01-01 03:00:00Z";
    assert_eq!(frozen["disruption"]["commands"], serde_json::json!([]));
    assert_eq!(
        frozen["disruption"]["stops"],
        serde_json::json!([{
            "policy": "freeze",
            "field": "spec.freeze",
            "nodePools": ["default"],
            "reasons": ["Empty", "Drifted", "Underutilized"],
            "until": "2026-01-01T03:00:00Z",
            "message": message,
        }])
    );
    let page = run(&["plan", "-f", "-"], &text).stdout;
    let words: Vec<&str> = page.split_whitespace().collect();
    let expected = format!("NodePool default: {message}");
    assert!(words.join(" ").contains(&expected), "{page}");
}

/// Until a node is there, limits count it with the largest type that it may become; the pass after that has room for more, and a plan says so.
#[test]
fn p_093_a_plan_tells_what_a_later_pass_launches_once_limits_count_what_is_there() {
    let apart = "podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: web}}, topologyKey: kubernetes.io/hostname}]}";
    let text = [
        pool(
            "default",
            "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}",
            "  limits: {cpu: '10'}\n",
        ),
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\nspec: {{replicas: 3, selector: {{matchLabels: {{app: web}}}}, \
             template: {{metadata: {{labels: {{app: web}}}}, spec: {{affinity: {{{apart}}}, \
             containers: [{{name: c, image: i, resources: {{requests: {{cpu: '3'}}}}}}]}}}}}}\n"
        ),
    ]
    .concat();
    let (planned, notes) = plan(&text);
    assert_eq!(placed(&planned).len(), 1, "{planned:#}\n{notes}");
    let left = &planned["provisioning"]["unschedulable"];
    let left: Vec<&Value> = left.as_array().expect("a list").iter().collect();
    assert_eq!(left.len(), 2, "of this pass: {left:#?}");
    let later = planned["provisioning"]["later"].as_array().expect("a list");
    let [later] = later.as_slice() else {
        panic!("of one NodePool: {later:#?}");
    };
    assert_eq!(
        (&later["nodePool"], &later["nodes"]),
        (&"default".into(), &1.into())
    );
    let [pod] = later["pods"].as_array().expect("pods").as_slice() else {
        panic!("one pod, and not the third: {later:#}");
    };
    assert!(left.iter().any(|one| one["pod"] == *pod), "{pod}");
    assert!(later["price"].as_f64().is_some_and(|price| price > 0.0));
    let page = run(&["plan", "-f", "-"], &text).stdout;
    for part in [
        "LAUNCH 1 node for 1 pod: ",
        "LAUNCH LATER 1 node for 1 pod: about +$",
        "CANNOT PLACE 1 pod\n",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}
