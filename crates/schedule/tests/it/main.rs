//! The tests of packing through its public face: one program, because each would be built and linked with all of it.

mod fuzz;
mod parity;
mod rules;
mod support;
mod traps;
mod what_if;
