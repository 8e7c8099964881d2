//! The generated code is that of the protocol's file.

use sha2::{Digest as _, Sha256};

#[test]
fn the_generated_code_is_of_this_protocol() {
    let sum = Sha256::digest(include_bytes!("../../proto/provider.proto"));
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = format!("// SHA-256 of its source: {sum}");
    let is_current = include_str!("../../proto/provider.rs.in")
        .lines()
        .any(|one| one == line);
    assert!(is_current, "proto/provider.proto has changed: run `just proto`");
}
