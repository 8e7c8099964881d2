//! The bytes of requests: what a client accepts, paths and queries, JSON, protobuf.

pub(crate) mod accept;
pub(crate) mod json;
pub(crate) mod protobuf;
pub(crate) mod request;
