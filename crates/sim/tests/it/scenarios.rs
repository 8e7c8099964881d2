//! Whole clusters on virtual time: the embedded API server, the simulated components, the kwok cloud and the production controllers, in one
//! thread. Each test says what a user does and what must be true afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::plain::Cluster;
use crate::words::*;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_api::conditions::{Conditioned as _, INSTANCE_TERMINATING};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::scheduler_profiles::{AddedAffinity, SchedulerProfile, SchedulerProfiles};
use spokeshave_sim::lab::LabOptions;

/// A stalled watch (invariant 38): a NodeClaim that is edited in the meantime cannot be written, and is not retried endlessly.
#[tokio::test(start_paused = true)]
async fn a_nodeclaim_edited_behind_a_watch_that_stands_still_does_not_spin() {
    let delay = json!({"disruption": {"consolidateAfter": "60s"}});
    let mut cluster = Cluster::started(38, delay).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let claim = cluster.claim_of_pod("web").await;
    cluster.pass(5).await;
    cluster.lab.weather("a").hold_watches(Duration::from_secs(180));
    cluster
        .annotate::<NodeClaim>(&claim, "example.com/seen", "true")
        .await;
    let before = cluster.traffic.requests();
    let traffic = cluster.traffic.clone();
    // In the meantime `Consolidatable` becomes due; a pause that doubles up to ten seconds makes some thirty tries of two minutes.
    tokio::select! {
        biased;
        () = traffic.exceeds(before + 5_000) => panic!("the operator spins"),
        () = cluster.pass(175) => {}
    }
    let requests = cluster.traffic.requests() - before;
    assert!(requests < 300, "{requests} requests while the watch stood still");
    let consolidatable = async |cluster: &Cluster| cluster.condition(&claim, "Consolidatable").await;
    assert_eq!(consolidatable(&cluster).await, None);
    cluster
        .until("the condition is written", async |cluster| {
            consolidatable(cluster)
                .await
                .is_some_and(|(status, ..)| status == "True")
        })
        .await;
}

/// Invariants 2 and 38: a budget that was closed behind a stalled watch is not charged; the API server is read before a command starts.
#[tokio::test(start_paused = true)]
async fn invariant_38_a_budget_closed_behind_a_watch_that_stands_still_stays_closed() {
    let delay = json!({"disruption": {"consolidateAfter": "60s"}});
    let mut cluster = Cluster::started(39, delay).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let claim = cluster.claim_of_pod("web").await;
    cluster.scale("web", 0).await;
    cluster.pass(30).await;
    cluster.lab.weather("a").hold_watches(Duration::from_secs(180));
    let closed = json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}});
    cluster.patch::<NodePool>("default", closed).await;
    let asked = cluster.traffic.requests();
    cluster.pass(170).await;
    assert!(cluster.traffic.requests() > asked, "the operator is at work");
    assert!(cluster.names::<Disruption>().await.is_empty());
    cluster.pass(600).await;
    assert!(cluster.exists::<NodeClaim>(&claim).await);
    let open = json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}});
    cluster.patch::<NodePool>("default", open).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// Invariants 2 and 38: a command whose creation had no answer exists behind a stalled watch; the API server is asked for it before another one starts.
#[tokio::test(start_paused = true)]
async fn invariant_2_and_38_a_command_whose_creation_had_no_answer_charges_its_budget() {
    let one_at_a_time = json!({"disruption": {"consolidateAfter": "60s", "budgets": [{"nodes": "1"}]}});
    let mut cluster = Cluster::started(41, one_at_a_time).await;
    cluster.deploy("web", 2, "6").await;
    cluster.until_running(2).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 2);
    cluster.scale("web", 0).await;
    cluster.pass(30).await;
    let weather = cluster.lab.weather("a");
    weather.lose_answer("/apis/spokeshave.dev/v1alpha1/disruptions");
    weather.hold_watches(Duration::from_secs(180));
    for second in 0..175 {
        cluster.pass(1).await;
        // A node whose instance ends counts for no budget any more (D-199).
        let mut claims = cluster.list::<NodeClaim>().await;
        claims.retain(|claim| !claim.is_true(INSTANCE_TERMINATING));
        let mut commands = cluster.list::<Disruption>().await;
        commands.retain(|command| {
            let mut nodes = command.spec.nodes.iter();
            let is_there = |name: &String| claims.iter().any(|claim| claim.name() == name);
            !command.is_finished() && nodes.any(|node| is_there(&node.node_claim))
        });
        assert!(commands.len() <= 1, "after {second} s: {commands:?}");
    }
    assert!(!cluster.names::<Disruption>().await.is_empty());
    cluster.until_empty().await;
}

/// Invariants 15 and 38: so does a NodeClaim. What was created without an answer is looked for before more is created.
#[tokio::test(start_paused = true)]
async fn invariant_15_and_38_a_nodeclaim_whose_creation_had_no_answer_is_not_created_twice() {
    let mut cluster = Cluster::started(42, json!({})).await;
    let weather = cluster.lab.weather("a");
    weather.lose_answer("/apis/karpenter.sh/v1/nodeclaims");
    cluster.deploy("web", 1, "6").await;
    cluster.pass(1).await;
    weather.hold_watches(Duration::from_secs(120));
    cluster.pass(115).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 1);
    cluster.until_running(1).await;
    assert_eq!(cluster.list::<NodeClaim>().await.len(), 1);
    cluster.assert_tidy().await;
}

/// Invariant 36: a killed leader no longer renews its Lease, and the standby continues its work.
#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_followed_by_the_standby() {
    let options = LabOptions {
        leader_election: true,
        ..LabOptions::new(36)
    };
    let mut cluster = Cluster::new(options, json!({})).await.with_operator();
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
    cluster.lab.start("b");
    cluster.pass(10).await;
    cluster.lab.kill("a").await;
    cluster.scale("web", 2).await;
    let took = cluster.until_running(2).await;
    assert!(took < Duration::from_secs(60), "the standby leads after {took:?}");
    cluster.assert_tidy().await;
}

#[tokio::test(start_paused = true)]
async fn pods_get_nodes_and_empty_nodes_go() {
    let cluster = Cluster::started(1, json!({})).await;
    cluster.deploy("web", 10, "1500m").await;
    cluster.until_running(10).await;
    let nodes = cluster.list::<Node>().await;
    assert!(nodes.iter().all(|node| {
        node.labels()
            .get("karpenter.sh/initialized")
            .is_some_and(|value| value == "true")
    }));
    for claim in cluster.list::<NodeClaim>().await {
        let ready = claim
            .status
            .unwrap()
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap();
        assert_eq!(ready.status, "True");
    }
    cluster.assert_tidy().await;
    cluster.scale("web", 0).await;
    cluster.until_empty().await;
    let pool: NodePool = cluster.get("default").await;
    cluster
        .until("the pool counts no nodes", async |cluster| {
            cluster.get::<NodePool>("default").await.status.unwrap().nodes == 0
        })
        .await;
    assert!(
        pool.metadata
            .annotations
            .unwrap()
            .contains_key("karpenter.sh/nodepool-hash"),
        "D-223"
    );
}

/// What `spokeshave operator --scheduler-config FILE` hands to the controllers, through the whole stack: pods of a Deployment say nothing about
/// zones, and get nodes in all of them.
#[tokio::test(start_paused = true)]
async fn p_121_default_constraints_spread_pods_that_say_nothing_themselves() {
    let spread = json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"});
    for (constraints, expected) in [(Vec::new(), 1), (vec![spread], 4)] {
        let mut options = LabOptions::new(121);
        let constraints = serde_json::from_value(json!(constraints)).unwrap();
        options.operator.scheduler_profiles = Arc::new(SchedulerProfiles::of_all(constraints));
        let cluster = Cluster::new(options, json!({})).await.with_operator();
        cluster.deploy("web", 4, "100m").await;
        cluster.until_running(4).await;
        let zone = |node: &Node| node.labels().get("topology.kubernetes.io/zone").cloned();
        let zones: BTreeSet<_> = cluster.list::<Node>().await.iter().map(zone).collect();
        assert_eq!(zones.len(), expected);
    }
}

/// The zone of the node that an ordinary pod gets where pods of one scheduler may only be in one zone.
async fn zone_where(scheduler: &str, zone: &str) -> String {
    let zones = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}});
    let added = AddedAffinity::read(serde_json::from_value(required).unwrap()).unwrap();
    let profile = SchedulerProfile {
        added_affinity: Some(added),
        ..SchedulerProfile::default()
    };
    let profiles = SchedulerProfiles::by_name([(scheduler.to_owned(), profile)].into());
    let mut options = LabOptions::new(60);
    options.operator.scheduler_profiles = Arc::new(profiles);
    let cluster = Cluster::new(options, json!({})).await.with_operator();
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    let nodes = cluster.list::<Node>().await;
    assert_eq!(nodes.len(), 1);
    nodes[0].labels()["topology.kubernetes.io/zone"].clone()
}

/// The operator of a cluster whose kube-scheduler adds node affinity to the pods of a profile: their nodes are launched where that allows, and those of
/// pods of other schedulers anywhere.
#[tokio::test(start_paused = true)]
async fn b_60_nodes_are_launched_where_the_affinity_of_a_profile_asks_for_them() {
    let anywhere = zone_where("elsewhere", "no-such-zone").await;
    let zones = ["test-zone-a", "test-zone-b"];
    let other = zones.into_iter().find(|zone| *zone != anywhere).unwrap();
    assert_eq!(zone_where("default-scheduler", other).await, other);
}

#[tokio::test(start_paused = true)]
async fn d_129_empty_nodes_go_only_as_fast_as_the_budget_allows() {
    let cluster = Cluster::started(2, json!({"disruption": {"budgets": [{"nodes": "1"}]}})).await;
    cluster.deploy("web", 4, "6").await;
    cluster.until_running(4).await;
    assert_eq!(cluster.list::<Node>().await.len(), 4);
    cluster.scale("web", 0).await;
    let start = cluster.clock.now();
    while !cluster.list::<NodeClaim>().await.is_empty() {
        let going = cluster
            .list::<NodeClaim>()
            .await
            .iter()
            .filter(|claim| claim.is_deleting())
            .count();
        assert!(going <= 1, "budget 1, and {going} NodeClaims are going");
        assert!(cluster.clock.since(start) < Cluster::LIMIT);
        cluster.clock.sleep(Duration::from_millis(500)).await;
    }
    cluster.until_empty().await;
}

#[tokio::test(start_paused = true)]
async fn d_298_deleting_a_node_drains_it_and_pods_move() {
    let cluster = Cluster::started(3, json!({})).await;
    cluster.deploy("web", 4, "1").await;
    cluster.until_running(4).await;
    let victim = cluster.names::<Node>().await.remove(0);
    cluster.delete::<Node>(&victim).await;
    cluster.until_gone::<Node>(&victim).await;
    cluster.until_running(4).await;
    cluster.assert_tidy().await;
}

#[tokio::test(start_paused = true)]
async fn invariant_1_a_budget_that_allows_nothing_holds_the_drain_until_it_changes() {
    let cluster = Cluster::started(4, json!({})).await;
    cluster.deploy("web", 2, "1").await;
    cluster.until_running(2).await;
    cluster.budget("web", json!({"minAvailable": 2})).await;
    cluster.pass(5).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(300).await;
    assert_eq!(
        cluster.running().await,
        2,
        "no pod was evicted against its budget"
    );
    let events: Vec<String> = cluster
        .list::<k8s_openapi::api::core::v1::Event>()
        .await
        .into_iter()
        .filter_map(|event| event.message)
        .collect();
    assert!(
        events
            .iter()
            .any(|message| message.starts_with("Failed to drain node")),
        "D-331: {events:?}"
    );
    let looser = json!({"spec": {"minAvailable": 1}});
    cluster.patch::<PodDisruptionBudget>("web", looser).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running(2).await;
}

#[tokio::test(start_paused = true)]
async fn invariant_35_two_runs_with_one_seed_send_the_same_requests() {
    async fn story(seed: u64) -> Vec<u8> {
        let mut cluster = Cluster::started(seed, json!({})).await;
        cluster.deploy("web", 6, "1500m").await;
        cluster.until_running(6).await;
        cluster.scale("web", 0).await;
        cluster.until_empty().await;
        let log = cluster.log.bytes();
        cluster.lab.end().await;
        log
    }
    let first = story(7).await;
    assert!(first.len() > 10_000);
    assert_eq!(first, story(7).await);
}

#[tokio::test(start_paused = true)]
async fn volumes_follow_their_pods_and_leave_with_their_claims() {
    let cluster = Cluster::started(7, json!({})).await;
    cluster.storage_class().await;
    let set = json!({
        "metadata": {"name": "db"}, "spec": {
            "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}, "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            ]}},
            "volumeClaimTemplates": [volume_claim("data")],
        },
    });
    cluster.create::<StatefulSet>(set).await;
    cluster.until_running(2).await;
    cluster
        .until("each volume is attached where its pod runs", async |cluster| {
            let mut expected = std::collections::BTreeSet::new();
            for pod in cluster.list::<Pod>().await {
                let claim_name = format!("data-{}", pod.name_any());
                for claim in cluster.list::<PersistentVolumeClaim>().await {
                    if claim.name_any() == claim_name {
                        let volume = claim.spec.unwrap_or_default().volume_name.unwrap_or_default();
                        expected.insert((
                            volume,
                            pod.spec.clone().unwrap_or_default().node_name.unwrap_or_default(),
                        ));
                    }
                }
            }
            let attached: std::collections::BTreeSet<_> = cluster
                .list::<VolumeAttachment>()
                .await
                .into_iter()
                .filter(|one| one.status.as_ref().is_some_and(|status| status.attached))
                .map(|one| {
                    (
                        one.spec.source.persistent_volume_name.unwrap_or_default(),
                        one.spec.node_name,
                    )
                })
                .collect();
            expected.len() == 2 && attached == expected
        })
        .await;
    cluster.delete::<StatefulSet>("db").await;
    for name in ["data-db-0", "data-db-1"] {
        cluster.delete::<PersistentVolumeClaim>(name).await;
    }
    cluster.until_empty().await;
    cluster
        .until("no volume and no attachment is left", async |cluster| {
            cluster.list::<PersistentVolume>().await.is_empty()
                && cluster.list::<VolumeAttachment>().await.is_empty()
        })
        .await;
}
