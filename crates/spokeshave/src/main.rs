//! The spokeshave binary.
fn main() {}
