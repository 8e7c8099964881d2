//! What providers of different clouds do alike, once: the hash of a NodeClass, the annotations that carry it, static drift, and the labels of an instance.
//!
//! Pure. It knows no cloud: which fields are hashed and how annotations are called is each provider's.

pub mod claims;
pub mod class_hash;
