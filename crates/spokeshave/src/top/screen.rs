//! What is on the terminal, and when it is drawn anew: where something that it shows has changed, and not because time has passed. Lines that are as they were are not
//! written.
//!
//! It writes to whatever it is given, so that tests count what it draws and writes.

use std::io::{self, Write};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{cursor, queue};
use spokeshave_web::{Board, Shown};

use super::frame::{Asked, Size, draw};
use super::keys::{Then, press};
use super::line::{Line, Tone, piece};

/// What a frame is drawn from, apart from what is asked for. Ages and the clock are those of the view: they change with it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sources {
    /// Of the view; none before there is one.
    revision: Option<u64>,
    trouble: Option<String>,
    size: Size,
}

/// The terminal as it was drawn last.
pub(super) struct Screen {
    before: Vec<Line>,
    has_colours: bool,
    /// None where it is to be drawn whatever has changed.
    drawn: Option<Sources>,
}

impl Screen {
    /// One on which nothing was drawn.
    pub(super) fn new(has_colours: bool) -> Self {
        Self {
            before: Vec::new(),
            has_colours,
            drawn: None,
        }
    }

    /// Something else is asked for: the next turn draws.
    pub(super) fn ask_anew(&mut self) {
        self.drawn = None;
    }

    /// Nobody knows what the terminal shows any more: the next turn writes all of it.
    pub(super) fn forget(&mut self) {
        self.before.clear();
        self.drawn = None;
    }

    /// Takes a key in, and returns whether it is to end. Without a view there is nothing else to ask for.
    pub(super) fn hear(&mut self, asked: &mut Asked, key: KeyEvent, shown: Option<&Shown>) -> bool {
        let Some(shown) = shown else {
            let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
            return match key.code {
                KeyCode::Char('q') => !is_control,
                KeyCode::Char('c') => is_control,
                _ => false,
            };
        };
        match press(asked, key, shown) {
            Then::Quit => return true,
            Then::Draw => self.ask_anew(),
            Then::Nothing => {}
        }
        false
    }

    /// Draws what there is to see, if anything of it has changed since it was drawn last, and returns whether it has. `title` is told before there is a view.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn update(
        &mut self,
        out: &mut impl Write,
        board: &Board,
        asked: &Asked,
        size: Size,
        title: &str,
    ) -> io::Result<bool> {
        let shown = board.shown();
        let sources = Sources {
            revision: shown.as_ref().map(|shown| shown.view.revision),
            trouble: board.why_not(),
            size,
        };
        if self.drawn.as_ref() == Some(&sources) {
            return Ok(false);
        }
        if self.drawn.as_ref().is_some_and(|drawn| drawn.size != size) {
            self.before.clear();
        }
        let lines = match &shown {
            Some(shown) => draw(shown, asked, size, sources.trouble.as_deref()),
            None => waiting(title, sources.trouble.as_deref(), asked.is_ascii),
        };
        self.write(out, lines)?;
        self.drawn = Some(sources);
        Ok(true)
    }

    fn write(&mut self, out: &mut impl Write, lines: Vec<Line>) -> io::Result<()> {
        for (number, line) in (0..).zip(&lines) {
            if self.before.get(usize::from(number)) == Some(line) {
                continue;
            }
            queue!(out, cursor::MoveTo(0, number), Clear(ClearType::CurrentLine))?;
            for piece in line {
                self.tone(out, piece.tone)?;
                queue!(
                    out,
                    Print(&piece.text),
                    ResetColor,
                    SetAttribute(Attribute::Reset)
                )?;
            }
        }
        if lines.len() < self.before.len() {
            queue!(out, Clear(ClearType::FromCursorDown))?;
        }
        self.before = lines;
        out.flush()
    }

    fn tone(&self, out: &mut impl Write, tone: Tone) -> io::Result<()> {
        let colour = match tone {
            Tone::Good => Some(Color::Green),
            Tone::Warn => Some(Color::Yellow),
            Tone::Bad => Some(Color::Red),
            _ => None,
        };
        match tone {
            Tone::Bold => queue!(out, SetAttribute(Attribute::Bold))?,
            Tone::Dim => queue!(out, SetAttribute(Attribute::Dim))?,
            Tone::Chosen => queue!(out, SetAttribute(Attribute::Reverse))?,
            _ => {}
        }
        match colour.filter(|_| self.has_colours) {
            Some(colour) => queue!(out, SetForegroundColor(colour)),
            None => Ok(()),
        }
    }
}

/// Before there is anything to see.
pub(super) fn waiting(title: &str, trouble: Option<&str>, is_ascii: bool) -> Vec<Line> {
    let text = match trouble {
        Some(trouble) => format!("{title}: {trouble}"),
        None if is_ascii => format!("reading {title} ..."),
        None => format!("reading {title} …"),
    };
    vec![vec![piece(text, Tone::Dim)]]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::top::frame::Pane;
    use crate::top::tests::crowd;

    const SIZE: Size = Size {
        width: 160,
        height: 20,
    };
    /// Written before each line.
    const LINE: &str = "\u{1b}[2K";
    /// Nothing was drawn, and nothing written.
    const NOTHING: (bool, usize) = (false, 0);

    /// The loop without its terminal.
    struct Top {
        board: Board,
        screen: Screen,
        asked: Asked,
    }

    impl Top {
        fn new() -> Self {
            Self {
                board: Board::new(),
                screen: Screen::new(true),
                asked: Asked::default(),
            }
        }

        /// One of forty nodes, which was drawn.
        fn of_forty() -> Self {
            let mut top = Self::new();
            top.board.publish(crowd(&[]));
            assert_eq!(top.turn(SIZE), (true, SIZE.height));
            top
        }

        /// A turn: whether a frame was drawn, and how many lines were written.
        fn turn(&mut self, size: Size) -> (bool, usize) {
            let mut out = Vec::new();
            let Top { board, screen, asked } = self;
            let is_drawn = screen
                .update(&mut out, board, asked, size, "shop")
                .expect("written");
            let text = String::from_utf8(out).expect("UTF-8");
            (is_drawn, text.matches(LINE).count())
        }

        fn hear(&mut self, code: KeyCode, modifiers: KeyModifiers) -> bool {
            let shown = self.board.shown();
            let key = KeyEvent::new(code, modifiers);
            self.screen.hear(&mut self.asked, key, shown.as_ref())
        }

        fn press(&mut self, code: KeyCode) {
            assert!(!self.hear(code, KeyModifiers::NONE), "{code:?}");
        }

        /// Publishes the next view, in which something of the nodes is different.
        fn publish(&self, change: impl FnOnce(&mut spokeshave_view::View)) {
            let mut next = self.board.shown().expect("a view");
            let view = Arc::make_mut(&mut next.view);
            view.revision += 1;
            change(view);
            self.board.publish(next);
        }
    }

    #[test]
    fn where_nothing_has_changed_nothing_is_drawn() {
        let mut top = Top::new();
        assert_eq!(top.turn(SIZE), (true, 1), "that it is being read");
        assert_eq!(top.turn(SIZE), NOTHING);
        top.board.trouble("refused".to_owned());
        assert_eq!(top.turn(SIZE), (true, 1));
        top.board.publish(crowd(&[]));
        assert_eq!(top.turn(SIZE), (true, SIZE.height));
        for _ in 0..100 {
            assert_eq!(top.turn(SIZE), NOTHING, "time alone");
        }
        top.press(KeyCode::F(5));
        assert_eq!(top.turn(SIZE), NOTHING, "a key that asks for nothing");
        for told in 0..3 {
            top.board.trouble("refused".to_owned());
            assert_eq!(top.turn(SIZE).0, told == 0, "why it is old is told once");
        }
    }

    #[test]
    fn a_change_of_one_node_is_drawn_once_and_its_line_is_written() {
        let mut top = Top::of_forty();
        top.publish(|view| view.nodes.0[3].pods.1 = 77);
        assert_eq!(top.turn(SIZE), (true, 1));
        for _ in 0..10 {
            assert_eq!(top.turn(SIZE), NOTHING);
        }
        // One that is not on the screen writes nothing.
        top.publish(|view| view.nodes.0[30].pods.1 = 77);
        assert_eq!(top.turn(SIZE), (true, 0));
        // Of views that come between two turns the newest is drawn.
        top.publish(|view| view.nodes.0[4].pods.1 = 77);
        top.publish(|view| view.nodes.0[5].pods.1 = 77);
        assert_eq!(top.turn(SIZE), (true, 2));
        assert_eq!(top.turn(SIZE), NOTHING);
    }

    /// With the clock below, what was said with it: here nothing else.
    #[test]
    fn a_later_view_of_the_same_writes_the_line_of_the_clock() {
        let mut top = Top::of_forty();
        top.publish(|view| view.header.now += jiff::SignedDuration::from_secs(5));
        assert_eq!(top.turn(SIZE), (true, 1));
        assert_eq!(top.turn(SIZE), NOTHING);
    }

    #[test]
    fn a_key_is_drawn_once_and_what_it_changes_is_written() {
        let mut top = Top::of_forty();
        for (code, lines) in [
            (KeyCode::Down, 1),
            (KeyCode::Down, 2),
            (KeyCode::Char('/'), 1),
            (KeyCode::Esc, 1),
        ] {
            top.press(code);
            assert_eq!(top.turn(SIZE), (true, lines), "{code:?}");
            assert_eq!(top.turn(SIZE), NOTHING, "{code:?}");
        }
        top.press(KeyCode::Char('c'));
        assert_eq!(top.asked.pane, Pane::Commands);
        assert!(top.turn(SIZE).0);
        assert_eq!(top.turn(SIZE), NOTHING);
    }

    #[test]
    fn a_terminal_of_another_size_is_drawn_whole_and_once() {
        let mut top = Top::of_forty();
        let larger = Size { height: 25, ..SIZE };
        assert_eq!(top.turn(larger), (true, larger.height));
        assert_eq!(top.turn(larger), NOTHING);
        top.screen.forget();
        assert_eq!(top.turn(larger), (true, larger.height));
    }

    /// What is typed ahead is not taken for Ctrl-C.
    #[test]
    fn before_there_is_a_view_only_the_keys_that_quit_are_heard() {
        let mut top = Top::new();
        for (code, modifiers, quits) in [
            (KeyCode::Char('c'), KeyModifiers::NONE, false),
            (KeyCode::Char('j'), KeyModifiers::NONE, false),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, true),
            (KeyCode::Char('q'), KeyModifiers::NONE, true),
        ] {
            assert_eq!(top.hear(code, modifiers), quits, "{code:?}");
        }
    }
}
