//! The way from a request to its handler, and what a new server has.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, Config, Scope, State};
use crate::verbs::answer::Answer;
use crate::wire::accept::Form;
use crate::wire::request::{Request, Target, target};

impl ApiServer {
    /// A server with the core kinds, the four standard namespaces and the two system priority classes.
    #[must_use]
    pub fn new(config: Config) -> Arc<Self> {
        let server = Arc::new(Self::empty(config));
        server.populate();
        server
    }

    fn populate(&self) {
        let post = |path: &str, body: Value| {
            let request = Request {
                method: "POST".to_owned(),
                path: path.to_owned(),
                query: BTreeMap::new(),
                accept: String::new(),
                form: Some(Form::Object),
                content_type: "application/json".to_owned(),
                user_agent: "kube-apiserver".to_owned(),
                body: serde_json::to_vec(&body).unwrap_or_default().into(),
            };
            if let Err(error) = self.handle(&request) {
                tracing::error!(path, message = error.message, "cannot create a standard object");
            }
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            post(
                "/api/v1/namespaces",
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            );
        }
        for (name, value) in [
            ("system-node-critical", 2_000_001_000),
            ("system-cluster-critical", 2_000_000_000),
        ] {
            post(
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
                       "description": "Used for system critical pods that must run in the cluster."}),
            );
        }
        post(
            "/api/v1/namespaces/default/services",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
                   "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{"name": "https", "port": 443, "targetPort": 6443}]}}),
        );
    }

    /// Answers a request. Watches answer with what the stream needs.
    ///
    /// # Errors
    /// A client error, or a conflict.
    pub(crate) fn handle(&self, request: &Request) -> ApiResult<Answer> {
        match target(&request.path) {
            None => Err(ApiError::no_such_path()),
            Some(Target::Root(path)) => self.root(request, &path),
            Some(Target::Group(group)) => self.group_discovery(&group),
            Some(Target::GroupVersion(group, version)) => self.version_discovery(&group, &version),
            Some(Target::Resource {
                group,
                version,
                plural,
                namespace,
                name,
                subresource,
                rest,
            }) => {
                let mut state = self.lock();
                let resource = state.registry.find(&group, &version, &plural);
                let Some(resource) = resource else {
                    // An unknown group is an unknown path.
                    if !group.is_empty() && !state.registry.groups().contains_key(group.as_str()) {
                        return Ok(Answer::Text(404, "404 page not found\n".to_owned()));
                    }
                    return Err(ApiError::no_such_path());
                };
                if namespace.is_some() && !resource.namespaced {
                    return Err(ApiError::no_such_path());
                }
                let scope = Scope {
                    resource,
                    namespace: namespace.unwrap_or_default(),
                    name: name.unwrap_or_default(),
                };
                state.warnings.clear();
                let answer = match subresource {
                    Some(subresource) if subresource == "proxy" && scope.resource.is("", "pods") => {
                        self.pod_proxy(&state, request, &scope, &rest)
                    }
                    Some(subresource) => self.subresource(&mut state, request, &scope, &subresource),
                    None => self.resource(&mut state, request, &scope),
                };
                answer.map(|answer| answer.warning(std::mem::take(&mut state.warnings)))
            }
        }
    }

    fn resource(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let resource = &scope.resource;
        let named = !scope.name.is_empty();
        let verb = match (request.method.as_str(), named) {
            // A watch of one object is a list with a field selector; with its name in the path it is a plain get.
            ("GET", true) => "get",
            ("GET", false) if request.flag("watch") => "watch",
            ("GET", false) => "list",
            ("POST", false) => "create",
            ("PUT", true) => "update",
            ("PATCH", true) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => return Err(ApiError::method_not_allowed()),
        };
        if !resource.allows(verb) {
            return Err(ApiError::method_not_allowed());
        }
        if resource.namespaced
            && scope.namespace.is_empty()
            && !matches!(verb, "list" | "watch" | "deletecollection")
        {
            return Err(if named {
                ApiError::no_such_path()
            } else {
                ApiError::bad_request(format!(
                    "an empty namespace may not be set during creation of {}",
                    resource.plural
                ))
            });
        }
        check_form(request, verb)?;
        if matches!(verb, "create" | "update") {
            request.check_encoding(resource.custom().is_some())?;
        }
        if verb == "create"
            && matches!(
                resource.group.as_str(),
                "authentication.k8s.io" | "authorization.k8s.io"
            )
        {
            return review(request, resource);
        }
        self.expire(state, resource);
        match verb {
            "get" => self.get(state, request, scope),
            "list" => self.list(state, request, scope),
            "watch" => self.watch(state, request, scope),
            "create" => self.create(state, request, scope),
            "update" => self.update(state, request, scope, ""),
            "patch" => self.patch(state, request, scope, ""),
            "delete" => self.delete(state, request, scope),
            _ => self.delete_collection(state, request, scope),
        }
    }
}

/// The client takes a form that there is, and one that fits what it asks for.
fn check_form(request: &Request, verb: &str) -> ApiResult<()> {
    let refuse = |message: &str| Err(ApiError::new(406, "NotAcceptable", message));
    match (request.form, verb) {
        (None, _) => {
            refuse("only the following media types are accepted: application/json, application/yaml")
        }
        (Some(Form::Partial(_)), "list") => {
            refuse("you requested PartialObjectMetadata, but the requested object is a list")
        }
        (Some(Form::PartialList(_)), "get" | "create" | "update" | "patch") => {
            refuse("you requested PartialObjectMetadataList, but the requested object is not a list")
        }
        _ => Ok(()),
    }
}

/// Reviews of identity and access are answered and not stored: every client with the token may do everything.
fn review(request: &Request, resource: &Resource) -> ApiResult<Answer> {
    let mut review = request.object(&resource.kind)?;
    review["kind"] = json!(resource.kind);
    review["apiVersion"] = json!(resource.api_version());
    let user = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
    review["status"] = match resource.kind.as_str() {
        "SelfSubjectReview" => json!({"userInfo": user}),
        "TokenReview" => json!({"authenticated": true, "user": user}),
        "SelfSubjectRulesReview" => json!({
            "incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
        _ => json!({"allowed": true}),
    };
    Ok(Answer::Json(201, review, Vec::new()))
}
