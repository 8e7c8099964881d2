//! Comparisons of runs that are drawn from seeds, with planted differences.

#![expect(clippy::disallowed_methods, reason = "a test reads its files")]

mod check_8;
mod draws;
mod engine;
mod outputs;
mod recorded;
mod report;
mod work;
