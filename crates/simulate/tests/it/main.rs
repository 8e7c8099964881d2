//! What a simulation does and measures: figures computed by hand, promises replayed from the log, and the same found by other ways.

mod bound;
mod checker;
mod figures;
mod invariants;
mod small;
mod turns;
mod watched;
mod weather;
