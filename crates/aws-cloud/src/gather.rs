//! Questions about single instances that become one call: with 1,000 instances to end EC2 is asked a few times and not 2,000 times.
//!
//! Owns who waits for which call. The first that asks makes the call for all that joined it; when it is given up, they ask again. EC2 refuses a whole call for
//! one ID that it does not know, that is malformed, or whose instance is protected: then each ID is asked for by itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{BoxFuture, join_all};
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
/// As many calls for single IDs as are made at once.
const AT_ONCE: usize = 8;

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
        loop {
            let (sender, receiver) = oneshot::channel();
            if let Some(number) = self.join_call(id, sender, clock.now()) {
                self.make_call(number, clock, &call).await;
            }
            // The time of whoever made the call was over, which is not the time of those that joined it.
            if let Ok(share) = receiver.await {
                return share;
            }
        }
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
        let refused = answers.as_ref().is_err_and(may_be_about_one);
        if !refused || ids.len() == 1 {
            for (id, sender) in batch.waiting {
                drop(sender.send(share(&id, &answers)));
            }
            return;
        }
        let single = ask_singly(&ids, call).await;
        for (id, sender) in batch.waiting {
            drop(sender.send(share(&id, &single[&id])));
        }
    }
}

/// Whether an error may be about one ID of many. Where EC2 fails or does not answer, wants fewer calls or does not know the caller, it is about all of them.
/// (`AuthFailure` alone is also what EC2 says of a single resource.)
fn may_be_about_one(error: &ApiError) -> bool {
    let is_unknown = error.is_unauthenticated() && error.code != "AuthFailure";
    !error.code.is_empty() && !error.is_rate_limited() && !error.is_server_error() && !is_unknown
}

/// Asks for each ID by itself, a few at a time. After an answer that is about all of them no more calls are made: it is the answer for the rest as well.
async fn ask_singly<'a, T>(
    ids: &[String],
    call: impl Fn(Vec<String>) -> BoxFuture<'a, Answers<T>>,
) -> BTreeMap<String, Answers<T>> {
    let mut single: BTreeMap<String, Answers<T>> = BTreeMap::new();
    let mut about_all: Option<ApiError> = None;
    for few in ids.chunks(AT_ONCE) {
        if let Some(error) = &about_all {
            single.extend(few.iter().map(|id| (id.clone(), Err(error.clone()))));
            continue;
        }
        let calls: Vec<BoxFuture<'a, Answers<T>>> = few.iter().map(|id| call(vec![id.clone()])).collect();
        let answers = join_all(calls).await;
        let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
        about_all = errors.find(|error| !may_be_about_one(error)).cloned();
        single.extend(few.iter().cloned().zip(answers));
    }
    single
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

    fn refusal(code: &str) -> ApiError {
        ApiError {
            server_fault: code == "InternalError",
            ..ApiError::new(code, "refused")
        }
    }

    /// An EC2 that refuses a call with the ID `protected` in one way, and every call for a single ID in another, if there is one.
    fn refusing(
        calls: &Arc<Mutex<Vec<usize>>>,
        (of_batch, of_single): (&'static str, Option<&'static str>),
    ) -> impl Fn(Vec<String>) -> BoxFuture<'static, Answers<String>> + use<> {
        let calls = calls.clone();
        move |ids| {
            calls.lock().unwrap().push(ids.len());
            let code = match of_single {
                Some(code) if ids.len() == 1 => Some(code),
                _ => ids.iter().any(|id| id == "protected").then_some(of_batch),
            };
            let answers = ids.into_iter().map(|id| (id.clone(), format!("about {id}")));
            let answer = match code {
                Some(code) => Err(refusal(code)),
                None => Ok(answers.collect()),
            };
            std::future::ready(answer).boxed()
        }
    }

    /// What comes of 20 questions, one of them about the ID `protected`, and the sizes of the calls.
    async fn asked_20(codes: (&'static str, Option<&'static str>)) -> (Vec<Share<String>>, Vec<usize>) {
        let (gather, clock, calls) = (Gather::new("tests", Meter::default()), clock(), Arc::default());
        let mut ids: Vec<String> = (0..19).map(|number| format!("i-{number}")).collect();
        ids.push("protected".to_owned());
        let asked = ids
            .iter()
            .map(|id| gather.ask(id, &clock, refusing(&calls, codes)));
        let answers = join_all(asked).await;
        let calls = calls.lock().unwrap().clone();
        (answers, calls)
    }

    #[tokio::test(start_paused = true)]
    async fn a_075_an_instance_that_cannot_be_ended_and_a_malformed_id_fail_alone() {
        for code in [
            "OperationNotPermitted",
            "InvalidInstanceID.Malformed",
            "UnauthorizedOperation",
        ] {
            let (answers, calls) = asked_20((code, None)).await;
            let (refused, others) = answers.split_last().unwrap();
            assert_eq!(*refused, Err(ApiError::new(code, "refused")));
            assert!(
                others.iter().all(|answer| matches!(answer, Ok(Some(_)))),
                "{code}: {others:?}"
            );
            assert_eq!(calls, [vec![20], vec![1; 20]].concat(), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_075_what_is_about_every_id_is_not_asked_again_for_each() {
        for code in ["RequestLimitExceeded", "ExpiredToken", "InternalError", ""] {
            let (answers, calls) = asked_20((code, None)).await;
            let refused = Err(refusal(code));
            assert!(
                answers.iter().all(|answer| *answer == refused),
                "{code}: {answers:?}"
            );
            assert_eq!(calls, [20], "{code}");
        }
        // Too many calls, or a failure of EC2, said to the first few of them: the others are not made.
        for code in ["RequestLimitExceeded", "InternalError"] {
            let (answers, calls) = asked_20(("OperationNotPermitted", Some(code))).await;
            let refused = Err(refusal(code));
            assert!(answers.iter().all(|answer| *answer == refused), "{answers:?}");
            assert_eq!(calls, [vec![20], vec![1; AT_ONCE]].concat(), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_075_who_joined_a_call_that_is_given_up_asks_again() {
        let (gather, clock, calls) = (Gather::new("tests", Meter::default()), clock(), Arc::default());
        let mut first = Box::pin(gather.ask("i-1", &clock, ec2(&calls)));
        assert!(futures::poll!(&mut first).is_pending());
        let others = ["i-2", "i-3"].map(|id| gather.ask(id, &clock, ec2(&calls)));
        let mut others = Box::pin(join_all(others));
        assert!(futures::poll!(&mut others).is_pending());
        drop(first);
        let about = |id: &str| Ok(Some(format!("about {id}")));
        assert_eq!(others.await, [about("i-2"), about("i-3")]);
        assert_eq!(*calls.lock().unwrap(), [2], "both in one call");
    }
}
