//! The checkers checked: an actor that does it right keeps them silent, and one that is wrong on purpose trips the right one.

mod clouds;
mod endings;
mod evictions;
mod instances;
mod leadership;
mod moves;
mod places;
mod stage;
mod waiting;
