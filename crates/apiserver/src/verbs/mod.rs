//! The handlers: discovery, reads, watches, writes, deletions and subresources, for objects of every kind.

pub(crate) mod accounts;
pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod collecting;
pub(crate) mod definitions;
pub(crate) mod delete_options;
pub(crate) mod deleting;
pub(crate) mod discovery;
pub(crate) mod grace;
pub(crate) mod openapi;
pub(crate) mod proxy;
pub(crate) mod reading;
pub(crate) mod scaling;
pub(crate) mod strategy;
pub(crate) mod subresources;
pub(crate) mod table;
pub(crate) mod watching;
pub(crate) mod writing;
pub(crate) mod writing_checks;
