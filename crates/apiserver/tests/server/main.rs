//! The server as clients see it: requests through its tower `Service`, answers as JSON. What a single function does is tested beside it.

#![allow(missing_docs)]
#![recursion_limit = "256"]

mod accepting;
mod admission;
mod admission_policies;
mod autoscalers;
mod bad_input;
mod client;
mod collecting;
mod custom_resources;
mod definition_changes;
mod deleting;
mod discovery;
mod fixed_fields;
mod naming;
mod patching;
mod proxying;
mod reading;
mod subresources;
mod validation;
mod watching;
mod wire;
mod writing;
