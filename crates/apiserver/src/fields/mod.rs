//! Who owns which field of an object (server-side apply), and the packed form in which that is kept.

pub(crate) mod field_managers;
pub(crate) mod field_set;
pub(crate) mod managed_fields;
pub(crate) mod packed;
pub(crate) mod reset;
pub(crate) mod scale_owners;
pub(crate) mod step_map;
