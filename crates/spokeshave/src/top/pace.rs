//! How often new views are drawn: a cluster in which much happens would have the terminal written all the time.

use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// The least time between two views that are drawn because they are new.
const PAUSE: Duration = Duration::from_millis(250);

/// When the next view may be drawn.
pub(super) struct Pace {
    rests_until: Instant,
}

impl Pace {
    /// The next view may be drawn at once.
    pub(super) fn new() -> Self {
        Self {
            rests_until: Instant::now(),
        }
    }

    /// Waits for the next view, and not less than the pause since the last wait came to an end. Whoever stops waiting, because a key is
    /// to be heard, misses no view: what there is gets drawn before the next wait.
    pub(super) async fn wait(&mut self, next: Notified<'_>) {
        tokio::time::sleep_until(self.rests_until).await;
        next.await;
        self.rests_until = Instant::now() + PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use spokeshave_web::Board;

    use super::*;
    use crate::top::frame::{Asked, Size};
    use crate::top::screen::Screen;
    use crate::top::tests::crowd;

    const NEVER: Duration = Duration::from_secs(3600);

    /// When something is drawn within so long: the loop of the terminal, with a key of no meaning every so often.
    async fn draws(board: &Board, length: Duration, key: Duration) -> Vec<Instant> {
        let size = Size {
            width: 160,
            height: 20,
        };
        let (mut screen, mut pace, asked) = (Screen::new(false), Pace::new(), Asked::default());
        let end = Instant::now() + length;
        let mut drawn = Vec::new();
        loop {
            let next = board.next();
            let is_drawn = screen.update(&mut io::sink(), board, &asked, size, "shop");
            if is_drawn.expect("written") {
                drawn.push(Instant::now());
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(end) => return drawn,
                () = pace.wait(next) => {}
                () = tokio::time::sleep(key) => {}
            }
        }
    }

    /// Publishes so many views, one every so often, and returns when.
    async fn publish(board: &Board, views: u64, every: Duration) -> Vec<Instant> {
        let mut shown = crowd(&[]);
        let mut published = Vec::new();
        for revision in 1..=views {
            tokio::time::sleep(every).await;
            Arc::make_mut(&mut shown.view).revision = revision;
            board.publish(shown.clone());
            published.push(Instant::now());
        }
        published
    }

    #[tokio::test(start_paused = true)]
    async fn of_views_that_come_quickly_four_a_second_are_drawn_and_the_last_one() {
        let board = Board::new();
        let (drawn, published) = tokio::join!(
            draws(&board, Duration::from_secs(5), NEVER),
            publish(&board, 100, Duration::from_millis(20))
        );
        // Before them, that it is being read.
        let views = &drawn[1..];
        assert_eq!(views.first(), published.first(), "the first is drawn at once");
        for two in views.windows(2) {
            assert!(two[1] - two[0] >= PAUSE, "{drawn:?}");
        }
        let (last, newest) = (views[views.len() - 1], published[99]);
        assert!(last >= newest && last < newest + PAUSE, "{drawn:?}");
        // In two seconds.
        assert_eq!(views.len(), 1 + 8, "{drawn:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_view_that_comes_after_the_pause_is_drawn_at_once() {
        let board = Board::new();
        let (drawn, published) = tokio::join!(
            draws(&board, Duration::from_secs(5), NEVER),
            publish(&board, 3, Duration::from_secs(1))
        );
        assert_eq!(drawn[1..], published);
    }

    /// A key interrupts the wait: what there is is drawn with it, and the next view when it comes.
    #[tokio::test(start_paused = true)]
    async fn a_key_that_comes_in_the_pause_costs_no_view() {
        let board = Board::new();
        let (drawn, published) = tokio::join!(
            draws(&board, Duration::from_secs(5), Duration::from_millis(75)),
            publish(&board, 3, Duration::from_millis(200))
        );
        // The second one comes 200 ms after the first, and a key 25 ms later, both before the pause is over.
        let views = &drawn[1..];
        assert_eq!(views.len(), 3, "{drawn:?}");
        assert_eq!((views[0], views[2]), (published[0], published[2]));
        assert!(
            views[1] > published[1] && views[1] < views[0] + PAUSE,
            "{drawn:?}"
        );
    }
}
