//! Waiting pods name the node that they were planned on (W-62): they land there, and a name is never in the way.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use spokeshave_api::conditions::NODE_PLANNED;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::Options as OperatorOptions;
use spokeshave_sim::lab::LabOptions;

use crate::faulty;
use crate::plain::Cluster;
use crate::promises::{bind, waiting};
use crate::words::*;

fn options(seed: u64, nominate_pods: bool) -> LabOptions {
    let mut options = LabOptions::new(seed);
    options.operator.nominate_pods = nominate_pods;
    options
}

/// No node is consolidated, so that what came for pods is there at the end.
fn undisturbed() -> Value {
    json!({"disruption": {"consolidateAfter": "Never"}})
}

/// NodePool whose nodes have four processors.
fn of_four() -> Value {
    let mut pool = undisturbed();
    pool["template"] = json!({"spec": {"requirements": [
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]},
    ]}});
    pool
}

/// The node that our condition names, if it says that the pod is planned there.
fn named(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let own = conditions.iter().find(|one| one.type_ == NODE_PLANNED)?;
    let message = own.message.as_deref()?.strip_prefix("planned on node ")?;
    (own.status == "True").then(|| message.to_owned())
}

/// The node that a waiting pod names as its own.
fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref()
}

fn bound(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// How many pods are on the node that they name in our condition.
fn landed(pods: &[Pod]) -> usize {
    pods.iter()
        .filter(|pod| bound(pod).is_some() && named(pod).as_deref() == bound(pod))
        .count()
}

impl Cluster {
    /// Waits until a pod names a node as planned, and says which.
    async fn until_named(&self, app: &str) -> String {
        let mut node = None;
        self.until(&format!("a pod of {app} names its node"), async |cluster| {
            let pods = cluster.list::<Pod>().await;
            let mut own = pods
                .iter()
                .filter(|pod| pod.labels().get("app").map(String::as_str) == Some(app));
            node = own.find_map(named);
            node.is_some()
        })
        .await;
        node.unwrap()
    }

    /// What the plan says by its events: the NodeClaim of each pod.
    async fn claims_told(&self) -> BTreeMap<String, String> {
        let told = self.told("Nominated").await.into_iter();
        told.filter_map(|(pod, message)| {
            let claim = message.strip_prefix("Pod should schedule on: nodeclaim/")?;
            let pod = pod.strip_prefix("Pod/")?.to_owned();
            Some((pod, claim.split(',').next()?.to_owned()))
        })
        .collect()
    }
}

/// A faulty cluster whose only node has two processors to spare, and an operator that has pods name their nodes.
async fn with_room_on_one_node(seed: u64) -> (faulty::Cluster, faulty::Running, String) {
    let cluster = faulty::Cluster::new(seed).await;
    cluster.pool("default", of_four()).await;
    let options = OperatorOptions {
        nominate_pods: true,
        ..OperatorOptions::default()
    };
    let operator = cluster.operator(faulty::Setup::with_options(options));
    cluster.run("web", 1, "1500m").await;
    let node = cluster.node_of("web").await;
    (cluster, operator, node)
}

/// A pod that waits and that nobody binds.
async fn unbound(cluster: &impl Scene, name: &str, cpu: &str) {
    let elsewhere = json!({"spec": {"schedulerName": "elsewhere"}});
    cluster.pod(name, cpu, elsewhere).await;
    let unschedulable = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    let status = json!({"conditions": unschedulable});
    cluster.patch_status::<Pod>(name, status).await;
}

/// Eight pods and four nodes: how many pods are where the events said, and where our conditions say.
async fn large_and_small(nominate_pods: bool) -> (usize, usize) {
    let cluster = Cluster::new(options(91, nominate_pods), of_four())
        .await
        .with_operator();
    cluster.deploy("small", 4, "1200m").await;
    cluster.deploy("large", 4, "2500m").await;
    cluster.until_running(8).await;
    let told = cluster.claims_told().await;
    assert_eq!(told.len(), 8, "the events tell of every pod");
    let claims = cluster.list::<NodeClaim>().await;
    let node_of = |claim: &String| {
        let claim = claims.iter().find(|one| one.name() == claim)?;
        claim.status.as_ref()?.node_name.clone()
    };
    let pods = cluster.list::<Pod>().await;
    let as_told = pods.iter().filter(|pod| {
        let told = told.get(&pod.name_any()).and_then(node_of);
        told.is_some() && told.as_deref() == bound(pod)
    });
    (as_told.count(), landed(&pods))
}

#[tokio::test(start_paused = true)]
async fn w_62_pods_land_where_they_were_planned() {
    let (as_told, landed) = large_and_small(true).await;
    assert_eq!((as_told, landed), (8, 8));
    let (as_told, landed) = large_and_small(false).await;
    assert!(as_told < 8, "the scheduler has a mind of its own");
    assert_eq!(landed, 0, "nobody writes what is not asked for");
}

/// Nodes that are a minute late with being ready: time for things to happen between a nomination and the pod's place.
fn slow_nodes(seed: u64) -> LabOptions {
    let mut options = options(seed, true);
    options.cluster.node_ready_delay = Duration::from_secs(60);
    options
}

#[tokio::test(start_paused = true)]
async fn w_62_pods_of_a_node_that_dies_before_they_are_there_get_another() {
    let cluster = Cluster::new(slow_nodes(92), undisturbed()).await.with_operator();
    cluster.deploy("web", 3, "1").await;
    let first = cluster.until_named("web").await;
    for pod in cluster.list::<Pod>().await {
        assert_eq!(named(&pod).as_deref(), Some(&*first), "all of them");
    }
    let claim = cluster.claim_of(&first).await.name().to_owned();
    cluster.delete::<NodeClaim>(&claim).await;
    let took = cluster.until_running(3).await;
    assert!(took < Duration::from_secs(180), "{took:?}");
    let pods = cluster.list::<Pod>().await;
    assert_eq!(landed(&pods), 3);
    assert!(pods.iter().all(|pod| bound(pod) != Some(&*first)));
}

/// Also where pods name no node: what the plan has said is known all the same.
#[tokio::test(start_paused = true)]
async fn w_62_pods_that_land_are_counted_by_where() {
    let setup = faulty::Setup::with_options(OperatorOptions::default());
    let (cluster, operator) = faulty::Cluster::started_with(105, of_four(), setup).await;
    let landed = |place: &str| value(&operator.metrics, "spokeshave_pods_landed_total", place);
    cluster.run("web", 1, "1500m").await;
    // Beside the first there is no room for it.
    cluster.run("large", 1, "2500m").await;
    assert_eq!((landed("planned"), landed("elsewhere")), (2.0, 0.0));
    unbound(&cluster, "odd", "500m").await;
    let mut said = String::new();
    cluster
        .until("a place is planned for it", async |cluster| {
            let told = cluster.told("Nominated").await.into_iter();
            let mut own = told.filter(|(about, _)| about == "Pod/odd");
            said = own.next().map(|(_, said)| said).unwrap_or_default();
            !said.is_empty()
        })
        .await;
    let nodes = [cluster.node_of("web").await, cluster.node_of("large").await];
    let (planned, others): (Vec<&String>, Vec<&String>) = nodes
        .iter()
        .partition(|node| said.ends_with(&format!("node/{node}")));
    assert_eq!(planned.len(), 1, "{said}");
    bind(&cluster, "odd", others[0]).await;
    cluster.pass(5).await;
    assert_eq!((landed("planned"), landed("elsewhere")), (2.0, 1.0));
}

/// The laboratory's scheduler tries a pod whenever anything changes, and empties its name each time, for the minute that the node takes to get ready. Whoever gets the name
/// back only then finds its room gone, if other nodes come up first.
#[tokio::test(start_paused = true)]
async fn w_62_a_name_that_is_lost_before_the_node_takes_pods_is_written_again_at_a_bounded_rate() {
    let cluster = Cluster::new(slow_nodes(103), undisturbed()).await.with_operator();
    cluster.deploy("web", 1, "1").await;
    let node = cluster.until_named("web").await;
    cluster.pass(50).await;
    let early = writes(&cluster.lab.log.bytes());
    assert!(
        (20..=80).contains(&early),
        "{early} writes while the node gets ready"
    );
    cluster.until_running(1).await;
    assert_eq!(cluster.node_of("web").await, node);
    let all = writes(&cluster.lab.log.bytes());
    cluster.pass(60).await;
    assert_eq!(
        writes(&cluster.lab.log.bytes()),
        all,
        "none once it has its place"
    );
}

/// A pass between the names of a node's pods and its registration: nothing has changed for them.
#[tokio::test(start_paused = true)]
async fn w_62_a_pass_while_a_node_registers_takes_no_name_back() {
    let cluster = faulty::Cluster::new(104).await;
    cluster.pool("default", of_four()).await;
    let options = OperatorOptions {
        nominate_pods: true,
        ..OperatorOptions::default()
    };
    let _operator = cluster.operator(faulty::Setup::with_options(options));
    let answer = ("/pods/first/status".to_owned(), Duration::from_secs(30));
    *cluster.gate.late.lock().unwrap() = Some(answer);
    // Neither can run on the node of the other.
    let in_zone = |zone: &str| json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": zone}}});
    cluster.pod("first", "3", in_zone("test-zone-a")).await;
    cluster
        .until("the first names its node", async |cluster| {
            named(&cluster.get::<Pod>("first").await).is_some()
        })
        .await;
    let node = named(&cluster.get::<Pod>("first").await);
    cluster.pod("second", "3", in_zone("test-zone-b")).await;
    let took = cluster
        .until("a node comes for the second", async |cluster| {
            cluster.list::<NodeClaim>().await.len() == 2
        })
        .await;
    assert!(took < Duration::from_secs(30), "the first is not registered yet");
    let first: Pod = cluster.get("first").await;
    assert_eq!(named(&first), node);
    cluster
        .until("it has its place", async |cluster| {
            bound(&cluster.get::<Pod>("first").await).is_some()
        })
        .await;
    let first: Pod = cluster.get("first").await;
    assert_eq!((bound(&first), named(&first)), (node.as_deref(), node.clone()));
}

/// What a leader has named is there for the next one, who knows nothing else of it.
#[tokio::test(start_paused = true)]
async fn w_62_a_restart_between_a_name_and_a_place_loses_neither() {
    let mut cluster = Cluster::new(slow_nodes(93), of_four()).await.with_operator();
    cluster.deploy("small", 2, "1200m").await;
    cluster.deploy("large", 2, "2500m").await;
    cluster.until_named("small").await;
    cluster.until_named("large").await;
    let before: BTreeMap<String, Option<String>> = names(&cluster.list::<Pod>().await);
    cluster.lab.kill("a").await;
    cluster.lab.start("b");
    cluster.until_running(4).await;
    let pods = cluster.list::<Pod>().await;
    assert_eq!(names(&pods), before, "no name was written anew");
    assert_eq!(landed(&pods), 4);
    assert_eq!(
        cluster.list::<NodeClaim>().await.len(),
        2,
        "nor was a node more made"
    );
}

fn names(pods: &[Pod]) -> BTreeMap<String, Option<String>> {
    pods.iter().map(|pod| (pod.name_any(), named(pod))).collect()
}

/// A killed operator forgets for which pods nodes come. They are late, and none is stuck.
#[tokio::test(start_paused = true)]
async fn w_62_a_restart_before_the_node_joins_leaves_the_choice_to_the_scheduler() {
    let mut cluster = Cluster::new(options(94, true), undisturbed())
        .await
        .with_operator();
    cluster.deploy("web", 3, "1").await;
    cluster
        .until("a node is launched", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims.iter().any(|claim| claim.provider_id().is_some())
        })
        .await;
    cluster.lab.kill("a").await;
    cluster.lab.start("b");
    cluster.until_running(3).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 1);
    for pod in cluster.list::<Pod>().await {
        assert!(
            named(&pod).is_none() || named(&pod).as_deref() == bound(&pod),
            "missing, never wrong"
        );
    }
}

/// A scheduler of somebody else's makes room for a pod: it is not ours to plan for, and its name is not ours to take back.
#[tokio::test(start_paused = true)]
async fn p_056_w_62_what_a_scheduler_has_named_is_left_alone() {
    let cluster = Cluster::new(options(95, true), undisturbed())
        .await
        .with_operator();
    cluster.run("web", 1, "1").await;
    let node = cluster.node_of("web").await;
    waiting(&cluster, "other", "6", Some(&node)).await;
    cluster.pass(120).await;
    let other: Pod = cluster.get("other").await;
    assert_eq!((nominated(&other), named(&other)), (Some(&*node), None));
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 1, "only for the first");
}

/// With names about, a pod that matters more still takes the room of one that matters less.
#[tokio::test(start_paused = true)]
async fn w_62_preemption_goes_on() {
    let cluster = Cluster::new(options(96, true), undisturbed())
        .await
        .with_operator();
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster.create::<PriorityClass>(class).await;
    cluster.run("low", 1, "6").await;
    let node = cluster.node_of("low").await;
    let limit = json!({"spec": {"limits": {"cpu": "1"}}});
    cluster.patch::<NodePool>("default", limit).await;
    let high = template("high", "6", json!({"spec": {"priorityClassName": "high"}}));
    cluster.deploy_with("high", 1, high).await;
    cluster.until_running_of("high", 1).await;
    assert_eq!(cluster.node_of("high").await, node);
}

#[tokio::test(start_paused = true)]
async fn w_62_a_pod_behind_a_gate_names_nothing_until_it_is_open() {
    let cluster = Cluster::new(options(97, true), undisturbed())
        .await
        .with_operator();
    let gate = json!({"spec": {"schedulingGates": [{"name": "example.com/wait"}]}});
    cluster.pod("gated", "6", gate).await;
    cluster.run("web", 1, "1").await;
    cluster.pass(60).await;
    let gated: Pod = cluster.get("gated").await;
    assert_eq!((nominated(&gated), named(&gated)), (None, None));
    let open = json!({"spec": {"schedulingGates": null}});
    cluster.patch::<Pod>("gated", open).await;
    let node = cluster.until_named("gated").await;
    cluster.pass(60).await;
    let gated: Pod = cluster.get("gated").await;
    assert_eq!(bound(&gated), Some(&*node), "it is where it was planned");
}

/// A scheduler that never takes the node: its room is not kept for ever, and nobody argues about it.
#[tokio::test(start_paused = true)]
async fn w_62_a_name_that_the_scheduler_does_not_heed_is_taken_back_for_good() {
    let cluster = Cluster::new(options(98, true), undisturbed())
        .await
        .with_operator();
    unbound(&cluster, "odd", "1").await;
    let node = cluster.until_named("odd").await;
    let odd: Pod = cluster.get("odd").await;
    assert_eq!(nominated(&odd), Some(&*node));
    cluster.pass(210).await;
    let odd: Pod = cluster.get("odd").await;
    assert_eq!((nominated(&odd), named(&odd)), (None, None));
    let version = odd.metadata.resource_version.clone();
    cluster.pass(600).await;
    let odd: Pod = cluster.get("odd").await;
    assert_eq!(odd.metadata.resource_version, version, "and not written again");
    let at_once = DeleteParams::default();
    cluster.api::<Pod>().delete("odd", &at_once).await.unwrap();
    cluster.assert_kept();
}

/// How often the operator has written a name, or taken one back.
fn writes(log: &[u8]) -> usize {
    let text = String::from_utf8_lossy(log);
    let is_write = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("operator") && line.contains(" PATCH ") && line.contains("nominatedNodeName")
    };
    text.lines().filter(is_write).count()
}

/// Each pod is written to when its node joins, two or three times more where the scheduler tries it before the node is ready, which takes a second, and once when it is.
#[tokio::test(start_paused = true)]
async fn w_62_hundreds_of_pods_name_their_node_a_handful_of_times() {
    const PODS: usize = 500;
    let cluster = Cluster::new(options(99, true), of_four()).await.with_operator();
    cluster.deploy("web", 500, "300m").await;
    cluster.until_running(PODS).await;
    let pods = cluster.list::<Pod>().await;
    assert_eq!(landed(&pods), PODS);
    let writes = writes(&cluster.lab.log.bytes());
    assert!(writes <= 6 * PODS, "{writes} writes");
    assert!(cluster.list::<Node>().await.len() <= PODS / 12 + 2);
}

/// Thousands of pods may name nodes that are there already: NodeClaims for the others do not wait until all have done so, and neither does the next pass.
#[tokio::test(start_paused = true)]
async fn p_065_w_62_nodeclaims_do_not_wait_for_names_of_nodes_that_are_there() {
    let (cluster, _operator, node) = with_room_on_one_node(100).await;
    let minute = Duration::from_secs(60);
    *cluster.gate.slow.lock().unwrap() = Some(("/pods/small/status", minute));
    // One pass plans for both.
    unbound(&cluster, "small", "1").await;
    // Beside one of these there is no room for the small one.
    unbound(&cluster, "large", "3200m").await;
    let took = cluster
        .until("a node comes for the large one", async |cluster| {
            cluster.list::<NodeClaim>().await.len() == 2
        })
        .await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    unbound(&cluster, "larger", "3300m").await;
    let took = cluster
        .until("a node comes for the larger one", async |cluster| {
            cluster.list::<NodeClaim>().await.len() == 3
        })
        .await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    cluster
        .until("the small one names the node that is there", async |cluster| {
            named(&cluster.get::<Pod>("small").await).as_deref() == Some(&*node)
        })
        .await;
}

/// The write of a name is still under way when the pod is planned elsewhere: it is dropped, and never seen.
#[tokio::test(start_paused = true)]
async fn w_62_a_name_that_is_written_too_slowly_does_not_come_after_a_newer_plan() {
    let (cluster, _operator, first) = with_room_on_one_node(101).await;
    let minute = Duration::from_secs(60);
    *cluster.gate.slow.lock().unwrap() = Some(("/pods/small/status", minute));
    unbound(&cluster, "small", "1").await;
    cluster.pass(10).await;
    let told = cluster.told("Nominated").await;
    assert!(told.iter().any(|(pod, _)| pod == "Pod/small"), "{told:?}");
    *cluster.gate.slow.lock().unwrap() = None;
    let closed = json!({"spec": {"unschedulable": true}});
    cluster.patch::<Node>(&first, closed).await;
    for _ in 0..90 {
        cluster.pass(1).await;
        let small: Pod = cluster.get("small").await;
        assert_ne!(named(&small).as_deref(), Some(&*first));
    }
    let small: Pod = cluster.get("small").await;
    assert!(named(&small).is_some(), "it names its new node");
}

/// Names that wait for others to be written are dropped with their pods.
#[tokio::test(start_paused = true)]
async fn w_62_a_pod_that_is_gone_before_its_turn_is_not_written_to() {
    const AT_ONCE: usize = 50;
    let (cluster, _operator, _) = with_room_on_one_node(102).await;
    let minute = Duration::from_secs(60);
    *cluster.gate.slow.lock().unwrap() = Some(("/status", minute));
    let pods: Vec<String> = (0..AT_ONCE + 5).map(|pod| format!("small-{pod}")).collect();
    for pod in &pods {
        unbound(&cluster, pod, "10m").await;
    }
    cluster.pass(15).await;
    for pod in &pods {
        cluster.delete::<Pod>(pod).await;
    }
    cluster.pass(150).await;
    let text = String::from_utf8_lossy(&cluster.lab.log.bytes()).into_owned();
    let is_write = |line: &&str| line.contains(" PATCH ") && line.contains("nominatedNodeName");
    let writes = text.lines().filter(is_write);
    let to_small = writes.filter(|line| line.contains("/pods/small-"));
    assert_eq!(to_small.count(), AT_ONCE, "those that were under way");
}
