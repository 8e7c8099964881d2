//! The page: what there is to see of a cluster, in a browser.
//!
//! Owns HTML, drawings, the server and what it refuses. Every answer is drawn from a [`spokeshave_view::View`] or asked of `plan` through
//! `spokeshave_view`; nothing here decides, and nothing can be changed through it. Each page is whole without JavaScript; the script that comes along only
//! keeps it up to date and adds keys.

mod answer;
mod assets;
mod board;
mod boxes;
mod budgets;
mod coding;
mod detail;
mod draw;
mod page;
mod panels;
mod query;
mod server;
mod stalled;
mod table;
mod timeline;
mod treemap;

pub use board::{Answer, Board, Shown};
pub use page::render;
pub use query::Query;
pub use server::{Gate, serve};
