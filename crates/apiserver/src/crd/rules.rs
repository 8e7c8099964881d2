//! CEL rules (`x-kubernetes-validations`): compiled once per definition, evaluated with `self` and `oldSelf`, worded as a real server does.
//!
//! The language comes from the CEL crate, with other expressions in place of what it has otherwise (`cel_rewriting`) and functions of `cel_functions`. There is no
//! type checker and no cost budget; a rule that cannot be evaluated (a missing key, a wrong type) is a rejection.

use std::cell::OnceCell;

use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};
use serde_json::Value;

use super::cel_functions::with_functions;
use super::cel_values::convert;
use super::path::Path;
use super::structural::{Kind, Structural};
use super::{cel_functions, cel_rewriting, rule_types};
use crate::cause::Cause;

/// A compiled rule.
pub(crate) struct Rule {
    source: String,
    expression: Option<IdedExpr>,
    message: String,
    message_expression: Option<IdedExpr>,
    reason: Option<String>,
    field_path: String,
    optional_old_self: bool,
    pub(crate) uses_old_self: bool,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule")
            .field("rule", &self.source)
            .finish_non_exhaustive()
    }
}

/// Parses an expression, for a look at it.
///
/// # Errors
/// What the parser says, with the place.
pub(crate) fn parse(source: &str) -> Result<IdedExpr, String> {
    let parsed = Parser::new()
        .enable_optional_syntax(true)
        .parse(&cel_rewriting::without_double_negations(source));
    let parsed = parsed.map_err(|errors| {
        // Go shows an excerpt with a margin of one more space.
        errors.to_string().replace("\n| ", "\n | ")
    })?;
    cel_rewriting::expand(parsed).map_err(|misuse| {
        let at = source.find(&misuse.name).unwrap_or(0);
        rule_types::marked(source, at, misuse.problem)
    })
}

/// An expression as it is evaluated, if it parses; some variables are optionals.
pub(crate) fn compile(source: &str, optionals: &[&str]) -> Option<IdedExpr> {
    let parsed = parse(source).ok()?;
    Some(cel_rewriting::lower(parsed, optionals))
}

impl Rule {
    /// Compiles the rules of a schema. Those that do not parse are refused by `definition` before they get here.
    pub(crate) fn compile_all(rules: &Value) -> Vec<Self> {
        rules
            .as_array()
            .into_iter()
            .flatten()
            .map(Self::compile)
            .collect()
    }

    fn compile(raw: &Value) -> Self {
        let text = |key: &str| raw[key].as_str().unwrap_or_default().trim().to_owned();
        let optional_old_self = raw["optionalOldSelf"].as_bool().unwrap_or(false);
        let optionals: &[&str] = if optional_old_self { &["oldSelf"] } else { &[] };
        let source = text("rule");
        let expression = compile(&source, optionals);
        // Where a message is made, an old value is itself.
        let message_expression = Some(text("messageExpression"))
            .filter(|text| !text.is_empty())
            .and_then(|text| compile(&text, &[]));
        let uses = |expression: &Option<IdedExpr>| {
            expression
                .as_ref()
                .is_some_and(|expression| expression.references().has_variable("oldSelf"))
        };
        Self {
            uses_old_self: uses(&expression) || uses(&message_expression),
            expression,
            message: text("message"),
            message_expression,
            reason: raw["reason"].as_str().map(str::to_owned),
            field_path: text("fieldPath").trim_start_matches('.').to_owned(),
            optional_old_self,
            source,
        }
    }

    fn shown(&self) -> &str {
        if self.message.is_empty() {
            &self.source
        } else {
            &self.message
        }
    }
}

/// Evaluates all rules of a schema on a value; `old` is the value that it replaces.
pub(crate) fn validate(
    schema: &Structural,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    if schema.has_rules {
        with_functions(|functions| {
            let root = Position {
                node: schema,
                root: true,
            };
            walk(root, value, old, old == Some(value), path, functions, &mut causes);
        });
    }
    causes
}

/// A schema, and whether it is that of a whole resource, whose metadata rules may see.
#[derive(Clone, Copy)]
pub(super) struct Position<'s> {
    pub(super) node: &'s Structural,
    pub(super) root: bool,
}

impl<'s> Position<'s> {
    pub(super) fn below(node: &'s Structural) -> Self {
        Self {
            node,
            root: node.embedded,
        }
    }
}

/// `unchanged` says that the value, or the nearest one above that can be compared, equals the old one: its failures are tolerated.
fn walk(
    at: Position<'_>,
    value: &Value,
    old: Option<&Value>,
    unchanged: bool,
    path: &Path<'_>,
    functions: &Context<'_>,
    causes: &mut Vec<Cause>,
) {
    let schema = at.node;
    if value.is_null() || !schema.has_rules || unchanged && !schema.has_transition_rules {
        return;
    }
    evaluate_all(at, value, old, unchanged, path, functions, causes);
    for part in schema.all_of.iter().filter(|part| part.has_rules) {
        // The value has the type that the schema declares, not the part of it that only restricts.
        for rule in part.rules.iter().filter(|rule| rule.uses_old_self || !unchanged) {
            evaluate(rule, &Scope::new(at, value, old), path, functions, causes);
        }
    }
    match value {
        Value::Array(list) => {
            let Some(items) = schema.items.as_deref().filter(|items| items.has_rules) else {
                return;
            };
            for (index, item) in list.iter().enumerate() {
                let old_item = schema.old_item(item, old);
                let unchanged = unchanged || old_item == Some(item);
                walk(
                    Position::below(items),
                    item,
                    old_item,
                    unchanged,
                    &path.index(index),
                    functions,
                    causes,
                );
            }
        }
        Value::Object(map) => {
            for (key, child) in map {
                let (node, path) = match (schema.properties.get(key), &schema.additional) {
                    (Some(node), _) => (node, path.field(key)),
                    (None, Some(node)) => (&**node, path.key(key)),
                    _ => continue,
                };
                if node.has_rules {
                    let old_child = old.and_then(|old| old.get(key));
                    let unchanged = unchanged || old_child == Some(child);
                    walk(
                        Position::below(node),
                        child,
                        old_child,
                        unchanged,
                        &path,
                        functions,
                        causes,
                    );
                }
            }
        }
        _ => {}
    }
}

/// `self` and `oldSelf` as CEL sees them, converted when the first rule asks.
struct Scope<'s> {
    at: Position<'s>,
    value: &'s Value,
    old: Option<&'s Value>,
    converted: OnceCell<Cel>,
    converted_old: OnceCell<Option<Cel>>,
}

impl<'s> Scope<'s> {
    fn new(at: Position<'s>, value: &'s Value, old: Option<&'s Value>) -> Self {
        Self {
            at,
            value,
            old: old.filter(|old| !old.is_null()),
            converted: OnceCell::new(),
            converted_old: OnceCell::new(),
        }
    }

    fn bind<'c>(&self, functions: &'c Context<'c>, old_self: bool, optional: bool) -> Context<'c> {
        let mut context = functions.new_inner_scope();
        let this = self.converted.get_or_init(|| convert(self.at, self.value));
        context.add_variable_from_value("self", this.clone());
        if old_self {
            let old = self
                .converted_old
                .get_or_init(|| self.old.map(|old| convert(self.at, old)))
                .clone();
            match (old, optional) {
                (old, true) => context.add_variable_from_value("oldSelf", cel_functions::optional(old)),
                (Some(old), false) => context.add_variable_from_value("oldSelf", old),
                (None, false) => {}
            }
        }
        context
    }
}

fn evaluate_all(
    at: Position<'_>,
    value: &Value,
    old: Option<&Value>,
    unchanged: bool,
    path: &Path<'_>,
    functions: &Context<'_>,
    causes: &mut Vec<Cause>,
) {
    let scope = Scope::new(at, value, old);
    for rule in at
        .node
        .rules
        .iter()
        .filter(|rule| rule.uses_old_self || !unchanged)
    {
        evaluate(rule, &scope, path, functions, causes);
    }
}

fn evaluate(
    rule: &Rule,
    scope: &Scope<'_>,
    path: &Path<'_>,
    functions: &Context<'_>,
    causes: &mut Vec<Cause>,
) {
    let Some(expression) = &rule.expression else {
        return;
    };
    // A transition is judged only where there is something to compare with.
    if rule.uses_old_self && scope.old.is_none() && !rule.optional_old_self {
        return;
    }
    let context = scope.bind(functions, rule.uses_old_self, rule.optional_old_self);
    let kind = Value::from(scope.at.node.kind.map_or("", Kind::name));
    match context.resolve(expression) {
        Ok(Cel::Bool(true)) => {}
        Ok(Cel::Bool(false)) => {
            let plain = scope.bind(functions, rule.uses_old_self, false);
            causes.push(failure(rule, scope, &plain, path));
        }
        Ok(_) => causes.push(Cause::invalid(
            path,
            &kind,
            &format!("rule evaluated to no boolean: {}", rule.shown()),
        )),
        Err(error) => {
            let text = error_text(&error);
            let text = if text == NO_OVERLOAD {
                format!(
                    "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    rule.shown()
                )
            } else {
                format!("{text} evaluating rule: {}", rule.shown())
            };
            causes.push(Cause::invalid(path, &kind, &text));
        }
    }
}

fn failure(rule: &Rule, scope: &Scope<'_>, context: &Context<'_>, path: &Path<'_>) -> Cause {
    let detail = message(rule, context);
    let spelled = path.to_string();
    let field = match (spelled.is_empty(), rule.field_path.is_empty()) {
        (_, true) => spelled,
        (true, false) => rule.field_path.clone(),
        (false, false) => format!("{spelled}.{}", rule.field_path),
    };
    let unshown = matches!(scope.at.node.kind, Some(Kind::Object | Kind::Array));
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, &detail),
        Some("FieldValueRequired") => Cause::required(field, &detail),
        Some("FieldValueDuplicate") if unshown => Cause::duplicate_unshown(field),
        Some("FieldValueDuplicate") => Cause::duplicate(field, scope.value),
        _ if unshown => Cause::invalid_unshown(field, &detail),
        _ => Cause::invalid(field, scope.value, &detail),
    }
}

/// The message expression's text, when it is one line of text; else the message; else the rule.
fn message(rule: &Rule, context: &Context<'_>) -> String {
    if let Some(expression) = &rule.message_expression
        && let Ok(Cel::String(text)) = context.resolve(expression)
    {
        let text = text.trim();
        if !text.is_empty() && !text.contains(['\n', '\r']) && text.len() <= 5 * 1024 {
            return text.to_owned();
        }
    }
    match rule.message.is_empty() {
        false => rule.message.clone(),
        true => format!("failed rule: {}", rule.source),
    }
}

const NO_OVERLOAD: &str = "no such overload";

/// The text of Go's implementation for an error.
pub(crate) fn error_text(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {}", index_text(index)),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::NoSuchOverload
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnsupportedIndex(..)
        | ExecutionError::UnsupportedListIndex(_)
        | ExecutionError::UnsupportedMapIndex(_) => NO_OVERLOAD.to_owned(),
        other => other.to_string(),
    }
}

fn index_text(index: &Cel) -> String {
    match index {
        Cel::Int(index) => index.to_string(),
        Cel::UInt(index) => index.to_string(),
        other => format!("{other:?}"),
    }
}
