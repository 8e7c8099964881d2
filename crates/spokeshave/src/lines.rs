//! The line of each field of an object in a file.

use std::collections::BTreeMap;

use crate::yaml::{self, Tree};

/// Field → line, counted from 1; fields as in `spec.disruption.budgets[1].schedule`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Lines(BTreeMap<String, u64>);

impl Lines {
    /// The fields of one object, or of the one element of a sequence; `first` is the line of the file on which the text begins. Empty when it
    /// cannot be read.
    pub(crate) fn of(text: &str, in_sequence: bool, first: usize) -> Self {
        let mut lines = Lines::default();
        let Ok(tree) = yaml::tree(text) else {
            return lines;
        };
        let offset = u64::try_from(first).unwrap_or(1).saturating_sub(1);
        match &tree.value {
            Tree::List(items) if in_sequence && !items.is_empty() => {
                lines.collect(&items[0].value, "", offset)
            }
            whole => lines.collect(whole, "", offset),
        }
        lines
    }

    /// The line of a field, or of what it would be part of.
    pub(crate) fn line_of(&self, field: &str) -> Option<u64> {
        let mut field = field;
        loop {
            if let Some(line) = self.0.get(field) {
                return Some(*line);
            }
            let parent = field.rfind(['.', '['])?;
            field = &field[..parent];
        }
    }

    /// The line of a field, or of what it would be part of; for an object that begins on the line `first`.
    pub(crate) fn line_or(&self, field: &str, first: usize) -> u64 {
        let line = self.line_of(field);
        line.unwrap_or_else(|| u64::try_from(first).unwrap_or(1))
    }

    fn collect(&mut self, tree: &Tree, path: &str, offset: u64) {
        match tree {
            Tree::Scalar(_) => {}
            Tree::Map(entries) => {
                for (key, value) in entries {
                    let path = match path {
                        "" => key.value.clone(),
                        path => format!("{path}.{}", key.value),
                    };
                    self.0.insert(path.clone(), key.referenced.line() + offset);
                    self.collect(&value.value, &path, offset);
                }
            }
            Tree::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.0.insert(path.clone(), item.referenced.line() + offset);
                    self.collect(&item.value, &path, offset);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
spec:
  disruption:
    budgets:
    - nodes: 50%          # line 16 of the file
      schedule: \"0 0 * * 6\"
      duration: 48h
    - nodes: \"0\"
      reasons: [Empty,
                drifted]
";

    #[test]
    fn fields_are_found_by_line() {
        let lines = Lines::of(TEXT, false, 9);
        for (field, line) in [
            ("spec.disruption.budgets", 15),
            ("spec.disruption.budgets[0]", 16),
            ("spec.disruption.budgets[0].nodes", 16),
            ("spec.disruption.budgets[0].schedule", 17),
            ("spec.disruption.budgets[1]", 19),
            ("spec.disruption.budgets[1].reasons[1]", 21),
            ("spec.disruption.budgets[1].schedule", 19),
        ] {
            assert_eq!(lines.line_of(field), Some(line), "{field}");
        }
        let item = "- apiVersion: karpenter.sh/v1\n  kind: NodePool\n  metadata: {name: other}\n";
        assert_eq!(Lines::of(item, true, 4).line_of("metadata.name"), Some(6));
        assert_eq!(Lines::of(item, true, 4).line_of("spec"), None);
        assert_eq!(Lines::of("a: [", false, 1), Lines::default());
    }
}
