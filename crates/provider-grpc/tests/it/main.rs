//! The protocol as a whole: what breaks on the way, who is refused, and the kit that checks providers.

mod away;
mod bad_rows;
mod busy;
mod classes;
mod conditions;
mod endless;
mod failures;
mod feeds;
mod flawed;
mod judged;
mod large;
mod launches;
mod proto;
mod refusing;
mod sanity;
mod shed;
mod size;
mod sockets;
