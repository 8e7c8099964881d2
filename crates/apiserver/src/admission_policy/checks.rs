//! Policies and bindings when they are written: their defaults, and what is wrong with them. An expression that does not parse, or asks for what
//! this server does not have, is refused here and not when a request meets it.

use serde_json::{Map, Value, json};

use crate::cause::Cause;
use crate::checks::items;
use crate::crd::cel;

/// What expressions are about.
const VARIABLES: [&str; 6] = [
    "namespaceObject",
    "object",
    "oldObject",
    "params",
    "request",
    "variables",
];

/// Fills in what a user may leave out.
pub(crate) fn defaults(kind: &str, object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let field = if kind == "ValidatingAdmissionPolicy" {
        spec.entry("failurePolicy").or_insert(json!("Fail"));
        "matchConstraints"
    } else {
        "matchResources"
    };
    if let Some(resources) = spec.get_mut(field).and_then(Value::as_object_mut) {
        resources.entry("matchPolicy").or_insert(json!("Equivalent"));
        for selector in ["namespaceSelector", "objectSelector"] {
            resources.entry(selector).or_insert(json!({}));
        }
        for rules in ["resourceRules", "excludeResourceRules"] {
            rules_scope(resources, rules);
        }
    }
}

fn rules_scope(resources: &mut Map<String, Value>, field: &str) {
    let rules = resources.get_mut(field).and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten().filter_map(Value::as_object_mut) {
        rule.entry("scope").or_insert(json!("*"));
    }
}

/// What is wrong with a policy or a binding.
pub(crate) fn check(kind: &str, spec: &Value, causes: &mut Vec<Cause>) {
    if kind == "ValidatingAdmissionPolicy" {
        policy(spec, causes);
    } else {
        binding(spec, causes);
    }
}

fn one_of(path: &str, value: &Value, allowed: &[&str], causes: &mut Vec<Cause>) {
    if !allowed.contains(&value.as_str().unwrap_or_default()) {
        causes.push(Cause::not_supported(path, value, allowed.iter().copied()));
    }
}

fn policy(spec: &Value, causes: &mut Vec<Cause>) {
    one_of(
        "spec.failurePolicy",
        &spec["failurePolicy"],
        &["Fail", "Ignore"],
        causes,
    );
    let parameters = spec["paramKind"].is_object();
    if parameters {
        for field in ["apiVersion", "kind"] {
            if spec["paramKind"][field].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::required(format!("spec.paramKind.{field}"), ""));
            }
        }
    }
    let constraints = &spec["matchConstraints"];
    if !constraints.is_object() {
        causes.push(Cause::required("spec.matchConstraints", ""));
    } else {
        resources("spec.matchConstraints", constraints, causes);
        if items(&constraints["resourceRules"]).is_empty() {
            causes.push(Cause::required("spec.matchConstraints.resourceRules", ""));
        }
    }
    for field in ["matchConditions", "variables"] {
        for (index, entry) in items(&spec[field]).iter().enumerate() {
            let path = format!("spec.{field}[{index}]");
            if entry["name"].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::required(format!("{path}.name"), ""));
            }
            expression(
                &format!("{path}.expression"),
                &entry["expression"],
                parameters,
                causes,
            );
        }
    }
    if items(&spec["validations"]).is_empty() && items(&spec["auditAnnotations"]).is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let problem = "validations or auditAnnotations must contain at least one item";
            causes.push(Cause::required(format!("spec.{field}"), problem));
        }
    }
    for (index, entry) in items(&spec["validations"]).iter().enumerate() {
        let path = format!("spec.validations[{index}]");
        expression(
            &format!("{path}.expression"),
            &entry["expression"],
            parameters,
            causes,
        );
        if entry["messageExpression"].is_string() {
            let path = format!("{path}.messageExpression");
            expression(&path, &entry["messageExpression"], parameters, causes);
        }
        if !entry["reason"].is_null() {
            let allowed = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
            one_of(&format!("{path}.reason"), &entry["reason"], &allowed, causes);
        }
    }
    for (index, entry) in items(&spec["auditAnnotations"]).iter().enumerate() {
        let path = format!("spec.auditAnnotations[{index}].valueExpression");
        expression(&path, &entry["valueExpression"], parameters, causes);
    }
}

/// An expression parses, and asks for nothing that there is not.
fn expression(path: &str, value: &Value, parameters: bool, causes: &mut Vec<Cause>) {
    let source = value.as_str().unwrap_or_default().trim();
    if source.is_empty() {
        causes.push(Cause::required(path, ""));
        return;
    }
    let parsed = match cel::parse(source) {
        Ok(parsed) => parsed,
        Err(problem) => {
            causes.push(Cause::invalid(
                path,
                value,
                &format!("compilation failed: {problem}"),
            ));
            return;
        }
    };
    let references = parsed.references();
    let problem = if references.has_variable("authorizer") {
        Some("authorizer is not available: this server has no authorization to ask".to_owned())
    } else if !parameters && references.has_variable("params") {
        Some("compilation failed: undeclared reference to 'params' (in container ''): the policy has no paramKind".to_owned())
    } else {
        let undeclared = cel::undeclared(&parsed, source, &VARIABLES);
        undeclared.map(|problem| format!("compilation failed: {problem}"))
    };
    if let Some(problem) = problem {
        causes.push(Cause::invalid(path, value, &problem));
    }
}

fn resources(path: &str, value: &Value, causes: &mut Vec<Cause>) {
    one_of(
        &format!("{path}.matchPolicy"),
        &value["matchPolicy"],
        &["Equivalent", "Exact"],
        causes,
    );
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in items(&value[field]).iter().enumerate() {
            let path = format!("{path}.{field}[{index}]");
            for part in ["operations", "apiGroups", "apiVersions", "resources"] {
                if items(&rule[part]).is_empty() {
                    causes.push(Cause::required(format!("{path}.{part}"), ""));
                }
            }
            for (at, operation) in items(&rule["operations"]).iter().enumerate() {
                let allowed = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
                one_of(&format!("{path}.operations[{at}]"), operation, &allowed, causes);
            }
            one_of(
                &format!("{path}.scope"),
                &rule["scope"],
                &["*", "Cluster", "Namespaced"],
                causes,
            );
        }
    }
}

fn binding(spec: &Value, causes: &mut Vec<Cause>) {
    if spec["policyName"].as_str().unwrap_or_default().is_empty() {
        causes.push(Cause::required("spec.policyName", ""));
    }
    let reference = &spec["paramRef"];
    if reference.is_object() {
        let named = !reference["name"].as_str().unwrap_or_default().is_empty();
        match (named, reference["selector"].is_object()) {
            (true, true) => {
                for field in ["name", "selector"] {
                    let path = format!("spec.paramRef.{field}");
                    causes.push(Cause::forbidden(path, "name and selector are mutually exclusive"));
                }
            }
            (false, false) => {
                causes.push(Cause::required(
                    "spec.paramRef",
                    "one of name or selector must be specified",
                ));
            }
            _ => {}
        }
        let action = &reference["parameterNotFoundAction"];
        if action.as_str().unwrap_or_default().is_empty() {
            causes.push(Cause::required("spec.paramRef.parameterNotFoundAction", ""));
        } else {
            one_of(
                "spec.paramRef.parameterNotFoundAction",
                action,
                &["Deny", "Allow"],
                causes,
            );
        }
    }
    if spec["matchResources"].is_object() {
        resources("spec.matchResources", &spec["matchResources"], causes);
    }
    let actions = items(&spec["validationActions"]);
    if actions.is_empty() {
        causes.push(Cause::required(
            "spec.validationActions",
            "at least one validation action is required",
        ));
    }
    for (index, action) in actions.iter().enumerate() {
        one_of(
            &format!("spec.validationActions[{index}]"),
            action,
            &["Audit", "Deny", "Warn"],
            causes,
        );
    }
    let has = |action: &str| actions.iter().any(|one| one == action);
    if has("Deny") && has("Warn") {
        let problem = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        causes.push(Cause::invalid(
            "spec.validationActions",
            &spec["validationActions"],
            problem,
        ));
    }
}
