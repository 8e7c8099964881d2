//! Can this pod go there, and if not why: packing pods onto nodes and planned NodeClaims.
//!
//! `pack` takes a Snapshot, the pods to place and the policy, and returns placements on existing nodes, planned NodeClaims, and for each pod
//! left over the reason as data; `Simulation` asks the same of many what-ifs; `explain_unplaced` says down to the smallest set of things in
//! the way why a pod has no place. It never looks at a clock, creates an object, or decides which pods to place.
//!
//! Three rooms: `tables` depend on the Snapshot only; `ledger` is what is placed where, and can undo each of its changes; `pack` searches, reading the first
//! and changing the second.
//!
//! How it stays fast: requirement sets are interned and the results of operations on them remembered (`algebra`), each NodePool's instance
//! types are indexed by resource rank and label value (`template`), pods are treated by class and by distinct request (`tables`),
//! topology is counted incrementally (`topology`), and a what-if is rolled back instead of rebuilding what was there before it (`ledger`).

mod algebra;
mod bits;
mod explain;
mod ledger;
mod options;
mod outcome;
mod pack;
mod relax;
mod simulation;
mod start;
mod tables;
mod template;
mod topology;

pub use explain::{explain_left_over, explain_unplaced};
pub use options::{MinValuesPolicy, PackOptions, ReservedPolicy};
pub use outcome::{Packing, Statistics, UnplacedPod};
pub use pack::{ClaimOrder, PackRequest, Packer, pack, pack_cheapest, sort_by_turn};
pub use relax::PreferencePolicy;
pub use simulation::{Fork, PlacedSummary, Simulation};
pub use start::{Difference, Start};
pub use tables::LentLimits;
pub use template::{SkippedPool, TypeTables};
