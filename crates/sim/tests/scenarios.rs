//! Whole clusters on virtual time: the embedded API server, the simulated components, the kwok cloud and the production controllers, in one
//! thread. Each test says what a user does and what must be true afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_controllers::{Operator, Options as OperatorOptions};
use spokeshave_ports::{Entropy, SharedClock, TokioClock};
use spokeshave_provider_kwok::{KwokOptions, KwokProvider};
use spokeshave_runtime::client::{ClientOptions, RequestLog, from_service};
use spokeshave_runtime::{Shutdown, TaskGroup};

const LIMIT: Duration = Duration::from_secs(900);

/// A cluster without an operator.
struct Cluster {
    server: Arc<ApiServer>,
    client: Client,
    clock: SharedClock,
    entropy: Entropy,
    shutdown: Shutdown,
    _tasks: TaskGroup,
}

/// An operator that can be killed.
struct Running {
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Running {
    /// As `kill -9`: nothing is said and nothing is finished.
    async fn kill(self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            drop(task.await);
        }
    }
}

fn client_of(server: &Arc<ApiServer>, clock: &SharedClock, log: Option<RequestLog>) -> Client {
    let options = ClientOptions {
        rate: None,
        log,
        ..ClientOptions::default()
    };
    from_service(server.service(), "default", &options, clock.clone())
}

impl Cluster {
    async fn new(seed: u64) -> Self {
        Self::with_pool(seed, "0s", "100%").await
    }

    async fn with_pool(seed: u64, consolidate_after: &str, budget: &str) -> Self {
        let clock: SharedClock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let entropy = Entropy::new(seed);
        let time = clock.clone();
        let server = ApiServer::new(Config::new(Arc::new(move || time.now()), seed));
        let client = client_of(&server, &clock, None);
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in spokeshave_api::crds::crds() {
            definitions
                .create(&PostParams::default(), &definition)
                .await
                .unwrap();
        }
        let shutdown = Shutdown::new();
        let mut tasks = TaskGroup::new();
        let options = spokeshave_sim::Options::all();
        tasks.spawn(
            "sim",
            spokeshave_sim::run(
                client.clone(),
                clock.clone(),
                entropy.child("sim"),
                options,
                shutdown.clone(),
            ),
        );
        let cluster = Self {
            server,
            client,
            clock,
            entropy,
            shutdown,
            _tasks: tasks,
        };
        cluster
            .create::<KWOKNodeClass>(
                json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "5s"}}),
            )
            .await;
        cluster
            .create::<NodePool>(json!({"metadata": {"name": "default"}, "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
                    ],
                }},
                "disruption": {"consolidateAfter": consolidate_after, "budgets": [{"nodes": budget}]},
            }}))
            .await;
        cluster
    }

    async fn create<K>(&self, value: Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let object: K = serde_json::from_value(value).unwrap();
        Api::all(self.client.clone())
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    async fn deploy(&self, name: &str, replicas: i32, cpu: &str) {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}},
            },
        }))
        .unwrap();
        Api::<Deployment>::default_namespaced(self.client.clone())
            .create(&PostParams::default(), &deployment)
            .await
            .unwrap();
    }

    async fn scale(&self, name: &str, replicas: i32) {
        let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
        api.patch(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": replicas}})),
        )
        .await
        .unwrap();
    }

    fn operator(&self, client: Client) -> Running {
        let options = KwokOptions {
            termination_delay: Duration::from_secs(3),
            ..KwokOptions::default()
        };
        let provider = Arc::new(KwokProvider::new(
            client.clone(),
            self.clock.clone(),
            &self.entropy.child("kwok"),
            options,
        ));
        let operator = Operator::new(
            client,
            provider.clone(),
            self.clock.clone(),
            self.entropy.child("operator"),
            OperatorOptions::default(),
        );
        let stop = self.shutdown.clone();
        let cloud = tokio::spawn(async move { provider.run(stop.requested()).await });
        let stop = self.shutdown.clone();
        let controllers = tokio::spawn(async move { operator.run(stop).await.unwrap() });
        Running {
            tasks: vec![cloud, controllers],
        }
    }

    async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        Api::<K>::all(self.client.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// Waits in virtual time until the cluster looks as it should.
    async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) {
        let start = self.clock.now();
        while !holds(self).await {
            assert!(
                self.clock.since(start) < LIMIT,
                "{what}: not within {LIMIT:?}; nodes {:?}, claims {:?}",
                self.names::<Node>().await,
                self.names::<NodeClaim>().await
            );
            self.clock.sleep(Duration::from_secs(1)).await;
        }
    }

    async fn names<K>(&self) -> Vec<String>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        self.list::<K>().await.iter().map(ResourceExt::name_any).collect()
    }

    async fn running(&self) -> usize {
        let phase = |pod: &Pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.phase.clone())
                .unwrap_or_default()
        };
        self.list::<Pod>()
            .await
            .iter()
            .filter(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none())
            .count()
    }

    async fn until_running(&self, count: usize) {
        self.until(&format!("{count} pods run"), async |cluster| {
            cluster.running().await == count && cluster.list::<Pod>().await.len() == count
        })
        .await;
    }

    async fn until_empty(&self) {
        self.until("nothing is left", async |cluster| {
            cluster.list::<Node>().await.is_empty()
                && cluster.list::<NodeClaim>().await.is_empty()
                && cluster.list::<KWOKInstance>().await.is_empty()
        })
        .await;
    }

    /// Invariants 10 and 11: each instance has its claim, and no node keeps a taint that nobody works on.
    async fn assert_tidy(&self) {
        let claims = self.list::<NodeClaim>().await;
        for instance in self.list::<KWOKInstance>().await {
            let owners = claims
                .iter()
                .filter(|claim| claim.uid() == instance.spec.node_claim_uid)
                .count();
            assert_eq!(owners, 1, "instance {} belongs to no NodeClaim", instance.name());
        }
        for node in self.list::<Node>().await {
            let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
            assert!(
                taints.iter().all(|taint| !taint.key.starts_with("karpenter.sh/")),
                "stray taint: {taints:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pods_get_nodes_and_empty_nodes_go() {
    let cluster = Cluster::new(1).await;
    let _operator = cluster.operator(cluster.client.clone());
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
    let pool: NodePool = Api::all(cluster.client.clone()).get("default").await.unwrap();
    cluster
        .until("the pool counts no nodes", async |cluster| {
            Api::<NodePool>::all(cluster.client.clone())
                .get("default")
                .await
                .unwrap()
                .status
                .unwrap()
                .nodes
                == 0
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

#[tokio::test(start_paused = true)]
async fn d_129_empty_nodes_go_only_as_fast_as_the_budget_allows() {
    let cluster = Cluster::with_pool(2, "0s", "1").await;
    let _operator = cluster.operator(cluster.client.clone());
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
        assert!(cluster.clock.since(start) < LIMIT);
        cluster.clock.sleep(Duration::from_millis(500)).await;
    }
    cluster.until_empty().await;
}

#[tokio::test(start_paused = true)]
async fn d_298_deleting_a_node_drains_it_and_pods_move() {
    let cluster = Cluster::new(3).await;
    let _operator = cluster.operator(cluster.client.clone());
    cluster.deploy("web", 4, "1").await;
    cluster.until_running(4).await;
    let victim = cluster.names::<Node>().await.remove(0);
    Api::<Node>::all(cluster.client.clone())
        .delete(&victim, &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .until("the node is gone", async |cluster| {
            !cluster.names::<Node>().await.contains(&victim)
        })
        .await;
    cluster.until_running(4).await;
    cluster.assert_tidy().await;
}

#[tokio::test(start_paused = true)]
async fn invariant_1_a_budget_that_allows_nothing_holds_the_drain_until_it_changes() {
    let cluster = Cluster::new(4).await;
    let _operator = cluster.operator(cluster.client.clone());
    cluster.deploy("web", 2, "1").await;
    cluster.until_running(2).await;
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::default_namespaced(cluster.client.clone());
    let budget = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}})).unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    cluster.clock.sleep(Duration::from_secs(5)).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    Api::<NodeClaim>::all(cluster.client.clone())
        .delete(&claim, &DeleteParams::default())
        .await
        .unwrap();
    cluster.clock.sleep(Duration::from_secs(300)).await;
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
    budgets
        .patch(
            "web",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"minAvailable": 1}})),
        )
        .await
        .unwrap();
    cluster
        .until("the claim is gone", async |cluster| {
            !cluster.names::<NodeClaim>().await.contains(&claim)
        })
        .await;
    cluster.until_running(2).await;
}

#[tokio::test(start_paused = true)]
async fn invariant_35_two_runs_with_one_seed_send_the_same_requests() {
    async fn story(seed: u64) -> Vec<u8> {
        let cluster = Cluster::new(seed).await;
        let log = RequestLog::new();
        let _operator = cluster.operator(client_of(&cluster.server, &cluster.clock, Some(log.clone())));
        cluster.deploy("web", 6, "1500m").await;
        cluster.until_running(6).await;
        cluster.scale("web", 0).await;
        cluster.until_empty().await;
        log.bytes()
    }
    let first = story(7).await;
    assert!(first.len() > 10_000);
    assert_eq!(first, story(7).await);
}

/// A service that lets so many writes through and then dies: every later request of this operator fails.
#[derive(Clone)]
struct Mortal<S> {
    inner: S,
    writes_left: Arc<AtomicU64>,
}

impl<S, B> tower::Service<http::Request<B>> for Mortal<S>
where
    S: tower::Service<http::Request<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: std::fmt::Debug,
    S::Response: Send + 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = std::io::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<S::Response, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), std::io::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let write = request.method() != http::Method::GET;
        let alive = if write {
            self.writes_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
        } else {
            self.writes_left.load(Ordering::Relaxed) > 0
        };
        let mut inner = self.inner.clone();
        Box::pin(async move {
            if !alive {
                return Err(std::io::Error::other("the operator was killed"));
            }
            inner
                .call(request)
                .await
                .map_err(|error| std::io::Error::other(format!("{error:?}")))
        })
    }
}

/// Invariant 37: killed at any write of the scenario and started again, the operator ends in the same state, with nothing leaked.
#[tokio::test(start_paused = true)]
async fn invariant_37_a_kill_at_any_write_ends_in_the_same_state() {
    let mut index = 1;
    loop {
        let cluster = Cluster::new(11).await;
        let writes_left = Arc::new(AtomicU64::new(index));
        let mortal = Mortal {
            inner: cluster.server.service(),
            writes_left: writes_left.clone(),
        };
        let options = ClientOptions {
            rate: None,
            ..ClientOptions::default()
        };
        let doomed = cluster.operator(from_service(mortal, "default", &options, cluster.clock.clone()));
        cluster.deploy("web", 3, "6").await;
        let mut scaled = false;
        let start = cluster.clock.now();
        while writes_left.load(Ordering::Relaxed) > 0 && cluster.clock.since(start) < Duration::from_secs(240)
        {
            if !scaled && cluster.running().await == 3 {
                cluster.scale("web", 1).await;
                scaled = true;
            }
            cluster.clock.sleep(Duration::from_secs(1)).await;
        }
        let survived = writes_left.load(Ordering::Relaxed) > 0;
        doomed.kill().await;
        let _again = cluster.operator(cluster.client.clone());
        cluster.scale("web", 1).await;
        cluster
            .until(
                &format!("one pod on one node after a kill at write {index}"),
                async |cluster| {
                    cluster.running().await == 1
                        && cluster.list::<Pod>().await.len() == 1
                        && cluster.list::<Node>().await.len() == 1
                        && cluster.list::<NodeClaim>().await.len() == 1
                        && cluster.list::<KWOKInstance>().await.len() == 1
                },
            )
            .await;
        cluster.assert_tidy().await;
        cluster.shutdown.request();
        if survived {
            break;
        }
        index += 1;
    }
    assert!(index > 30, "the scenario has only {index} writes");
}

#[tokio::test(start_paused = true)]
async fn volumes_follow_their_pods_and_leave_with_their_claims() {
    let cluster = Cluster::new(7).await;
    let _operator = cluster.operator(cluster.client.clone());
    cluster
        .create::<StorageClass>(json!({
            "metadata": {"name": "fast"}, "provisioner": "disk.csi.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        }))
        .await;
    let sets: Api<StatefulSet> = Api::default_namespaced(cluster.client.clone());
    let set = serde_json::from_value(json!({
        "metadata": {"name": "db"}, "spec": {
            "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}, "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            ]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
            }}],
        },
    }))
    .unwrap();
    sets.create(&PostParams::default(), &set).await.unwrap();
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

    sets.delete("db", &DeleteParams::default()).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    for name in ["data-db-0", "data-db-1"] {
        claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
    cluster.until_empty().await;
    cluster
        .until("no volume and no attachment is left", async |cluster| {
            cluster.list::<PersistentVolume>().await.is_empty()
                && cluster.list::<VolumeAttachment>().await.is_empty()
        })
        .await;
}
