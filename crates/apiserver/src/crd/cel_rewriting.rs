//! Expressions rewritten before they are used: macros that the CEL crate does not know become what they mean (`expand`), and what it evaluates
//! otherwise than a real server becomes calls of functions that do not (`lower`).
//!
//! Pure: trees in, trees out. The functions are in `cel_functions`.

use std::convert::Infallible;
use std::mem;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, MapEntryExpr,
    MapExpr, SelectExpr, operators,
};

use super::cel_functions::{
    AT_KEY, ENTRIES, IS_MAP, KEYS, MAP_OF, MERGED, NAMED_FORMAT, SAME, TEXT, call, plain,
};

/// What a loop has gathered, as the macros of the CEL crate call it.
const RESULT: &str = "@result";
/// A key with its value.
const ENTRY: &str = "@entry";
/// What a loop goes through.
const RANGE: &str = "@range";

/// A macro that is used wrongly.
pub(super) struct Misuse {
    pub(super) name: String,
    pub(super) problem: &'static str,
}

/// The parser takes `!!a` for `!a`, and `--a` for `-a`. Such pairs go before it sees them, with blanks in their place; texts in quotes stay, and so does what is
/// taken from something.
pub(super) fn without_double_negations(source: &str) -> String {
    let mut bytes = source.as_bytes().to_vec();
    let (mut at, mut first) = (0, None);
    // Whether what comes before is a value: a minus behind one is no negation.
    let mut is_behind_value = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\'' | b'"' | b'`' => {
                (first, is_behind_value) = (None, true);
                at = end_of_quoted(&bytes, at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                // A comment, which may stand between the two.
                let rest = bytes[at..].iter();
                at += rest.take_while(|byte| **byte != b'\n').count();
                continue;
            }
            byte if is_of_word(byte) => {
                let rest = bytes[at..].iter();
                let end = at + rest.take_while(|byte| is_of_word(**byte)).count();
                (first, is_behind_value) = (None, bytes[at..end] != *b"in");
                at = end;
                continue;
            }
            byte @ (b'!' | b'-') if !is_behind_value && bytes.get(at + 1) != Some(&b'=') => {
                match first.take() {
                    Some(other) if bytes[other] == byte => (bytes[other], bytes[at]) = (b' ', b' '),
                    _ => first = Some(at),
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            byte => (first, is_behind_value) = (None, matches!(byte, b')' | b']' | b'}')),
        }
        at += 1;
    }
    String::from_utf8(bytes).unwrap_or_else(|_| source.to_owned())
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// The place behind a text in quotes.
fn end_of_quoted(bytes: &[u8], start: usize) -> usize {
    let quotes = [bytes[start]; 3];
    let quotes = match bytes[start..].starts_with(&quotes) {
        true => &quotes[..],
        false => &quotes[..1],
    };
    let is_raw = start > 0 && matches!(bytes[start - 1], b'r' | b'R');
    let mut at = start + quotes.len();
    while at < bytes.len() {
        if bytes[at] == b'\\' && !is_raw {
            at += 2;
        } else if bytes[at..].starts_with(quotes) {
            return at + quotes.len();
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// An expression with other parts.
fn with_parts<E>(
    expression: IdedExpr,
    rewrite: &mut impl FnMut(IdedExpr) -> Result<IdedExpr, E>,
) -> Result<IdedExpr, E> {
    let expr = match expression.expr {
        Expr::Call(call) => Expr::Call(CallExpr {
            target: match call.target {
                Some(target) => Some(Box::new(rewrite(*target)?)),
                None => None,
            },
            args: call.args.into_iter().map(rewrite).collect::<Result<_, E>>()?,
            func_name: call.func_name,
        }),
        Expr::Select(select) => Expr::Select(SelectExpr {
            operand: Box::new(rewrite(*select.operand)?),
            ..select
        }),
        Expr::Comprehension(all) => {
            let all = *all;
            Expr::Comprehension(Box::new(ComprehensionExpr {
                iter_range: rewrite(all.iter_range)?,
                accu_init: rewrite(all.accu_init)?,
                loop_cond: rewrite(all.loop_cond)?,
                loop_step: rewrite(all.loop_step)?,
                result: rewrite(all.result)?,
                ..all
            }))
        }
        Expr::List(list) => Expr::List(ListExpr {
            elements: list.elements.into_iter().map(rewrite).collect::<Result<_, E>>()?,
            ..list
        }),
        Expr::Map(map) => {
            let mut entries = Vec::with_capacity(map.entries.len());
            for IdedEntryExpr { id, expr } in map.entries {
                let expr = match expr {
                    EntryExpr::MapEntry(entry) => EntryExpr::MapEntry(MapEntryExpr {
                        key: rewrite(entry.key)?,
                        value: rewrite(entry.value)?,
                        optional: entry.optional,
                    }),
                    field => field,
                };
                entries.push(IdedEntryExpr { id, expr });
            }
            Expr::Map(MapExpr { entries })
        }
        other => other,
    };
    Ok(IdedExpr {
        id: expression.id,
        expr,
    })
}

/// Puts in place of macros with optionals or two variables what they mean.
///
/// # Errors
/// One is used wrongly.
pub(super) fn expand(expression: IdedExpr) -> Result<IdedExpr, Misuse> {
    let expression = with_parts(expression, &mut expand)?;
    match expression.expr {
        Expr::Call(CallExpr {
            func_name,
            target: Some(target),
            args,
        }) if is_macro(&func_name, args.len()) => {
            let meant = meaning(&func_name, *target, args);
            meant.map_err(|problem| Misuse {
                name: func_name,
                problem,
            })
        }
        expr => Ok(IdedExpr {
            id: expression.id,
            expr,
        }),
    }
}

fn is_macro(name: &str, arguments: usize) -> bool {
    match name {
        "optMap" | "optFlatMap" => arguments == 2,
        "all" | "exists" | "exists_one" | "existsOne" => arguments == 3,
        "transformList" | "transformMap" | "transformMapEntry" => matches!(arguments, 3 | 4),
        _ => false,
    }
}

fn meaning(name: &str, target: IdedExpr, mut args: Vec<IdedExpr>) -> Result<IdedExpr, &'static str> {
    let body = args.pop().unwrap_or_default();
    let mut args = args.into_iter();
    let first = variable(args.next())?;
    if matches!(name, "optMap" | "optFlatMap") {
        return Ok(of_optional(name, target, first, body));
    }
    let second = variable(args.next())?;
    if first == second {
        return Err("duplicate variable name");
    }
    Ok(of_entries(name, target, (first, second), args.next(), body))
}

fn variable(argument: Option<IdedExpr>) -> Result<String, &'static str> {
    match argument.unwrap_or_default().expr {
        Expr::Ident(name) => Ok(name),
        _ => Err("argument must be a simple name"),
    }
}

/// A macro over what an optional holds, if anything.
fn of_optional(name: &str, target: IdedExpr, variable: String, body: IdedExpr) -> IdedExpr {
    let optional = |function: &str, args: Vec<IdedExpr>| method(ident("optional"), function, args);
    let value = method(target.clone(), "value", Vec::new());
    let body = bound(variable, value, body);
    let some = if name == "optMap" {
        optional("of", vec![body])
    } else {
        body
    };
    let has_value = method(target, "hasValue", Vec::new());
    call(
        operators::CONDITIONAL,
        vec![has_value, some, optional("none", Vec::new())],
    )
}

/// A macro over the keys and values of a map, or the indexes and items of a list.
fn of_entries(
    name: &str,
    target: IdedExpr,
    (key, value): (String, String),
    filter: Option<IdedExpr>,
    body: IdedExpr,
) -> IdedExpr {
    let gathered = || ident(RESULT);
    let undecided = |decided: IdedExpr| call(operators::NOT_STRICTLY_FALSE, vec![decided]);
    let (init, condition, step, result) = match name {
        "all" => (
            boolean(true),
            undecided(gathered()),
            call(operators::LOGICAL_AND, vec![gathered(), body]),
            gathered(),
        ),
        "exists" => (
            boolean(false),
            undecided(call(operators::LOGICAL_NOT, vec![gathered()])),
            call(operators::LOGICAL_OR, vec![gathered(), body]),
            gathered(),
        ),
        "exists_one" | "existsOne" => {
            let more = call(operators::ADD, vec![gathered(), int(1)]);
            (
                int(0),
                boolean(true),
                call(operators::CONDITIONAL, vec![body, more, gathered()]),
                call(operators::EQUALS, vec![gathered(), int(1)]),
            )
        }
        _ => {
            let item = match name {
                "transformMap" => list(vec![ident(&key), body]),
                _ => body,
            };
            let more = call(operators::ADD, vec![gathered(), list(vec![item])]);
            let step = match filter {
                Some(filter) => call(operators::CONDITIONAL, vec![filter, more, gathered()]),
                None => more,
            };
            let result = match name {
                "transformMap" => call(MAP_OF, vec![gathered()]),
                "transformMapEntry" => call(MERGED, vec![gathered()]),
                _ => gathered(),
            };
            (list(Vec::new()), boolean(true), step, result)
        }
    };
    let part = |index| call(operators::INDEX, vec![ident(ENTRY), int(index)]);
    let step = bound(key, part(0), bound(value, part(1), step));
    plain(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: call(ENTRIES, vec![target]),
        iter_var: ENTRY.to_owned(),
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: init,
        loop_cond: condition,
        loop_step: step,
        result,
    })))
}

/// An expression in which a name stands for a value: a loop that never runs.
fn bound(name: String, value: IdedExpr, body: IdedExpr) -> IdedExpr {
    plain(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: list(Vec::new()),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        loop_step: ident(&name),
        accu_var: name,
        accu_init: value,
        loop_cond: boolean(false),
        result: body,
    })))
}

fn method(target: IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    plain(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: Some(Box::new(target)),
        args,
    }))
}

fn ident(name: &str) -> IdedExpr {
    plain(Expr::Ident(name.to_owned()))
}

fn list(elements: Vec<IdedExpr>) -> IdedExpr {
    plain(Expr::List(ListExpr::new(elements)))
}

fn boolean(value: bool) -> IdedExpr {
    plain(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn int(value: i64) -> IdedExpr {
    plain(Expr::Literal(LiteralValue::Int(value.into())))
}

/// Puts calls in place of what the CEL crate has otherwise than a real server: fields of what is no map, optionals and what is reached through them,
/// names of types, conversions to texts, numbers that may be of another type than what they are compared with, loops over maps. `optionals` are variables that
/// are optionals.
pub(super) fn lower(expression: IdedExpr, optionals: &[&str]) -> IdedExpr {
    if let Some(name) = type_name(&expression) {
        return ident(&name);
    }
    let Ok(IdedExpr { id, expr }) = with_parts(expression, &mut |part| {
        Ok::<_, Infallible>(lower(part, optionals))
    });
    let expr = match expr {
        Expr::Select(select) if !select.test => field(*select.operand, &select.field, optionals).expr,
        Expr::Select(select) if is_optional(&select.operand, optionals) => {
            let found = field(*select.operand, &select.field, optionals);
            return method(found, "hasValue", Vec::new());
        }
        Expr::Call(call) => lower_call(call, optionals),
        Expr::Comprehension(all) => return in_order(*all, optionals),
        other => other,
    };
    IdedExpr { id, expr }
}

/// A loop that goes through the keys of a map in their order: the CEL crate's maps have an order of their own in each run.
fn in_order(mut all: ComprehensionExpr, optionals: &[&str]) -> IdedExpr {
    let range_of = |range: IdedExpr| {
        let (is_map, keys) = (call(IS_MAP, vec![range.clone()]), call(KEYS, vec![range.clone()]));
        call(operators::CONDITIONAL, vec![is_map, keys, range])
    };
    match &all.iter_range.expr {
        Expr::List(_) => {}
        Expr::Call(range) if range.func_name == ENTRIES => {}
        // The crate would put what it holds in its place, and go through that.
        _ if is_optional(&all.iter_range, optionals) => {}
        // The crate copies what a name is made to stand for, and not what is found on the way of a path.
        _ if is_path(&all.iter_range) => all.iter_range = range_of(mem::take(&mut all.iter_range)),
        _ => {
            let range = mem::replace(&mut all.iter_range, range_of(ident(RANGE)));
            let all = plain(Expr::Comprehension(Box::new(all)));
            return bound(RANGE.to_owned(), range, all);
        }
    }
    plain(Expr::Comprehension(Box::new(all)))
}

/// Whether an expression is a name, or fields and items of what it stands for.
fn is_path(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(_) => true,
        Expr::Call(called) => match (called.func_name.as_str(), &called.args[..]) {
            (operators::INDEX, [of, key]) => matches!(key.expr, Expr::Literal(_)) && is_path(of),
            _ => false,
        },
        _ => false,
    }
}

/// The field of a map, or what an optional has there.
fn field(operand: IdedExpr, name: &str, optionals: &[&str]) -> IdedExpr {
    let function = match is_optional(&operand, optionals) {
        true => AT_KEY,
        false => operators::INDEX,
    };
    let name = plain(Expr::Literal(LiteralValue::String(name.into())));
    call(function, vec![operand, name])
}

fn lower_call(mut called: CallExpr, optionals: &[&str]) -> Expr {
    // Numbers of two types may be equal, and the crate does not compare optionals at all.
    let is_compared = |args: &[IdedExpr]| {
        args.iter()
            .any(|one| is_number(one) || is_optional(one, optionals))
    };
    let function = match (called.func_name.as_str(), &called.args[..]) {
        (operators::OPT_SELECT | operators::OPT_INDEX, [_, _]) => AT_KEY,
        (operators::INDEX, [of, _]) if is_optional(of, optionals) => AT_KEY,
        (operators::EQUALS, args) if is_compared(args) => SAME,
        (operators::NOT_EQUALS, args) if is_compared(args) => {
            called.func_name = operators::LOGICAL_NOT.to_owned();
            called.args = vec![call(SAME, called.args)];
            return Expr::Call(called);
        }
        ("string", [_]) if called.target.is_none() => TEXT,
        ("named", [_]) if is_named(called.target.as_deref(), "format") => {
            called.target = None;
            NAMED_FORMAT
        }
        _ => return Expr::Call(called),
    };
    called.func_name = function.to_owned();
    Expr::Call(called)
}

fn is_named(expression: Option<&IdedExpr>, wanted: &str) -> bool {
    matches!(expression, Some(IdedExpr { expr: Expr::Ident(name), .. }) if name == wanted)
}

/// Whether an expression is a number that is written out.
fn is_number(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Literal(value) => matches!(
            value,
            LiteralValue::Int(_) | LiteralValue::UInt(_) | LiteralValue::Double(_)
        ),
        Expr::Call(call) => call.func_name == operators::NEGATE && call.args.iter().all(is_number),
        _ => false,
    }
}

/// Whether an expression is certainly an optional.
fn is_optional(expression: &IdedExpr, optionals: &[&str]) -> bool {
    match &expression.expr {
        Expr::Ident(name) => optionals.contains(&name.as_str()),
        Expr::Comprehension(all) => is_optional(&all.result, optionals),
        Expr::Call(call) => match (call.func_name.as_str(), &call.args[..]) {
            (AT_KEY | NAMED_FORMAT, _) => true,
            (operators::CONDITIONAL, [_, yes, no]) => {
                is_optional(yes, optionals) || is_optional(no, optionals)
            }
            ("of" | "none" | "ofNonZeroValue", _) => is_named(call.target.as_deref(), "optional"),
            ("or" | "validate" | "first" | "last", _) => call.target.is_some(),
            _ => false,
        },
        _ => false,
    }
}

/// The name of a type that is written as fields of a package.
fn type_name(expression: &IdedExpr) -> Option<String> {
    let Expr::Select(kind) = &expression.expr else {
        return None;
    };
    let Expr::Select(package) = &kind.operand.expr else {
        return None;
    };
    let is_type = package.field == "protobuf" && matches!(kind.field.as_str(), "Duration" | "Timestamp");
    let is_type = is_type && is_named(Some(&package.operand), "google");
    is_type.then(|| format!("google.protobuf.{}", kind.field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_negations_go_and_texts_stay() {
        for (source, rest) in [
            ("!!a", "  a"),
            ("! !a && !b", "   a && !b"),
            ("!!!a", "  !a"),
            ("a != !b", "a != !b"),
            ("!(!a)", "!(!a)"),
            (
                "'!!' + \"!!\" + '''!'!''' + r'!!\\'",
                "'!!' + \"!!\" + '''!'!''' + r'!!\\'",
            ),
            ("'\\'!!' == x", "'\\'!!' == x"),
            ("'!!", "'!!"),
            ("ä == !!b", "ä ==   b"),
            ("--a", "  a"),
            ("- - -1", "    -1"),
            ("f(--a, [--b], -c)", "f(  a, [  b], -c)"),
            ("a--b", "a--b"),
            ("a - --b", "a -   b"),
            (
                "f(a)--b + x[0]--b + {}--b + 'a'--b",
                "f(a)--b + x[0]--b + {}--b + 'a'--b",
            ),
            ("x in --y ? --x : -y", "x in   y ?   x : -y"),
            ("1e-5 - -1", "1e-5 - -1"),
            ("a.`b---c`--d", "a.`b---c`--d"),
            (
                "// not so!\n!a // isn't\n&& !!b",
                "// not so!\n!a // isn't\n&&   b",
            ),
        ] {
            assert_eq!(without_double_negations(source), rest, "{source}");
        }
    }
}
