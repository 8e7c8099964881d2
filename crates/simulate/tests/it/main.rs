//! What a simulation does and measures: figures computed by hand, promises judged by the log, and the same found by other ways.

mod balanced;
mod bound;
mod budgets;
mod doctored;
mod figures;
mod fixed;
mod gates;
mod in_flight;
mod invariants;
mod jobs;
mod models;
mod overlays;
mod promises;
mod recorded;
mod rollouts;
mod small;
mod standing;
mod static_pools;
mod story;
mod turns;
mod watched;
mod weather;
mod work;
