//! Subresources: which there are, binding, eviction, finalization, and clear refusals of what is not here. The scale is in `scaling`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::admission_policy::Attributes;
use crate::error::{ApiError, ApiResult};
use crate::fields::managed_fields::{self, Writer};
use crate::fields::reset::Reset;
use crate::selector::LabelSelector;
use crate::store::objects::{Key, Stored};
use crate::store::state::{ApiServer, Scope, State};
use crate::verbs::answer::Answer;
use crate::verbs::delete_options::DeleteOptions;
use crate::verbs::proxy;
use crate::verbs::writing::seconds;
use crate::verbs::writing_checks::{check_identity, check_uid, check_version};
use crate::wire::request::Request;

/// Text that clients compare literally (D-331).
const SEVERAL_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
/// Labels of a node that its pods get when they are bound to it.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
/// Disruptions that a budget keeps in mind at most.
const MOST_DISRUPTED_PODS: usize = 2000;

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
            ("status" | "resize" | "ephemeralcontainers", "GET") => self.get(state, request, scope),
            ("status" | "resize" | "ephemeralcontainers", "PUT") => self.update(state, request, scope, name),
            ("status" | "resize" | "ephemeralcontainers", "PATCH") => self.patch(state, request, scope, name),
            ("scale", "GET" | "PUT" | "PATCH") => self.scale(state, request, scope),
            ("binding", "POST") => self.bind(state, request, scope),
            ("eviction", "POST") => self.evict(state, request, scope),
            ("finalize", "PUT") => self.finalize(state, request, scope),
            ("token", "POST") => {
                state.find(scope)?;
                Err(ApiError::new(
                    501,
                    "NotImplemented",
                    "tokens of service accounts are not issued: this server knows one token, which is its administrator's",
                ))
            }
            ("log" | "exec" | "attach" | "portforward" | "proxy", _) => {
                state.find(scope)?;
                Err(no_container(name, scope))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// `pods/NAME:PORT/proxy/PATH`.
    pub(crate) fn pod_proxy(
        &self,
        state: &State,
        request: &Request,
        scope: &Scope,
        rest: &str,
    ) -> ApiResult<Answer> {
        let (name, port) = proxy::name_and_port(&scope.name);
        let scope = Scope {
            name: name.to_owned(),
            ..scope.clone()
        };
        let pod = state.find(&scope)?;
        match proxy::answer(state, &pod, port, (&request.method, rest))? {
            Some(answer) => Ok(answer),
            None => Err(no_container("proxy", &scope)),
        }
    }

    fn finalize(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let mut body = request.object(&scope.resource.kind)?;
        check_identity(&mut body, scope)?;
        let old = state.find(scope)?;
        check_uid(scope, &old, &body)?;
        check_version(scope, &old, &body)?;
        let mut value = old.value.clone();
        match body["spec"]["finalizers"]
            .as_array()
            .filter(|list| !list.is_empty())
        {
            Some(list) => value["spec"]["finalizers"] = json!(list),
            None => drop(
                value["spec"]
                    .as_object_mut()
                    .map(|spec| spec.remove("finalizers")),
            ),
        }
        let stored = self.store_changed(state, request, scope, "finalize", &old, value)?;
        Ok(self.show(request, &scope.resource, &stored))
    }

    pub(crate) fn bind(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let binding = request.object("Binding")?;
        if binding["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name != scope.name)
        {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        let kind = binding["target"]["kind"].as_str().unwrap_or_default();
        if !matches!(kind, "" | "Node") {
            return Err(ApiError::new(
                500,
                "",
                format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""),
            ));
        }
        if node.is_empty() {
            return Err(ApiError::new(500, "", "target.name: Required value"));
        }
        let old = state.find(scope)?;
        let conflict = |problem: String| Err(ApiError::conflict("", "pods/binding", &scope.name, &problem));
        if let Some(uid) = binding["metadata"]["uid"]
            .as_str()
            .filter(|uid| !uid.is_empty() && *uid != old.uid())
        {
            return conflict(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old.uid()
            ));
        }
        let wanted = &binding["metadata"]["resourceVersion"];
        let version = old.value["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
        if let Some(wanted) = wanted
            .as_str()
            .filter(|wanted| !wanted.is_empty() && *wanted != version)
        {
            return conflict(format!(
                "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {version}"
            ));
        }
        if !old.value["metadata"]["deletionTimestamp"].is_null() {
            return conflict(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                scope.name
            ));
        }
        if let Some(bound) = old.value["spec"]["nodeName"]
            .as_str()
            .filter(|name| !name.is_empty())
        {
            return conflict(format!(
                "pod {} is already assigned to node {bound:?}",
                scope.name
            ));
        }
        if old.value["spec"]["schedulingGates"]
            .as_array()
            .is_some_and(|gates| !gates.is_empty())
        {
            return conflict(format!("pod {} has non-empty .spec.schedulingGates", scope.name));
        }
        let dry_run = request.is_dry_run()?;
        self.admit_posted(state, scope, "binding", &binding, dry_run)?;
        if !dry_run {
            let mut value = old.value.clone();
            value["spec"]["nodeName"] = json!(node);
            if let Some(status) = value["status"].as_object_mut() {
                status.remove("nominatedNodeName");
            }
            let located = state.stored(
                &(String::new(), "nodes".to_owned()),
                &(String::new(), node.to_owned()),
            );
            for label in TOPOLOGY_LABELS {
                if let Some(place) = located
                    .as_ref()
                    .and_then(|node| node.value["metadata"]["labels"][label].as_str())
                {
                    value["metadata"]["labels"][label] = json!(place);
                }
            }
            for (key, annotation) in binding["metadata"]["annotations"]
                .as_object()
                .into_iter()
                .flatten()
            {
                value["metadata"]["annotations"][key] = annotation.clone();
            }
            self.set_condition(&mut value, json!({"type": "PodScheduled", "status": "True"}));
            state.commit(&scope.resource.storage(), &scope.key(), value, false);
        }
        Ok(Answer::Json(201, success(), Vec::new()))
    }

    /// Asks the admission policies about an object that is posted to a subresource.
    fn admit_posted(
        &self,
        state: &mut State,
        scope: &Scope,
        subresource: &str,
        object: &Value,
        dry_run: bool,
    ) -> ApiResult<()> {
        let attributes = Attributes {
            operation: "CREATE",
            resource: &scope.resource,
            subresource,
            namespace: &scope.namespace,
            name: &scope.name,
            object: Some(object),
            old: None,
            dry_run,
        };
        self.admit(state, &attributes)
    }

    /// Puts a condition into a pod's status in place of the one of its type.
    fn set_condition(&self, pod: &mut Value, mut condition: Value) {
        if !pod["status"]["conditions"].is_array() {
            pod["status"]["conditions"] = json!([]);
        }
        let Some(conditions) = pod["status"]["conditions"].as_array_mut() else {
            return;
        };
        let known = conditions
            .iter_mut()
            .find(|known| known["type"] == condition["type"]);
        let since = known
            .as_ref()
            .filter(|known| known["status"] == condition["status"])
            .map(|known| known["lastTransitionTime"].clone());
        condition["lastTransitionTime"] = since.unwrap_or_else(|| json!(seconds(self.now())));
        condition["lastProbeTime"] = Value::Null;
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }

    fn evict(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let eviction = request.object("Eviction")?;
        let kind = eviction["kind"].as_str().unwrap_or_default();
        if !matches!(kind, "" | "Eviction") {
            return Err(ApiError::bad_request(format!(
                "{kind} cannot be handled as an Eviction: the body of an eviction is an Eviction of policy/v1"
            )));
        }
        if eviction["metadata"]["name"] != scope.name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let pod = state.find(scope)?;
        let options = DeleteOptions::from_value(&eviction["deleteOptions"], request)?;
        self.admit_posted(state, scope, "eviction", &eviction, options.dry_run)?;
        let exempt = matches!(
            pod.value["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        ) || !pod.value["metadata"]["deletionTimestamp"].is_null();
        if !exempt {
            let budgets = budgets_of(state, &pod.value);
            match &budgets[..] {
                [] => {}
                [(key, budget)] => self.charge(state, &options, &pod, key, budget)?,
                _ => return Err(ApiError::new(500, "", SEVERAL_BUDGETS)),
            }
        }
        options.check(scope, &pod)?;
        let mut pod = pod;
        // What has ended, has not begun or is going already is only deleted: nothing is disrupted.
        if !options.dry_run && !exempt {
            let mut value = pod.value.clone();
            self.set_condition(
                &mut value,
                json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}),
            );
            if value != pod.value {
                pod = state.commit(&scope.resource.storage(), &scope.key(), value, false);
            }
        }
        self.delete_checked(state, request, scope, &pod, &options.unconditional())?;
        Ok(Answer::Json(201, success(), Vec::new()))
    }

    /// Takes one disruption from a budget, or refuses.
    fn charge(
        &self,
        state: &mut State,
        options: &DeleteOptions,
        pod: &Stored,
        key: &Key,
        budget: &Arc<Stored>,
    ) -> ApiResult<()> {
        let status = &budget.value["status"];
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let conditions = pod.value["status"]["conditions"].as_array();
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Ready" && one["status"] == "True");
        let (healthy, desired) = (
            number(&status["currentHealthy"]),
            number(&status["desiredHealthy"]),
        );
        let always = budget.value["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        if !ready && (always || healthy >= desired && desired > 0) {
            return Ok(());
        }
        let name = &key.1;
        if number(&status["observedGeneration"]) < number(&budget.value["metadata"]["generation"]) {
            return Err(too_many(
                &format!("The disruption budget {name} is still being processed by the server."),
                10,
            ));
        }
        let allowed = number(&status["disruptionsAllowed"]);
        let (group, kind) = ("policy", "poddisruptionbudget");
        let forbidden = |problem: &str| Err(ApiError::forbidden(group, kind, name, problem));
        if allowed < 0 {
            return forbidden("pdb disruptions allowed is negative");
        }
        if status["disruptedPods"]
            .as_object()
            .is_some_and(|pods| pods.len() > MOST_DISRUPTED_PODS)
        {
            return forbidden(
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            );
        }
        if allowed == 0 {
            return Err(too_many(&why_none_allowed(name, status, healthy, desired), 0));
        }
        if options.dry_run {
            return Ok(());
        }
        let now = seconds(self.now());
        let mut value = budget.value.clone();
        value["status"]["disruptionsAllowed"] = json!(allowed - 1);
        if allowed == 1 {
            forbid_disruptions(&mut value["status"], &now);
        }
        let pod_name = pod.value["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if !value["status"]["disruptedPods"].is_object() {
            value["status"]["disruptedPods"] = json!({});
        }
        value["status"]["disruptedPods"][pod_name] = json!(now);
        let schema = crate::schema::types::TypeSchema::builtin("policy", "v1", "PodDisruptionBudget");
        if let Some(schema) = schema {
            let writer = Writer {
                manager: "kube-apiserver",
                api_version: "policy/v1",
                subresource: "status",
                now: self.now(),
                reset: Reset::Spec,
            };
            managed_fields::update(&schema, Some(&budget.value), &mut value, &writer);
        }
        state.commit(
            &("policy".to_owned(), "poddisruptionbudgets".to_owned()),
            key,
            value,
            false,
        );
        Ok(())
    }
}

fn no_container(what: &str, scope: &Scope) -> ApiError {
    ApiError::new(
        501,
        "NotImplemented",
        format!(
            "{what} is not available: the nodes of this cluster are simulated, so no container runs behind {} {:?}",
            scope.resource.kind.to_lowercase(),
            scope.name
        ),
    )
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

fn why_none_allowed(name: &str, status: &Value, healthy: i64, desired: i64) -> String {
    let conditions = status["conditions"].as_array();
    let refused = conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "DisruptionAllowed" && one["status"] == "False");
    let message = refused
        .and_then(|one| one["message"].as_str())
        .filter(|message| !message.is_empty());
    let reason = refused.and_then(|one| one["reason"].as_str()).unwrap_or_default();
    match message {
        Some(message) if reason == "SyncFailed" => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some(message) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// The condition of a budget that has just been used up.
fn forbid_disruptions(status: &mut Value, now: &str) {
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "", "lastTransitionTime": now,
        "observedGeneration": status["observedGeneration"],
    });
    let mut conditions: Vec<Value> = status["conditions"].as_array().cloned().unwrap_or_default();
    match conditions
        .iter_mut()
        .find(|one| one["type"] == "DisruptionAllowed")
    {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    status["conditions"] = json!(conditions);
}

fn too_many(cause: &str, retry_after_seconds: u32) -> ApiError {
    let mut error = ApiError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    error.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    error.retry_after_seconds = retry_after_seconds;
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
