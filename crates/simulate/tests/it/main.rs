//! What a simulation does and measures: figures computed by hand, promises judged by the log, and the same found by other ways.

mod balanced;
mod bound;
mod budgets;
mod doctored;
mod figures;
mod gates;
mod in_flight;
mod invariants;
mod jobs;
mod promises;
mod small;
mod story;
mod turns;
mod watched;
mod weather;
mod work;
