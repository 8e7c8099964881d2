//! The server as clients see it: requests through its tower `Service`, answers as JSON. What a single function does is tested beside it.

#![allow(missing_docs)]
#![recursion_limit = "256"]

mod accepting;
mod admission_policies;
mod autoscalers;
mod bad_input;
mod client;
mod custom_resources;
mod deleting;
mod discovery;
mod patching;
mod proxying;
mod reading;
mod watching;
mod wire;
mod writing;
