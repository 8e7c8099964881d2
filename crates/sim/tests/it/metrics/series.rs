//! How many series there are: they do not grow with the cluster, and what is gone takes its own along (invariant 41).

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};

use super::with_object_metrics;
use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

/// The size of the cluster for which the bound is promised.
const NODES: f64 = 1_000.0;
const FEW: i32 = 4;
const MANY: i32 = 16;

/// One pod a node, and nodes go soon after their pods.
async fn deploy_one_a_node(cluster: &Cluster) {
    let apart = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}}});
    cluster.deploy_with("web", 0, template("web", "1", apart)).await;
}

async fn started(seed: u64, setup: Setup) -> (Cluster, Running) {
    let soon = json!({"disruption": {"consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}, "limits": {"cpu": "10000"}});
    let (cluster, operator) = Cluster::started_with(seed, soon, setup).await;
    deploy_one_a_node(&cluster).await;
    (cluster, operator)
}

/// Grows or shrinks to so many nodes with one pod each, and returns the names of all objects.
async fn settle(cluster: &Cluster, nodes: i32) -> BTreeSet<String> {
    cluster.scale("web", nodes).await;
    let wanted = usize::try_from(nodes).unwrap();
    cluster
        .until(&format!("{nodes} nodes"), async |cluster| {
            cluster.running_of("web").await == wanted
                && cluster.list::<Node>().await.len() == wanted
                && cluster.list::<NodeClaim>().await.len() == wanted
        })
        .await;
    cluster.pass(60).await;
    let mut names: BTreeSet<String> = cluster.names::<Node>().await.into_iter().collect();
    names.extend(cluster.names::<NodeClaim>().await);
    names.extend(cluster.names::<Pod>().await);
    names
}

/// Whether a label has this value.
fn names_any<'a>(text: &str, names: impl IntoIterator<Item = &'a String>) -> Option<String> {
    let mut names = names.into_iter();
    names.find(|name| text.contains(&format!("\"{name}\""))).cloned()
}

/// Everything has happened once before the first count: nodes came, were disrupted, drained, and are gone. Then twelve more nodes, pods and
/// NodeClaims make no series, and what they would make for a thousand stays within the bound.
#[tokio::test(start_paused = true)]
async fn p_207_invariant_41_a_thousand_nodes_make_at_most_500_series() {
    let (cluster, operator) = started(55, Setup::default()).await;
    let metrics = &operator.metrics;
    let mut names = settle(&cluster, MANY).await;
    names.extend(settle(&cluster, 0).await);
    names.extend(settle(&cluster, FEW).await);
    let few = metrics.render();
    let few_series = metrics.series_count();
    names.extend(settle(&cluster, MANY).await);
    let many = metrics.render();
    let many_series = metrics.series_count();
    assert!(names.len() > 3 * MANY as usize, "{names:?}");
    assert_eq!(
        names_any(&few, &names).or(names_any(&many, &names)),
        None,
        "a series names an object:\n{many}"
    );
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let at_scale = {
        let a_node = (many_series as f64 - few_series as f64) / f64::from(MANY - FEW);
        many_series as f64 + a_node.max(0.0) * (NODES - f64::from(MANY))
    };
    assert!(
        at_scale <= 500.0,
        "{few_series}, then {many_series} series, which makes {at_scale}:\n{many}"
    );
    assert!(
        few_series > 100,
        "{few_series} series: most of what is counted is missing"
    );
}

/// With metrics of single objects: there is a series for each existing object, and none for removed ones.
#[tokio::test(start_paused = true)]
async fn p_208_invariant_41_objects_that_are_gone_take_their_series_along() {
    let (cluster, operator) = started(56, with_object_metrics()).await;
    let metrics = &operator.metrics;
    let old = settle(&cluster, FEW).await;
    let text = metrics.render();
    let missing: Vec<&String> = old
        .iter()
        .filter(|name| !text.contains(&format!("\"{name}\"")))
        .collect();
    assert!(missing.is_empty(), "no series names {missing:?}");
    let mut gone = old.clone();
    gone.extend(settle(&cluster, MANY).await);
    settle(&cluster, 0).await;
    let empty = metrics.series_count();
    assert_eq!(names_any(&metrics.render(), &gone), None, "{}", metrics.render());
    gone.extend(settle(&cluster, MANY).await);
    settle(&cluster, 0).await;
    cluster.delete::<Deployment>("web").await;
    let text = metrics.render();
    assert_eq!(names_any(&text, &gone), None, "{text}");
    let after = metrics.series_count();
    assert!(
        after <= empty,
        "{empty} series when it was empty first, {after} now:\n{text}"
    );
}

/// What names the NodePool `default` in a series.
const OF_POOL: &str = "nodepool=\"default\"";

/// Deletes the only Deployment and the NodePool, and waits for the end of its NodeClaims.
async fn end_pool(cluster: &Cluster) {
    cluster.delete::<Deployment>("web").await;
    cluster.delete::<NodePool>("default").await;
    cluster
        .until("no NodeClaim is left", async |cluster| {
            cluster.list::<NodeClaim>().await.is_empty()
        })
        .await;
}

fn assert_ends_counted(operator: &Running) {
    let metrics = &operator.metrics;
    assert_counted_once(metrics, "karpenter_nodeclaims_terminated_total", OF_POOL);
    assert_counted_once(metrics, "karpenter_nodes_terminated_total", OF_POOL);
}

/// Nothing that names the NodePool is left, of whatever family, once a scrape has had time to see it.
async fn assert_forgotten(cluster: &Cluster, operator: &Running) {
    cluster.pass(310).await;
    let text = operator.metrics.render();
    let left: Vec<&str> = text.lines().filter(|line| line.contains(OF_POOL)).collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// The last NodeClaim ends after its NodePool, and is still counted for a scrape. Then nothing that names the NodePool is left, of whatever family.
#[tokio::test(start_paused = true)]
async fn p_207_p_208_invariant_41_a_node_pool_that_is_gone_takes_its_series_along() {
    let (cluster, operator) = Cluster::started_with(57, json!({}), with_object_metrics()).await;
    let metrics = &operator.metrics;
    cluster.run_one_pod().await;
    cluster.delete::<Deployment>("web").await;
    cluster.delete::<NodePool>("default").await;
    cluster
        .until("no NodeClaim is left", async |cluster| {
            // As often as Prometheus might.
            let _ = metrics.render();
            cluster.list::<NodeClaim>().await.is_empty()
        })
        .await;
    cluster.pass(30).await;
    assert!(!cluster.exists::<NodePool>("default").await);
    assert_ends_counted(&operator);
    assert_forgotten(&cluster, &operator).await;
}

/// A NodePool comes and goes while nobody scrapes. What was counted for it is scraped all the same, and then goes.
#[tokio::test(start_paused = true)]
async fn p_207_invariant_41_a_node_pool_that_no_scrape_has_seen_is_counted() {
    let (cluster, operator) = Cluster::started_with(143, json!({}), Setup::default()).await;
    cluster.run_one_pod().await;
    end_pool(&cluster).await;
    cluster.pass(30).await;
    assert_ends_counted(&operator);
    assert_forgotten(&cluster, &operator).await;
}

/// A scrape sees the NodePool, and the next one comes long after its end. What was counted in between is scraped all the same.
#[tokio::test(start_paused = true)]
async fn p_207_invariant_41_a_node_pool_that_ends_between_two_late_scrapes_is_counted() {
    let (cluster, operator) = Cluster::started_with(151, json!({}), Setup::default()).await;
    cluster.run_one_pod().await;
    assert_counted_once(&operator.metrics, "karpenter_nodeclaims_created_total", OF_POOL);
    end_pool(&cluster).await;
    cluster.pass(600).await;
    assert_ends_counted(&operator);
}
