//! On which line of a file each field of a NodePool stands.

use std::collections::BTreeMap;

use serde_saphyr::Spanned;

use crate::yaml::Tree;

/// Field → line, counted from 1; fields as in `spec.disruption.budgets[1].schedule`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Lines(BTreeMap<String, u64>);

impl Lines {
    /// Finds the NodePool of that name in a text that may hold many objects; empty when it is not there.
    pub(crate) fn of_node_pool(text: &str, name: &str) -> Self {
        let documents: Vec<Spanned<Tree>> = serde_saphyr::from_multiple(text).unwrap_or_default();
        let found = documents.iter().find_map(|document| find(&document.value, name));
        let mut lines = Lines::default();
        if let Some(tree) = found {
            lines.collect(tree, "");
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

    fn collect(&mut self, tree: &Tree, path: &str) {
        match tree {
            Tree::Scalar(_) => {}
            Tree::Map(entries) => {
                for (key, value) in entries {
                    let path = match path {
                        "" => key.value.clone(),
                        path => format!("{path}.{}", key.value),
                    };
                    self.0.insert(path.clone(), key.referenced.line());
                    self.collect(&value.value, &path);
                }
            }
            Tree::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.0.insert(path.clone(), item.referenced.line());
                    self.collect(&item.value, &path);
                }
            }
        }
    }
}

fn find<'a>(tree: &'a Tree, name: &str) -> Option<&'a Tree> {
    if tree.text("kind") == Some("NodePool") && tree.get("metadata")?.text("name") == Some(name) {
        return Some(tree);
    }
    match tree.get("items")? {
        Tree::List(items) => items.iter().find_map(|item| find(&item.value, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
apiVersion: v1
kind: List
items:
- apiVersion: karpenter.sh/v1
  kind: NodePool
  metadata: {name: other}
---
# a comment
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
spec:
  disruption:
    budgets:
    - nodes: 50%          # line 16
      schedule: \"0 0 * * 6\"
      duration: 48h
    - nodes: \"0\"
      reasons: [Empty,
                drifted]
";

    #[test]
    fn fields_are_found_by_line() {
        let lines = Lines::of_node_pool(TEXT, "default");
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
        assert_eq!(
            Lines::of_node_pool(TEXT, "other").line_of("metadata.name"),
            Some(6)
        );
        assert_eq!(Lines::of_node_pool(TEXT, "nobody").line_of("metadata.name"), None);
        assert_eq!(Lines::of_node_pool("a: [", "nobody"), Lines::default());
    }
}
