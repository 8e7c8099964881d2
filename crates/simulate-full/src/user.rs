//! Whoever uses the cluster: applies the scenario's objects, and follows the timeline of workloads.
//!
//! Owns the objects that workloads are made of. It never looks at nodes, and waits for nothing but the next event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, PodSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use spokeshave_api::{DisruptionPolicy, KWOKNodeClass, NodeOverlay, NodePool};
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Api;
use spokeshave_scenario::{Change, Owner, OwnerKind, Placement, Timeline};
use spokeshave_simulate::budgets::budgets;
use spokeshave_simulate::owners::{pod_labels, template_labels};
use spokeshave_simulate::{Policy, World};

use crate::chronicle::{Chronicle, Completed};

/// A provisioner that no component knows: what it makes needs no attaching.
const PROVISIONER: &str = "simulated.spokeshave.dev/volumes";

/// The user.
pub(crate) struct User {
    pub(crate) client: Client,
    pub(crate) clock: SharedClock,
    pub(crate) chronicle: Arc<Chronicle>,
    pub(crate) timeline: Arc<Timeline>,
    /// Pods that stand, by the position of their owner and their number there: nobody has to make them.
    pub(crate) placed: BTreeMap<(u32, u64), Placement>,
}

/// A request failed that cannot fail in a cluster that is in order.
pub(crate) type Broken = String;

pub(crate) fn broken(what: &str, error: &dyn std::fmt::Display) -> Broken {
    format!("the simulated API server refuses {what}: {error}")
}

pub(crate) fn refused(what: &str, error: &kube::Error) -> Broken {
    match error {
        kube::Error::Api(status) => broken(what, &status.message),
        other => broken(what, other),
    }
}

impl User {
    pub(crate) async fn create<K>(&self, api: Api<K>, value: Value) -> Result<(), Broken>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let what = format!("{} {}", K::kind(&()), value["metadata"]["name"]);
        let object: K = serde_json::from_value(value).map_err(|error| broken(&what, &error))?;
        let made = api.create(&PostParams::default(), &object).await;
        made.map(drop).map_err(|error| refused(&what, &error))
    }

    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        Api::all(self.client.clone())
    }

    pub(crate) fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates everything that is there before the first event.
    pub(crate) async fn furnish(&self, world: &World, policy: &Policy) -> Result<(), Broken> {
        for definition in spokeshave_api::crds::crds() {
            let value = serde_json::to_value(&definition).unwrap_or_default();
            self.create(self.all::<CustomResourceDefinition>(), value).await?;
        }
        self.make_namespaces(world).await?;
        self.make_storage_classes().await?;
        self.make_priority_classes(world).await?;
        self.make_runtime_classes(world).await?;
        self.make_policy(policy).await?;
        for daemon_set in &world.daemon_sets {
            let mut value = serde_json::to_value(&**daemon_set).unwrap_or_default();
            value["metadata"] = plain_metadata(&value["metadata"]);
            leave_to_other_objects(&mut value["spec"]["template"]["spec"]);
            let namespace = daemon_set.metadata.namespace.as_deref().unwrap_or("default");
            self.create(self.within::<DaemonSet>(namespace), value).await?;
        }
        self.make_budgets().await?;
        for owner in &self.timeline.owners {
            self.make_owner(owner).await?;
        }
        Ok(())
    }

    /// PodDisruptionBudgets, which are counted by the cluster.
    async fn make_budgets(&self) -> Result<(), Broken> {
        for (mut budget, _) in budgets(&self.timeline) {
            budget.status = None;
            let value = serde_json::to_value(&budget).unwrap_or_default();
            let namespace = budget.metadata.namespace.as_deref().unwrap_or("default");
            self.create(self.within::<PodDisruptionBudget>(namespace), value)
                .await?;
        }
        Ok(())
    }

    async fn make_namespaces(&self, world: &World) -> Result<(), Broken> {
        let of_owners = self.timeline.owners.iter().map(|owner| owner.namespace.clone());
        let of_daemons = world
            .daemon_sets
            .iter()
            .filter_map(|set| set.metadata.namespace.clone());
        let mut namespaces: BTreeSet<String> = of_owners.chain(of_daemons).collect();
        for known in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            namespaces.remove(known);
        }
        for name in namespaces {
            let value = json!({"metadata": {"name": name}});
            self.create(self.all::<Namespace>(), value).await?;
        }
        Ok(())
    }

    /// The StorageClasses that claims name.
    async fn make_storage_classes(&self) -> Result<(), Broken> {
        let claims = self.timeline.owners.iter().flat_map(|owner| &owner.claims);
        let classes = claims.filter_map(|claim| claim.spec.as_ref()?.storage_class_name.clone());
        for class in classes.collect::<BTreeSet<_>>() {
            let value = json!({
                "metadata": {"name": class}, "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer",
            });
            self.create(self.all::<StorageClass>(), value).await?;
        }
        Ok(())
    }

    /// The PriorityClasses that pods name.
    async fn make_priority_classes(&self, world: &World) -> Result<(), Broken> {
        for (name, (priority, policy)) in priority_classes(self.specs_of_pods(world)) {
            let value = json!({
                "metadata": {"name": name}, "value": priority.unwrap_or_default(), "preemptionPolicy": policy,
            });
            self.create(self.all::<PriorityClass>(), value).await?;
        }
        Ok(())
    }

    /// A RuntimeClass for each overhead that pods have.
    async fn make_runtime_classes(&self, world: &World) -> Result<(), Broken> {
        let mut classes = BTreeMap::new();
        for spec in self.specs_of_pods(world) {
            let overhead = json!(spec.overhead);
            if let Some(fixed) = overhead.as_object().filter(|fixed| !fixed.is_empty()) {
                classes.insert(runtime_class(fixed), overhead.clone());
            }
        }
        for (name, overhead) in classes {
            let value = json!({"metadata": {"name": name}, "handler": "simulated", "overhead": {"podFixed": overhead}});
            self.create(self.all::<RuntimeClass>(), value).await?;
        }
        Ok(())
    }

    /// What pods of owners and daemons look like.
    fn specs_of_pods<'s>(&'s self, world: &'s World) -> impl Iterator<Item = &'s PodSpec> {
        let of_owners = self.timeline.owners.iter();
        let of_owners = of_owners.flat_map(|owner| owner.templates());
        let of_owners = of_owners.filter_map(|template| template.spec.as_ref());
        let of_daemons = world.daemon_sets.iter();
        of_owners.chain(of_daemons.filter_map(|set| set.spec.template.spec.as_ref()))
    }

    /// NodePools, with their NodeClasses as this cloud's, and DisruptionPolicies.
    async fn make_policy(&self, policy: &Policy) -> Result<(), Broken> {
        let mut classes = BTreeSet::new();
        for pool in &policy.node_pools {
            let mut value = serde_json::to_value(&**pool).unwrap_or_default();
            let class = pool.node_class_ref().name.clone();
            value["metadata"] = plain_metadata(&value["metadata"]);
            value["spec"]["template"]["spec"]["nodeClassRef"] = json!({
                "group": KWOKNodeClass::GROUP, "kind": KWOKNodeClass::KIND, "name": class,
            });
            if let Some(object) = value.as_object_mut() {
                object.remove("status");
            }
            if classes.insert(class.clone()) {
                let value = json!({"metadata": {"name": class}, "spec": {}});
                self.create(self.all::<KWOKNodeClass>(), value).await?;
            }
            self.create(self.all::<NodePool>(), value).await?;
        }
        for policy in &policy.disruption_policies {
            let mut value = serde_json::to_value(&**policy).unwrap_or_default();
            value["metadata"] = plain_metadata(&value["metadata"]);
            if let Some(object) = value.as_object_mut() {
                object.remove("status");
            }
            self.create(self.all::<DisruptionPolicy>(), value).await?;
        }
        Ok(())
    }

    /// NodeOverlays, without what another operator has said of them.
    pub(crate) async fn make_overlays(&self, overlays: &[Arc<NodeOverlay>]) -> Result<(), Broken> {
        for overlay in overlays {
            let mut value = serde_json::to_value(&**overlay).unwrap_or_default();
            value["metadata"] = plain_metadata(&value["metadata"]);
            if let Some(object) = value.as_object_mut() {
                object.remove("status");
            }
            self.create(self.all::<NodeOverlay>(), value).await?;
        }
        Ok(())
    }

    async fn make_owner(&self, owner: &Owner) -> Result<(), Broken> {
        let name = &owner.name;
        let selector = json!({"matchLabels": pod_labels(owner)});
        match owner.kind {
            OwnerKind::Deployment => {
                let value = json!({"metadata": {"name": name, "namespace": owner.namespace}, "spec": {
                    "replicas": 0, "selector": selector, "template": template(owner, 0),
                }});
                self.create(self.within::<Deployment>(&owner.namespace), value)
                    .await
            }
            OwnerKind::StatefulSet => {
                let claims: Vec<Value> = owner
                    .claims
                    .iter()
                    .map(|claim| json!({"metadata": {"name": claim.metadata.name}, "spec": claim.spec}))
                    .collect();
                let value = json!({"metadata": {"name": name, "namespace": owner.namespace}, "spec": {
                    "replicas": 0, "selector": selector, "template": template(owner, 0), "serviceName": name,
                    "podManagementPolicy": "Parallel", "volumeClaimTemplates": claims,
                }});
                self.create(self.within::<StatefulSet>(&owner.namespace), value)
                    .await
            }
            OwnerKind::Job | OwnerKind::Bare | OwnerKind::Other => Ok(()),
        }
    }

    /// Follows the timeline to its end.
    pub(crate) async fn follow(&self, start: jiff::Timestamp) -> Result<(), Broken> {
        // From which template owners make their pods, if not from their first.
        let mut newest: BTreeMap<u32, u32> = BTreeMap::new();
        for event in &self.timeline.events {
            let span = jiff::SignedDuration::from_millis(i64::try_from(event.at_ms).unwrap_or(i64::MAX));
            let due = start.saturating_add(span).unwrap_or(jiff::Timestamp::MAX);
            if due > self.clock.now() {
                self.clock.sleep_until(due).await;
            }
            let index = event.owner.0;
            let Some(owner) = self.timeline.owners.get(index as usize) else {
                continue;
            };
            match event.change {
                Change::Replicas(replicas) => self.scale(index, owner, replicas).await?,
                // A number that no template has is passed over, as in the fast engine.
                Change::Template(number) if owner.templates().nth(number as usize).is_some() => {
                    let before = newest.insert(index, number).unwrap_or(0);
                    self.renew(index, owner, (before, number)).await?;
                }
                Change::Template(_) => {}
                Change::Begin { pod, .. } if event.at_ms == 0 && self.placed.contains_key(&(index, pod)) => {}
                Change::Begin { pod, runs_ms } => {
                    let template = newest.get(&index).copied().unwrap_or(0);
                    self.begin(index, owner, template, (pod, runs_ms)).await?;
                }
                Change::End { pod } => self.end(owner, pod).await,
            }
        }
        Ok(())
    }

    pub(crate) async fn scale(&self, index: u32, owner: &Owner, replicas: u32) -> Result<(), Broken> {
        self.chronicle.scaled(index, replicas);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let parameters = PatchParams::default();
        let answer = match owner.kind {
            OwnerKind::StatefulSet => {
                let sets = self.within::<StatefulSet>(&owner.namespace);
                sets.patch(&owner.name, &parameters, &patch).await.map(drop)
            }
            _ => {
                let deployments = self.within::<Deployment>(&owner.namespace);
                deployments
                    .patch(&owner.name, &parameters, &patch)
                    .await
                    .map(drop)
            }
        };
        answer.map_err(|error| refused("a change of replicas", &error))
    }

    /// An owner makes its pods from another template: its controller replaces those that there are, if it has one.
    async fn renew(&self, index: u32, owner: &Owner, (before, now): (u32, u32)) -> Result<(), Broken> {
        if before == now {
            return Ok(());
        }
        self.chronicle.renewed(index, now);
        let changed = merge_patch(&template(owner, before), &template(owner, now));
        let patch = Patch::Merge(json!({"spec": {"template": changed}}));
        let parameters = PatchParams::default();
        let answer = match owner.kind {
            OwnerKind::Deployment => {
                let deployments = self.within::<Deployment>(&owner.namespace);
                let answer = deployments.patch(&owner.name, &parameters, &patch).await;
                answer.map(drop)
            }
            OwnerKind::StatefulSet => {
                let sets = self.within::<StatefulSet>(&owner.namespace);
                sets.patch(&owner.name, &parameters, &patch).await.map(drop)
            }
            OwnerKind::Job | OwnerKind::Bare | OwnerKind::Other => Ok(()),
        };
        answer.map_err(|error| refused("another pod template", &error))
    }

    pub(crate) async fn begin(
        &self,
        index: u32,
        owner: &Owner,
        number: u32,
        (pod, runs_ms): (u64, Option<u64>),
    ) -> Result<(), Broken> {
        let (name, namespace) = (single_name(owner, pod), &owner.namespace);
        self.chronicle.expect(namespace, &name, (index, pod), runs_ms);
        let mut template = template(owner, number);
        if owner.kind == OwnerKind::Bare {
            let value = json!({
                "metadata": {"name": name, "namespace": namespace, "labels": template["metadata"]["labels"],
                             "annotations": template["metadata"]["annotations"]},
                "spec": template["spec"],
            });
            return self.create(self.within::<Pod>(namespace), value).await;
        }
        if owner.kind == OwnerKind::Other {
            // Whatever its controller is, it makes its pods again and has a scale. A ReplicaSet takes no other policy.
            template["spec"]["restartPolicy"] = json!("Always");
            let value = json!({"metadata": {"name": name, "namespace": namespace}, "spec": {
                "replicas": 1, "selector": {"matchLabels": pod_labels(owner)}, "template": template,
            }});
            return self.create(self.within::<ReplicaSet>(namespace), value).await;
        }
        template["spec"]["restartPolicy"] = json!("Never");
        let value = json!({"metadata": {"name": name, "namespace": namespace}, "spec": {
            // However often its pod is evicted, it begins again.
            "backoffLimit": i32::MAX, "template": template,
        }});
        self.create(self.within::<Job>(namespace), value).await
    }

    /// A pod ends that its owner has made; it may have ended already.
    async fn end(&self, owner: &Owner, pod: u64) {
        let (name, namespace) = (single_name(owner, pod), &owner.namespace);
        let with_pods = DeleteParams::background();
        match owner.kind {
            OwnerKind::Job => drop(self.within::<Job>(namespace).delete(&name, &with_pods).await),
            OwnerKind::Other => {
                let sets = self.within::<ReplicaSet>(namespace);
                drop(sets.delete(&name, &with_pods).await);
            }
            OwnerKind::Deployment | OwnerKind::StatefulSet | OwnerKind::Bare => {
                let pods = self.within::<Pod>(namespace);
                drop(pods.delete(&name, &DeleteParams::default()).await);
            }
        }
    }

    /// Removes what has completed.
    pub(crate) async fn tidy(&self, mut completed: UnboundedReceiver<Completed>) {
        while let Some(Completed { owner, pod }) = completed.next().await {
            if let Some(owner) = self.timeline.owners.get(owner as usize) {
                // After the kubelet, whose write has told of it.
                self.clock.sleep(Duration::from_millis(1)).await;
                self.end(owner, pod).await;
            }
        }
    }
}

/// The PriorityClasses that these pods name, with the priority and the preemption policy that pods of each have. Templates say neither; a pod that an API server
/// has admitted says both.
fn priority_classes<'s>(
    specs: impl Iterator<Item = &'s PodSpec>,
) -> BTreeMap<&'s str, (Option<i32>, Option<&'s str>)> {
    let mut classes: BTreeMap<&str, (Option<i32>, Option<&str>)> = BTreeMap::new();
    for spec in specs {
        let name = spec.priority_class_name.as_deref().unwrap_or_default();
        // The system's own are there.
        if name.is_empty() || name.starts_with("system-") {
            continue;
        }
        let class = classes.entry(name).or_default();
        class.0 = class.0.or(spec.priority);
        class.1 = class.1.or(spec.preemption_policy.as_deref());
    }
    classes
}

/// The name of the Job, ReplicaSet or bare pod that is a pod of an owner.
pub(crate) fn single_name(owner: &Owner, pod: u64) -> String {
    spokeshave_simulate::owners::pod_name(owner.kind, &owner.name, pod)
}

/// The pods of an owner that are made from the template of this number, as they are written into it. Probes and hooks would take time of their own; how long
/// pods take is drawn. There is one scheduler, and priorities follow from classes.
pub(crate) fn template(owner: &Owner, number: u32) -> Value {
    let own = owner.templates().nth(number as usize).unwrap_or(&owner.template);
    let labels = template_labels(own, &pod_labels(owner));
    let mut template = serde_json::to_value(&**own).unwrap_or_default();
    let annotations = template["metadata"]["annotations"].take();
    template["metadata"] = json!({"labels": labels, "annotations": annotations});
    for list in ["containers", "initContainers"] {
        for container in template["spec"][list].as_array_mut().into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                for field in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
                    container.remove(field);
                }
                container
                    .entry("image")
                    .or_insert_with(|| json!("registry.k8s.io/pause:3.10"));
            }
        }
    }
    if let Some(spec) = template["spec"].as_object_mut() {
        spec.remove("schedulerName");
    }
    leave_to_other_objects(&mut template["spec"]);
    without_nulls(template)
}

/// The merge patch (RFC 7386) that makes one value of another: what is gone is null in it.
fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return after.clone();
    };
    let gone = before.keys().filter(|field| !after.contains_key(*field));
    let mut patch: Map<String, Value> = gone.map(|field| (field.clone(), Value::Null)).collect();
    for (field, value) in after {
        let before = before.get(field).unwrap_or(&Value::Null);
        if before != value {
            patch.insert(field.clone(), merge_patch(before, value));
        }
    }
    Value::Object(patch)
}

/// An API server accepts no priority of a pod but the one of its class, no overhead but that of its RuntimeClass, which is made for it here, and no service
/// account that is not there.
fn leave_to_other_objects(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else {
        return;
    };
    for field in [
        "priority",
        "preemptionPolicy",
        "runtimeClassName",
        "serviceAccount",
        "serviceAccountName",
    ] {
        spec.remove(field);
    }
    match spec.get("overhead").and_then(Value::as_object) {
        Some(overhead) if !overhead.is_empty() => {
            let name = runtime_class(overhead);
            spec.insert("runtimeClassName".to_owned(), json!(name));
        }
        _ => drop(spec.remove("overhead")),
    }
}

/// The name of the RuntimeClass of an overhead: its digits and letters, with a mark before each capital, because `1M` is not `1m`.
fn runtime_class(overhead: &Map<String, Value>) -> String {
    let mut name = "overhead".to_owned();
    for (resource, amount) in overhead {
        for part in [resource.as_str(), amount.as_str().unwrap_or_default()] {
            name.push('-');
            for letter in part.chars() {
                match letter {
                    'A'..='Z' => name.extend(['x', '-', letter.to_ascii_lowercase()]),
                    letter if letter.is_ascii_alphanumeric() => name.push(letter),
                    _ => name.push_str("-x"),
                }
            }
        }
    }
    name
}

/// What a user writes of metadata.
fn plain_metadata(metadata: &Value) -> Value {
    let mut kept = BTreeMap::new();
    for field in ["name", "namespace", "labels", "annotations"] {
        if !metadata[field].is_null() {
            kept.insert(field, metadata[field].clone());
        }
    }
    json!(kept)
}

pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, field)| !field.is_null());
            Value::Object(kept.map(|(name, field)| (name, without_nulls(field))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_as_the_pods_say_that_say_anything() {
        let spec = |class: &str, priority: Option<i32>, policy: Option<&str>| PodSpec {
            priority_class_name: Some(class.to_owned()),
            priority,
            preemption_policy: policy.map(str::to_owned),
            ..PodSpec::default()
        };
        let mut specs = [
            spec("batch", Some(1_000), Some("Never")),
            spec("batch", None, None),
            spec("plain", None, None),
            spec("system-node-critical", Some(2_000_001_000), None),
            PodSpec::default(),
        ];
        for _ in ["the pod first", "the template first"] {
            let classes: Vec<_> = priority_classes(specs.iter()).into_iter().collect();
            assert_eq!(
                classes,
                [("batch", (Some(1_000), Some("Never"))), ("plain", (None, None))]
            );
            specs.reverse();
        }
    }

    #[test]
    fn a_patch_of_a_template_takes_away_what_is_gone() {
        let before = json!({"spec": {"nodeSelector": {"disk": "ssd", "zone": "a"}, "priorityClassName": "high", "containers": [{"name": "a"}]}});
        let after = json!({"spec": {"nodeSelector": {"disk": "hdd"}, "containers": [{"name": "b"}], "tolerations": [{"operator": "Exists"}]}});
        let patch = json!({"spec": {
            "nodeSelector": {"disk": "hdd", "zone": null}, "priorityClassName": null, "containers": [{"name": "b"}], "tolerations": [{"operator": "Exists"}],
        }});
        assert_eq!(merge_patch(&before, &after), patch);
        assert_eq!(merge_patch(&after, &after), json!({}));
    }

    #[test]
    fn pods_name_what_the_api_server_will_find() {
        let mut spec = json!({"priority": 5, "serviceAccountName": "robot", "runtimeClassName": "kata", "overhead": {"cpu": "250m", "memory": "1M"}});
        leave_to_other_objects(&mut spec);
        let class = "overhead-cpu-250m-memory-1x-m";
        assert_eq!(
            spec,
            json!({"runtimeClassName": class, "overhead": {"cpu": "250m", "memory": "1M"}})
        );
        let mut plain = json!({"runtimeClassName": "kata", "overhead": {}});
        leave_to_other_objects(&mut plain);
        assert_eq!(plain, json!({}));
    }
}
