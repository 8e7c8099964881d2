//! Launches that ask for the same are one call (A5.5, A-074): with 1,000 NodeClaims at once EC2 is asked a few times and not 1,000 times.
//!
//! Owns who waits for which call. It is made by all that wait for it: whoever gives up takes it from nobody else, and it ends with the last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::Timestamp;
use spokeshave_ports::SharedClock;
use spokeshave_provider_aws::errors::{ApiError, launch_reason};
use spokeshave_provider_aws::fleet::{FleetError, Launched};
use spokeshave_provider_aws::requests::FleetRequest;

use crate::meter::Meter;
use crate::ports::Ec2;

/// A call is made when nobody has joined for this long.
const IDLE: Duration = Duration::from_millis(35);
/// A call waits no longer than this.
const LONGEST: Duration = Duration::from_secs(1);
/// As many instances as one call may launch.
const MOST: usize = 1000;

/// What one launch gets of a call: an instance, or none; and the errors of the whole call.
pub(crate) type Share = Result<(Option<Launched>, Vec<FleetError>), ApiError>;

/// A call under way, from the first that asks on.
type Call = BoxFuture<'static, ()>;

#[derive(Debug)]
struct Batch {
    request: FleetRequest,
    opened: Timestamp,
    touched: Timestamp,
    waiting: Vec<oneshot::Sender<Share>>,
    number: u64,
    /// Only those that wait for it hold it.
    call: Option<WeakShared<Call>>,
}

/// Fleets that are about to be asked for. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleets {
    open: Arc<Mutex<(u64, Vec<Batch>)>>,
    meter: Meter,
}

impl Fleets {
    /// Fleets that this meter counts.
    pub(crate) fn counted(meter: Meter) -> Self {
        Fleets {
            meter,
            ..Fleets::default()
        }
    }

    fn open(&self) -> MutexGuard<'_, (u64, Vec<Batch>)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Launches one instance.
    pub(crate) async fn launch(
        &self,
        ec2: Arc<dyn Ec2>,
        clock: &SharedClock,
        request: FleetRequest,
    ) -> Share {
        let (call, receiver) = self.join(ec2, clock, request);
        call.await;
        let lost = |_| {
            Err(ApiError::new(
                "",
                "the call that launches was given up; what EC2 did is unknown",
            ))
        };
        receiver.await.unwrap_or_else(lost)
    }

    /// Joins a call, or begins a new one. It goes on while somebody polls it.
    fn join(
        &self,
        ec2: Arc<dyn Ec2>,
        clock: &SharedClock,
        request: FleetRequest,
    ) -> (Shared<Call>, oneshot::Receiver<Share>) {
        let (sender, receiver) = oneshot::channel();
        let now = clock.now();
        let mut open = self.open();
        let fitting =
            |batch: &&mut Batch| batch.waiting.len() < MOST && batch.request.is_same_but_for_count(&request);
        // One of which nobody waits any more is about to be removed.
        if let Some(batch) = open.1.iter_mut().find(fitting)
            && let Some(call) = batch.call.as_ref().and_then(WeakShared::upgrade)
        {
            batch.touched = now;
            batch.waiting.push(sender);
            return (call, receiver);
        }
        open.0 += 1;
        let number = open.0;
        let call = self.clone().make(number, ec2, clock.clone()).boxed().shared();
        open.1.push(Batch {
            request,
            opened: now,
            touched: now,
            waiting: vec![sender],
            number,
            call: call.downgrade(),
        });
        (call, receiver)
    }

    /// Makes a call when its time has come, and hands out what comes of it to those that still wait.
    async fn make(self, number: u64, ec2: Arc<dyn Ec2>, clock: SharedClock) {
        let guard = Given {
            fleets: self.clone(),
            number,
        };
        let mut batch = loop {
            clock.sleep(IDLE).await;
            let mut open = self.open();
            let now = clock.now();
            let passed = |since: Timestamp| Duration::try_from(now.duration_since(since)).unwrap_or_default();
            let Some(index) = open.1.iter().position(|batch| batch.number == number) else {
                return;
            };
            let batch = &open.1[index];
            let is_full = batch.waiting.len() >= MOST;
            if is_full || passed(batch.touched) >= IDLE || passed(batch.opened) >= LONGEST {
                break open.1.remove(index);
            }
        };
        drop(guard);
        batch.waiting.retain(|sender| !sender.is_canceled());
        let window = clock.since(batch.opened);
        self.meter.batch("create_fleet", window, batch.waiting.len());
        let mut request = batch.request;
        request.target_capacity_specification.total_target_capacity =
            u32::try_from(batch.waiting.len()).unwrap_or(u32::MAX);
        match ec2.create_fleet(&request).await {
            Ok(reply) => {
                self.count(&request, &reply.errors);
                let mut launched = reply.launched.into_iter();
                // Those that have given up meanwhile come last: where there are too few instances, nobody goes without for their sake.
                batch.waiting.sort_by_key(oneshot::Sender::is_canceled);
                for sender in batch.waiting {
                    drop(sender.send(Ok((launched.next(), reply.errors.clone()))));
                }
            }
            Err(error) => {
                for sender in batch.waiting {
                    drop(sender.send(Err(error.clone())));
                }
            }
        }
    }

    fn count(&self, request: &FleetRequest, errors: &[FleetError]) {
        let specification = &request.target_capacity_specification;
        let capacity_type = match specification.default_target_capacity_type.as_str() {
            "capacity-block" | "reserved-capacity" => "reserved",
            other => other,
        };
        for FleetError { error, place } in errors {
            let (reason, _) = launch_reason(error);
            self.meter.launch_failed(&place.zone, capacity_type, reason);
        }
    }
}

/// Removes a call that is given up by all before it was made, so that nobody joins it any more.
struct Given {
    fleets: Fleets,
    number: u64,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.fleets.open().1.retain(|batch| batch.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::TokioClock;
    use spokeshave_provider_aws::replies::FleetReply;

    use super::*;
    use crate::fake::FakeEc2;

    fn request(kind: &str) -> FleetRequest {
        FleetRequest {
            context: Some(kind.to_owned()),
            ..FleetRequest::default()
        }
    }

    fn instance(number: u32) -> Launched {
        Launched {
            instance_id: format!("i-{number}"),
            ..Launched::default()
        }
    }

    /// A cloud that launches as many as it is asked for, and at most `most`.
    fn cloud(most: u32) -> Arc<FakeEc2> {
        Arc::new(FakeEc2::with_fleets(move |request| {
            let wanted = request.target_capacity_specification.total_target_capacity;
            let missing = (wanted > most).then(|| FleetError {
                error: ApiError::new("InsufficientInstanceCapacity", "none left"),
                place: Default::default(),
            });
            Ok(FleetReply {
                launched: (0..wanted.min(most)).map(instance).collect(),
                errors: missing.into_iter().collect(),
                ..FleetReply::default()
            })
        }))
    }

    fn clock() -> SharedClock {
        TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared()
    }

    #[tokio::test(start_paused = true)]
    async fn a_074_equal_launches_share_a_call_and_different_ones_do_not() {
        let (fleets, ec2, clock) = (Fleets::default(), cloud(1000), clock());
        let launches = (0..50).map(|number| {
            let kind = if number % 2 == 0 { "even" } else { "odd" };
            fleets.launch(ec2.clone(), &clock, request(kind))
        });
        let shares = futures::future::join_all(launches).await;
        assert_eq!(ec2.fleets_asked(), [25, 25]);
        let launched: Vec<String> = shares
            .into_iter()
            .map(|share| share.unwrap().0.unwrap().instance_id)
            .collect();
        let even: std::collections::BTreeSet<&String> = launched.iter().step_by(2).collect();
        assert_eq!(even.len(), 25, "nobody shares an instance");
    }

    #[tokio::test(start_paused = true)]
    async fn a_074_what_is_missing_of_a_call_goes_without_and_learns_why() {
        let (fleets, ec2, clock) = (Fleets::default(), cloud(2), clock());
        let launches = (0..3).map(|_| fleets.launch(ec2.clone(), &clock, request("a")));
        let shares: Vec<_> = futures::future::join_all(launches)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(
            shares.iter().filter(|(launched, _)| launched.is_some()).count(),
            2
        );
        let without = shares.iter().find(|(launched, _)| launched.is_none()).unwrap();
        assert_eq!(without.1[0].error.code, "InsufficientInstanceCapacity");
    }

    #[tokio::test(start_paused = true)]
    async fn a_074_launches_that_keep_coming_wait_a_second_at_most() {
        let (fleets, ec2, clock) = (Fleets::default(), cloud(1000), clock());
        let started = clock.now();
        let launches = (0..100_u64).map(|number| {
            let (fleets, ec2, clock) = (&fleets, &ec2, &clock);
            async move {
                clock.sleep(Duration::from_millis(20 * number)).await;
                fleets.launch(ec2.clone(), clock, request("a")).await
            }
        });
        futures::future::join_all(launches).await;
        let calls = ec2.fleets_asked();
        assert!(calls.len() == 2 || calls.len() == 3, "{calls:?}");
        assert_eq!(calls.iter().sum::<u32>(), 100);
        assert!(clock.since(started) < Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_074_who_gives_up_takes_the_launch_from_nobody_that_joined_it() {
        let (fleets, ec2, clock) = (Fleets::default(), cloud(1000), clock());
        let mut first = Box::pin(fleets.launch(ec2.clone(), &clock, request("a")));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(fleets.launch(ec2.clone(), &clock, request("a")));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert!(second.await.unwrap().0.is_some());
        assert_eq!(ec2.fleets_asked(), [1], "nobody waits for the other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_074_a_launch_that_nobody_waits_for_any_more_is_not_made_and_not_joined() {
        let (fleets, ec2, clock) = (Fleets::default(), cloud(1000), clock());
        let mut first = Box::pin(fleets.launch(ec2.clone(), &clock, request("a")));
        assert!(futures::poll!(&mut first).is_pending());
        drop(first);
        assert!(fleets.open().1.is_empty());
        clock.sleep(LONGEST).await;
        assert!(ec2.fleets_asked().is_empty());
        let next = fleets.launch(ec2.clone(), &clock, request("a")).await;
        assert!(next.unwrap().0.is_some());
        assert_eq!(ec2.fleets_asked(), [1]);
    }
}
