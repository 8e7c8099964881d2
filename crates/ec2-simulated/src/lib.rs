//! An EC2 in one process, with the services around it, behind the ports of `aws-cloud`.
//!
//! What it stands for: instance types and zones as facts, capacity that runs out, spot prices that move, fleets with strategies, interruptions by a queue,
//! limits of calls as EC2 publishes them, answers that lag behind, checks of instances that fail, zones that go dark, and machines that join a cluster with
//! what their user data says. Time is the caller's clock, chance the caller's: the same calls at the same times give the same answers.
//!
//! | Module | What it owns |
//! |---|---|
//! | `cloud` | [`SimulatedEc2`]: the services, and levers to play fate |
//! | `calls`, `services` | what each call finds and refuses: of EC2, and of what is around it |
//! | `state` | machines, launch templates, instance profiles, what happens by itself |
//! | `fleet`, `market` | which places a fleet gets; capacity and spot prices |
//! | `account` | network, images, parameters, roles |
//! | `queue` | messages |
//! | `throttle` | how often each call may be made |
//! | `nodes`, `user_data` | machines as Nodes of a cluster |

mod account;
mod calls;
mod catalogue;
mod cloud;
mod filters;
mod fleet;
mod instants;
mod market;
mod nodes;
mod options;
mod queue;
mod services;
mod state;
mod throttle;
mod user_data;

pub use catalogue::{REGION, facts};
pub use cloud::{Lifeline, SimulatedEc2};
pub use market::{BadPattern, Pool, PoolPattern};
pub use nodes::{MESSAGE, SETTINGS};
pub use options::Options;
pub use state::Check;
