//! An object as a file has it: for what no type can hold, and for the lines of its fields. It reads nothing itself.

use serde_json::Value;
use spokeshave_api::DisruptionPolicy;

use crate::lines::Lines;

/// An object as it was written: a NodePool of any version or a DisruptionPolicy, for what is wrong with it, and kinds that are only explained.
#[derive(Debug)]
pub(crate) struct Written {
    /// The file's name, as given.
    pub(crate) file: String,
    /// The line on which it begins.
    pub(crate) line: usize,
    /// `karpenter.sh/v1`.
    pub(crate) api_version: String,
    /// `NodePool`.
    pub(crate) kind: String,
    /// The whole object.
    pub(crate) object: Value,
    /// The lines of its fields.
    pub(crate) lines: Lines,
}

impl Written {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// A NodePool that this version reads.
    pub(crate) fn is_node_pool(&self) -> bool {
        (self.api_version.as_str(), self.kind.as_str()) == ("karpenter.sh/v1", "NodePool")
    }

    /// A kind that is checked as an API server does, where no cluster has seen the object.
    pub(crate) fn is_checked(&self) -> bool {
        self.is_node_pool() || self.kind == DisruptionPolicy::KIND
    }

    /// The line in its file of a field, or of what it would be part of.
    pub(crate) fn line_of(&self, field: &str) -> u64 {
        self.lines.line_or(field, self.line)
    }
}
