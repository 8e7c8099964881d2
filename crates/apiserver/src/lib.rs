//! An in-memory Kubernetes API: a tower `Service` and an HTTPS listener.
//!
//! Owns everything that a client sees of an API server: discovery, reads, writes, patches, watches, subresources, custom resources, garbage
//! collection of owned objects. It is generic: it learns kinds from CustomResourceDefinitions and knows none of ours. It has no webhooks,
//! no kubelet behind it (exec, logs), and no authorisation beyond a bearer token.
//!
//! The core is synchronous behind one lock, so that the order of requests alone decides the result; only watches are streams.

mod accept;
mod admission_policy;
mod autoscalers;
mod conversion;
mod crd;
mod decode;
mod defaults;
mod definitions;
mod delete_options;
mod deleting;
mod discovery;
mod error;
mod events;
mod facts;
mod field_managers;
mod field_set;
mod json;
mod listener;
mod managed_fields;
mod openapi;
mod packed;
mod patch;
mod protobuf;
mod proxy;
mod quantity;
mod reading;
mod registry;
mod request;
mod response;
mod schema;
mod selector;
mod server;
mod step_map;
mod store;
mod strategy;
mod subresources;
mod table;
mod table_kinds;
mod validate;
mod watching;
mod writing;
mod writing_checks;

pub use crd::{Cause, CompiledCrd, CrdVersion};
pub use error::{ApiError, ApiResult};
pub use listener::{Listener, ListenerError, TlsIdentity, kubeconfig};
pub use managed_fields::{ApplyError, Conflict, Reset, Writer};
pub use patch::{PatchError, json_patch, merge_patch, strategic_merge};
pub use proxy::MetricsFn;
pub use response::{ResponseBody, Service};
pub use schema::{TypeSchema, prune};
pub use selector::{FieldSelector, LabelSelector};
pub use server::{ApiServer, Commit, Config, NowFn, Observer};
