//! Voluntary disruption (D App. G.1) through the whole stack on virtual time: what a user does, what the ledger says, and what is left.

mod commands;
mod consolidation;
mod drift;
mod emptiness;
mod policies;
mod protection;
mod rollouts;
