//! What stands when a life begins in the full engine: the nodes of a dump, and the pods that were on them, with the ages that they had.
//!
//! Owns how these get into the API server before anything runs. Which they are is said in the world and in the timeline, and what follows from them is done by
//! controllers and kubelets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spokeshave_api::{KWOKNodeClass, NodeClaim, NodePool, hash, labels};
use spokeshave_runtime::Api;
use spokeshave_scenario::{Change, Owner, OwnerKind, Placement, Timeline};
use spokeshave_simulate::owners::pod_labels;
use spokeshave_simulate::{Policy, StandingNode, World};

use crate::cloud::FAKE_NODE;
use crate::user::{Broken, User, broken, refused, single_name, template, without_nulls};

/// Where a volume is to be, as the scheduler says it.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The time of the API server while it is told what was before: objects get the times at which they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past(Arc<Mutex<Option<Timestamp>>>);

impl Past {
    fn lock(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What time it is there: now, unless it is told what was before.
    pub(crate) fn or(&self, now: Timestamp) -> Timestamp {
        self.lock().unwrap_or(now)
    }

    fn set(&self, then: Option<Timestamp>) {
        *self.lock() = then;
    }
}

/// Pods that stand, by the position of their owner and their number there.
pub(crate) fn placed(world: &World, timeline: &Timeline) -> BTreeMap<(u32, u64), Placement> {
    let nodes = world.standing.node_names();
    let placements = timeline.placements.iter();
    let standing = placements.filter(|placement| nodes.contains(placement.node.as_str()));
    standing
        .map(|placement| ((placement.owner.0, placement.pod), placement.clone()))
        .collect()
}

impl User {
    /// Makes what stands.
    pub(crate) async fn make_standing(
        &self,
        world: &World,
        policy: &Policy,
        past: &Past,
    ) -> Result<(), Broken> {
        self.chronicle.stands(true);
        for standing in &world.standing.nodes {
            self.make_claimed(standing, world, policy, past).await?;
        }
        for node in &world.standing.fixed {
            self.chronicle.fixed(node);
            self.make_node(node, None, past).await?;
        }
        let owners: BTreeSet<u32> = self.placed.keys().map(|(owner, _)| *owner).collect();
        for index in owners {
            if let Some(owner) = self.timeline.owners.get(index as usize) {
                past.set(None);
                self.make_pods(index, owner, world, past).await?;
            }
        }
        past.set(None);
        self.chronicle.stands(false);
        Ok(())
    }

    /// A NodeClaim, its Node, and what is known of its instance.
    async fn make_claimed(
        &self,
        standing: &StandingNode,
        world: &World,
        policy: &Policy,
        past: &Past,
    ) -> Result<(), Broken> {
        let claim = of_this_cloud(&standing.claim, policy);
        let name = claim.name().to_owned();
        let node_name = standing.node.metadata.name.clone().unwrap_or_default();
        past.set(claim.metadata.creation_timestamp.as_ref().map(|made| made.0));
        let mut value = serde_json::to_value(&claim).unwrap_or_default();
        let status = value["status"].take();
        self.create(self.all::<NodeClaim>(), without_nulls(value)).await?;
        self.write_status(self.all::<NodeClaim>(), &name, &status).await?;
        self.chronicle.node_is_of(&node_name, &name);
        let class = &claim.spec.node_class_ref;
        let class = (class.label_key(), class.name.clone());
        self.make_node(&standing.node, Some(class), past).await?;
        self.chronicle
            .instance_stands(&name, standing, standing.age_ms(world.start));
        Ok(())
    }

    /// A Node with a kubelet of this process, and with one more label.
    async fn make_node(
        &self,
        node: &Node,
        label: Option<(String, String)>,
        past: &Past,
    ) -> Result<(), Broken> {
        past.set(node.metadata.creation_timestamp.as_ref().map(|made| made.0));
        let mut value = serde_json::to_value(node).unwrap_or_default();
        let status = value["status"].take();
        value["metadata"]["annotations"][FAKE_NODE] = json!("fake");
        if let Some((key, text)) = label {
            value["metadata"]["labels"][key] = json!(text);
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.create(self.all::<Node>(), without_nulls(value)).await?;
        self.write_status(self.all::<Node>(), name, &status).await
    }

    /// The pods of an owner that stand, with what makes them.
    async fn make_pods(&self, index: u32, owner: &Owner, world: &World, past: &Past) -> Result<(), Broken> {
        let own = self.placed.range((index, 0)..=(index, u64::MAX));
        let own: Vec<(u64, &Placement)> = own.map(|((_, pod), placement)| (*pod, placement)).collect();
        let namespace = owner.namespace.as_str();
        match owner.kind {
            OwnerKind::Deployment => {
                let set = self.make_set(index, owner).await?;
                for (_, placement) in own {
                    self.make_pod(made_by("ReplicaSet", &set), namespace, placement, world, past)
                        .await?;
                }
            }
            OwnerKind::StatefulSet => {
                let set = self.scale_set(index, owner).await?;
                for (ordinal, placement) in own {
                    let pod = self.member(owner, &set, ordinal, placement).await?;
                    self.make_pod(pod, namespace, placement, world, past).await?;
                }
            }
            OwnerKind::Job | OwnerKind::Bare | OwnerKind::Other => {
                for (pod, placement) in own {
                    let left = |runs_ms| world.standing.left_ms(placement, runs_ms);
                    let pod = self.single(index, owner, pod, left).await?;
                    self.make_pod(pod, namespace, placement, world, past).await?;
                }
            }
        }
        Ok(())
    }

    /// How many pods an owner wants from the first instant on.
    fn replicas_at_start(&self, index: u32) -> u32 {
        let events = self.timeline.events.iter();
        let own = events
            .take_while(|event| event.at_ms == 0)
            .filter(|event| event.owner.0 == index);
        let told = own.filter_map(|event| match event.change {
            Change::Replicas(replicas) => Some(replicas),
            _ => None,
        });
        told.last().unwrap_or(0)
    }

    /// The ReplicaSet of a Deployment, whose pods its controller would make from the same template.
    async fn make_set(&self, index: u32, owner: &Owner) -> Result<Value, Broken> {
        let replicas = self.replicas_at_start(index);
        self.scale(index, owner, replicas).await?;
        let deployments = self.within::<Deployment>(&owner.namespace);
        let above = self.made(deployments, &owner.name).await?;
        let name = format!("{}-standing", owner.name);
        let template = &above["spec"]["template"];
        let value = json!({
            "metadata": {"name": name, "namespace": owner.namespace, "labels": template["metadata"]["labels"],
                         "ownerReferences": [reference("Deployment", &above)]},
            "spec": {"replicas": replicas, "selector": {"matchLabels": pod_labels(owner)}, "template": template},
        });
        let sets = || self.within::<ReplicaSet>(&owner.namespace);
        self.create(sets(), without_nulls(value)).await?;
        self.made(sets(), &name).await
    }

    /// A StatefulSet that wants what it wants at the start. Its template never changes: pods that do not say which one they are of are not rolled out anew.
    async fn scale_set(&self, index: u32, owner: &Owner) -> Result<Value, Broken> {
        let sets = || self.within::<StatefulSet>(&owner.namespace);
        let patch =
            Patch::Merge(json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}));
        let answer = sets().patch(&owner.name, &PatchParams::default(), &patch).await;
        answer.map_err(|error| refused("another way to roll out", &error))?;
        self.scale(index, owner, self.replicas_at_start(index)).await?;
        self.made(sets(), &owner.name).await
    }

    /// A pod of a StatefulSet, after the claims of its volumes.
    async fn member(
        &self,
        owner: &Owner,
        set: &Value,
        ordinal: u64,
        placement: &Placement,
    ) -> Result<Value, Broken> {
        let name = format!("{}-{ordinal}", owner.name);
        let mut pod = made_by("StatefulSet", set);
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
        let known = pod["spec"]["volumes"].as_array();
        let mut volumes: Vec<Value> = known.cloned().unwrap_or_default();
        for claim in &owner.claims {
            let volume = claim.metadata.name.clone().unwrap_or_default();
            let claim_name = format!("{volume}-{name}");
            let value = json!({
                "metadata": {"name": claim_name, "namespace": owner.namespace, "labels": pod_labels(owner),
                             "annotations": {SELECTED_NODE: placement.node}},
                "spec": claim.spec,
            });
            let claims = self.within::<PersistentVolumeClaim>(&owner.namespace);
            self.create(claims, without_nulls(value)).await?;
            volumes.retain(|known| known["name"] != volume);
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}}));
        }
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = json!(volumes);
        }
        Ok(pod)
    }

    /// A pod that is made alone, after the object that makes it, if there is one; `left` says how much is left of its time.
    async fn single(
        &self,
        index: u32,
        owner: &Owner,
        pod: u64,
        left: impl Fn(u64) -> u64,
    ) -> Result<Value, Broken> {
        let (name, namespace) = (single_name(owner, pod), owner.namespace.as_str());
        let events = self.timeline.events.iter();
        let mut events = events.take_while(|event| event.at_ms == 0);
        let runs_ms = events.find_map(|event| match event.change {
            Change::Begin { pod: begun, runs_ms } if begun == pod && event.owner.0 == index => Some(runs_ms),
            _ => None,
        });
        let runs_ms = runs_ms.flatten();
        if let Some(runs_ms) = runs_ms {
            self.chronicle.goes_on((index, pod), left(runs_ms));
        }
        if owner.kind == OwnerKind::Bare {
            self.chronicle.expect(namespace, &name, (index, pod), runs_ms);
            let template = template(owner, 0);
            return Ok(json!({
                "metadata": {"name": name, "labels": template["metadata"]["labels"],
                             "annotations": template["metadata"]["annotations"]},
                "spec": template["spec"],
            }));
        }
        self.begin(index, owner, 0, (pod, runs_ms)).await?;
        Ok(match owner.kind {
            OwnerKind::Job => made_by("Job", &self.made(self.within::<Job>(namespace), &name).await?),
            _ => {
                let sets = self.within::<ReplicaSet>(namespace);
                made_by("ReplicaSet", &self.made(sets, &name).await?)
            }
        })
    }

    /// A pod that runs on its node since it was bound there.
    async fn make_pod(
        &self,
        mut pod: Value,
        namespace: &str,
        placement: &Placement,
        world: &World,
        past: &Past,
    ) -> Result<(), Broken> {
        let since = placement.since;
        let since = since.map_or(world.start, |since| world.standing.moved(since, world.start));
        past.set(Some(since));
        pod["metadata"]["namespace"] = json!(namespace);
        pod["spec"]["nodeName"] = json!(placement.node);
        // Of this one they had been taken off.
        pod["spec"]["schedulingGates"] = Value::Null;
        let object: Pod =
            serde_json::from_value(without_nulls(pod)).map_err(|error| broken("a pod", &error))?;
        let pods = self.within::<Pod>(namespace);
        let made = pods.create(&PostParams::default(), &object).await;
        let made = made.map_err(|error| refused("a pod that stands", &error))?;
        let name = made.metadata.name.unwrap_or_default();
        let since = Time(since);
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
        let conditions =
            conditions.map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": since}));
        let status = json!({"phase": "Running", "startTime": since, "conditions": conditions});
        self.write_status(pods, &name, &status).await
    }

    /// An object as the API server has it.
    async fn made<K>(&self, api: Api<K>, name: &str) -> Result<Value, Broken>
    where
        K: Clone + DeserializeOwned + Serialize,
    {
        let found = api.get(name).await.map_err(|error| refused(name, &error))?;
        serde_json::to_value(&found).map_err(|error| broken(name, &error))
    }

    async fn write_status<K>(&self, api: Api<K>, name: &str, status: &Value) -> Result<(), Broken>
    where
        K: Clone + DeserializeOwned,
    {
        let patch = Patch::Merge(json!({"status": status}));
        let answer = api.patch_status(name, &PatchParams::default(), &patch).await;
        let what = format!("the status of {name}");
        answer.map(drop).map_err(|error| refused(&what, &error))
    }
}

/// A pod from the template of what makes it.
fn made_by(kind: &str, above: &Value) -> Value {
    let template = &above["spec"]["template"];
    let name = above["metadata"]["name"].as_str().unwrap_or_default();
    json!({
        "metadata": {"generateName": format!("{name}-"), "labels": template["metadata"]["labels"],
                     "annotations": template["metadata"]["annotations"], "ownerReferences": [reference(kind, above)]},
        "spec": template["spec"],
    })
}

/// What controls an object.
fn reference(kind: &str, above: &Value) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({
        "apiVersion": version, "kind": kind, "name": above["metadata"]["name"], "uid": above["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// A NodeClaim with the NodeClass that its NodePool has in this cloud. It is up to date with that as it was with its own.
fn of_this_cloud(claim: &NodeClaim, policy: &Policy) -> NodeClaim {
    let mut after = claim.clone();
    let class = &mut after.spec.node_class_ref;
    KWOKNodeClass::GROUP.clone_into(&mut class.group);
    KWOKNodeClass::KIND.clone_into(&mut class.kind);
    let class = class.clone();
    let own = after.metadata.labels.get_or_insert_default();
    own.insert(class.label_key(), class.name.clone());
    let mut pools = policy.node_pools.iter();
    let pool = pools.find(|pool| Some(pool.name()) == claim.node_pool());
    let is_current = |pool: &&Arc<NodePool>| {
        claim.annotation(labels::NODE_POOL_HASH) == Some(hash::node_pool_hash(pool).as_str())
    };
    if let Some(pool) = pool.filter(is_current) {
        let mut pool = NodePool::clone(pool);
        pool.spec.template.spec.node_class_ref = class;
        let annotations = after.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::NODE_POOL_HASH.to_owned(), hash::node_pool_hash(&pool));
    }
    after
}
