//! Texts whose syntax Kubernetes defines: quantities, names and labels, conditions of selectors.
//!
//! Owns how they are read, compared and written, once for API types, the model, the simulated cluster and the embedded API server. Knows no object and no kind.

mod condition;
pub mod names;
mod quantity;

pub use condition::{Condition, holds};
pub use quantity::{NOT_A_QUANTITY, Quantity, QuantityError};
