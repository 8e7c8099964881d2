//! The wire against a server of our own: signatures, attempts, clocks, bodies.

mod credentials;
mod permissions;
mod server;
mod session;
