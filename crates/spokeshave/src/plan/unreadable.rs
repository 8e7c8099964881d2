//! Objects that cannot be read: how they are named, and what counts in the place of a DisruptionPolicy.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use spokeshave_api::DisruptionPolicy;

/// An object that is ignored, unless something counts in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// `Pod`.
    pub(crate) kind: String,
    /// `Pod shop/web-1`, as far as it is known.
    pub(crate) object: String,
    /// The name of its file; empty for an object of a cluster.
    pub(crate) file: String,
    /// Its location.
    pub(crate) place: String,
    /// What is wrong with it.
    pub(crate) problem: String,
    /// What counts in its place, if anything does: `counts as …`.
    pub(crate) counts: Option<&'static str>,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} cannot be read: {}",
            self.place, self.object, self.problem
        )
    }
}

impl Unreadable {
    /// With what it comes to; `otherwise` where nothing counts in its place.
    pub(crate) fn note(&self, otherwise: &str) -> String {
        format!("{self}; {}", self.counts.unwrap_or(otherwise))
    }
}

/// What counts in the place of a DisruptionPolicy that cannot be read, as in the operator, and how to say so. `None` for other kinds, and where not even its metadata
/// can be read.
pub(super) fn stand_in(
    version: &str,
    kind: &str,
    object: Option<&Value>,
) -> Option<(Arc<DisruptionPolicy>, &'static str)> {
    let is_policy = kind == DisruptionPolicy::KIND && version.starts_with("spokeshave.dev/");
    let policy = DisruptionPolicy::salvaged(object.filter(|_| is_policy)?)?;
    let counts = match policy.spec.unreadable {
        Some(_) => "counts as a freeze of the NodePools that it selects",
        None => "counts without what is wrong in its status",
    };
    Some((Arc::new(policy), counts))
}
