//! Checks and generators of this workspace.
fn main() {}
