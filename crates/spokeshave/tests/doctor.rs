//! `spokeshave doctor` as a user runs it: the page word for word, the documented fields, and its exit codes.
//!
//! After a wanted change, `BLESS=1 cargo test -p spokeshave --test doctor` rewrites the expected page; read the difference.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

mod shown;
use shown::Shown;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/doctor")
        .join(name)
}

fn run(file: &Path, format: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["doctor", "-o", format, "--now", "2026-01-02T00:00:00Z", "-f"])
        .arg(file)
        .env("COLUMNS", "80")
        .output()
        .expect("the program runs")
}

#[test]
fn the_page_says_what_is_wrong_why_and_what_to_write() {
    let output = run(&data("cluster.yaml"), "table");
    let page = String::from_utf8(output.stdout).expect("text");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(data("cluster.txt"), &page).expect("written");
    }
    let expected = std::fs::read_to_string(data("cluster.txt")).expect("the expected page");
    assert!(page == expected, "{page}");
    assert_eq!(output.status.code(), Some(3), "an error was found");
}

#[test]
fn json_has_the_documented_fields() {
    let output = run(&data("cluster.yaml"), "json");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["apiVersion"], "doctor.spokeshave.dev/v1alpha1");
    assert_eq!(answer["kind"], "Diagnosis");
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md"))
        .expect("the manual");
    for finding in answer["findings"].as_array().expect("a list") {
        for field in finding.as_object().expect("an object").keys() {
            assert!(
                manual.contains(&format!("`{field}`")),
                "{field} is not in docs/doctor.md"
            );
        }
        let code = finding["code"].as_str().expect("a code");
        assert!(manual.contains(code), "{code} is not in docs/doctor.md");
    }
    let first = &answer["findings"][0];
    assert_eq!(first["code"], "pdb-never-allows");
    assert!(
        first["keepsDollarsPerMonth"]
            .as_f64()
            .is_some_and(|dollars| dollars > 0.0)
    );
}

#[test]
fn nothing_wrong_is_exit_code_0() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("fine.yaml");
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {template: {spec: {requirements: [], nodeClassRef: {group: g, kind: K, name: c}}}}\n";
    std::fs::write(&file, text).expect("written");
    let output = run(&file, "table");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Nothing is wrong.\n");
    assert_eq!(output.status.code(), Some(0));
}

/// Whatever command reads a dump: what it lacks is named where an answer depends on it.
#[test]
fn kinds_that_a_dump_lacks_are_named() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/consolidation.yaml");
    let text = std::fs::read_to_string(&example).expect("an example");
    let list: Value = serde_saphyr::from_str(&text).expect("YAML");
    let directory = tempfile::tempdir().expect("a directory");
    for (kind, note) in [
        (
            "NodeClaim",
            "note: 4 nodes have a NodePool's label and no NodeClaim that can be read: taken as not managed",
        ),
        (
            "Pod",
            "note: no Pod that can be read is in the file: every node counts as empty",
        ),
        (
            "NodePool",
            "note: 4 nodes belong to NodePool default, which is not in the file: they are in no consolidation or drift, with no price",
        ),
    ] {
        let mut part = list.clone();
        let items = part["items"].as_array_mut().expect("a list");
        items.retain(|item| item["kind"] != kind);
        let file = directory.path().join(format!("without-{kind}.json"));
        std::fs::write(&file, part.to_string()).expect("written");
        let output = run(&file, "table");
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(notes.contains(note), "{kind}: {notes}");
    }
    let output = run(&example, "table");
    assert!(output.stderr.is_empty(), "nothing is missing");
}

/// A Deployment, the HorizontalPodAutoscalers for it, and a budget that keeps one of its pods.
fn app(namespace: &str, autoscalers: &[(i64, i64)]) -> String {
    let mut text = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web{namespace}}}\n\
         spec: {{selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}}}\n\
         ---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: web{namespace}}}\n\
         spec: {{minAvailable: 1, selector: {{matchLabels: {{app: web}}}}}}\n"
    );
    for (least, most) in autoscalers {
        text.push_str(&format!(
            "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: web{namespace}}}\n\
             spec: {{minReplicas: {least}, maxReplicas: {most}, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}}}\n"
        ));
    }
    text
}

/// A workload has at least as many pods as its HorizontalPodAutoscaler says, and may get as many as that allows.
#[test]
fn d_018_a_horizontalpodautoscaler_says_how_many_pods_there_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("app.yaml");
    for (least, most, note, code) in [
        (
            4,
            9,
            "HorizontalPodAutoscaler shop/web for Deployment shop/web asks for 4 pods, and none of them is in the file",
            0,
        ),
        (1, 1, "note: Deployment shop/web asks for 1 pod", 3),
        (1, 2, "note: Deployment shop/web asks for 1 pod", 0),
    ] {
        std::fs::write(&file, app(", namespace: shop", &[(least, most)])).expect("written");
        let output = run(&file, "table");
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(notes.contains(note), "{least} to {most}: {notes}");
        let page = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{least} to {most}: {page}");
    }
}

#[test]
fn d_018_of_two_horizontalpodautoscalers_for_one_workload_the_later_one_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("app.yaml");
    for (autoscalers, pods, code) in [
        ([(4, 9), (1, 1)], "Deployment default/web asks for 1 pod,", 3),
        ([(1, 1), (4, 9)], "Deployment default/web asks for 4 pods,", 0),
    ] {
        std::fs::write(&file, app("", &autoscalers)).expect("written");
        let output = run(&file, "table");
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(notes.contains(pods), "{pods}: {notes}");
        assert_eq!(output.status.code(), Some(code), "{pods}");
    }
}

/// Manifests without a namespace are about one and the same: the budget of an app is the budget of its pods.
#[test]
fn d_018_a_budget_without_a_namespace_is_about_pods_in_default() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("app.yaml");
    std::fs::write(&file, app("", &[])).expect("written");
    let output = run(&file, "json");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = &answer["findings"][0];
    assert_eq!(
        (&found["code"], &found["object"]),
        (
            &"pdb-never-allows".into(),
            &"PodDisruptionBudget default/web".into()
        ),
        "{answer:#}"
    );
}

/// Beside pods, as `kubectl get pods,pdb,hpa` writes them, it is read as well, and no number in it is too large to count with.
#[test]
fn d_018_a_horizontalpodautoscaler_counts_without_its_workload() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.yaml");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1a-x, namespace: shop, labels: {app: web, pod-template-hash: 1a}, \
               ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1a, uid: u, controller: true}]}\n\
               spec: {nodeName: a, containers: [{name: c, image: i}]}\n\
               status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}\n---\n";
    let written = |most: i64| {
        let app = app(", namespace: shop", &[(1, most)]);
        let (_, beside) = app.split_once("---\n").expect("a Deployment first");
        std::fs::write(&file, pod.to_owned() + beside).expect("written");
        run(&file, "table")
    };
    assert_eq!(written(1).status.code(), Some(3));
    let output = written(2);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(!notes.contains("HorizontalPodAutoscaler"), "{notes}");
    assert_eq!(output.status.code(), Some(0));
    let output = written(i64::MAX);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(
        notes.contains("HorizontalPodAutoscaler shop/web cannot be read: spec.maxReplicas"),
        "{notes}"
    );
    assert_eq!(output.status.code(), Some(3));
}

/// The doctor alone asks for them, and says so when it gets none.
#[test]
fn d_018_horizontalpodautoscalers_that_cannot_be_listed_are_named_and_no_other_command_needs_them() {
    for (status, why) in [(403, "may not be listed: "), (500, "cannot be listed (")] {
        let directory = tempfile::tempdir().expect("a directory");
        let shown = Shown {
            refused: Some(("horizontalpodautoscalers", status)),
            ..Shown::default()
        };
        let kubeconfig = shown::kubeconfig(directory.path(), shown);
        let said = |command: &str| {
            let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
                .args([command, "--live", "--kubeconfig"])
                .arg(&kubeconfig)
                .output()
                .expect("the program runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{command}: {said}");
            said
        };
        let note = format!("note: HorizontalPodAutoscalers {why}");
        let doctor = said("doctor");
        assert!(
            doctor.contains(&note) && doctor.contains("budgets are examined with the pods that are there"),
            "{doctor}"
        );
        assert!(!said("plan").contains("HorizontalPodAutoscaler"));
    }
}

/// Nothing in a cluster says which instance types its operator was given.
#[test]
fn whose_instance_types_a_cluster_on_kwok_is_judged_by_is_said_unless_a_catalog_is_named() {
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general", "uid": "u"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": class}}},
    });
    let directory = tempfile::tempdir().expect("a directory");
    let shown = Shown {
        objects: vec![pool],
        ..Shown::default()
    };
    let kubeconfig = shown::kubeconfig(directory.path(), shown);
    let catalog =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../provider-kwok/tests/data/instance_types.json");
    let said = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
            .args(words)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .output()
            .expect("the program runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let note = "note: NodePool general refers to KWOKNodeClass (karpenter.kwok.sh): planned with the 144 instance types and prices that \
                the kwok provider has by default; where the operator was given others, --catalog FILE names them\n";
    let named = ["--catalog", catalog.to_str().expect("UTF-8")];
    let commands: [&[&str]; 3] = [
        &["plan", "--live"],
        &["doctor", "--live"],
        &["explain", "nodepool", "general"],
    ];
    for words in commands {
        let notes = said(words);
        assert_eq!(notes.matches(note).count(), 1, "{words:?}: {notes}");
        let notes = said(&[words, named.as_slice()].concat());
        let judged = "no operator has judged NodePool general yet";
        assert!(notes.contains(judged), "{words:?} says the others: {notes}");
        assert!(!notes.contains("--catalog FILE"), "{words:?}: {notes}");
    }
}

/// What is thrown away cannot be called fine: it is a finding, with its file, its line and the reason.
#[test]
fn an_object_that_is_left_out_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("wrong.yaml");
    for (text, object, place, why) in [
        (
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace: shop\nspec:\n  containers: 7\n",
            "Pod shop/a",
            ", document 1, line 7: ",
            "it cannot be read: spec.containers: ",
        ),
        (
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: a\nspec:\n  template:\n    spec:\n      requirements: []\n      expireAfer: 1h\n      nodeClassRef: {group: g, kind: K, name: c}\n",
            "NodePool a",
            ":9: ",
            "the API server would refuse it: ",
        ),
    ] {
        std::fs::write(&file, text).expect("written");
        let output = run(&file, "json");
        assert_eq!(output.status.code(), Some(3), "{object}");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let found = &answer["findings"][0];
        assert_eq!(found["code"], "object-left-out", "{answer:#}");
        assert_eq!(
            (&found["level"], &found["object"]),
            (&"error".into(), &object.into())
        );
        let proof = found["proof"].as_str().expect("a proof");
        assert!(
            proof.starts_with(&format!("{}{place}{why}", file.display())),
            "{proof}"
        );
    }
}

/// Nothing reads them, so that they cannot be called fine; which class a NodePool has is known all the same.
#[test]
fn objects_of_an_older_version_are_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("old.yaml");
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\n\
                spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}\n\
                ---\napiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: default}\nspec: {}\n\
                ---\napiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: b}\nspec: {}\n";
    std::fs::write(&file, text).expect("written");
    let output = run(&file, "json");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = answer["findings"].as_array().expect("a list").iter();
    let old: Vec<&Value> = findings
        .filter(|finding| finding["code"] == "old-objects")
        .map(|finding| &finding["object"])
        .collect();
    assert_eq!(old, ["EC2NodeClass default", "Provisioner b"], "{answer:#}");
    assert_eq!(output.status.code(), Some(3));
    let notes = String::from_utf8_lossy(&output.stderr);
    for note in [
        "note: skipped 1 object of kind EC2NodeClass (karpenter.k8s.aws/v1beta1): `spokeshave convert -f FILE`",
        "note: skipped 1 object of kind Provisioner (karpenter.sh/v1alpha5): `spokeshave convert -f FILE`",
        "note: EC2NodeClass default is of an older version and not read: taken as AL2023",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
    assert!(!notes.contains("no EC2NodeClass is in the dump"), "{notes}");
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md"))
        .expect("the manual");
    assert!(manual.contains("`old-objects`"));
}

/// As YAML has it, and kubectl reads it: an anchor of one item is known in those after it.
#[test]
fn items_of_a_list_may_share_values() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("list.yaml");
    let text = "apiVersion: v1\nkind: List\nitems:\n\
                - apiVersion: karpenter.sh/v1\n  kind: NodePool\n  metadata: {name: a}\n\
                \x20 spec: {template: {spec: &shared {requirements: [], nodeClassRef: {group: g, kind: K, name: c}}}}\n\
                - apiVersion: karpenter.sh/v1\n  kind: NodePool\n  metadata: {name: b}\n\
                \x20 spec: {template: {spec: *shared}}\n";
    std::fs::write(&file, text).expect("written");
    let output = run(&file, "table");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Nothing is wrong.\n",
        "{notes}"
    );
    assert!(notes.contains("NodePools a, b have no status"), "{notes}");
    assert_eq!(output.status.code(), Some(0));
}

/// It counts as ready, so that everything else about it can be looked at, and launches nothing until an operator comes.
#[test]
fn a_nodepool_of_a_cluster_without_an_operator_is_noted() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("pool.yaml");
    for (uid, expected) in [(", uid: u, resourceVersion: '1'", 1), ("", 0)] {
        let text = format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a{uid}}}\n\
             spec: {{template: {{spec: {{requirements: [], nodeClassRef: {{group: g, kind: K, name: c}}}}}}}}\n"
        );
        std::fs::write(&file, text).expect("written");
        let output = run(&file, "json");
        assert_eq!(output.status.code(), Some(0), "a note is no error");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let findings = answer["findings"].as_array().expect("a list").iter();
        let noted = findings.filter(|one| one["code"] == "pool-not-ready" && one["level"] == "note");
        assert_eq!(noted.count(), expected, "{answer:#}");
    }
}
