//! The story of `up --demo`: a workload that grows, is joined by others, and shrinks again.
//!
//! Owns the order of the scenes and what is said between them. It acts only as a user could: it applies and scales objects through
//! the API, and the controllers do the rest.

mod policies;

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{DisruptionPolicy, NodePool};
use spokeshave_model::Price;
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Api;

use crate::text::count;
use crate::up::manifests;
use crate::up::narrator::Narrator;

const WORKLOAD: &str = include_str!("../../../assets/demo.yaml");
const NAMESPACE: &str = "shop";
const POOL: &str = "default";

/// Longest time that a scene waits for the cluster before the demo continues.
const SCENE_TIMEOUT: Duration = Duration::from_secs(60);

/// One change that a user makes.
enum Change {
    Deployment(&'static str, i32),
    StatefulSet(&'static str, i32),
    StartJob(&'static str),
    /// Nodes of the NodePool get another label, so existing ones drift.
    NodeLabel(&'static str, &'static str),
}

/// One scene: its title, the change, and how long the result is shown.
struct Scene {
    title: &'static str,
    changes: &'static [Change],
    rest: Duration,
}

const SCENES: &[Scene] = &[
    Scene {
        title: "Twelve web pods arrive in an empty cluster",
        changes: &[Change::Deployment("web", 12)],
        rest: Duration::from_secs(3),
    },
    Scene {
        title: "The whole shop opens: an API on arm64, a database on demand, a report",
        changes: &[
            Change::Deployment("api", 4),
            Change::StatefulSet("database", 3),
            Change::StartJob("report"),
        ],
        rest: Duration::from_secs(3),
    },
    Scene {
        title: "Rush hour: 60 web pods",
        changes: &[Change::Deployment("web", 60)],
        rest: Duration::from_secs(5),
    },
    Scene {
        title: "Night: the web shrinks to 6, API and database sleep; empty nodes go, under-used ones make way for fewer and cheaper ones",
        changes: &[
            Change::Deployment("web", 6),
            Change::Deployment("api", 0),
            Change::StatefulSet("database", 0),
        ],
        rest: Duration::from_secs(30),
    },
];

/// After the night: there are several nodes again, for the rollout.
const MORNING: Scene = Scene {
    title: "Morning: 20 web pods, the database and the API are back; nodes that came a moment ago hold all others",
    changes: &[
        Change::Deployment("web", 20),
        Change::Deployment("api", 2),
        Change::StatefulSet("database", 2),
    ],
    rest: Duration::from_secs(3),
};

/// The last scene: a policy lets one node go first, and the others when it has been healthy for a while.
const ROLLOUT: Scene = Scene {
    title: "A new edition: the NodePool asks for another label, and its nodes follow in waves, a canary first",
    changes: &[Change::NodeLabel("shop/edition", "second")],
    rest: Duration::from_secs(5),
};

/// Longest time that the story waits for the night to become quiet, and for the last wave to be through.
const LONGEST_WAIT: Duration = Duration::from_secs(420);
/// Quiet is when no command has been under way for so long: two looks of disruption, with the wait before each command.
const QUIET: Duration = Duration::from_secs(35);

/// Runs the demo once, then returns.
///
/// # Errors
/// A request that the API server refused.
pub(crate) async fn tell(client: &Client, clock: &SharedClock, narrator: &Narrator) -> Result<()> {
    tokio::select! {
        told = story(client, clock, narrator) => told,
        () = policies::watch(client, clock, narrator) => Ok(()),
    }
}

async fn story(client: &Client, clock: &SharedClock, narrator: &Narrator) -> Result<()> {
    let workload = manifests::parse("demo.yaml", WORKLOAD)?;
    manifests::apply_all(client, clock, workload).await?;
    for scene in SCENES {
        play(client, clock, narrator, scene).await?;
    }
    wait_until_quiet(client, clock).await?;
    narrator.status(&summary(client).await?);
    narrator.status(&ledger(client).await?);
    play(client, clock, narrator, &MORNING).await?;
    narrator.scene(ROLLOUT.title);
    for change in ROLLOUT.changes {
        make(client, change).await?;
    }
    clock.sleep(ROLLOUT.rest).await;
    wait_until_quiet(client, clock).await?;
    narrator.status(&summary(client).await?);
    narrator.scene("That was the story. The cluster stays up: try kubectl, or press Ctrl-C");
    Ok(())
}

async fn play(client: &Client, clock: &SharedClock, narrator: &Narrator, scene: &Scene) -> Result<()> {
    narrator.scene(scene.title);
    for change in scene.changes {
        make(client, change).await?;
    }
    wait_until_settled(client, clock).await?;
    clock.sleep(scene.rest).await;
    narrator.status(&summary(client).await?);
    Ok(())
}

/// Waits until the last command has ended, nothing is held back any more, and no other command has followed.
async fn wait_until_quiet(client: &Client, clock: &SharedClock) -> Result<()> {
    let api: Api<Disruption> = Api::all(client.clone());
    let policies: Api<DisruptionPolicy> = Api::all(client.clone());
    let deadline = clock.now() + LONGEST_WAIT;
    let (mut known, mut since) = (0, clock.now());
    while clock.now() < deadline {
        let list = api.list(&ListParams::default()).await?.items;
        let held = policies.list(&ListParams::default()).await?.items;
        let busy = list.iter().any(|one| !one.is_finished()) || held.iter().any(holds_back);
        if busy || list.len() != known {
            (known, since) = (list.len(), clock.now());
        } else if clock.since(since) >= QUIET {
            return Ok(());
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Whether a policy stops something, or a roll-out of it is under way.
fn holds_back(policy: &DisruptionPolicy) -> bool {
    let status = policy.status.as_ref();
    status.is_some_and(|status| !status.active.is_empty() || !status.rollouts.is_empty())
}

/// What the ledger adds up to.
async fn ledger(client: &Client) -> Result<String> {
    let list = Api::<Disruption>::all(client.clone())
        .list(&ListParams::default())
        .await?
        .items;
    let done: Vec<&Disruption> = list
        .iter()
        .filter(|one| one.phase() == DisruptionPhase::Succeeded)
        .collect();
    let nodes: usize = done.iter().map(|one| one.spec.nodes.len()).sum();
    let saved: Price = done
        .iter()
        .filter_map(|one| one.spec.savings.parse::<Price>().ok())
        .sum();
    Ok(format!(
        "{} removed {} and saved ${:.3}/h: kubectl get disruptions; now",
        count(done.len(), "command"),
        count(nodes, "node"),
        saved.dollars()
    ))
}

async fn make(client: &Client, change: &Change) -> Result<()> {
    match change {
        Change::Deployment(name, replicas) => {
            merge::<Deployment>(client, name, json!({"replicas": replicas})).await
        }
        Change::StatefulSet(name, replicas) => {
            merge::<StatefulSet>(client, name, json!({"replicas": replicas})).await
        }
        Change::StartJob(name) => merge::<Job>(client, name, json!({"suspend": false})).await,
        Change::NodeLabel(key, value) => {
            let pools: Api<NodePool> = Api::all(client.clone());
            let labels = json!({"spec": {"template": {"metadata": {"labels": {*key: value}}}}});
            let patched = pools
                .patch(POOL, &PatchParams::default(), &Patch::Merge(labels))
                .await;
            patched.map(drop)
        }
    }
    .context("the demo's change was refused")
}

/// Merges `spec` into that of one object of the shop.
async fn merge<K>(client: &Client, name: &str, spec: serde_json::Value) -> kube::Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({ "spec": spec }));
    api.patch(name, &PatchParams::default(), &patch).await.map(drop)
}

/// Waits until every pod of the shop is scheduled and no node is being deleted, or until the scene has lasted too long.
async fn wait_until_settled(client: &Client, clock: &SharedClock) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let deadline = clock.now() + SCENE_TIMEOUT;
    // The workload controllers need a moment to notice the change; otherwise the state before it would look settled.
    clock.sleep(Duration::from_secs(2)).await;
    while clock.now() < deadline {
        let list = pods.list(&ListParams::default()).await?;
        let waiting = list.items.iter().any(|pod| {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref())
                .unwrap_or("Pending");
            phase == "Pending" || (pod.metadata.deletion_timestamp.is_some())
        });
        if !waiting {
            return Ok(());
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

async fn summary(client: &Client) -> Result<String> {
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?
        .items
        .len();
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE)
        .list(&ListParams::default())
        .await?;
    let running = pods
        .items
        .iter()
        .filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"))
        .count();
    Ok(format!(
        "{}, {} running",
        count(nodes, "node"),
        count(running, "pod")
    ))
}
