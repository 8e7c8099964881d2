//! State folds events: the objects that watches bring, the few facts that live in memory only, and the Snapshot that is made of both.
//!
//! Nothing here decides or writes.

pub(crate) mod changes;
pub(crate) mod cluster;
pub(crate) mod distress;
pub(crate) mod frozen;
pub(crate) mod memory;
pub(crate) mod node_classes;
pub(crate) mod owners;
pub(crate) mod promises;
pub(crate) mod spread;
pub(crate) mod store_list;
pub(crate) mod stores;
pub(crate) mod vain_launches;
pub(crate) mod virtual_pods;
