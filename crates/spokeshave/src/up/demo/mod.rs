//! The story of `up --demo`: a workload that grows, is joined by others, and shrinks again.
//!
//! Owns the order of the scenes and what is said between them. It acts only as a user could: it applies and scales objects through
//! the API, and the controllers do the rest.

mod policies;

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{DisruptionPolicy, NodePool, labels};
use spokeshave_model::Price;
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Api;

use crate::text::count;
use crate::up::manifests;
use crate::up::narrator::Narrator;

const WORKLOAD: &str = include_str!("../../../assets/demo.yaml");
const NAMESPACE: &str = "shop";
const POOL: &str = "default";
/// The label that nodes get in the last scene.
const EDITION: (&str, &str) = ("shop/edition", "second");

/// Longest time that a scene waits for the cluster before the demo continues, unless it is judged.
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
    changes: &[Change::NodeLabel(EDITION.0, EDITION.1)],
    rest: Duration::from_secs(5),
};

/// Longest time that the story waits for the night to become quiet, and for the last wave to be through, unless it is judged.
const LONGEST_WAIT: Duration = Duration::from_secs(420);
/// Quiet is when no command has been under way for so long: two looks of disruption, with the wait before each command.
const QUIET: Duration = Duration::from_secs(35);

/// Runs the demo once, then returns. One that is judged continues only when the cluster has done what the story tells of, however long it takes, and says what is
/// missing: how long a busy machine may take is up to whoever judges.
///
/// # Errors
/// A request that the API server refused.
pub(crate) async fn tell(
    client: &Client,
    clock: &SharedClock,
    narrator: &Narrator,
    is_judged: bool,
) -> Result<()> {
    let demo = Demo {
        client,
        clock,
        narrator,
        is_judged,
    };
    tokio::select! {
        told = demo.story() => told,
        () = policies::watch(client, clock, narrator) => Ok(()),
    }
}

/// The story in one cluster.
struct Demo<'a> {
    client: &'a Client,
    clock: &'a SharedClock,
    narrator: &'a Narrator,
    is_judged: bool,
}

/// When disruption has to come to rest.
#[derive(Clone, Copy)]
enum Rest {
    Night,
    Rollout,
}

/// A wait of the story.
struct Wait {
    limit: Duration,
    until: Timestamp,
    /// Whether it takes longer than a story that is not judged waits.
    is_late: bool,
}

impl Demo<'_> {
    async fn story(&self) -> Result<()> {
        let workload = manifests::parse("demo.yaml", WORKLOAD)?;
        manifests::apply_all(self.client, self.clock, workload).await?;
        for scene in SCENES {
            self.play(scene).await?;
        }
        self.wait_until_quiet(Rest::Night).await?;
        self.narrator.status(&summary(self.client).await?);
        self.narrator.status(&ledger(self.client).await?);
        self.play(&MORNING).await?;
        self.narrator.scene(ROLLOUT.title);
        for change in ROLLOUT.changes {
            make(self.client, change).await?;
        }
        self.clock.sleep(ROLLOUT.rest).await;
        self.wait_until_quiet(Rest::Rollout).await?;
        self.narrator.status(&summary(self.client).await?);
        self.narrator.scene(match self.is_judged {
            true => "That was the story",
            false => "That was the story. The cluster stays up: try kubectl, or press Ctrl-C",
        });
        Ok(())
    }

    async fn play(&self, scene: &Scene) -> Result<()> {
        self.narrator.scene(scene.title);
        for change in scene.changes {
            make(self.client, change).await?;
        }
        self.wait_until_settled().await?;
        self.clock.sleep(scene.rest).await;
        self.narrator.status(&summary(self.client).await?);
        Ok(())
    }

    fn wait(&self, limit: Duration) -> Wait {
        Wait {
            limit,
            until: self.clock.now() + limit,
            is_late: false,
        }
    }

    /// A second later: whether the story still waits for what is missing. One that is judged always does, and says so now and then.
    async fn waits_for(&self, missing: &str, wait: &mut Wait) -> bool {
        if self.clock.now() >= wait.until {
            if !self.is_judged {
                return false;
            }
            self.narrator.late(missing);
            wait.is_late = true;
            wait.limit *= 2;
            wait.until = self.clock.now() + wait.limit;
        }
        self.clock.sleep(Duration::from_secs(1)).await;
        true
    }

    /// Waits until every pod of the shop is there and scheduled and none is being deleted, or until the scene has lasted too long.
    async fn wait_until_settled(&self) -> Result<()> {
        let mut wait = self.wait(SCENE_TIMEOUT);
        // The workload controllers need a moment to notice the change; otherwise the state before it would look settled.
        self.clock.sleep(Duration::from_secs(2)).await;
        while let Some(missing) = unsettled(self.client).await? {
            if !self.waits_for(&missing, &mut wait).await {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the last command has ended, nothing is held back any more, and no other command has followed.
    async fn wait_until_quiet(&self, rest: Rest) -> Result<()> {
        let policies: Api<DisruptionPolicy> = Api::all(self.client.clone());
        let mut wait = self.wait(LONGEST_WAIT);
        let (mut known, mut since) = (0, self.clock.now());
        loop {
            let all = commands(self.client).await?;
            let held = policies.list(&ListParams::default()).await?.items;
            let under_way = all.iter().filter(|one| !one.is_finished()).count();
            if under_way > 0 || held.iter().any(holds_back) || all.len() != known {
                (known, since) = (all.len(), self.clock.now());
            }
            // A policy may hold something back for longer than anybody watches.
            let is_quiet = self.clock.since(since) >= QUIET || (wait.is_late && under_way == 0);
            let missing = match (is_quiet, self.is_judged) {
                (true, true) => self.undone(rest).await?,
                (true, false) => None,
                (false, _) => Some(format!(
                    "the end of disruption, {} under way",
                    count(under_way, "command")
                )),
            };
            let Some(missing) = missing else {
                return Ok(());
            };
            if !self.waits_for(&missing, &mut wait).await {
                return Ok(());
            }
        }
    }

    /// What the story tells of, and has not happened.
    async fn undone(&self, rest: Rest) -> Result<Option<String>> {
        match rest {
            Rest::Night => {
                let all = commands(self.client).await?;
                let is_done = all.iter().any(|one| one.phase() == DisruptionPhase::Succeeded);
                Ok((!is_done).then(|| "a command that removes nodes".to_owned()))
            }
            Rest::Rollout => {
                let api: Api<Node> = Api::all(self.client.clone());
                let nodes = api.list(&ListParams::default()).await?.items;
                let of_pool = |node: &&Node| has_label(node, (labels::NODE_POOL, POOL));
                let old = nodes
                    .iter()
                    .filter(of_pool)
                    .filter(|node| !has_label(node, EDITION))
                    .count();
                if old > 0 {
                    return Ok(Some(format!(
                        "the end of {} of the first edition",
                        count(old, "node")
                    )));
                }
                unsettled(self.client).await
            }
        }
    }
}

/// Whether a policy stops something, or a roll-out of it is under way.
fn holds_back(policy: &DisruptionPolicy) -> bool {
    let status = policy.status.as_ref();
    status.is_some_and(|status| !status.active.is_empty() || !status.rollouts.is_empty())
}

async fn commands(client: &Client) -> Result<Vec<Disruption>> {
    let api: Api<Disruption> = Api::all(client.clone());
    Ok(api.list(&ListParams::default()).await?.items)
}

/// What the ledger adds up to.
async fn ledger(client: &Client) -> Result<String> {
    let list = commands(client).await?;
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

/// What has not come to rest in the shop: pods that no node runs yet or that are about to go, and workloads that have not all of their pods.
async fn unsettled(client: &Client) -> Result<Option<String>> {
    let all = ListParams::default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), NAMESPACE);
    let mut missing = Vec::new();
    let moving = pods
        .list(&all)
        .await?
        .items
        .iter()
        .filter(|pod| is_moving(pod))
        .count();
    if moving > 0 {
        missing.push(format!("{} to start or to end", count(moving, "pod")));
    }
    for one in deployments.list(&all).await?.items {
        let ready = one.status.and_then(|status| status.ready_replicas);
        missing.extend(short_of(one.metadata.name, one.spec.replicas, ready));
    }
    for one in sets.list(&all).await?.items {
        let ready = one.status.and_then(|status| status.ready_replicas);
        missing.extend(short_of(one.metadata.name, one.spec.replicas, ready));
    }
    Ok((!missing.is_empty()).then(|| missing.join(", ")))
}

fn has_label(node: &Node, (key, value): (&str, &str)) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(key))
        .is_some_and(|found| found == value)
}

fn is_moving(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending");
    phase == "Pending" || pod.metadata.deletion_timestamp.is_some()
}

/// What a workload lacks of the replicas that it is to have, or has beyond them.
fn short_of(name: Option<String>, replicas: Option<i32>, ready: Option<i32>) -> Option<String> {
    let (wanted, ready) = (replicas.unwrap_or(1), ready.unwrap_or(0));
    (wanted != ready).then(|| format!("{wanted} pods of {} instead of {ready}", name.unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spokeshave_apiserver::{ApiServer, Config};
    use spokeshave_ports::TokioClock;
    use spokeshave_runtime::client::ClientOptions;

    use super::*;
    use crate::arguments::DefinitionsOf;
    use crate::up;

    /// What has become of the story after a quarter of an hour of a cluster in which nothing makes pods or places them.
    async fn told(is_judged: bool) -> Option<Result<()>> {
        let clock = TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared();
        let time = clock.clone();
        let server = ApiServer::new(Config::new(Arc::new(move || time.now()), 1));
        let client = up::client_of(&server, ClientOptions::default(), &clock);
        let installed = up::install_definitions(&client, DefinitionsOf::Kwok).await;
        installed.unwrap();
        let defaults = manifests::parse("default.yaml", up::DEFAULTS).unwrap();
        manifests::apply_all(&client, &clock, defaults).await.unwrap();
        let narrator = Narrator::default();
        let story = tell(&client, &clock, &narrator, is_judged);
        tokio::time::timeout(Duration::from_secs(15 * 60), story)
            .await
            .ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_story_that_is_judged_does_not_go_on_where_a_scene_stands_still() {
        let watched = told(false).await;
        assert!(matches!(watched, Some(Ok(()))), "{watched:?}");
        let judged = told(true).await;
        assert!(judged.is_none(), "{judged:?}");
    }
}
