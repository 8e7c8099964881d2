//! Looking: follows a cluster or an operator, or reads a dump, judges what it has read, and hangs the view on a board.
//!
//! Owns how often. It keeps the ledger and the history, in bounded memory, and changes nothing.

mod followed;
mod source;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use spokeshave_plan::Policy;
use spokeshave_runtime::Shutdown;
use spokeshave_view::{History, Judged, Ledger, View, World};
use spokeshave_web::{Board, Shown};
use tokio::task::spawn_blocking;

pub(crate) use source::Source;

/// Looking again takes at most one part of the time in so many.
const PARTS: u32 = 8;
/// A view that is older than this is drawn again, because ages and windows go on although nothing has changed.
const LONGEST: Duration = Duration::from_secs(5);

/// What is known from one look to the next.
#[derive(Default)]
struct Memory {
    ledger: Ledger,
    history: History,
    revision: u64,
}

/// One view of a source, for a command that looks once.
///
/// # Errors
/// The source cannot be read.
pub(crate) async fn once(source: &mut Source) -> Result<Shown> {
    let (world, policy) = source.read().await?.context("there is nothing to see yet")?;
    judge(world, policy, Memory::default())
        .await
        .map(|(shown, _)| shown)
}

/// Refreshes until stopped. Errors are published next to the last view, and it continues.
pub(crate) async fn keep_looking(mut source: Source, board: Board, stop: Shutdown) {
    let mut memory = Memory::default();
    let mut last: Option<Instant> = None;
    source.follow();
    loop {
        let begun = Instant::now();
        let is_due = last.is_none_or(|last| last.elapsed() >= LONGEST);
        let looked = async {
            if !is_due && !source.has_changed().await {
                return Ok(None);
            }
            match source.read().await? {
                Some((world, policy)) => judge(world, policy, std::mem::take(&mut memory)).await.map(Some),
                None => anyhow::bail!("this replica does not lead, or has not read the cluster yet"),
            }
        };
        match stop.cut(looked).await {
            None => return,
            Some(Ok(None)) => {}
            Some(Ok(Some((shown, kept)))) => {
                memory = kept;
                board.publish(shown);
                last = Some(Instant::now());
                if source.is_still() {
                    return;
                }
            }
            Some(Err(error)) => board.trouble(format!("{error:#}")),
        }
        let pause = source.pace().max(begun.elapsed() * PARTS);
        if stop.cut(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Decisions take a while and run on a separate thread.
async fn judge(world: World, policy: Policy, mut memory: Memory) -> Result<(Shown, Memory)> {
    let work = spawn_blocking(move || {
        let judged = Judged::of(world, &policy);
        memory.revision += 1;
        let view = View::take(&judged, &mut memory.ledger, &mut memory.history, memory.revision);
        let shown = Shown {
            view: Arc::new(view),
            judged: Arc::new(judged),
        };
        (shown, memory)
    });
    work.await.context("what was read cannot be judged")
}
