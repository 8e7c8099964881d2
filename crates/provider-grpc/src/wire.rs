//! The messages and calls of the protocol, generated from `proto/provider.proto`; see there for what they mean.
#![allow(missing_docs, clippy::all, unreachable_pub)]

include!("../proto/provider.rs.in");
