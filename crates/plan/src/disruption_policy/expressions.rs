//! CEL over one object: whether it is healthy. Every expression ends soon, because its cost is bounded before it is asked.
//!
//! CEL has no loops but its macros, so that an expression costs at most its length times the longest list, as often as macros are nested. What
//! might cost more is refused, and so is what could make texts grow: only CEL's own functions are known, and few sums.

use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;

const MOST_CHARACTERS: usize = 512;
const DEEPEST: usize = 16;
/// Operators that nest when they are repeated, of each sort.
const MOST_OPERATORS: usize = 24;
const MOST_SUMS: usize = 8;
const MOST_MACROS: usize = 3;
const MACROS: [&str; 6] = ["all", "exists", "exists_one", "filter", "map", "reduce"];
/// Steps that one look at an object may take at most.
const MOST_STEPS: u64 = 2_000_000;
/// Largest object, as JSON.
const MOST_BYTES: usize = 512 * 1024;

/// Reads an expression.
///
/// # Errors
/// It is no CEL, or could take too long.
pub fn check(text: &str) -> Result<(), String> {
    read(text).map(drop)
}

fn read(text: &str) -> Result<Program, String> {
    bounded(text)?;
    Program::compile(text).map_err(|errors| {
        let said = errors.to_string();
        format!("is no CEL: {}", said.lines().next().unwrap_or_default())
    })
}

/// The words of an expression: names and numbers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    parts.filter(|word| !word.is_empty())
}

fn macros(text: &str) -> usize {
    words(text).filter(|word| MACROS.contains(word)).count()
}

/// What is counted holds for texts in quotes as well: to refuse too much is safe.
fn bounded(text: &str) -> Result<(), String> {
    if text.chars().count() > MOST_CHARACTERS {
        return Err(format!("is longer than {MOST_CHARACTERS} characters"));
    }
    let (mut depth, mut deepest) = (0_usize, 0);
    for character in text.chars() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    let count = |wanted: &[char]| {
        text.chars()
            .filter(|character| wanted.contains(character))
            .count()
    };
    if deepest > DEEPEST {
        return Err(format!("nests deeper than {DEEPEST} brackets"));
    }
    if count(&['!', '-']) > MOST_OPERATORS || count(&['?']) > MOST_OPERATORS {
        return Err(format!("has more than {MOST_OPERATORS} of one operator"));
    }
    if count(&['+']) > MOST_SUMS {
        return Err(format!("has more than {MOST_SUMS} sums"));
    }
    if macros(text) > MOST_MACROS {
        return Err(format!("has more than {MOST_MACROS} of {}", MACROS.join(", ")));
    }
    Ok(())
}

/// Whether an object is healthy by an expression.
///
/// # Errors
/// It is no CEL, could take too long, fails, or is no truth value.
pub fn holds(text: &str, object: &Value) -> Result<bool, String> {
    let program = read(text)?;
    let size = object.to_string().len();
    if size > MOST_BYTES {
        return Err(format!(
            "the object is {size} bytes large, more than {MOST_BYTES}"
        ));
    }
    let length = u64::try_from(longest(object).max(text.len())).unwrap_or(u64::MAX);
    let nested = u32::try_from(macros(text)).unwrap_or(u32::MAX);
    let steps = length.saturating_pow(nested).saturating_mul(text.len() as u64);
    if nested > 1 && steps > MOST_STEPS {
        return Err(format!(
            "could take {steps} steps, because its macros go over a list of {length}: use fewer of them, or a smaller object"
        ));
    }
    let mut context = Context::default();
    context
        .add_variable("self", object)
        .map_err(|error| format!("the object cannot be read: {error}"))?;
    match program.execute(&context) {
        Ok(Cel::Bool(answer)) => Ok(answer),
        Ok(_) => Err("is neither true nor false".to_owned()),
        Err(error) => Err(format!("cannot be evaluated: {error}")),
    }
}

/// The longest list, map or text of an object.
fn longest(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.iter().map(longest).max().unwrap_or(0).max(list.len()),
        Value::Object(map) => map.values().map(longest).max().unwrap_or(0).max(map.len()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_says_whether_it_is_healthy() {
        let object =
            json!({"status": {"phase": "Ready", "members": [{"synced": true}, {"synced": true}], "lag": 3}});
        let holds = |text: &str| holds(text, &object);
        assert_eq!(holds("self.status.phase == 'Ready'"), Ok(true));
        assert_eq!(holds("self.status.lag > 5"), Ok(false));
        assert_eq!(holds("self.status.members.all(one, one.synced)"), Ok(true));
        assert_eq!(holds("has(self.status.nothing)"), Ok(false));
        assert!(holds("self.status.nothing == 1").is_err());
        assert!(
            holds("self.status.lag")
                .unwrap_err()
                .contains("neither true nor false")
        );
    }

    #[test]
    fn what_is_no_cel_or_might_not_end_is_refused_before_it_is_asked() {
        for text in [
            "self.status.",
            "a b",
            &"(".repeat(200),
            &format!("{}1", "!".repeat(100)),
            &"x".repeat(600),
            "self.a.map(x, self.a.map(y, self.a.map(z, self.a.map(w, w)))).size() > 0",
            "[self.a + self.a + self.a + self.a + self.a + self.a + self.a + self.a + self.a + self.a].size() > 0",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
        assert!(check("").is_err());
        let long: Vec<i64> = (0..5000).collect();
        let nested = "self.a.all(x, self.a.all(y, self.a.all(z, x + y + z >= 0)))";
        let refused = holds(nested, &json!({"a": long})).unwrap_err();
        assert!(refused.contains("steps"), "{refused}");
        assert_eq!(holds("self.a.all(x, x >= 0)", &json!({"a": long})), Ok(true));
    }
}
