//! Objects that cannot be read: how they are named, and what counts in the place of a DisruptionPolicy.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use spokeshave_api::DisruptionPolicy;

/// An object that is ignored, unless something counts in its place.
#[derive(Clone, Debug)]
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
    /// What counts in its place, if anything does.
    pub(crate) stand_in: Option<Arc<DisruptionPolicy>>,
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
        format!("{self}; {}", self.counts().unwrap_or(otherwise))
    }

    /// What it counts as, if anything counts in its place: `counts as …`.
    pub(super) fn counts(&self) -> Option<&'static str> {
        let stand_in = self.stand_in.as_ref()?;
        Some(match stand_in.spec.unreadable {
            Some(_) => "counts as a freeze of the NodePools that it selects",
            None => "counts without what is wrong in its status",
        })
    }
}

/// What counts in the place of a DisruptionPolicy that cannot be read, as in the operator. `None` for other kinds, and where not even its metadata can be read.
pub(super) fn stand_in(version: &str, kind: &str, object: Option<&Value>) -> Option<Arc<DisruptionPolicy>> {
    let is_policy = kind == DisruptionPolicy::KIND && version.starts_with("spokeshave.dev/");
    DisruptionPolicy::salvaged(object.filter(|_| is_policy)?).map(Arc::new)
}
