//! What a simulation measures, against other ways to find the same.

mod bound;
