//! Features of dependencies, the same whichever package of the workspace is built.
//!
//! Cargo builds a dependency with the features that the selected packages ask for: `cargo run`, `cargo test --workspace` and the examples of the laboratory would each
//! have their own `tokio`, and everything above it with it. The program and the laboratory depend on this crate, which asks for what any of them does, so that one build
//! serves all three. `cargo xtask tidy` compares them. Owns no code.
