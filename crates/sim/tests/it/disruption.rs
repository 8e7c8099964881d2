//! Voluntary disruption (D App. G.1) through the whole stack on virtual time: what a user does, what the ledger says, and what is left.

mod account;
mod ages;
mod bill;
mod commands;
mod consolidation;
mod drift;
mod emptiness;
mod forceful;
mod objects;
mod phases;
mod policies;
mod protection;
mod quiet;
mod refused;
mod replacements;
mod rollout_looks;
mod rollouts;
mod unreadable;
mod verdicts;
mod zones;
