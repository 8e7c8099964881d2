//! What the controllers decided, as data for people: the binary prints a line for each.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_model::Price;

/// What kind of thing was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecisionKind {
    /// A node is to be launched.
    Launch,
    /// An instance runs.
    Launched,
    /// A node has joined and can run pods.
    Ready,
    /// Pods are expected on existing nodes.
    Place,
    /// Pods cannot be placed.
    Unschedulable,
    /// Nodes are to be taken away.
    Disrupt,
    /// A node is draining.
    Drain,
    /// A node is gone.
    Gone,
    /// Something went wrong and is being dealt with.
    Trouble,
}

/// One decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub time: Timestamp,
    /// What kind.
    pub kind: DecisionKind,
    /// The object it is about.
    pub subject: String,
    /// What was decided.
    pub what: String,
    /// Why.
    pub why: String,
    /// What the decision changes in the price per hour; positive costs more.
    pub price_change: Option<Price>,
    /// What all nodes cost per hour after it, as far as known.
    pub cluster_price: Price,
}

/// Who is told of decisions.
#[derive(Clone)]
pub struct DecisionLog(Arc<dyn Fn(&Decision) + Send + Sync>);

impl DecisionLog {
    /// Tells a function.
    pub fn new(tell: impl Fn(&Decision) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn tell(&self, decision: &Decision) {
        (self.0)(decision);
    }
}

impl Default for DecisionLog {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecisionLog")
    }
}
