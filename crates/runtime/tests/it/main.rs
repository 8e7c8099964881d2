//! The tests of the runtime through its public face: one program, because each would be built and linked with all of it.

mod common;
mod determinism;
mod election;
mod over_the_wire;
mod recording;
mod requests;
mod watching;
