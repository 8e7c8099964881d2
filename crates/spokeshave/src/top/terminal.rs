//! The terminal: taken over, listened to, and given back whatever happens. What is drawn on it is the screen's.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use crossterm::event::{Event, EventStream, KeyEventKind};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, terminal};
use futures::StreamExt as _;
use spokeshave_runtime::Shutdown;
use spokeshave_web::Board;

use super::frame::{Asked, Size};
use super::pace::Pace;
use super::screen::Screen;
use super::without::Worker;
use crate::look::{Source, keep_looking};
use crate::signals;

#[cfg(all(test, target_os = "linux"))]
mod panics;

/// How often it is looked whether the view is out of date now, of which nobody is told. Where nothing has changed, nothing is drawn.
const LOOK: Duration = Duration::from_secs(5);

/// A panic has given the terminal back, and is written there.
static GIVEN_BACK: AtomicBool = AtomicBool::new(false);

/// Whether letters beyond ASCII can be shown.
pub(super) fn speaks_utf8() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let language = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    !is_dumb() && language.is_none_or(|name| name.to_lowercase().replace('-', "").contains("utf8"))
}

fn is_dumb() -> bool {
    std::env::var("TERM").is_ok_and(|name| name == "dumb")
}

/// Whether the terminal may know colours, and nobody has said that there are to be none.
fn may_have_colours() -> bool {
    !is_dumb() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The terminal while it is ours.
struct Ours {
    screen: Screen,
}

impl Ours {
    fn take(has_colours: bool) -> Result<Self> {
        terminal::enable_raw_mode().context("the terminal cannot be taken over")?;
        let ours = Ours {
            screen: Screen::new(has_colours),
        };
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(ours)
    }

    /// Takes the terminal once more after a panic that was caught: it has cost a look, and the next one may succeed.
    fn take_again(&mut self) -> Result<()> {
        if GIVEN_BACK.swap(false, Ordering::AcqRel) {
            terminal::enable_raw_mode().context("the terminal cannot be taken over")?;
            execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
            self.screen.forget();
        }
        Ok(())
    }
}

/// A panic passes through here, too.
impl Drop for Ours {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}

/// So that what a panic says is written where it stays: it is told before the stack is unwound, on the terminal as it was.
fn give_back_on_panic() {
    let known = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        known(panic);
        GIVEN_BACK.store(true, Ordering::Release);
    }));
}

/// Shows a source until the user quits.
///
/// # Errors
/// Standard output is no terminal, or cannot be drawn on.
pub(super) async fn run(
    source: Source,
    board: Board,
    mut asked: Asked,
    colours: bool,
    title: String,
) -> Result<()> {
    ensure!(
        io::stdout().is_terminal() && io::stdin().is_terminal(),
        "there is no terminal to draw on; `spokeshave top --once` prints one table"
    );
    let mut worker = Worker::start()?;
    let stop = Shutdown::new();
    let mut looking = tokio::spawn(keep_looking(source, board.clone(), stop.clone()));
    give_back_on_panic();
    let mut ours = Ours::take(colours && may_have_colours())?;
    let mut keys = EventStream::new();
    let mut end = std::pin::pin!(signals::wait(None));
    let mut is_over = false;
    let mut pace = Pace::new();
    loop {
        ours.take_again()?;
        let next = board.next();
        if let (Some(shown), Some(node)) = (board.shown(), asked.wants_without()) {
            worker.ask(&shown, node);
        }
        ours.screen
            .update(&mut io::stdout().lock(), &board, &asked, size(), &title)?;
        tokio::select! {
            biased;
            () = &mut end => break,
            // A file is read once, and what was read stays on the screen. Figures that stay because reading has broken would be worse than none.
            ended = &mut looking, if !is_over => match ended {
                Ok(()) => is_over = true,
                Err(error) => {
                    drop(ours);
                    return Err(error).context("reading the cluster has broken");
                }
            },
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    let shown = board.shown();
                    if ours.screen.hear(&mut asked, key, shown.as_ref()) {
                        break;
                    }
                }
                Some(Ok(Event::Resize(..))) => ours.screen.forget(),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            },
            Some(answer) = worker.answer() => {
                asked.without = Some(answer);
                ours.screen.ask_anew();
            }
            () = pace.wait(next) => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    drop(ours);
    stop.request();
    if is_over {
        return Ok(());
    }
    looking.await.context("reading the cluster has broken")
}

fn size() -> Size {
    let (width, height) = terminal::size().unwrap_or((80, 24));
    Size {
        width: usize::from(width),
        height: usize::from(height),
    }
}
