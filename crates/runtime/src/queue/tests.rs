//! The queue on a virtual clock.

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use spokeshave_ports::{SystemClock, TokioClock};

use super::*;

fn queue(rate_limit: RateLimit) -> WorkQueue<&'static str> {
    let clock = TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared();
    WorkQueue::new(
        "test",
        clock.clone(),
        QueueOptions { rate_limit },
        &Metrics::new(clock),
    )
}

const PLAIN: RateLimit = RateLimit {
    base: Duration::from_secs(1),
    max: Duration::from_secs(8),
    bucket: None,
};

#[tokio::test(start_paused = true)]
async fn keys_wait_once_and_in_order() {
    let queue = queue(PLAIN);
    for key in ["b", "a", "b", "c"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(
        [queue.next().await, queue.next().await, queue.next().await],
        ["b", "a", "c"]
    );
    assert!(queue.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_in_work_comes_back_afterwards_and_never_twice_at_a_time() {
    let queue = queue(PLAIN);
    queue.add("a");
    let key = queue.next().await;
    queue.add("a");
    queue.add("a");
    assert!(queue.try_next().is_none());
    queue.done(&key);
    assert_eq!(queue.try_next(), Some("a"));
    queue.done(&"a");
    assert!(queue.try_next().is_none());
    assert!(queue.is_idle(Duration::from_secs(3600)));
}

#[tokio::test(start_paused = true)]
async fn the_earliest_delay_of_a_key_holds() {
    let queue = queue(PLAIN);
    let start = queue.clock().now();
    queue.add_after("a", Duration::from_secs(60));
    queue.add_after("a", Duration::from_secs(5));
    queue.add_after("a", Duration::from_secs(30));
    assert_eq!(queue.next().await, "a");
    assert_eq!(queue.clock().since(start), Duration::from_secs(5));
    queue.done(&"a");
    assert!(queue.is_idle(Duration::from_secs(3600)), "one delay, one visit");
}

/// As on a machine that was suspended, whose timers have not gone on.
#[tokio::test(start_paused = true)]
async fn a_delay_ends_soon_after_the_system_clock_has_passed_its_end() {
    let while_suspended = Duration::from_secs(50);
    let was_suspended = Arc::new(AtomicBool::new(false));
    let awake = TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared();
    let suspended = was_suspended.clone();
    let system = move || match suspended.load(Ordering::Relaxed) {
        true => awake.now() + while_suspended,
        false => awake.now(),
    };
    let clock = SystemClock::reading(system).shared();
    let options = QueueOptions { rate_limit: PLAIN };
    let queue = WorkQueue::new("test", clock.clone(), options, &Metrics::new(clock));
    queue.add_after("a", Duration::from_secs(120));
    let begun = tokio::time::Instant::now();
    let waiter = queue.clone();
    let waiting = tokio::spawn(async move { waiter.next().await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    was_suspended.store(true, Ordering::Relaxed);
    assert_eq!(waiting.await.unwrap(), "a");
    assert!(
        begun.elapsed() <= Duration::from_secs(80),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn an_addition_wakes_a_waiter_before_a_delay_ends() {
    let queue = queue(PLAIN);
    queue.add_after("late", Duration::from_secs(60));
    let (adder, clock) = (queue.clone(), queue.clock().clone());
    tokio::spawn(async move {
        clock.sleep(Duration::from_secs(1)).await;
        adder.add("now");
    });
    assert_eq!(queue.next().await, "now");
    assert_eq!(queue.next().await, "late");
}

#[tokio::test(start_paused = true)]
async fn failures_double_the_delay_until_forgotten() {
    let queue = queue(PLAIN);
    let delays: Vec<u64> = (0..5).map(|_| queue.add_rate_limited("a").as_secs()).collect();
    assert_eq!(delays, [1, 2, 4, 8, 8]);
    assert_eq!(queue.failures(&"a"), 5);
    queue.forget(&"a");
    assert_eq!(queue.add_rate_limited("a"), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn unfinished_work_is_measured_when_somebody_looks() {
    let clock = TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared();
    let metrics = Metrics::new(clock.clone());
    let queue = WorkQueue::new("test", clock.clone(), QueueOptions::default(), &metrics);
    for key in ["a", "b"] {
        queue.add(key);
        queue.next().await;
        clock.sleep(Duration::from_secs(2)).await;
    }
    let text = metrics.render();
    for line in [
        r#"workqueue_unfinished_work_seconds{controller="test",name="test"} 6"#,
        r#"workqueue_longest_running_processor_seconds{controller="test",name="test"} 4"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_overall_rate_holds_for_all_keys_together() {
    let limit = RateLimit {
        base: Duration::ZERO,
        max: Duration::ZERO,
        bucket: Some((10.0, 2)),
    };
    let queue = queue(limit);
    let delays: Vec<u128> = ["a", "b", "c", "d"]
        .into_iter()
        .map(|key| queue.add_rate_limited(key).as_millis())
        .collect();
    assert_eq!(delays, [0, 0, 100, 200]);
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    AddAfter(u8, u8),
    Fail(u8),
    Forget(u8),
    Take,
    Done(u8),
    Pass(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0_u8..4;
    let step = prop_oneof![
        key.clone().prop_map(Step::Add),
        (key.clone(), 1_u8..20).prop_map(|(key, seconds)| Step::AddAfter(key, seconds)),
        key.clone().prop_map(Step::Fail),
        key.clone().prop_map(Step::Forget),
        Just(Step::Take),
        key.prop_map(Step::Done),
        (1_u8..10).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..80)
}

/// The rules again, in the most naive way: lists only, searched from the front.
#[derive(Default)]
struct Naive {
    waiting: Vec<u8>,
    again: Vec<u8>,
    working: Vec<u8>,
    later: Vec<(i64, u8)>,
    failures: [u32; 4],
}

impl Naive {
    fn add(&mut self, key: u8) {
        let list = if self.working.contains(&key) {
            &mut self.again
        } else {
            &mut self.waiting
        };
        if !list.contains(&key) {
            list.push(key);
        }
    }

    fn add_at(&mut self, key: u8, due: i64) {
        match self.later.iter().position(|(_, other)| *other == key) {
            Some(index) if self.later[index].0 <= due => return,
            Some(index) => drop(self.later.remove(index)),
            None => {}
        }
        self.later.push((due, key));
    }

    fn take(&mut self, now: i64) -> Option<u8> {
        let mut due: Vec<(i64, u8)> = self
            .later
            .iter()
            .copied()
            .filter(|(due, _)| *due <= now)
            .collect();
        due.sort_by_key(|(due, _)| *due);
        self.later.retain(|(due, _)| *due > now);
        for (_, key) in due {
            self.add(key);
        }
        if self.waiting.is_empty() {
            return None;
        }
        let key = self.waiting.remove(0);
        self.working.push(key);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        let Some(index) = self.working.iter().position(|other| *other == key) else {
            return;
        };
        self.working.remove(index);
        if let Some(index) = self.again.iter().position(|other| *other == key) {
            self.again.remove(index);
            self.waiting.push(key);
        }
    }
}

proptest! {
    #[test]
    fn the_queue_agrees_with_a_naive_one(steps in steps()) {
        let mut core = Core::new(RateLimit { base: Duration::from_secs(1), max: Duration::from_secs(8), bucket: None });
        let mut naive = Naive::default();
        let mut seconds = 0_i64;
        for step in steps {
            let now = Timestamp::from_second(seconds).unwrap();
            match step {
                Step::Add(key) => {
                    core.add(key, now);
                    naive.add(key);
                }
                Step::AddAfter(key, delay) => {
                    core.add_at(key, after(now, Duration::from_secs(u64::from(delay))));
                    naive.add_at(key, seconds + i64::from(delay));
                }
                Step::Fail(key) => {
                    let delay = core.next_delay(&key, now);
                    let failures = &mut naive.failures[usize::from(key)];
                    prop_assert_eq!(delay.as_secs(), 2_u64.pow((*failures).min(3)));
                    *failures += 1;
                }
                Step::Forget(key) => {
                    core.failures.remove(&key);
                    naive.failures[usize::from(key)] = 0;
                }
                Step::Take => {
                    core.promote(now);
                    let taken = core.take(now).map(|(key, _)| key);
                    prop_assert_eq!(taken, naive.take(seconds));
                    prop_assert!(core.waiting.iter().all(|(key, _)| !core.working.contains_key(key)));
                }
                Step::Done(key) => {
                    core.done(&key, now);
                    naive.done(key);
                }
                Step::Pass(delay) => seconds += i64::from(delay),
            }
        }
    }
}
