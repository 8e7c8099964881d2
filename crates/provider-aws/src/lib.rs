//! EC2 as a cloud: what instance types hold and cost, which of them are launched and how, what drifts, what an interruption means.
//!
//! Owns the rules of part A of the specification as functions of values. It never calls AWS: descriptions come in as values with
//! EC2's own field names ([`describe`]), decisions go out as values.
//!
//! | Module | Question | Source |
//! |---|---|---|
//! | [`describe`] | what does EC2 say of an instance type | A3.1 |
//! | [`instance_types`] | what does a node of this type hold, and which labels has it | A1.7, A3.2, A3.3 |
//! | [`images`] | which image does it start from | A2.2 |
//! | [`compatibility`] | can this type be launched from this class | A3.4 |
//! | [`offerings`] | where can it be bought, for how much | A4 |
//! | [`selectors`] | what do a class's selectors ask, and choose | A2.1, A2.2 |
//! | [`profiles`] | which instance profile has a class | A2.3 |
//! | [`status`] | what does a class's status say | A1.5, A2.1 |
//! | [`capacity_blocks`] | until when is a capacity block used | A1.5 |
//! | [`choice`], [`addresses`] | which types does a launch ask for, in which subnets | A5.1 |
//! | [`launch`], [`tags`] | how does it ask for them | A1.7, A5.2, A5.4 |
//! | [`templates`] | which launch templates are there, which expire | A5.2 |
//! | [`rehearsal`] | would EC2 allow it | A2.4 |
//! | [`requests`] | what is EC2 asked for | A5.2, A5.4, A13 |
//! | [`fleet`] | what does the reply to a launch mean | A5.6 |
//! | [`class_hash`], [`drift`] | is an instance still what its class asks for | A1.6, A7 |
//! | [`learned`] | how much memory have nodes shown to have | A3.2 |
//! | [`unavailable`] | what was out of capacity lately | A4.4 |
//! | [`replies`] | what do calls reply | A13 |
//! | [`errors`] | what does an error of a call mean | A5.6 |
//! | [`user_data`] | what does a node do when it starts | A5.3 |
//! | [`health`] | which instances are broken, says their status | A9.4 |
//! | [`messages`] | what does a message of the queue mean | A9.2 |

pub mod addresses;
pub mod capacity_blocks;
pub mod choice;
pub mod class_hash;
pub mod compatibility;
pub mod describe;
pub mod drift;
pub mod errors;
pub mod family;
pub mod fleet;
pub mod health;
pub mod images;
pub mod instance_types;
pub mod instances;
pub mod kubelet;
pub mod labels;
pub mod launch;
pub mod learned;
pub mod messages;
pub mod network;
pub mod offerings;
pub mod prices;
pub mod profiles;
pub mod rehearsal;
pub mod replies;
pub mod requests;
pub mod selectors;
pub mod status;
pub mod tags;
pub mod templates;
pub mod unavailable;
pub mod user_data;
