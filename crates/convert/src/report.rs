//! The report of a conversion: one line for each field that moved, changed its meaning, was written for a default that has changed, or has no
//! counterpart. Texts are for users; `Change` is for programs.

use serde::Serialize;

/// The conversion of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// Another name or place, the same meaning.
    Moved,
    /// Written so that what was so by default stays so.
    Added,
    /// Kept as near as it can be; it does something else than before.
    Changed,
    /// Has no counterpart, and nothing is missing without it.
    Dropped,
    /// Has no counterpart: the user has to decide.
    Manual,
    /// No version of the kind has such a field.
    Unknown,
    /// The result would not be accepted, and is left out.
    Refused,
    /// The document could not be read.
    Unreadable,
}

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing to do.
    Note,
    /// To be read before the result is applied.
    Warning,
    /// To be settled before the result does what its source did.
    Error,
}

impl Change {
    /// Its severity.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Change::Moved | Change::Added => Level::Note,
            Change::Changed | Change::Dropped => Level::Warning,
            Change::Manual | Change::Unknown | Change::Refused | Change::Unreadable => Level::Error,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Change::Moved => "moved",
            Change::Added => "added",
            Change::Changed => "changed",
            Change::Dropped => "dropped",
            Change::Manual => "manual",
            Change::Unknown => "unknown",
            Change::Refused => "refused",
            Change::Unreadable => "unreadable",
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Index of the object among those that were given.
    #[serde(skip)]
    pub from: usize,
    /// The conversion of the field.
    pub change: Change,
    /// The field of the source, such as `spec.ttlSecondsAfterEmpty`; empty when the whole object is meant.
    pub field: String,
    /// Its path in the result, such as `NodePool spec.disruption.consolidateAfter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub became: Option<String>,
    /// One sentence or two.
    pub text: String,
}

/// The lines about one object.
#[derive(Debug)]
pub(crate) struct Notes {
    from: usize,
    pub(crate) lines: Vec<Line>,
}

impl Notes {
    pub(crate) fn new(from: usize) -> Self {
        Self {
            from,
            lines: Vec::new(),
        }
    }

    pub(crate) const fn from(&self) -> usize {
        self.from
    }

    fn push(&mut self, change: Change, field: &str, became: Option<&str>, text: String) {
        self.lines.push(Line {
            from: self.from,
            change,
            field: field.to_owned(),
            became: became.map(str::to_owned),
            text,
        });
    }

    pub(crate) fn moved(&mut self, field: &str, became: &str, text: impl Into<String>) {
        self.push(Change::Moved, field, Some(became), text.into());
    }

    pub(crate) fn added(&mut self, became: &str, text: impl Into<String>) {
        self.push(Change::Added, "", Some(became), text.into());
    }

    pub(crate) fn changed(&mut self, field: &str, became: &str, text: impl Into<String>) {
        self.push(Change::Changed, field, Some(became), text.into());
    }

    pub(crate) fn dropped(&mut self, field: &str, text: impl Into<String>) {
        self.push(Change::Dropped, field, None, text.into());
    }

    pub(crate) fn manual(&mut self, field: &str, text: impl Into<String>) {
        self.push(Change::Manual, field, None, text.into());
    }

    pub(crate) fn unknown(&mut self, field: &str, text: impl Into<String>) {
        self.push(Change::Unknown, field, None, text.into());
    }

    pub(crate) fn unreadable(&mut self, field: &str, text: impl Into<String>) {
        self.push(Change::Unreadable, field, None, text.into());
    }
}
