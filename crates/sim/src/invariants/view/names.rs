//! Names of objects by a value that several may have, such as a provider ID.
//!
//! Owns the index alone: what a value means, and which of the objects counts, is for who asks.

use std::collections::{BTreeMap, BTreeSet};

/// Names by value, in order. Objects without the value are in none.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<String, BTreeSet<String>>);

impl Names {
    /// The object of this name had one value and has another now; empty where it has none, or is not there.
    pub(crate) fn change(&mut self, name: &str, before: &str, after: &str) {
        if before == after {
            return;
        }
        if let Some(names) = self.0.get_mut(before) {
            names.remove(name);
            if names.is_empty() {
                self.0.remove(before);
            }
        }
        if !after.is_empty() {
            let names = self.0.entry(after.to_owned()).or_default();
            names.insert(name.to_owned());
        }
    }

    /// The first object with this value.
    pub(crate) fn first(&self, value: &str) -> Option<&String> {
        self.0.get(value)?.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_by_name_of_those_that_have_the_value_now() {
        let mut names = Names::default();
        names.change("b", "", "x");
        names.change("a", "", "x");
        names.change("c", "", "");
        assert_eq!(names.first("x").map(String::as_str), Some("a"));
        names.change("a", "x", "y");
        assert_eq!(names.first("x").map(String::as_str), Some("b"));
        assert_eq!(names.first("y").map(String::as_str), Some("a"));
        names.change("b", "x", "");
        assert_eq!(names.first("x"), None);
        assert_eq!(names.first(""), None);
    }
}
