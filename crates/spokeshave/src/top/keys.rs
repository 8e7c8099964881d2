//! How keys change the requested view. Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use spokeshave_web::Shown;

use super::frame::{Asked, Pane};
use super::listing::Listing;

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Draw,
    Quit,
    Nothing,
}

/// Takes a key in. A screenful is what the screen that was drawn last had room for.
pub(super) fn press(asked: &mut Asked, key: KeyEvent, shown: &Shown) -> Then {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if key.code == KeyCode::Char('c') {
            Then::Quit
        } else {
            Then::Nothing
        };
    }
    if asked.is_typing {
        return typed(asked, key.code);
    }
    let step = i64::try_from(asked.room.get().max(1)).unwrap_or(1);
    match key.code {
        KeyCode::Char('q') => return Then::Quit,
        KeyCode::Char('j') | KeyCode::Down => go(asked, shown, 1),
        KeyCode::Char('k') | KeyCode::Up => go(asked, shown, -1),
        KeyCode::PageDown => go(asked, shown, step),
        KeyCode::PageUp => go(asked, shown, -step),
        KeyCode::Home => go(asked, shown, i64::MIN / 2),
        KeyCode::End => go(asked, shown, TO_THE_END),
        KeyCode::Enter => toggle(asked, Pane::Explain),
        KeyCode::Char('w') => toggle(asked, Pane::Without),
        KeyCode::Char('e') => toggle(asked, Pane::Explain),
        KeyCode::Char('g') => toggle(asked, Pane::Pools),
        KeyCode::Char('p') => toggle(asked, Pane::Pending),
        KeyCode::Char('b') => toggle(asked, Pane::Budgets),
        KeyCode::Char('c') => toggle(asked, Pane::Commands),
        KeyCode::Char('?' | 'h') => toggle(asked, Pane::Help),
        KeyCode::Char('o') => asked.sort = asked.sort.next(),
        KeyCode::Char('/') => asked.is_typing = true,
        KeyCode::Char(' ') if asked.pane != Pane::None => {
            asked.pane_first.set(asked.pane_first.get().saturating_add(5));
        }
        KeyCode::Esc => {
            if asked.pane == Pane::None {
                asked.filter.clear();
            }
            asked.pane = Pane::None;
        }
        _ => return Then::Nothing,
    }
    Then::Draw
}

fn typed(asked: &mut Asked, key: KeyCode) -> Then {
    match key {
        KeyCode::Char(letter) => asked.filter.push(letter),
        KeyCode::Backspace => drop(asked.filter.pop()),
        KeyCode::Enter => asked.is_typing = false,
        KeyCode::Esc => {
            asked.is_typing = false;
            asked.filter.clear();
        }
        _ => return Then::Nothing,
    }
    asked.first.set(0);
    Then::Draw
}

fn toggle(asked: &mut Asked, pane: Pane) {
    asked.pane = if asked.pane == pane { Pane::None } else { pane };
    asked.pane_first.set(0);
}

/// A step beyond any list.
const TO_THE_END: i64 = i64::MAX / 2;

/// Moves the choice. The screen follows when it is drawn.
fn go(asked: &mut Asked, shown: &Shown, by: i64) {
    let listing = Listing::of(shown, asked);
    let Some(last) = listing.len().checked_sub(1) else {
        return;
    };
    let known = asked.chosen.as_deref().and_then(|name| listing.place(name));
    let at = match known {
        Some(at) => {
            let at = i64::try_from(at).unwrap_or(i64::MAX).saturating_add(by).max(0);
            usize::try_from(at).unwrap_or(last).min(last)
        }
        None if by == TO_THE_END => last,
        None => 0,
    };
    asked.chosen = listing.row(at).map(|row| row.name.clone());
    asked.pane_first.set(0);
}
