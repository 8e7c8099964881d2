//! Policies with their bindings, compiled: what the server keeps between writes.

use std::sync::Arc;

use serde_json::Value;

use super::evaluation::Policy;

/// The group of the policies.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// What a policy is bound to, ready for use.
pub(crate) struct Bound {
    pub(super) policy: Arc<Policy>,
    pub(super) name: String,
    pub(super) spec: Value,
}

/// All bindings whose policy exists, in the order of the policies' names, then of the bindings'.
pub(crate) type Policies = Vec<Bound>;
