//! Simulates weeks of a cluster's life: drives the decision functions with an event queue, and measures what comes of it.
//!
//! Owns the clockwork (queue, delays, the scheduler's model, bookkeeping of money and waiting). It never decides: what is launched, disrupted or evicted is the
//! answer of `plan` on a Snapshot.

pub mod bound;
pub mod budgets;
mod cluster;
pub mod draws;
pub mod dumped;
mod engine;
pub mod fixed;
mod hosts;
pub mod least;
pub mod left_out;
pub mod log;
mod luck;
pub mod market;
pub mod meter;
mod objects;
pub mod owners;
pub mod perfetto;
mod pods;
mod queue;
pub mod recorded;
mod refusals;
mod rollouts;
pub mod run;
pub mod savings;
mod scheduler;
mod shapes;
pub mod standing;
mod times;
pub mod world;

pub use engine::{ObjectsAt, Watch, live, live_watched};
pub use log::{Line, Sink};
pub use objects::Objects;
pub use run::{Curve, Engine, Measured, Run, WorkDone};
pub use standing::{Standing, StandingNode};
pub use world::{Delays, Model, Policy, Scoring, Shortage, SpotInterruptions, World};
