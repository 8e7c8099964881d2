//! ValidatingAdmissionPolicies and their bindings (`admissionregistration.k8s.io/v1`): which of them a request meets, and what they say to it.
//!
//! Owns the order of a real server: constraints of the policy and of the binding, parameters, match conditions, validations; a failure is a refusal,
//! a warning or a line in the log, as the binding has it. `matching` says whom a policy concerns, `evaluation` evaluates its expressions, `checks`
//! judges policies when they are written. There is no authorizer behind the server, so expressions cannot ask it, and no audit log: what is to be
//! audited goes to the log of the process.

pub(crate) mod bound;
pub(crate) mod checks;
mod evaluation;
mod matching;

use std::sync::Arc;

use serde_json::{Value, json};

use self::bound::{Bound, GROUP, Policies};
use self::evaluation::{Policy, Verdict};
use crate::error::{ApiError, ApiResult};
use crate::kinds::conversion;
use crate::selector::LabelSelector;
use crate::store::objects::Key;
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, State};

const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";

/// A write, as policies see it.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) object: Option<&'a Value>,
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

impl State {
    /// The policies in force; compiled on first use after a change.
    fn policies(&mut self) -> Arc<Policies> {
        if let Some(known) = &self.policies {
            return known.clone();
        }
        let objects = |plural: &str| self.objects(GROUP, plural).cloned().collect::<Vec<Value>>();
        let bindings = objects(BINDINGS);
        let mut policies = Policies::new();
        for policy in objects(POLICIES) {
            let policy = Arc::new(Policy::compile(&policy));
            for binding in &bindings {
                if binding["spec"]["policyName"] == policy.name.as_str() {
                    policies.push(Bound {
                        policy: policy.clone(),
                        name: binding["metadata"]["name"]
                            .as_str()
                            .unwrap_or_default()
                            .to_owned(),
                        spec: binding["spec"].clone(),
                    });
                }
            }
        }
        let policies = Arc::new(policies);
        self.policies = Some(policies.clone());
        policies
    }
}

/// Objects that no policy applies to: the policies themselves, so that a bad one can be removed, and reviews.
fn is_exempt(resource: &Resource) -> bool {
    resource.group == GROUP
        || matches!(
            resource.group.as_str(),
            "authentication.k8s.io" | "authorization.k8s.io"
        )
}

impl ApiServer {
    /// Asks every policy in force about a write. Warnings are kept for the answer.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) fn admit(&self, state: &mut State, attributes: &Attributes<'_>) -> ApiResult<()> {
        if is_exempt(attributes.resource) {
            return Ok(());
        }
        let policies = state.policies();
        let mut refusal = None;
        for bound in policies.iter() {
            let Some(matched) = matching::matched(state, &bound.policy.spec, attributes) else {
                continue;
            };
            let narrowed = &bound.spec["matchResources"];
            if narrowed.is_object() && !matching::concerns(state, narrowed, attributes, &matched) {
                continue;
            }
            for verdict in verdicts(state, bound, attributes, &matched) {
                let refused = act(state, bound, &verdict, attributes);
                refusal = refusal.or(refused);
            }
        }
        refusal.map_or(Ok(()), Err)
    }
}

/// What a policy says to a write, once for each parameter.
fn verdicts(state: &State, bound: &Bound, attributes: &Attributes<'_>, matched: &Resource) -> Vec<Verdict> {
    let policy = &bound.policy;
    let parameters = match parameters(state, policy, &bound.spec, attributes.namespace) {
        Ok(parameters) => parameters,
        Err(problem) => {
            return policy
                .on_error(format!("failed to configure binding: {problem}"))
                .into_iter()
                .collect();
        }
    };
    let view = |value: &Value| match attributes.subresource {
        "" | "status" => conversion::view(matched, value).into_owned(),
        _ => value.clone(),
    };
    let (object, old) = (attributes.object.map(view), attributes.old.map(view));
    let namespace = (!attributes.namespace.is_empty() && !attributes.resource.is("", "namespaces"))
        .then(|| {
            let key = (String::new(), attributes.namespace.to_owned());
            state.stored(&(String::new(), "namespaces".to_owned()), &key)
        })
        .flatten();
    let request = request_of(attributes, matched, object.as_ref().or(old.as_ref()));
    let mut verdicts = Vec::new();
    for parameter in parameters {
        let input = evaluation::Input {
            object: object.as_ref(),
            old: old.as_ref(),
            request: &request,
            namespace: namespace.as_ref().map(|stored| &stored.value),
            parameter: parameter.as_ref(),
        };
        verdicts.extend(policy.judge(&input));
    }
    verdicts
}

/// What expressions see as `request`.
fn request_of(attributes: &Attributes<'_>, matched: &Resource, object: Option<&Value>) -> Value {
    let kind = |resource: &Resource| {
        let text = |field: &str| {
            object
                .and_then(|object| object[field].as_str())
                .unwrap_or_default()
                .to_owned()
        };
        if matches!(attributes.subresource, "" | "status") {
            return json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        }
        let api_version = text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        json!({"group": group, "version": version, "kind": text("kind")})
    };
    let place = |resource: &Resource| json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    json!({
        "kind": kind(matched), "resource": place(matched), "subResource": attributes.subresource,
        "requestKind": kind(attributes.resource), "requestResource": place(attributes.resource), "requestSubResource": attributes.subresource,
        "name": attributes.name, "namespace": attributes.namespace, "operation": attributes.operation, "dryRun": attributes.dry_run,
        "userInfo": {"username": "admin", "uid": "", "groups": ["system:masters", "system:authenticated"], "extra": {}},
    })
}

/// The objects that a binding names as parameters; one nothing when the policy takes none.
fn parameters(
    state: &State,
    policy: &Policy,
    binding: &Value,
    namespace: &str,
) -> Result<Vec<Option<Value>>, String> {
    let (kind, reference) = (&policy.spec["paramKind"], &binding["paramRef"]);
    if kind.is_null() || reference.is_null() {
        return Ok(vec![None]);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&kind["apiVersion"]);
    let resource = state
        .registry
        .all()
        .find(|resource| resource.api_version() == api_version && kind["kind"] == resource.kind.as_str())
        .ok_or_else(|| {
            format!(
                "failed to find resource referenced by paramKind: '{api_version}, Kind={}'",
                text(&kind["kind"])
            )
        })?;
    let wanted = text(&reference["namespace"]);
    let namespace = match (resource.namespaced, wanted.is_empty()) {
        (false, true) => String::new(),
        (false, false) => {
            return Err(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned(),
            );
        }
        (true, false) => wanted,
        (true, true) if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        (true, true) => namespace.to_owned(),
    };
    let collection = state.collections.get(&resource.storage());
    let selector = LabelSelector::from_object(&reference["selector"]);
    let chosen = |key: &Key, value: &Value| {
        key.0 == namespace
            && match reference["name"].as_str().filter(|name| !name.is_empty()) {
                Some(name) => key.1 == name,
                None => selector
                    .as_ref()
                    .is_some_and(|selector| selector.matches(&value["metadata"]["labels"])),
            }
    };
    let found: Vec<Option<Value>> = collection
        .into_iter()
        .flat_map(|collection| &collection.objects)
        .filter(|(key, stored)| chosen(key, &stored.value))
        .map(|(_, stored)| Some(conversion::view(resource, &stored.value).into_owned()))
        .collect();
    if found.is_empty() && reference["parameterNotFoundAction"] != "Allow" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

/// Does what the binding asks for on a failure. Returns the refusal, if it is one.
fn act(state: &mut State, bound: &Bound, verdict: &Verdict, attributes: &Attributes<'_>) -> Option<ApiError> {
    let (policy, binding, message) = (&bound.policy.name, &bound.name, &verdict.message);
    let mut refusal = None;
    let actions = bound.spec["validationActions"].as_array();
    for action in actions.into_iter().flatten().filter_map(Value::as_str) {
        match action {
            "Warn" => state.warnings.push(format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
            )),
            "Audit" => tracing::info!(
                policy,
                binding,
                resource = attributes.resource.plural,
                namespace = attributes.namespace,
                name = attributes.name,
                message,
                "admission policy to be audited"
            ),
            _ => refusal = Some(refused(bound, verdict, attributes)),
        }
    }
    refusal
}

fn refused(bound: &Bound, verdict: &Verdict, attributes: &Attributes<'_>) -> ApiError {
    let sentence = format!(
        "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}",
        bound.policy.name, bound.name, verdict.message
    );
    let resource = attributes.resource;
    let forbidden = ApiError::forbidden(&resource.group, &resource.plural, attributes.name, &sentence);
    let (code, reason) = verdict.reason;
    let mut error = ApiError {
        code,
        reason,
        ..forbidden
    };
    error.details["causes"] = json!([{"message": sentence}]);
    error
}

/// What the controller of policies would write: the generation that it has seen.
pub(crate) fn note_observed(resource: &Resource, object: &mut Value) {
    if resource.is(GROUP, POLICIES) {
        object["status"]["observedGeneration"] = object["metadata"]["generation"].clone();
        if object["status"]["typeChecking"].is_null() {
            object["status"]["typeChecking"] = json!({});
        }
    }
}
