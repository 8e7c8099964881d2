//! The wire against a server of our own: signatures, attempts, clocks, bodies.

mod permissions;
mod server;
mod session;
