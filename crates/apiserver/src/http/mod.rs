//! HTTP: the tower `Service` and the HTTPS listener.

pub(crate) mod listener;
pub(crate) mod service;
