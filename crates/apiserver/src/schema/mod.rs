//! What the built-in kinds look like: facts about their fields, reading and completing objects by them, patches.

pub(crate) mod decode;
pub(crate) mod facts;
pub(crate) mod patch;
pub(crate) mod types;

pub(crate) use types::TypeSchema;
