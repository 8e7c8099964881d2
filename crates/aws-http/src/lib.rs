//! The calls to AWS over HTTP (A13): credentials, signatures, encodings, attempts.
//!
//! Owns the wire. What is asked for and what an answer means is decided in `provider-aws`, whose values come in and go out. Requests are written by hand over
//! Amazon's own signing and credentials crates: the generated client of EC2 alone takes longer to compile than the whole product.

pub mod arc;
pub mod ec2;
pub mod eks;
pub mod endpoints;
pub mod error;
pub mod iam;
pub mod load;
pub mod pricing;
mod proxy;
pub mod query;
pub mod services;
pub mod session;
pub mod sqs;
pub mod ssm;
pub mod sts;
pub mod xml;

pub use error::CallError;
pub use load::{LoadError, load};
pub use services::services;
pub use session::{Session, SessionOptions};
