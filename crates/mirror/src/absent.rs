//! What a copy does not have, and why: not listed yet, not to be read, or not there.
//!
//! Owns the difference, and what is said where a NodeClass is not to be had. Only what is known not to exist counts as gone.

use std::time::Duration;

use spokeshave_ports::{CloudError, NODE_CLASS_UNKNOWN};

/// Instance types of a class that is not known now are asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Why there is no copy of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    /// Objects of its kind were not listed yet.
    NotListed,
    /// It is there, cannot be read for this reason, and was not read before.
    Unreadable(String),
    /// It does not exist.
    Gone,
}

/// Why not all objects of a kind are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incomplete {
    /// They were not listed yet.
    NotListed,
    /// Those of these names are there, cannot be read, and were not read before.
    Unreadable(Vec<String>),
}

impl Absent {
    /// Why nothing can be launched from a NodeClass. One that may be there is waited for, and the NodeClaim says so; one that does not exist ends the
    /// NodeClaim.
    #[must_use]
    pub fn launch_error(&self, kind: &str, name: &str) -> CloudError {
        match self.unknown(kind, name) {
            Some(message) => CloudError::Create {
                reason: NODE_CLASS_UNKNOWN.to_owned(),
                message,
            },
            None => CloudError::InsufficientCapacity(format!(
                "resolving node class, {kind} {name} does not exist"
            )),
        }
    }

    /// Why a NodeClass has no instance types. That it is not known now is no failure of the cloud.
    #[must_use]
    pub fn types_error(&self, kind: &str, name: &str) -> CloudError {
        match self.unknown(kind, name) {
            Some(message) => CloudError::Postponed {
                message,
                again_after: ASK_AGAIN,
            },
            None => CloudError::NodeClassNotReady(format!("{kind} {name} does not exist")),
        }
    }

    /// Why it is not known whether, or as what, the object exists; `None` of one that does not.
    fn unknown(&self, kind: &str, name: &str) -> Option<String> {
        match self {
            Absent::NotListed => Some(format!(
                "{kind} {name} is not known yet: the operator has not read the list of its kind since it started; if this lasts, its log says why"
            )),
            Absent::Unreadable(reason) => Some(format!(
                "{kind} {name} cannot be read ({reason}); apply it again with the fields of its definition"
            )),
            Absent::Gone => None,
        }
    }
}
