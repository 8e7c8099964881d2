//! Looking: follows a cluster or an operator, or reads a dump, judges what it has read, and hangs the view on a board.
//!
//! Owns how often. It keeps the ledger and the history, in bounded memory, and changes nothing.

mod followed;
mod kinds;
mod source;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use spokeshave_runtime::Shutdown;
use spokeshave_story::settings::SettingsInForce;
use spokeshave_view::{History, Judged, Ledger, View};
use spokeshave_web::{Board, Shown};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use source::Making;

pub(crate) use source::Source;

/// Deciding takes at most one part of the time in so many. What the API server takes for its answers is not counted: whoever waits needs no rest.
const PARTS: u32 = 8;
/// A view that is older than this is drawn again, because ages and windows go on although nothing has changed.
const LONGEST: Duration = Duration::from_secs(5);

/// What is known from one look to the next, whatever happens to one of them.
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
    let making = source.read().await?.context("there is nothing to see yet")?;
    let shown = judge(making, Arc::default()).await?;
    Ok(with_settings(shown, source.settings()))
}

/// The same with what there is to say of the settings.
fn with_settings(mut shown: Shown, settings: Option<SettingsInForce>) -> Shown {
    Arc::make_mut(&mut shown.view).settings = settings;
    shown
}

/// Refreshes until stopped. Errors are published next to the last view, and it continues.
pub(crate) async fn keep_looking(mut source: Source, board: Board, stop: Shutdown) {
    let memory = Arc::<Mutex<Memory>>::default();
    let mut last: Option<Instant> = None;
    source.follow();
    loop {
        let is_due = last.is_none_or(|last| last.elapsed() >= LONGEST);
        let mut work = Duration::ZERO;
        let looked = async {
            if !is_due && !source.has_changed().await {
                return Ok(None);
            }
            let Some(making) = source.read().await? else {
                anyhow::bail!("this replica does not lead, or has not read the cluster yet");
            };
            let begun = Instant::now();
            let shown = judge(making, Arc::clone(&memory)).await;
            work = begun.elapsed();
            shown.map(|shown| Some(with_settings(shown, source.settings())))
        };
        match stop.cut(looked).await {
            None => return,
            Some(Ok(None)) => {}
            Some(Ok(Some(shown))) => {
                board.publish(shown);
                last = Some(Instant::now());
                if source.is_still() {
                    return;
                }
            }
            Some(Err(error)) => board.trouble(format!("{error:#}")),
        }
        let pause = source.pace().max(work * PARTS);
        if stop.cut(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Makes the world and decides about it, which takes a while, on a separate thread. A panic there costs this look and nothing that is remembered.
async fn judge(making: Making, memory: Arc<Mutex<Memory>>) -> Result<Shown> {
    let work = spawn_blocking(move || {
        let (world, policy) = making();
        let judged = Judged::of(world, &policy);
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Memory {
            ledger,
            history,
            revision,
        } = &mut *memory;
        *revision += 1;
        let view = View::take(&judged, ledger, history, *revision);
        Shown {
            view: Arc::new(view),
            judged: Arc::new(judged),
        }
    });
    work.await
        .context("what was read cannot be judged: this is a defect of Spokeshave")
}

#[cfg(test)]
mod tests;
