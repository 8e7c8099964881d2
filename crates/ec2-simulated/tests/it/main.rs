//! The shipped provider on the simulated EC2.

mod bad_input;
mod classes;
mod conformance;
mod counted;
mod denied;
mod dns;
mod launches;
mod leader;
mod learned;
mod messages;
mod nodes;
mod reservations;
mod shifts;
mod stamping;
mod unanswered;
mod unread;
mod world;
