//! `spokeshave adopt --check` as a user runs it: on a dump of a cluster that Karpenter has run, and on the cluster of `up`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

mod shown;
use shown::Shown;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_spokeshave"))
}

fn on_file(file: &Path, format: &str) -> Output {
    on_file_with(file, format, &[])
}

fn on_file_with(file: &Path, format: &str, more: &[&str]) -> Output {
    program()
        .args([
            "adopt",
            "--check",
            "-o",
            format,
            "--now",
            "2026-01-02T00:00:00Z",
            "-f",
        ])
        .arg(file)
        .args(more)
        .output()
        .expect("the program runs")
}

const DUMP: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default, annotations: {karpenter.sh/nodepool-hash: "1", karpenter.sh/nodepool-hash-version: v3}}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: default-abc
  uid: u1
  labels: {karpenter.sh/nodepool: default}
  annotations: {karpenter.sh/nodepool-hash: "1", karpenter.sh/nodepool-hash-version: v3}
spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
status: {providerID: aws:///us-east-1a/i-1}
"#;

#[test]
fn a_dump_of_another_provider_is_refused_with_documented_fields_and_codes() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.yaml");
    std::fs::write(&file, DUMP).expect("written");
    let output = on_file(&file, "json");
    assert_eq!(output.status.code(), Some(3));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["kind"], "TakeOver");
    assert_eq!(
        (answer["nodePools"].as_u64(), answer["wouldDrift"].as_u64()),
        (Some(1), Some(0))
    );
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate.md"))
        .expect("the manual");
    for field in answer.as_object().expect("an object").keys() {
        assert!(manual.contains(field), "{field} is not in docs/migrate.md");
    }
    let codes: Vec<&str> = answer["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|finding| finding["code"].as_str())
        .collect();
    assert_eq!(codes, ["other-provider", "hashes-stamped"]);
    for code in codes {
        assert!(manual.contains(code), "{code} is not in docs/migrate.md");
    }
    let page = String::from_utf8(on_file(&file, "table").stdout).expect("text");
    assert!(
        page.starts_with(
            "1 NodePool, 1 NodeClaim: 0 NodeClaims would become drifted, 2 objects would be stamped\n"
        ),
        "{page}"
    );
}

/// A NodePool and a node of it, of a kind of NodeClass and with a provider ID.
fn one_node(class: &str, provider_id: &str) -> String {
    let (group, kind) = class.split_once('/').expect("a group");
    let reference = format!("{{group: {group}, kind: {kind}, name: default}}");
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: default}}\n\
         spec: {{template: {{spec: {{requirements: [], nodeClassRef: {reference}}}}}}}\n\
         ---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: default-abc, uid: u1, labels: {{karpenter.sh/nodepool: default}}}}\n\
         spec: {{requirements: [], nodeClassRef: {reference}}}\nstatus: {{providerID: \"{provider_id}\"}}\n"
    )
}

/// The page says by what the provider was found, so that nobody looks for NodePools that are not there.
#[test]
fn the_page_says_by_what_the_provider_was_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.yaml");
    let whole = one_node("karpenter.k8s.aws/EC2NodeClass", "aws:///us-east-1a/i-1");
    let (pool, claim) = whole.split_once("---\n").expect("two objects");
    let lonely = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n";
    let cases: [(&str, &[&str], Option<&str>); 4] = [
        (pool, &[], Some("aws would, by the NodeClasses of the NodePools;")),
        (
            claim,
            &[],
            Some("aws would, by the NodeClasses of the NodeClaims,"),
        ),
        (
            lonely,
            &[],
            Some("kwok would, as there are neither NodePools nor NodeClaims"),
        ),
        (pool, &["--cloud-provider", "aws"], None),
    ];
    for (text, more, expected) in cases {
        std::fs::write(&file, text).expect("written");
        let output = on_file_with(&file, "table", more);
        let page = String::from_utf8_lossy(&output.stdout);
        let said = page
            .lines()
            .find(|line| line.starts_with("Looked at as the provider "));
        match expected {
            Some(words) => assert!(said.is_some_and(|line| line.contains(words)), "{text}: {page}"),
            None => assert!(page.contains("NodePool") && said.is_none(), "{page}"),
        }
    }
}

/// Whoever is told of another provider than the one that takes over does not see what stands in its way.
#[test]
fn a_cluster_is_looked_at_as_its_own_provider_would_or_the_one_that_is_asked_for() {
    const AKS: &str = "karpenter.azure.com/AKSNodeClass";
    const MACHINE: &str = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/aks-default-abc";
    const OTHERS: &str = "example.com/ExampleNodeClass";
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.yaml");
    let asked = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).expect("written");
        let output = on_file_with(&file, "json", more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else {
            return Err((output.status.code(), said));
        };
        let findings = answer["findings"].as_array().expect("a list").iter();
        let errors = findings.filter(|finding| finding["level"] == "error");
        let codes: Vec<String> = errors
            .filter_map(|finding| finding["code"].as_str().map(str::to_owned))
            .collect();
        Ok((
            answer["cloudProvider"].as_str().unwrap_or_default().to_owned(),
            codes.join(" "),
        ))
    };
    let aks = one_node(AKS, MACHINE);
    let (foreign, others) = (
        one_node(AKS, "aws:///us-east-1a/i-1"),
        one_node(OTHERS, "example://1"),
    );
    let cases: [(&str, &[&str], &str, &str); 8] = [
        (&aks, &[], "azure", ""),
        (&aks, &["--cloud-provider", "azure"], "azure", ""),
        (&aks, &["--cloud-provider", "aws"], "aws", "other-provider"),
        (&aks, &["--cloud-provider", "kwok"], "kwok", "other-provider"),
        (
            &aks,
            &["--cloud-provider", "grpc", "--node-class", AKS],
            "grpc",
            "",
        ),
        (
            &aks,
            &["--cloud-provider", "grpc", "--node-class", OTHERS],
            "grpc",
            "other-provider",
        ),
        (&foreign, &[], "azure", "unknown-instance"),
        (&others, &[], "grpc", ""),
    ];
    for (text, more, provider, errors) in cases {
        let expected = Ok((provider.to_owned(), errors.to_owned()));
        assert_eq!(asked(text, more), expected, "{more:?} of {text}");
    }
    let ec2 = one_node("karpenter.k8s.aws/EC2NodeClass", "aws:///us-east-1a/i-1");
    let both = format!(
        "{aks}---\n{}",
        ec2.replace("default", "other").replace("u1", "u2")
    );
    let cases: [(&[&str], i32, &str); 3] = [
        (&[], 1, "name it with --cloud-provider"),
        (
            &["--cloud-provider", "azure", "--node-class", AKS],
            2,
            "--node-class is for --cloud-provider grpc",
        ),
        (&["--cloud-provider", "grpc"], 2, "--node-class"),
    ];
    for (more, code, words) in cases {
        let (status, said) = asked(&both, more).expect_err("no answer");
        assert_eq!(status, Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
    std::fs::write(&file, &aks).expect("written");
    let page = String::from_utf8(on_file(&file, "table").stdout).expect("text");
    assert!(page.contains("as the provider azure would"), "{page}");
}

/// What is in the files and cannot be checked is no reason to say that nothing was found.
#[test]
fn objects_that_are_not_read_stand_in_the_way() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.yaml");
    let class = "nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: d}";
    let unreadable = format!(
        "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: x}}\nspec: {{requirements: 5, {class}}}\n\
         ---\napiVersion: karpenter.sh/v1beta1\nkind: NodeClaim\nmetadata: {{name: z}}\nspec: {{requirements: []}}\n"
    );
    let old = "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec: {}\n\
               ---\napiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: b}\nspec: {}\n\
               ---\napiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: a}\nspec: {}\n";
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate.md"))
        .expect("the manual");
    for (text, expected) in [
        (
            old,
            ["old-objects AWSNodeTemplate a", "old-objects Provisioner a, b"],
        ),
        (
            unreadable.as_str(),
            ["object-left-out NodeClaim x", "old-objects NodeClaim z"],
        ),
    ] {
        std::fs::write(&file, text).expect("written");
        let output = on_file(&file, "json");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mut found = Vec::new();
        for finding in answer["findings"].as_array().expect("a list") {
            let code = finding["code"].as_str().expect("a code");
            let object = finding["object"].as_str().expect("an object");
            found.push(format!("{code} {object}"));
            let row = format!("| `{code}`");
            assert!(manual.contains(&row), "{code} is not in docs/migrate.md");
        }
        assert_eq!(found, expected, "{answer:#}");
        assert_eq!(output.status.code(), Some(3), "{answer:#}");
        let page = String::from_utf8(on_file(&file, "table").stdout).expect("text");
        assert!(!page.contains("No blockers found"), "{page}");
    }
}

/// Karpenter's values name its own image; what the command of the migration leaves of them would be pulled from another repository.
#[test]
fn the_migration_replaces_every_part_of_karpenters_image() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("a file of ours");
    let values: Value = serde_saphyr::from_str(&read("charts/spokeshave/values.yaml")).expect("YAML");
    let image = values["controller"]["image"].as_object().expect("the image");
    let manual = read("docs/migrate.md");
    let (_, steps) = manual.split_once("\n4. ").expect("the step that installs");
    let (step, _) = steps.split_once("\n5. ").expect("the step after it");
    for part in image.keys() {
        let field = format!("controller.image.{part}=");
        assert!(
            step.contains(&field),
            "{field} keeps the value of Karpenter: {step}"
        );
    }
    // By these names Helm would take objects of Karpenter's release for its own.
    for field in ["podDisruptionBudget.name=", "fullnameOverride="] {
        assert!(step.contains(field), "{field} may be a name of Karpenter: {step}");
    }
}

/// A definition that our own may take the place of.
fn definition(name: &str) -> Value {
    let group = name.split_once('.').map(|(_, group)| group);
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {"group": group, "versions": [{"name": "v1", "served": true}]}, "status": {"storedVersions": ["v1"]}})
}

/// An operator that nobody could look for may be running: only what the cluster has shown can be called fine.
#[test]
fn what_the_cluster_does_not_show_stands_in_the_way() {
    const NEEDED: &[&str] = &["nodepools.karpenter.sh", "nodeclaims.karpenter.sh"];
    const MORE: &[&str] = &[
        "nodepools.karpenter.sh",
        "nodeclaims.karpenter.sh",
        "provisioners.karpenter.sh",
        "kwokinstances.kwok.spokeshave.dev",
    ];
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate.md"))
        .expect("the manual");
    assert!(manual.contains("| `not-examined`"));
    let directory = tempfile::tempdir().expect("a directory");
    let asked = |definitions: &[&str], refused: Option<(&'static str, u16)>, format: &str| {
        let objects = definitions.iter().map(|name| definition(name)).collect();
        let shown = Shown {
            objects,
            refused,
            ..Shown::default()
        };
        let kubeconfig = shown::kubeconfig(directory.path(), shown);
        let output = program()
            .args(["adopt", "--check", "--live", "-o", format, "--kubeconfig"])
            .arg(kubeconfig)
            .output()
            .expect("the program runs");
        (
            output.status.code(),
            String::from_utf8(output.stdout).expect("text"),
        )
    };
    let cases: [(&[&str], &str, u16, Option<&str>); 11] = [
        (NEEDED, "deployments", 403, Some("deployments.apps")),
        (NEEDED, "deployments", 500, Some("deployments.apps")),
        (NEEDED, "leases", 403, Some("leases.coordination.k8s.io")),
        (
            NEEDED,
            "customresourcedefinitions",
            403,
            Some("customresourcedefinitions.apiextensions.k8s.io"),
        ),
        (
            NEEDED,
            "validatingwebhookconfigurations",
            403,
            Some("validatingwebhookconfigurations.admissionregistration.k8s.io"),
        ),
        (
            NEEDED,
            "mutatingwebhookconfigurations",
            401,
            Some("mutatingwebhookconfigurations.admissionregistration.k8s.io"),
        ),
        (MORE, "provisioners", 403, Some("provisioners.karpenter.sh")),
        (
            MORE,
            "kwokinstances",
            403,
            Some("kwokinstances.kwok.spokeshave.dev"),
        ),
        // Without a definition there are none, whoever may not list them.
        (NEEDED, "provisioners", 403, None),
        (NEEDED, "kwokinstances", 403, None),
        (NEEDED, "leases", 404, None),
    ];
    for (definitions, refused, status, expected) in cases {
        let (code, answer) = asked(definitions, Some((refused, status)), "json");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let findings = answer["findings"].as_array().expect("a list").iter();
        let told: Vec<(&str, &str)> = findings
            .map(|one| {
                assert_eq!(one["proof"], "sam may not do this", "{one}");
                let text = |field: &str| one[field].as_str().unwrap_or_default();
                (text("code"), text("object"))
            })
            .collect();
        let expected: Vec<(&str, &str)> = expected.into_iter().map(|one| ("not-examined", one)).collect();
        assert_eq!(told, expected, "{refused} {status}");
        let ends_with = if expected.is_empty() { 0 } else { 3 };
        assert_eq!(code, Some(ends_with), "{refused} {status}");
    }
    for (refused, is_fine) in [(None, true), (Some(("deployments", 403)), false)] {
        let (_, page) = asked(NEEDED, refused, "table");
        assert_eq!(page.contains("No blockers found."), is_fine, "{page}");
    }
}

/// Ends the cluster with the test.
struct Up(std::process::Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn in_a_live_cluster_the_leader_is_seen_and_nothing_drifts() {
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = directory.path().join("kubeconfig");
    let mut up = Up(program()
        .args([
            "up",
            "--exit-after",
            "120s",
            "--feature-gates",
            "NodeOverlay=true",
            "--kubeconfig",
        ])
        .arg(&kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs"));
    // The kubeconfig exists before the first line that names it.
    let lines = BufReader::new(up.0.stderr.take().expect("what it says")).lines();
    let path = kubeconfig.display().to_string();
    let told = lines.map_while(Result::ok).any(|line| line.contains(&path));
    assert!(told, "the cluster did not come up");
    let output = program()
        .args([
            "adopt",
            "--check",
            "--live",
            "-o",
            "json",
            "--namespace",
            "kube-system",
            "--kubeconfig",
        ])
        .arg(&kubeconfig)
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let errors: Vec<&Value> = answer["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|finding| finding["level"] == "error")
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(
        (answer["nodePools"].as_u64(), answer["wouldDrift"].as_u64()),
        (Some(1), Some(0))
    );
    assert_eq!(output.status.code(), Some(0));
    // No Deployment has the settings of this operator.
    let decided = "note: decided with default settings and FEATURE_GATES=NodeOverlay=true\n";
    assert!(said.contains(decided), "{said}");
}
