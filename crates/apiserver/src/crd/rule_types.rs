//! A first look at an expression before it is ever evaluated: variables and functions that are not declared, fields that the schema does not have.
//!
//! It knows the types of `self`, of what is reached from it by fields and indexes, and of a macro's variable. Everything else may be anything:
//! a rule is never refused for something that this does not understand.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue};

use super::cel_functions::is_declared;
use super::cel_values::escape;
use super::structural::{Kind, Structural};

/// What is known of a value.
#[derive(Clone, Copy)]
enum Type<'s> {
    Known(&'s Structural),
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Unknown,
}

impl Type<'_> {
    /// Its name, when it is certainly of this one scalar type.
    fn scalar(self) -> Option<&'static str> {
        Some(match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Known(node) if node.int_or_string || node.nullable => return None,
            Self::Known(node) => match (node.kind?, node.text_format) {
                (Kind::Boolean, _) => "bool",
                (Kind::Integer, _) => "int",
                (Kind::Number, _) => "double",
                (Kind::String, None) => "string",
                _ => return None,
            },
            Self::Unknown => return None,
        })
    }
}

/// Identifiers that are neither variables nor fields: types, and prefixes of functions.
const NAMES: [&str; 24] = [
    "bool",
    "bytes",
    "double",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "duration",
    "timestamp",
    "google",
    "optional",
    "optional_type",
    "sets",
    "math",
    "ip",
    "cidr",
    "base64",
    "url",
    "format",
    "quantity",
];

/// The first thing wrong, worded and placed as the compiler of a real server does.
pub(crate) fn check(
    expression: &IdedExpr,
    source: &str,
    schema: &Structural,
    root: bool,
    optional_old_self: bool,
    is_message: bool,
) -> Option<String> {
    let old_self = if optional_old_self {
        Type::Unknown
    } else {
        Type::Known(schema)
    };
    let mut checker = Checker {
        variables: vec![
            ("self".to_owned(), Type::Known(schema)),
            ("oldSelf".to_owned(), old_self),
        ],
        root: root.then_some(schema),
        source,
        problem: None,
    };
    let result = checker.infer(expression);
    let wanted = if is_message { "string" } else { "bool" };
    if result.scalar().is_some_and(|name| name != wanted)
        || matches!(result, Type::Known(node) if matches!(node.kind, Some(Kind::Object | Kind::Array)))
    {
        let what = if is_message {
            "messageExpression must evaluate to a string"
        } else {
            "cel expression must evaluate to a bool"
        };
        return Some(what.to_owned());
    }
    checker.problem.map(|problem| {
        format!(
            "{}compilation failed: {problem}",
            if is_message { "messageExpression " } else { "" }
        )
    })
}

/// The first variable or function of an expression that is not declared, where no schema says what its variables are.
pub(crate) fn undeclared(expression: &IdedExpr, source: &str, variables: &[&str]) -> Option<String> {
    let known = variables.iter().map(|name| ((*name).to_owned(), Type::Unknown));
    let mut checker = Checker {
        variables: known.collect(),
        root: None,
        source,
        problem: None,
    };
    checker.infer(expression);
    checker.problem
}

/// A problem at a place of a text, as the compiler of a real server shows it.
pub(super) fn marked(source: &str, at: usize, what: &str) -> String {
    let line_start = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let line_number = source[..at].matches('\n').count() + 1;
    let line = source[line_start..].lines().next().unwrap_or_default();
    let column = source[line_start..at].chars().count();
    let dots = ".".repeat(column);
    format!(
        "ERROR: <input>:{line_number}:{}: {what}\n | {line}\n | {dots}^",
        column + 1
    )
}

/// The name of a call with the name before its point: functions have such names, too.
fn qualified(call: &CallExpr) -> Option<String> {
    match &call.target.as_deref()?.expr {
        Expr::Ident(prefix) => Some(format!("{prefix}.{}", call.func_name)),
        _ => None,
    }
}

/// Operators and what macros become have names that nobody can write.
fn is_written(name: &str) -> bool {
    name.chars()
        .all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '.'))
}

struct Checker<'s, 'e> {
    variables: Vec<(String, Type<'s>)>,
    /// The schema whose metadata is visible.
    root: Option<&'s Structural>,
    source: &'e str,
    problem: Option<String>,
}

impl<'s> Checker<'s, '_> {
    fn infer(&mut self, expression: &IdedExpr) -> Type<'s> {
        match &expression.expr {
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => {
                let operand = self.infer(&select.operand);
                let field = self.field(operand, &select.field);
                if select.test { Type::Bool } else { field }
            }
            Expr::Call(call) => {
                let is_qualified = qualified(call).is_some_and(|name| is_declared(&name));
                let target = call.target.as_deref().filter(|_| !is_qualified);
                let target = target.map(|target| self.infer(target));
                if !is_qualified && is_written(&call.func_name) && !is_declared(&call.func_name) {
                    self.undeclared(&call.func_name, "(");
                }
                let arguments: Vec<Type<'s>> =
                    call.args.iter().map(|argument| self.infer(argument)).collect();
                self.call(&call.func_name, target, &arguments)
            }
            Expr::Comprehension(all) => {
                let range = self.infer(&all.iter_range);
                self.infer(&all.accu_init);
                let depth = self.variables.len();
                let values = match range {
                    Type::Known(node) => element(node),
                    _ => Type::Unknown,
                };
                let is_list = matches!(range, Type::Known(node) if node.items.is_some());
                match &all.iter_var2 {
                    None => self
                        .variables
                        .push((all.iter_var.clone(), if is_list { values } else { Type::Unknown })),
                    Some(second) => {
                        self.variables.push((all.iter_var.clone(), Type::Unknown));
                        self.variables.push((second.clone(), values));
                    }
                }
                self.variables.push((all.accu_var.clone(), Type::Unknown));
                for part in [&all.loop_cond, &all.loop_step, &all.result] {
                    self.infer(part);
                }
                self.variables.truncate(depth);
                Type::Unknown
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.infer(element);
                }
                Type::Unknown
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key);
                        self.infer(&entry.value);
                    }
                }
                Type::Unknown
            }
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::UInt(_) => Type::Uint,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::Bytes(_) | LiteralValue::Null => Type::Unknown,
            },
            Expr::Struct(object) => {
                self.undeclared(&object.type_name, "{");
                Type::Unknown
            }
            Expr::Unspecified => Type::Unknown,
        }
    }

    fn call(&mut self, name: &str, target: Option<Type<'s>>, arguments: &[Type<'s>]) -> Type<'s> {
        match (name, target, arguments) {
            ("_[_]", None, [Type::Known(node), _]) => element(node),
            ("_==_" | "_!=_", None, [left, right]) => {
                if let (Some(left), Some(right)) = (left.scalar(), right.scalar())
                    && left != right
                {
                    let operator = name.trim_matches('_');
                    let at = self.source.find(operator).unwrap_or(0);
                    self.report(
                        at,
                        &format!("found no matching overload for '{name}' applied to '({left}, {right})'"),
                    );
                }
                Type::Bool
            }
            ("_&&_" | "_||_" | "!_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in", None, _) => Type::Bool,
            _ => Type::Unknown,
        }
    }

    fn identifier(&mut self, name: &str) -> Type<'s> {
        if let Some((_, known)) = self.variables.iter().rev().find(|(known, _)| known == name) {
            return *known;
        }
        if !NAMES.contains(&name) && !name.starts_with(['@', '#']) && !name.starts_with("__") {
            self.undeclared(name, "");
        }
        Type::Unknown
    }

    /// Reports a name that stands for nothing: that of a function or type at the bracket behind it, any other where it begins.
    fn undeclared(&mut self, name: &str, bracket: &str) {
        let behind = if bracket.is_empty() { 0 } else { name.len() };
        let start = self.source.find(&format!("{name}{bracket}"));
        let at = start.map_or(0, |start| start + behind);
        self.report(at, &format!("undeclared reference to '{name}' (in container '')"));
    }

    fn field(&mut self, operand: Type<'s>, name: &str) -> Type<'s> {
        let Type::Known(node) = operand else {
            return Type::Unknown;
        };
        if let Some((_, property)) = node
            .properties
            .iter()
            .find(|(declared, _)| escape(declared).as_deref() == Some(name))
        {
            return Type::Known(property);
        }
        if let Some(values) = &node.additional {
            return Type::Known(values);
        }
        let sees_metadata = node.embedded || self.root.is_some_and(|root| std::ptr::eq(root, node));
        let is_declared =
            node.kind == Some(Kind::Object) && !node.properties.is_empty() && !node.int_or_string;
        if is_declared && !(sees_metadata && matches!(name, "apiVersion" | "kind" | "metadata")) {
            let at = self.source.find(&format!(".{name}")).unwrap_or(0);
            self.report(at, &format!("undefined field '{name}'"));
        }
        Type::Unknown
    }

    fn report(&mut self, at: usize, what: &str) {
        if self.problem.is_none() {
            self.problem = Some(marked(self.source, at, what));
        }
    }
}

fn element(node: &Structural) -> Type<'_> {
    match (&node.items, &node.additional) {
        (Some(items), _) => Type::Known(items),
        (None, Some(values)) => Type::Known(values),
        _ => Type::Unknown,
    }
}
