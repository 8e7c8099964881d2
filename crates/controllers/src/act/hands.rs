//! The only writer to Kubernetes: carries out Actions, under the term of leadership in which they were decided. It also asks the server itself
//! where what a watch has told may be too old.
//!
//! Owns the translation of an Action into a request, the classes of its failures, and the way of results back into the stores. It decides
//! nothing: a conflict is an error that makes the caller look again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, DeleteOptions, ObjectMeta};
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::Value;
use spokeshave_api::DisruptionPolicy;
use spokeshave_model::Pod;
use spokeshave_model::pod::is_waited_for_in_drain;
use spokeshave_model::{Action, EventType, ObjectKind, ObjectRef, Plan, Subresource};
use spokeshave_ports::SharedClock;
use spokeshave_runtime::{
    Api, ClientWrites, EventKind, EventNotice, EventRecorder, Object, ObjectKey, Store,
};

use crate::act::blocked::Told;
use crate::act::creations::Unanswered;
use crate::act::error::{ExecuteError, Refuser, classify, refuser, retry_after};
use crate::act::health_objects;
use crate::state::cluster::Cluster;
use crate::state::distress::Failures;
use crate::state::memory::Created;
use crate::state::stores::Stores;

/// Rate of `Nominated` events: five a second, ten at once (P §17).
const NOMINATED_RATE: (f64, u32) = (5.0, 10);

/// Writes of one sort under way at once, such as creations (P-065). The API server answers each in milliseconds; beyond that the client's own rate is what
/// bounds them.
pub(crate) const AT_ONCE: usize = 50;

/// The writer. Clones write as one.
#[derive(Clone)]
pub(crate) struct Hands {
    pub(super) client: Client,
    pub(super) writes: ClientWrites,
    pub(super) stores: Stores,
    events: EventRecorder,
    pub(super) created: Created,
    /// NodePools for which NodeClaims may have come to be that nobody knows of.
    pub(super) unanswered: Unanswered,
    pub(super) failures: Failures,
    pub(super) clock: SharedClock,
    /// When the words of what holds up a termination were last written.
    pub(super) told: Told,
    /// Whether the log says already that pods may not be nominated.
    pub(super) may_not_nominate: Arc<AtomicBool>,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hands").finish_non_exhaustive()
    }
}

impl Hands {
    /// Hands that write with this client, and whose results go into the cluster's stores.
    pub(crate) fn new(client: Client, cluster: &Cluster, events: EventRecorder) -> Self {
        let failures = cluster.failures.clone();
        Self {
            writes: ClientWrites::new(client.clone()).noticing(move |error| failures.of_api_server(error)),
            client,
            stores: cluster.stores.clone(),
            events,
            created: cluster.created.clone(),
            unanswered: Unanswered::default(),
            failures: cluster.failures.clone(),
            clock: cluster.clock.clone(),
            told: Told::default(),
            may_not_nominate: Arc::default(),
        }
    }

    /// What an object of a policy's roll-outs has to say and does not ([`health_objects`](crate::act::health_objects)).
    pub(crate) async fn waits_for(&self, policy: &DisruptionPolicy) -> Option<String> {
        health_objects::waits_for(&self.client, &self.clock, policy).await
    }

    /// Carries out one Action.
    ///
    /// # Errors
    /// The class of the failure.
    pub(crate) async fn run(&self, action: &Action) -> Result<(), ExecuteError> {
        let answer = self.request(action).await;
        self.note_failure(&answer);
        answer
    }

    /// Counts a failed write for circuit breakers. An eviction that a budget does not allow is none, nor one that a webhook denies with 429.
    pub(super) fn note_failure<T>(&self, answer: &Result<T, ExecuteError>) {
        match answer {
            Err(ExecuteError::Failed { source, .. }) => self.failures.of_api_server(source),
            Err(ExecuteError::Refused {
                by: Refuser::BusyServer,
                code,
                ..
            }) => self.failures.of_status(*code),
            Err(ExecuteError::Refused {
                by: Refuser::Other,
                code,
                ..
            }) if *code != 429 => self.failures.of_status(*code),
            _ => {}
        }
    }

    /// Carries out one Action, without counting a failure.
    pub(super) async fn request(&self, action: &Action) -> Result<(), ExecuteError> {
        match action {
            Action::CreateNodeClaim { claim, .. } if claim.metadata.name.is_some() => {
                self.create_replacement(claim).await
            }
            Action::CreateNodeClaim { claim, .. } => self.create_claim(claim).await.map(drop),
            Action::CreateDisruption { disruption } => self.create_disruption(disruption).await,
            Action::Delete {
                target,
                grace_period_seconds,
            } => self.delete(target, *grace_period_seconds).await,
            Action::Patch {
                target,
                subresource,
                patch,
                resource_version,
            } => {
                self.patch(target, *subresource, patch, resource_version.as_deref())
                    .await
            }
            Action::EvictPod {
                target,
                grace_period_seconds,
            } => self.evict(target, *grace_period_seconds).await,
            Action::NominatePod { .. } => {
                self.nominate_all(std::slice::from_ref(action)).await;
                Ok(())
            }
            Action::Event(event) => {
                self.tell(event);
                Ok(())
            }
        }
    }

    /// Carries out Actions in order and stops at the first failure.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) async fn run_all(&self, actions: &[Action]) -> Result<(), ExecuteError> {
        for action in actions {
            self.run(action).await?;
        }
        Ok(())
    }

    /// Carries out Actions in order. False when an object has changed meanwhile or is gone: a fresh look is on its way.
    ///
    /// # Errors
    /// Any other failure, the first.
    pub(crate) async fn run_unless_stale(&self, actions: &[Action]) -> Result<bool, ExecuteError> {
        match self.run_all(actions).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_conflict() || error.is_not_found() => {
                tracing::debug!(%error, "will be looked at again");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a plan true: records its events, then carries out its actions in order. False when an object has changed meanwhile or is gone: a
    /// fresh look is on its way.
    ///
    /// # Errors
    /// Any other failure, the first.
    pub(crate) async fn carry_out<Report>(&self, plan: &Plan<Report>) -> Result<bool, ExecuteError> {
        for event in &plan.events {
            self.tell(event);
        }
        self.run_unless_stale(&plan.actions).await
    }

    /// Queues an event.
    pub(crate) fn tell(&self, event: &spokeshave_model::Event) {
        let (api_version, kind) = match event.object.kind {
            ObjectKind::Node => ("v1", "Node"),
            ObjectKind::Pod => ("v1", "Pod"),
            ObjectKind::Disruption => ("spokeshave.dev/v1alpha1", "Disruption"),
            ObjectKind::DisruptionPolicy => ("spokeshave.dev/v1alpha1", "DisruptionPolicy"),
            ObjectKind::NodeClaim => ("karpenter.sh/v1", "NodeClaim"),
            ObjectKind::NodePool => ("karpenter.sh/v1", "NodePool"),
            ObjectKind::NodeOverlay => ("karpenter.sh/v1alpha1", "NodeOverlay"),
            ObjectKind::CapacityBuffer => ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer"),
        };
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let object = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
            name: some(&event.object.name),
            namespace: some(&event.object.namespace),
            uid: some(&event.object.uid),
            ..Default::default()
        };
        let severity = match event.event_type {
            EventType::Normal => EventKind::Normal,
            EventType::Warning => EventKind::Warning,
        };
        let mut notice = EventNotice::new(object, severity, &event.reason, event.message.clone());
        notice.dedupe_values = event.key();
        notice.dedupe_period = Some(std::time::Duration::from_secs(u64::from(
            event.dedupe_window_seconds,
        )));
        notice.rate = event.rate_limited.then_some(NOMINATED_RATE);
        self.publish(notice);
    }

    /// Queues an event about an object of any kind.
    pub(crate) fn publish(&self, notice: EventNotice) {
        self.events.publish(notice);
    }

    async fn delete(
        &self,
        target: &ObjectRef,
        grace_period_seconds: Option<i64>,
    ) -> Result<(), ExecuteError> {
        let parameters = DeleteParams {
            grace_period_seconds: grace_period_seconds.and_then(|seconds| u32::try_from(seconds).ok()),
            preconditions: (!target.uid.is_empty()).then(|| Preconditions {
                uid: Some(target.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let (client, stores) = (self.client.clone(), &self.stores);
        let namespace = &target.namespace;
        match target.kind {
            ObjectKind::Node => delete_in(Api::all(client), &stores.nodes, target, &parameters).await,
            ObjectKind::NodeClaim => {
                delete_in(Api::all(client), &stores.node_claims, target, &parameters).await
            }
            ObjectKind::NodePool => {
                delete_in(Api::all(client), &stores.node_pools, target, &parameters).await
            }
            ObjectKind::NodeOverlay => {
                delete_in(Api::all(client), &stores.node_overlays, target, &parameters).await
            }
            ObjectKind::Disruption => {
                delete_in(Api::all(client), &stores.disruptions, target, &parameters).await
            }
            ObjectKind::DisruptionPolicy => {
                delete_in(Api::all(client), &stores.disruption_policies, target, &parameters).await
            }
            ObjectKind::CapacityBuffer => {
                delete_in(
                    Api::namespaced(client, namespace),
                    &stores.buffers.buffers,
                    target,
                    &parameters,
                )
                .await
            }
            ObjectKind::Pod => {
                delete_in(
                    Api::namespaced(client, namespace),
                    &stores.pods,
                    target,
                    &parameters,
                )
                .await
            }
        }
    }

    async fn patch(
        &self,
        target: &ObjectRef,
        subresource: Subresource,
        patch: &Value,
        resource_version: Option<&str>,
    ) -> Result<(), ExecuteError> {
        let mut body = patch.clone();
        // The UID guards against a successor of the same name; the version against a change of what the patch replaces whole. Of a patch of the status, the server
        // compares no UID where the kind is a custom resource: there only the version guards.
        if !target.uid.is_empty() {
            body["metadata"]["uid"] = Value::from(target.uid.clone());
        }
        if let Some(version) = resource_version {
            body["metadata"]["resourceVersion"] = Value::from(version);
        }
        let (client, stores) = (self.client.clone(), &self.stores);
        let namespace = &target.namespace;
        match target.kind {
            ObjectKind::Node => patch_in(Api::all(client), &stores.nodes, target, subresource, &body).await,
            ObjectKind::NodeClaim => {
                patch_in(Api::all(client), &stores.node_claims, target, subresource, &body).await
            }
            ObjectKind::NodePool => {
                patch_in(Api::all(client), &stores.node_pools, target, subresource, &body).await
            }
            ObjectKind::NodeOverlay => {
                patch_in(
                    Api::all(client),
                    &stores.node_overlays,
                    target,
                    subresource,
                    &body,
                )
                .await
            }
            ObjectKind::Disruption => {
                patch_in(Api::all(client), &stores.disruptions, target, subresource, &body).await
            }
            ObjectKind::DisruptionPolicy => {
                patch_in(
                    Api::all(client),
                    &stores.disruption_policies,
                    target,
                    subresource,
                    &body,
                )
                .await
            }
            ObjectKind::CapacityBuffer => {
                patch_in(
                    Api::namespaced(client, namespace),
                    &stores.buffers.buffers,
                    target,
                    subresource,
                    &body,
                )
                .await
            }
            ObjectKind::Pod => {
                patch_in(
                    Api::namespaced(client, namespace),
                    &stores.pods,
                    target,
                    subresource,
                    &body,
                )
                .await
            }
        }
    }

    /// The pods of a node as the server has them now, not as a watch has told so far.
    ///
    /// # Errors
    /// The class of the failure.
    pub(crate) async fn pods_on(&self, node: &str) -> Result<Vec<Arc<Pod>>, ExecuteError> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let parameters = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let found = api
            .list(&parameters)
            .await
            .map_err(|source| ExecuteError::Failed {
                verb: "list the pods of node",
                target: node.to_owned(),
                source,
            })?;
        Ok(found.items.into_iter().map(Arc::new).collect())
    }

    /// Whether the server, too, has no pod on a node that a drain waits for (D-319). Those that it has are taken into the store: a watch
    /// that stands still has not told of them. Where one of them cannot be read, what the watch has told decides: a pod that will never be read must not
    /// keep its machine for ever.
    ///
    /// # Errors
    /// The class of the failure.
    pub(crate) async fn has_drained(&self, node: &str) -> Result<bool, ExecuteError> {
        let mut pods = match self.pods_on(node).await {
            Err(ExecuteError::Failed {
                source: kube::Error::SerdeError(error),
                ..
            }) => {
                tracing::warn!(Node = node, %error, "a pod of this node cannot be read: only pods that the watch has told of are waited for");
                return Ok(true);
            }
            pods => pods?,
        };
        let now = self.clock.now();
        pods.retain(|pod| is_waited_for_in_drain(pod, now));
        let has_drained = pods.is_empty();
        for pod in pods {
            self.stores.pods.note_written(Arc::unwrap_or_clone(pod));
        }
        Ok(has_drained)
    }

    /// The cluster-scoped object of a name as the server has it now, not as a watch has told so far; `None` when it is not there.
    ///
    /// # Errors
    /// The class of the failure.
    pub(crate) async fn get<K: Object>(&self, name: &str) -> Result<Option<K>, ExecuteError> {
        let api: Api<K> = Api::all(self.client.clone());
        api.get_opt(name).await.map_err(|source| ExecuteError::Failed {
            verb: "get",
            target: format!("{} {name}", K::kind(&())),
            source,
        })
    }

    async fn evict(&self, target: &ObjectRef, grace_period_seconds: Option<i64>) -> Result<(), ExecuteError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &target.namespace);
        // kube's own `evict` names the options' field wrongly, so that the server never sees them: neither UID nor grace.
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(target.name.clone()),
                namespace: Some(target.namespace.clone()),
                ..ObjectMeta::default()
            },
            delete_options: Some(DeleteOptions {
                grace_period_seconds,
                preconditions: (!target.uid.is_empty()).then(|| meta::Preconditions {
                    uid: Some(target.uid.clone()),
                    resource_version: None,
                }),
                ..DeleteOptions::default()
            }),
        };
        let parameters = PostParams::default();
        match api
            .create_subresource::<Eviction, Value>("eviction", &target.name, &parameters, &eviction)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(ExecuteError::NotFound {
                target: target.to_string(),
            }),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(ExecuteError::Conflict {
                target: target.to_string(),
            }),
            Err(kube::Error::Api(status)) => Err(ExecuteError::Refused {
                target: target.to_string(),
                by: refuser(&status),
                retry_after: retry_after(&status),
                message: status.message.clone(),
                code: status.code,
            }),
            Err(source) => Err(ExecuteError::Failed {
                verb: "evict",
                target: target.to_string(),
                source,
            }),
        }
    }
}

async fn delete_in<K: Object>(
    api: Api<K>,
    store: &Store<K>,
    target: &ObjectRef,
    parameters: &DeleteParams,
) -> Result<(), ExecuteError> {
    match api.delete(&target.name, parameters).await {
        Ok(answer) => {
            if let Some(object) = answer.left() {
                store.note_written(object);
            }
            Ok(())
        }
        Err(error) => {
            let error = classify("delete", target, error);
            if error.is_not_found() {
                store.note_gone(
                    &ObjectKey::namespaced(&target.namespace, &target.name),
                    &target.uid,
                );
            }
            Err(error)
        }
    }
}

async fn patch_in<K: Object>(
    api: Api<K>,
    store: &Store<K>,
    target: &ObjectRef,
    subresource: Subresource,
    body: &Value,
) -> Result<(), ExecuteError> {
    let parameters = PatchParams::default();
    let patch = Patch::Merge(body);
    let patched = match subresource {
        Subresource::Main => api.patch(&target.name, &parameters, &patch).await,
        Subresource::Status => api.patch_status(&target.name, &parameters, &patch).await,
    };
    match patched {
        Ok(object) => {
            store.note_written(object);
            Ok(())
        }
        // It is written: what cannot be read is the rest of the object, of which the watch tells.
        Err(kube::Error::SerdeError(error)) => {
            tracing::debug!(%target, %error, "the answer to a write cannot be read");
            Ok(())
        }
        Err(error) => {
            let error = classify("patch", target, error);
            if error.is_not_found() {
                store.note_gone(
                    &ObjectKey::namespaced(&target.namespace, &target.name),
                    &target.uid,
                );
            }
            Err(error)
        }
    }
}
