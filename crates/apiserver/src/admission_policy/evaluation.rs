//! The expressions of a policy: compiled once, evaluated on a request with `object`, `oldObject`, `request`, `params`, `namespaceObject` and
//! `variables`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, IdedExpr, Value as Cel};
use serde_json::Value;

use crate::crd::cel;

/// Longest message that an expression may make, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// An expression with its text, which messages quote.
struct Expression {
    source: String,
    parsed: Option<IdedExpr>,
}

impl Expression {
    fn of(value: &Value) -> Self {
        let source = value.as_str().unwrap_or_default().trim().to_owned();
        Self {
            parsed: cel::compile(&source, &[]),
            source,
        }
    }
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: (u16, &'static str),
}

/// A compiled policy.
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) spec: Value,
    fails_open: bool,
    conditions: Vec<(String, Expression)>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
}

/// A failure: what it is about, and the code and reason of a refusal.
pub(super) struct Verdict {
    pub(super) message: String,
    pub(super) reason: (u16, &'static str),
}

/// What expressions are evaluated on.
pub(super) struct Input<'a> {
    pub(super) object: Option<&'a Value>,
    pub(super) old: Option<&'a Value>,
    pub(super) request: &'a Value,
    pub(super) namespace: Option<&'a Value>,
    pub(super) parameter: Option<&'a Value>,
}

/// The code of a refusal for a reason; those that a policy may not name are refused when it is written.
fn reason_of(reason: &Value) -> (u16, &'static str) {
    match reason.as_str() {
        Some("Unauthorized") => (401, "Unauthorized"),
        Some("Forbidden") => (403, "Forbidden"),
        Some("RequestEntityTooLarge") => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    }
}

impl Policy {
    pub(super) fn compile(object: &Value) -> Self {
        let spec = &object["spec"];
        let list = |field: &str| spec[field].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        let named = |field: &str| {
            let entries = list(field).iter();
            entries
                .map(|entry| (text(&entry["name"]), Expression::of(&entry["expression"])))
                .collect()
        };
        let validations = list("validations").iter().map(|entry| Validation {
            expression: Expression::of(&entry["expression"]),
            message: text(&entry["message"]),
            message_expression: entry["messageExpression"]
                .is_string()
                .then(|| Expression::of(&entry["messageExpression"])),
            reason: reason_of(&entry["reason"]),
        });
        Self {
            name: text(&object["metadata"]["name"]),
            fails_open: spec["failurePolicy"] == "Ignore",
            conditions: named("matchConditions"),
            variables: named("variables"),
            validations: validations.collect(),
            spec: spec.clone(),
        }
    }

    /// What follows from something that cannot be evaluated: nothing, or a failure.
    pub(super) fn on_error(&self, message: String) -> Option<Verdict> {
        (!self.fails_open).then_some(Verdict {
            message,
            reason: (422, "Invalid"),
        })
    }

    /// All failures of a request.
    pub(super) fn judge(&self, input: &Input<'_>) -> Vec<Verdict> {
        cel::with_functions(|functions| {
            let context = bind(functions, input);
            match self.applies(&context) {
                Ok(true) => {}
                Ok(false) => return Vec::new(),
                Err(problem) => return self.on_error(problem).into_iter().collect(),
            }
            let mut context = context;
            let broken = self.bind_variables(&mut context);
            let outcomes = self.validations.iter();
            outcomes
                .filter_map(|validation| self.fails(validation, &context, &broken))
                .collect()
        })
    }

    /// True when all conditions hold. One that does not decides, whatever others cannot be evaluated.
    fn applies(&self, context: &Context<'_>) -> Result<bool, String> {
        let mut problem = None;
        for (name, condition) in &self.conditions {
            match evaluate(condition, context, &BTreeMap::new()) {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(_) => problem = problem.or(Some(format!("matchCondition '{name}' is no boolean"))),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        problem.map_or(Ok(true), Err)
    }

    /// Evaluates the variables in their order. Those that cannot be evaluated are returned: only who uses one fails.
    fn bind_variables(&self, context: &mut Context<'_>) -> BTreeMap<String, String> {
        let mut broken = BTreeMap::new();
        let mut values: HashMap<Key, Cel> = HashMap::new();
        context.add_variable_from_value("variables", map_of(values.clone()));
        for (name, expression) in &self.variables {
            match evaluate(expression, context, &broken) {
                Ok(value) => {
                    values.insert(Key::String(Arc::new(name.clone())), value);
                    context.add_variable_from_value("variables", map_of(values.clone()));
                }
                Err(error) => {
                    broken.insert(name.clone(), error);
                }
            }
        }
        broken
    }

    fn fails(
        &self,
        validation: &Validation,
        context: &Context<'_>,
        broken: &BTreeMap<String, String>,
    ) -> Option<Verdict> {
        match evaluate(&validation.expression, context, broken) {
            Ok(Cel::Bool(true)) => None,
            Ok(_) => Some(Verdict {
                message: message(validation, context, broken),
                reason: validation.reason,
            }),
            Err(error) => self.on_error(error),
        }
    }
}

fn map_of(values: HashMap<Key, Cel>) -> Cel {
    Cel::Map(Map {
        map: Arc::new(values),
    })
}

fn bind<'c>(functions: &'c Context<'c>, input: &Input<'_>) -> Context<'c> {
    let mut context = functions.new_inner_scope();
    let value = |value: Option<&Value>| value.map_or(Cel::Null, cel::open);
    context.add_variable_from_value("object", value(input.object));
    context.add_variable_from_value("oldObject", value(input.old));
    context.add_variable_from_value("request", cel::open(input.request));
    context.add_variable_from_value("namespaceObject", value(input.namespace));
    context.add_variable_from_value("params", value(input.parameter));
    context
}

fn evaluate(
    expression: &Expression,
    context: &Context<'_>,
    broken: &BTreeMap<String, String>,
) -> Result<Cel, String> {
    let Some(parsed) = &expression.parsed else {
        return Err(format!("expression '{}' cannot be compiled", expression.source));
    };
    context.resolve(parsed).map_err(|error| {
        let text = cel::error_text(&error);
        let variable = text
            .strip_prefix("no such key: ")
            .and_then(|name| Some((name, broken.get(name)?)));
        let text = match variable {
            Some((name, problem)) => format!("composited variable {name:?} fails to evaluate: {problem}"),
            None => text,
        };
        format!("expression '{}' resulted in error: {text}", expression.source)
    })
}

/// The message expression's text, when it is one line; else the message; else the expression.
fn message(validation: &Validation, context: &Context<'_>, broken: &BTreeMap<String, String>) -> String {
    if let Some(expression) = &validation.message_expression
        && let Ok(Cel::String(text)) = evaluate(expression, context, broken)
    {
        let text = text.trim();
        if !text.is_empty() && !text.contains('\n') && text.len() <= LONGEST_MESSAGE {
            return text.to_owned();
        }
    }
    match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.expression.source),
        message => message.to_owned(),
    }
}
