//! Questions about single instances that become one call: with 1,000 instances to end EC2 is asked a few times and not 2,000 times.
//!
//! Owns who waits for which call. The first that asks makes the call for all that joined it. EC2 refuses a whole call for one ID that it does not know:
//! then each ID is asked for by itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::BoxFuture;
use jiff::Timestamp;
use spokeshave_ports::SharedClock;
use spokeshave_provider_aws::errors::ApiError;

use crate::meter::Meter;

/// A call is made when nobody has joined for this long.
const IDLE: Duration = Duration::from_millis(100);
/// A call waits no longer than this.
const LONGEST: Duration = Duration::from_secs(1);
/// As many IDs as one call names.
const MOST: usize = 500;

/// What a call gives for each ID that it has something for.
pub(crate) type Answers<T> = Result<BTreeMap<String, T>, ApiError>;

type Share<T> = Result<Option<T>, ApiError>;

#[derive(Debug)]
struct Batch<T> {
    number: u64,
    opened: Timestamp,
    touched: Timestamp,
    waiting: Vec<(String, oneshot::Sender<Share<T>>)>,
}

/// Questions that are about to be asked.
#[derive(Debug)]
pub(crate) struct Gather<T> {
    /// Its name in metrics.
    name: &'static str,
    open: Mutex<(u64, Vec<Batch<T>>)>,
    meter: Meter,
}

impl<T> Gather<T> {
    /// Questions that this meter counts under a name.
    pub(crate) fn new(name: &'static str, meter: Meter) -> Self {
        Gather {
            name,
            open: Mutex::new((0, Vec::new())),
            meter,
        }
    }
}

impl<T: Clone + Send> Gather<T> {
    fn open(&self) -> MutexGuard<'_, (u64, Vec<Batch<T>>)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks about one ID; `None` when the answer has nothing for it, or EC2 does not know it.
    pub(crate) async fn ask<'a>(
        &self,
        id: &str,
        clock: &SharedClock,
        call: impl Fn(Vec<String>) -> BoxFuture<'a, Answers<T>>,
    ) -> Share<T> {
        let (sender, receiver) = oneshot::channel();
        if let Some(number) = self.join_call(id, sender, clock.now()) {
            self.make_call(number, clock, call).await;
        }
        let given_up = |_| Err(ApiError::new("", "the call that was shared was given up"));
        receiver.await.unwrap_or_else(given_up)
    }

    fn join_call(&self, id: &str, sender: oneshot::Sender<Share<T>>, now: Timestamp) -> Option<u64> {
        let mut open = self.open();
        if let Some(batch) = open.1.iter_mut().find(|batch| batch.waiting.len() < MOST) {
            batch.touched = now;
            batch.waiting.push((id.to_owned(), sender));
            return None;
        }
        open.0 += 1;
        let number = open.0;
        open.1.push(Batch {
            number,
            opened: now,
            touched: now,
            waiting: vec![(id.to_owned(), sender)],
        });
        Some(number)
    }

    async fn make_call<'a>(
        &self,
        number: u64,
        clock: &SharedClock,
        call: impl Fn(Vec<String>) -> BoxFuture<'a, Answers<T>>,
    ) {
        let guard = Given { gather: self, number };
        let batch = loop {
            clock.sleep(IDLE).await;
            let mut open = self.open();
            let Some(index) = open.1.iter().position(|batch| batch.number == number) else {
                return;
            };
            let batch = &open.1[index];
            let is_full = batch.waiting.len() >= MOST;
            if is_full || clock.since(batch.touched) >= IDLE || clock.since(batch.opened) >= LONGEST {
                break open.1.remove(index);
            }
        };
        drop(guard);
        let window = clock.since(batch.opened);
        self.meter.batch(self.name, window, batch.waiting.len());
        let mut ids: Vec<String> = batch.waiting.iter().map(|(id, _)| id.clone()).collect();
        ids.sort();
        ids.dedup();
        let answers = call(ids.clone()).await;
        let refused = answers.as_ref().is_err_and(ApiError::is_not_found);
        if !refused || ids.len() == 1 {
            for (id, sender) in batch.waiting {
                drop(sender.send(share(&id, &answers)));
            }
            return;
        }
        let mut single = BTreeMap::new();
        for id in ids {
            let answers = call(vec![id.clone()]).await;
            single.insert(id, answers);
        }
        for (id, sender) in batch.waiting {
            drop(sender.send(share(&id, &single[&id])));
        }
    }
}

fn share<T: Clone>(id: &str, answers: &Answers<T>) -> Share<T> {
    match answers {
        Ok(answers) => Ok(answers.get(id).cloned()),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.clone()),
    }
}

/// Removes a call that is given up before it was made, so that nobody joins it any more.
struct Given<'a, T> {
    gather: &'a Gather<T>,
    number: u64,
}

impl<T> Drop for Given<'_, T> {
    fn drop(&mut self) {
        let mut open = self.gather.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.1.retain(|batch| batch.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use spokeshave_ports::TokioClock;

    use super::*;

    /// An EC2 that knows the IDs that begin with `i-`, and refuses a call with any other.
    fn ec2(
        calls: &Arc<Mutex<Vec<usize>>>,
    ) -> impl Fn(Vec<String>) -> BoxFuture<'static, Answers<String>> + use<> {
        let calls = calls.clone();
        move |ids| {
            calls.lock().unwrap().push(ids.len());
            let known = ids.iter().all(|id| id.starts_with("i-"));
            let answers = ids.into_iter().map(|id| (id.clone(), format!("about {id}")));
            let refusal = ApiError::new("InvalidInstanceID.NotFound", "no such instance");
            let answer = if known {
                Ok(answers.collect())
            } else {
                Err(refusal)
            };
            std::future::ready(answer).boxed()
        }
    }

    fn clock() -> SharedClock {
        TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared()
    }

    #[tokio::test(start_paused = true)]
    async fn a_075_questions_share_a_call_up_to_500_ids() {
        let (gather, clock, calls) = (Gather::new("tests", Meter::default()), clock(), Arc::default());
        let ids: Vec<String> = (0..1200).map(|number| format!("i-{number}")).collect();
        let asked = ids.iter().map(|id| gather.ask(id, &clock, ec2(&calls)));
        let answers = futures::future::join_all(asked).await;
        assert_eq!(*calls.lock().unwrap(), [500, 500, 200]);
        for (id, answer) in ids.iter().zip(answers) {
            assert_eq!(answer, Ok(Some(format!("about {id}"))));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_075_one_bad_id_spoils_no_other() {
        let (gather, clock, calls) = (Gather::new("tests", Meter::default()), clock(), Arc::default());
        let asked = ["i-1", "gone", "i-2"].map(|id| gather.ask(id, &clock, ec2(&calls)));
        let answers = futures::future::join_all(asked).await;
        let found = |id: &str| Ok(Some(format!("about {id}")));
        assert_eq!(answers, [found("i-1"), Ok(None), found("i-2")]);
        assert_eq!(*calls.lock().unwrap(), [3, 1, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_joined_a_call_that_is_given_up_is_told_and_nobody_joins_it_any_more() {
        let (gather, clock, calls) = (Gather::new("tests", Meter::default()), clock(), Arc::default());
        let mut first = Box::pin(gather.ask("i-1", &clock, ec2(&calls)));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(gather.ask("i-2", &clock, ec2(&calls)));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert!(second.await.is_err());
        assert_eq!(
            gather.ask("i-3", &clock, ec2(&calls)).await,
            Ok(Some("about i-3".to_owned()))
        );
    }
}
