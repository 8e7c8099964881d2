//! An in-memory Kubernetes API: a tower `Service` and an HTTPS listener.
//!
//! Owns everything that a client sees of an API server: discovery, reads, writes, patches, watches, subresources, custom resources, garbage
//! collection of owned objects. It is generic: it learns kinds from CustomResourceDefinitions and knows none of ours. It has no webhooks,
//! no kubelet behind it (exec, logs), and no authorisation beyond a bearer token.
//!
//! Folders, each of which knows those before it only: `schema` and `fields` (pure), `wire`, `crd` (pure), `store`, `kinds` (what is special about one
//! kind), `admission_policy`, `verbs`, `server` (the way to them), `http`.
//!
//! The core is synchronous behind one lock, so the order of requests alone decides the result; only watches are streams.

mod admission_policy;
mod cause;
mod checks;
mod crd;
mod error;
mod fields;
mod http;
mod json_path;
mod kinds;
mod metadata;
mod schema;
mod selector;
mod server;
mod store;
mod verbs;
mod wire;

pub use cause::Cause;
pub use crd::{CompiledCrd, CrdVersion};
pub use error::{ApiError, ApiResult};
pub use fields::managed_fields::{ApplyError, Conflict, Writer};
pub use fields::reset::Reset;
pub use http::listener::{Listener, ListenerError, TlsIdentity, kubeconfig};
pub use http::service::{ResponseBody, Service};
pub use schema::patch::{PatchError, json_patch, merge_patch, strategic_merge};
pub use schema::types::{TypeSchema, prune};
pub use selector::{FieldPlace, FieldSelector, LabelSelector};
pub use store::backends::MetricsFn;
pub use store::state::{ApiServer, Commit, Config, Identity, IdentityFn, NowFn, Observer};
