//! What is stored: objects with their history, the registry of resources, what expires, the state behind one lock.

pub(crate) mod backends;
pub(crate) mod expiring;
pub(crate) mod objects;
pub(crate) mod registry;
pub(crate) mod state;
