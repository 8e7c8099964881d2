//! Clock, Entropy and CloudProvider: what the shell needs from the outside world.
//!
//! Owns the traits through which time, chance and clouds reach the rest of the program, their production
//! implementations of time and chance, the wording of what fails there and of what cannot be read, and the suite that every cloud provider must pass. It
//! never talks to Kubernetes and knows no cloud.

mod causes;
mod clock;
mod cloud;
pub mod conformance;
mod entropy;
mod interruption;
mod measurement;
mod node_class_kind;
mod notice;
mod reading;
mod system_clock;
mod watch_failures;
mod writes;

pub use causes::causes;
pub use clock::{Clock, SharedClock, TokioClock};
pub use cloud::{
    CloudError, CloudFuture, CloudProvider, HookAnswer, NODE_CLASS_UNKNOWN, RegistrationHook, RepairPolicy,
};
pub use entropy::{Entropy, name_suffix};
pub use interruption::{Interruption, Interruptions};
pub use measurement::{MeasuredValue, Measurement, MeasurementKind};
pub use node_class_kind::NodeClassKind;
pub use notice::{Notice, Notices};
pub use reading::{Misread, read_object};
pub use system_clock::SystemClock;
pub use watch_failures::WatchFailures;
pub use writes::{NoWrites, SharedWrites, Write, WriteError, WriteTarget, Writes, is_conflict, is_refused};
