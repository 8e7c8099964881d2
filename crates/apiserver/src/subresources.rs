//! Subresources: status, scale, binding, eviction, and clear refusals of what is not here.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::deleting::DeleteOptions;
use crate::error::{ApiError, ApiResult};
use crate::request::Request;
use crate::response::Answer;
use crate::selector::LabelSelector;
use crate::server::{ApiServer, Scope, State};
use crate::store::{Key, Stored};
use crate::writing::seconds;
use crate::{patch, reading};

/// Text that clients compare literally (D-331).
const SEVERAL_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

impl ApiServer {
    pub(crate) fn subresource(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        name: &str,
    ) -> ApiResult<Answer> {
        let resource = &scope.resource;
        if !resource.has_subresource(name) {
            return Err(ApiError::no_such_path());
        }
        let method = request.method.as_str();
        match (name, method) {
            ("status", "GET") => self.get(state, request, scope),
            ("status" | "resize" | "ephemeralcontainers", "PUT") => self.update(state, request, scope, name),
            ("status" | "resize" | "ephemeralcontainers", "PATCH") => self.patch(state, request, scope, name),
            ("scale", "GET" | "PUT" | "PATCH") => self.scale(state, request, scope),
            ("binding", "POST") => self.bind(state, request, scope),
            ("eviction", "POST") => self.evict(state, request, scope),
            ("finalize", "PUT") => self.finalize(state, request, scope),
            ("token", "POST") => Ok(Answer::Json(
                201,
                json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {"name": scope.name, "namespace": scope.namespace},
                       "spec": {"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 3600},
                       "status": {"token": "there-is-nothing-to-authorise", "expirationTimestamp": seconds(self.now())}}),
                Vec::new(),
            )),
            ("log" | "exec" | "attach" | "portforward" | "proxy", _) => {
                state.find(scope)?;
                Err(ApiError::new(
                    501,
                    "NotImplemented",
                    format!(
                        "{name} is not available: the nodes of this cluster are simulated, so no container runs behind {} {:?}",
                        resource.kind.to_lowercase(),
                        scope.name
                    ),
                ))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn finalize(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let body = request.object()?;
        let old = state.find(scope)?;
        let mut value = old.value.clone();
        value["spec"]["finalizers"] = body["spec"]["finalizers"].clone();
        let stored = self.commit_update(state, scope, value);
        Ok(self.show(request, &scope.resource, &stored))
    }

    fn scale(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let old = state.find(scope)?;
        let paths = match scope.resource.custom() {
            Some(version) => version.scale().ok_or_else(ApiError::no_such_path)?,
            None => ("spec.replicas".to_owned(), "status.replicas".to_owned(), None),
        };
        let current = scale_of(scope, &old.value, &paths);
        let wanted = match request.method.as_str() {
            "GET" => return Ok(Answer::ok(current)),
            "PUT" => request.object()?,
            _ => {
                let body = request.object()?;
                match request.content_type.as_str() {
                    "application/json-patch+json" => patch::json_patch(&current, &body)
                        .map_err(|error| ApiError::bad_request(error.to_string()))?,
                    _ => patch::merge_patch(&current, &body),
                }
            }
        };
        let version = wanted["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && old.value["metadata"]["resourceVersion"] != version {
            return Err(scope.conflict(
                "the object has been modified; please apply your changes to the latest version and try again",
            ));
        }
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let cause = crate::Cause {
                reason: "FieldValueInvalid",
                field: "spec.replicas".to_owned(),
                message: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
            };
            return Err(ApiError::invalid("autoscaling", "Scale", &scope.name, &[cause]));
        }
        let mut value = reading::view(&scope.resource, &old.value);
        set_path(&mut value, &paths.0, json!(replicas));
        let mut whole = request.clone();
        whole.content_type = "application/json".to_owned();
        let stored = self.replace(state, &whole, scope, "", &old, value, None, &mut Vec::new())?;
        Ok(Answer::ok(scale_of(scope, &stored.value, &paths)))
    }

    fn bind(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let binding = request.object()?;
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            let cause = crate::Cause {
                reason: "FieldValueRequired",
                field: "target.name".to_owned(),
                message: "Required value".to_owned(),
            };
            return Err(ApiError::invalid("", "Binding", &scope.name, &[cause]));
        }
        let old = state.find(scope)?;
        if let Some(uid) = binding["metadata"]["uid"]
            .as_str()
            .filter(|uid| !uid.is_empty() && *uid != old.uid())
        {
            return Err(scope.conflict(&format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old.uid()
            )));
        }
        if !old.value["metadata"]["deletionTimestamp"].is_null() {
            return Err(scope.conflict(&format!(
                "pod {} is being deleted, cannot be assigned to a host",
                scope.name
            )));
        }
        if let Some(bound) = old.value["spec"]["nodeName"]
            .as_str()
            .filter(|name| !name.is_empty())
        {
            return Err(ApiError::conflict(
                "",
                "pods/binding",
                &scope.name,
                &format!("pod {} is already assigned to node {bound:?}", scope.name),
            ));
        }
        if !request.is_dry_run()? {
            let mut value = old.value.clone();
            value["spec"]["nodeName"] = json!(node);
            let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": seconds(self.now())});
            let mut conditions: Vec<Value> = value["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            match conditions
                .iter_mut()
                .find(|condition| condition["type"] == "PodScheduled")
            {
                Some(scheduled) => *scheduled = condition,
                None => conditions.push(condition),
            }
            value["status"]["conditions"] = json!(conditions);
            state.commit(&scope.resource.storage(), &scope.key(), value, false);
        }
        Ok(Answer::Json(
            201,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
            Vec::new(),
        ))
    }

    fn evict(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let eviction = request.object()?;
        if let Some(name) = eviction["metadata"]["name"]
            .as_str()
            .filter(|name| *name != scope.name)
        {
            tracing::debug!(name, "an eviction of another pod");
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let pod = state.find(scope)?;
        let options = DeleteOptions::from_value(&eviction["deleteOptions"], request)?;
        options.check(scope, &pod)?;
        let exempt = matches!(
            pod.value["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        ) || !pod.value["metadata"]["deletionTimestamp"].is_null();
        if !exempt {
            let budgets = budgets_of(state, &pod.value);
            match &budgets[..] {
                [] => {}
                [(key, budget)] => self.charge(state, request, &pod, key, budget)?,
                _ => return Err(ApiError::new(500, "InternalError", SEVERAL_BUDGETS)),
            }
        }
        self.delete_checked(state, request, scope, &pod, &options)?;
        Ok(Answer::Json(
            201,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
            Vec::new(),
        ))
    }

    /// Takes one disruption from a budget, or refuses.
    fn charge(
        &self,
        state: &mut State,
        request: &Request,
        pod: &Stored,
        key: &Key,
        budget: &Arc<Stored>,
    ) -> ApiResult<()> {
        let status = &budget.value["status"];
        let ready = pod.value["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Ready" && one["status"] == "True");
        let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
        let healthy = status["currentHealthy"].as_i64().unwrap_or(0);
        let desired = status["desiredHealthy"].as_i64().unwrap_or(0);
        if !ready
            && (budget.value["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
                || healthy >= desired && desired > 0)
        {
            return Ok(());
        }
        let generation = budget.value["metadata"]["generation"].as_i64().unwrap_or(0);
        if status["observedGeneration"].as_i64().unwrap_or(0) < generation {
            let mut error = too_many(
                &key.1,
                "The disruption budget has not yet been processed by the disruption controller",
                &key.1,
            );
            error.retry_after_seconds = 10;
            return Err(error);
        }
        if allowed <= 0 {
            let message = format!(
                "The disruption budget {} needs {desired} healthy pods and has {healthy} currently",
                key.1
            );
            return Err(too_many(&key.1, &message, &key.1));
        }
        if request.is_dry_run()? {
            return Ok(());
        }
        let mut value = budget.value.clone();
        value["status"]["disruptionsAllowed"] = json!(allowed - 1);
        let name = pod.value["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if !value["status"]["disruptedPods"].is_object() {
            value["status"]["disruptedPods"] = json!({});
        }
        value["status"]["disruptedPods"][name] = json!(seconds(self.now()));
        state.commit(
            &("policy".to_owned(), "poddisruptionbudgets".to_owned()),
            key,
            value,
            false,
        );
        Ok(())
    }
}

fn too_many(_name: &str, cause: &str, _field: &str) -> ApiError {
    let mut error = ApiError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    error.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    error
}

/// Budgets of the pod's namespace that select it. A missing selector selects nothing.
fn budgets_of(state: &State, pod: &Value) -> Vec<(Key, Arc<Stored>)> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let collection = state
        .collections
        .get(&("policy".to_owned(), "poddisruptionbudgets".to_owned()));
    collection
        .into_iter()
        .flat_map(|collection| &collection.objects)
        .filter(|(key, budget)| {
            key.0 == namespace
                && budget.value["spec"]["selector"].is_object()
                && LabelSelector::from_object(&budget.value["spec"]["selector"])
                    .is_some_and(|selector| selector.matches(&pod["metadata"]["labels"]))
        })
        .map(|(key, budget)| (key.clone(), budget.clone()))
        .collect()
}

fn at_path<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |here, part| &here[part])
}

fn set_path(value: &mut Value, path: &str, new: Value) {
    let mut here = value;
    for part in path.split('.') {
        here = &mut here[part];
    }
    *here = new;
}

fn scale_of(scope: &Scope, value: &Value, paths: &(String, String, Option<String>)) -> Value {
    let metadata = &value["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": scope.name, "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"replicas": at_path(value, &paths.0).as_i64().unwrap_or(0)},
        "status": {"replicas": at_path(value, &paths.1).as_i64().unwrap_or(0)},
    });
    if !scope.namespace.is_empty() {
        scale["metadata"]["namespace"] = json!(scope.namespace);
    }
    let selector = match (&paths.2, scope.resource.custom()) {
        (Some(path), _) => at_path(value, path).as_str().unwrap_or_default().to_owned(),
        (None, Some(_)) => String::new(),
        (None, None) => {
            let labels = value["spec"]["selector"]["matchLabels"].as_object();
            labels
                .into_iter()
                .flatten()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(",")
        }
    };
    if !selector.is_empty() {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}
