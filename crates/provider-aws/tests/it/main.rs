//! The rules against what upstream's own provider answers (v1.14.1): the cases and expectations of `e2e/aws/cases`.

mod choices;
mod drifts;
mod errors;
mod fleets;
mod hash;
mod labels;
mod launched;
mod launches;
mod messages;
mod oracle;
mod profiles;
mod recorded;
mod rehearsals;
mod selectors;
mod statuses;
mod tags;
mod templates;
mod types;
mod user_data;
