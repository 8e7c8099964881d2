//! Azure as a cloud: what sizes hold and cost, which of them is launched and how, what drifts, what errors and notices mean.
//!
//! Owns the rules of part Z of the specification as functions of values. It never calls Azure: descriptions come in as values with
//! ARM's own field names, decisions go out as values.
//!
//! | Module | Question | Source |
//! |---|---|---|
//! | [`skus`] | what does Azure say of a size | Z4 |
//! | [`names`] | what do the parts of a name say, and what is a machine called | Z1.5, Z6.3, Z7 |
//! | [`gpus`] | which GPUs can be used | Z4 |
//! | [`instance_types`] | which sizes are used, what does a node hold, which labels has it | Z1.5, Z4 |
//! | [`offerings`] | where can it be bought, for how much | Z4 |
//! | [`prices`] | what does it cost | Z5 |
//! | [`unavailable`], [`errors`] | what does an error mean, and what is left out then | Z6.5 |
//! | [`choice`] | which size does a launch ask for | Z6.2 |
//! | [`images`] | which image does it start from | Z2 |
//! | [`bootstrap`] | what does a node do when it starts | Z12 |
//! | [`requests`], [`tags`] | what is ARM asked for | Z6.3, Z7 |
//! | [`aks_machines`], [`aks_profiles`] | what is AKS asked for, where it makes machines itself | Z6.4 |
//! | [`status`] | what does a class's status say | Z1.4, Z2, Z12 |
//! | [`class_hash`], [`drift`] | is an instance still what its class asks for | Z1.4, Z7 |
//! | [`notices`] | what does a node's condition say about its end | Z8 |

pub mod aks_machines;
pub mod aks_profiles;
pub mod bootstrap;
pub mod choice;
pub mod class_hash;
pub mod drift;
pub mod errors;
pub mod gpus;
pub mod images;
pub mod instance_types;
pub mod labels;
pub mod names;
pub mod notices;
pub mod offerings;
pub mod prices;
pub mod requests;
pub mod skus;
pub mod status;
pub mod tags;
pub mod unavailable;
