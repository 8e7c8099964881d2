//! The whole command on files, against transcripts in `tests/budgets`.

use std::path::{Path, PathBuf};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::connection::ClusterArgs;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/budgets")
}

fn arguments(files: &[&str]) -> BudgetsArgs {
    BudgetsArgs {
        node_pools: Vec::new(),
        filenames: files.iter().map(|file| directory().join(file)).collect(),
        cluster: ClusterArgs::default(),
        days: 14,
        nodes: None,
        now: Some("2026-11-21T08:15:00Z".parse().unwrap()),
        output: OutputFormat::Table,
    }
}

fn answer(arguments: BudgetsArgs) -> Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(run(arguments)).map(|answer| Answer {
        text: answer.text.replace(&format!("{}/", directory().display()), ""),
        ..answer
    })
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
fn d_380_d_381_d_390_the_table_of_files_without_nodes() {
    let answer = answer(BudgetsArgs {
        nodes: Some(19),
        ..arguments(&["nodepools.yaml"])
    })
    .unwrap();
    assert!(answer.has_errors);
    golden("nodepools.txt", &answer.text);
}

#[test]
fn d_199_d_200_nodes_of_a_dump_are_counted() {
    let answer = answer(arguments(&["dump.yaml"])).unwrap();
    assert!(!answer.has_errors);
    golden("dump.txt", &answer.text);
}

#[test]
fn json_and_yaml_say_the_same() {
    let of = |output| {
        answer(BudgetsArgs {
            output,
            days: 2,
            ..arguments(&["dump.yaml"])
        })
        .unwrap()
        .text
    };
    let json: serde_json::Value = serde_json::from_str(&of(OutputFormat::Json)).unwrap();
    let yaml: serde_json::Value = serde_saphyr::from_str(&of(OutputFormat::Yaml)).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(json["apiVersion"], "plan.spokeshave.dev/v1alpha1");
    let pool = &json["nodePools"][0];
    assert_eq!((&pool["nodes"], &pool["disrupting"]), (&3.into(), &1.into()));
    let empty = &pool["calendar"][0];
    assert_eq!(empty["reason"], "Empty");
    assert_eq!(empty["intervals"][0]["until"], "2026-11-22T22:00:00Z");
    assert_eq!(empty["intervals"][0]["allowed"], 2);
    assert_eq!(empty["intervals"][1]["allowed"], 0);
    assert_eq!(
        json["nodePools"][1]["calendar"][0]["intervals"][0]["allowed"],
        serde_json::Value::Null
    );
}

#[test]
fn what_is_not_there_is_said() {
    let text = |arguments| answer(arguments).err().unwrap().to_string();
    let unknown = text(BudgetsArgs {
        node_pools: vec!["nodepool/weekand".to_owned()],
        ..arguments(&["nodepools.yaml"])
    });
    assert_eq!(
        unknown,
        "there is no NodePool \"weekand\"; there are: mixed, typical, weekend"
    );
    assert!(text(arguments(&["absent.yaml"])).contains("absent.yaml"));
}

/// DisruptionPolicies are part of the calendar, and what is wrong with them, alone and together, is named.
#[test]
fn policies_join_the_calendar_and_the_linter() {
    let answer = answer(BudgetsArgs {
        nodes: Some(19),
        ..arguments(&["policies.yaml"])
    })
    .unwrap();
    assert!(answer.has_errors);
    golden("policies.txt", &answer.text);
}

/// As in a file: what nobody can read costs itself, and not the lists of all others.
#[tokio::test]
async fn an_unreadable_node_of_a_cluster_does_not_hide_its_nodepools() {
    let list = |version: &str, kind: &str, items: Value| {
        let list = json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items});
        (200_u16, list.to_string())
    };
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, text) = match request.uri().path() {
            "/apis/karpenter.sh/v1/nodepools" => {
                let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {}});
                list("karpenter.sh/v1", "NodePoolList", json!([pool]))
            }
            "/apis/karpenter.sh/v1/nodeclaims" => list("karpenter.sh/v1", "NodeClaimList", json!([])),
            "/api/v1/nodes" => {
                let odd = json!({"metadata": {"name": "odd"}, "spec": []});
                list("v1", "NodeList", json!([odd]))
            }
            path => {
                let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "message": path, "code": 404});
                (404_u16, status.to_string())
            }
        };
        async move {
            Response::builder()
                .status(code)
                .body(Body::from(text.into_bytes()))
        }
    });
    let found = source::listed(&Client::new(service, "default"), arguments(&[]).now.unwrap())
        .await
        .unwrap();
    let names: Vec<&str> = found.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!((names, found.policies.len()), (vec!["default"], 0));
    assert_eq!(found.pools[0].counts.map(|counts| counts.nodes), Some(0));
}

/// Percentages of policies are of all managed nodes, those that join included, as decisions, page and status take them; those of NodePools are not.
#[test]
fn percentages_of_policies_are_of_nodes_that_join_too() {
    let mut items = vec![
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {
            "template": {"spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}},
            "disruption": {"budgets": [{"nodes": "90%"}]},
        }}),
        json!({"apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy", "metadata": {"name": "tenth"}, "spec": {
            "budgets": [{"limit": "10%"}],
        }}),
    ];
    for index in 0..20 {
        let mut labels = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true"});
        if index < 10 {
            labels["karpenter.sh/initialized"] = json!("true");
        }
        items.push(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{index}"), "labels": labels},
                "spec": {"providerID": format!("kwok://{index}")},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        items.push(
            json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": format!("claim-{index}"), "labels": labels},
                "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}, "requirements": []},
                "status": {"providerID": format!("kwok://{index}")}}),
        );
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    std::fs::write(file.path(), list).unwrap();
    let answer = answer(BudgetsArgs {
        filenames: vec![file.path().to_owned()],
        output: OutputFormat::Json,
        ..arguments(&[])
    });
    let report: Value = serde_json::from_str(&answer.unwrap().text).unwrap();
    let pool = &report["nodePools"][0];
    assert_eq!(pool["nodes"], 10);
    let allowed = &pool["calendar"][0]["intervals"][0]["allowed"];
    assert_eq!(allowed, 2, "{pool:#}");
}
