//! The tests of decisions: one program, because each would be built and linked with all of it.

mod adopt;
mod advance;
mod audited_worlds;
mod convergence;
mod disrupt;
mod disrupt_blockers;
mod disrupt_budgets;
mod disrupt_consolidation;
mod disrupt_drift;
mod disrupt_emptiness;
mod disrupt_methods;
mod disrupt_passes;
mod disrupt_rounds;
mod disrupt_rules;
mod disrupt_seeds;
mod disrupt_worlds;
mod disruption_policies;
mod doctor;
mod policy_forecast;
mod provision;
mod rollouts;
mod support;
mod termination;
mod time_zones;
mod worlds;
