//! What views and what-ifs promise, on generated clusters and on the ones that `explain` is tested with.

mod account;
mod deltas;
mod edits;
mod figures;
mod ledger;
mod suppositions;
mod views;
