//! Launches that ask for the same are one call (A5.5, A-074): with 1,000 NodeClaims at once EC2 is asked a few times and not 1,000 times.
//!
//! Owns who waits for which call, and what came of it until it was taken. A call is made by all that wait for it: whoever gives up takes it from nobody else.
//! It stands still while nobody waits, and goes on when somebody comes back; where there was no answer, it is made again with the same client token, so that
//! EC2 says what it has launched and launches nothing a second time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::hash::digest;
use spokeshave_model::InstanceType;
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
/// A launch is remembered for so long; by then its answer was written down, or nobody waits for it.
pub(crate) const REMEMBERED_FOR: SignedDuration = SignedDuration::from_mins(10);
/// As many instances as one call may launch.
const MOST: usize = 1000;

/// What one launch gets of a call: an instance, or none; and the errors of the whole call.
type Share = Result<(Option<Launched>, Vec<FleetError>), ApiError>;

/// A call under way. What it gives is why there was no answer.
type Call = BoxFuture<'static, Option<ApiError>>;

/// How far a call is.
#[derive(Debug)]
enum Stage {
    /// Others may join it.
    Open { opened: Timestamp, touched: Timestamp },
    /// EC2 was asked, and has not said what it has done.
    Asked,
    /// EC2 has answered: what nobody has taken yet.
    Answered(Result<(VecDeque<Launched>, Vec<FleetError>), ApiError>),
}

/// A call that launches for several.
#[derive(Debug)]
struct Fleet {
    request: FleetRequest,
    /// The types that it names, as they were when it was opened.
    types: Arc<[InstanceType]>,
    stage: Stage,
    /// Those that wait for it while it is open, and then those that it was made for: UIDs of their NodeClaims, by number.
    members: BTreeMap<u64, String>,
    /// How many have joined it.
    joined: u64,
    /// When EC2 was first asked.
    asked_at: Option<Timestamp>,
    /// Only those that have a place in it hold it.
    call: Option<WeakShared<Call>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    fn new(request: FleetRequest, types: Arc<[InstanceType]>, now: Timestamp) -> Self {
        Fleet {
            request,
            types,
            stage: Stage::Open {
                opened: now,
                touched: now,
            },
            members: BTreeMap::new(),
            joined: 0,
            asked_at: None,
            call: None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    fn is_answered(&self) -> bool {
        matches!(self.stage, Stage::Answered(_))
    }

    fn fits(&self, request: &FleetRequest) -> bool {
        self.is_open() && self.members.len() < MOST && self.request.is_same_but_for_count(request)
    }

    /// Counts one more, who waits from now on.
    fn enter(&mut self, uid: &str, now: Timestamp) -> u64 {
        if let Stage::Open { touched, .. } = &mut self.stage {
            *touched = now;
        }
        self.joined += 1;
        self.members.insert(self.joined, uid.to_owned());
        self.joined
    }

    /// Lets nobody join any more when its time has come. Says then when it was opened.
    fn close(&mut self, now: Timestamp) -> Option<Timestamp> {
        let Stage::Open { opened, touched } = self.stage else {
            return None;
        };
        let passed = |since: Timestamp| Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let is_full = self.members.len() >= MOST;
        if !is_full && passed(touched) < IDLE && passed(opened) < LONGEST {
            return None;
        }
        self.request.target_capacity_specification.total_target_capacity =
            u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.request.client_token = token(&self.members, now);
        self.asked_at = Some(now);
        self.stage = Stage::Asked;
        Some(opened)
    }

    /// What one gets. Those that have given up take nothing: where there are too few instances, nobody goes without for their sake.
    fn take(&mut self) -> Share {
        match &mut self.stage {
            Stage::Answered(Ok((launched, errors))) => Ok((launched.pop_front(), errors.clone())),
            Stage::Answered(Err(error)) => Err(error.clone()),
            Stage::Open { .. } | Stage::Asked => Err(ApiError::new(
                "",
                "the call that launches was given up; what EC2 did is unknown",
            )),
        }
    }
}

/// A token that no other call has: of these NodeClaims none is launched twice at one time. `None` where nobody says who he is.
fn token(members: &BTreeMap<u64, String>, now: Timestamp) -> Option<String> {
    let uids: Vec<&str> = members
        .values()
        .map(String::as_str)
        .filter(|uid| !uid.is_empty())
        .collect();
    let text = format!("{now} {}", uids.join(" "));
    (!uids.is_empty()).then(|| format!("{:016x}{:016x}", digest(&text), digest(&format!("2 {text}"))))
}

/// Whether EC2 may have launched, or may launch yet, what such an answer is about: an earlier attempt of the same call may have been carried out. That there is no
/// capacity is an answer, though EC2 says it with the status of its own faults.
fn is_no_answer(error: &ApiError) -> bool {
    let is_failure = error.is_server_error() && !error.is_unfulfillable_capacity();
    error.code.is_empty() || is_failure || error.is_rate_limited()
}

/// Fleets that are about to be asked for, and those that somebody has a place in.
#[derive(Debug, Default)]
pub(crate) struct Fleets {
    known: Mutex<Vec<Weak<Mutex<Fleet>>>>,
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

    /// A place in a call for an instance: in one that others wait for already, or in a new one. `uid` is of the NodeClaim that it is for, and `types` are those that
    /// the request names. Its share is to be waited for at once: an instance is asked for from now on.
    pub(crate) fn join(
        &self,
        ec2: Arc<dyn Ec2>,
        clock: &SharedClock,
        uid: &str,
        request: FleetRequest,
        types: impl FnOnce() -> Arc<[InstanceType]>,
    ) -> Ticket {
        let now = clock.now();
        let mut known = locked(&self.known);
        known.retain(|fleet| fleet.strong_count() > 0);
        let mut alive = known.iter().filter_map(Weak::upgrade);
        // Whoever finds one that is open is counted before it closes.
        let fitting = alive.find_map(|fleet| {
            let number = {
                let mut open = locked(&fleet);
                open.fits(&request).then(|| open.enter(uid, now))
            };
            number.map(|number| (fleet, number))
        });
        let (fleet, number) = fitting.unwrap_or_else(|| {
            let mut fleet = Fleet::new(request, types(), now);
            let number = fleet.enter(uid, now);
            let fleet = Arc::new(Mutex::new(fleet));
            known.push(Arc::downgrade(&fleet));
            (fleet, number)
        });
        drop(known);
        Ticket {
            fleet,
            number,
            uid: uid.to_owned(),
            ec2,
            clock: clock.clone(),
            meter: self.meter.clone(),
            call: None,
        }
    }

    /// Since when EC2 may have launched something of which nobody knows for whom; `None` while it has answered all calls and everybody has his share. What
    /// nobody has come back to for long counts no more.
    pub(crate) fn unheard_since(&self, now: Timestamp) -> Option<Timestamp> {
        let known = locked(&self.known);
        let alive = known.iter().filter_map(Weak::upgrade);
        let asked = alive.filter_map(|fleet| locked(&fleet).asked_at);
        asked.filter(|at| now.duration_since(*at) < REMEMBERED_FOR).min()
    }
}

/// A place in a call. It can be come back to until its share was taken.
#[derive(Debug)]
pub(crate) struct Ticket {
    fleet: Arc<Mutex<Fleet>>,
    number: u64,
    uid: String,
    ec2: Arc<dyn Ec2>,
    clock: SharedClock,
    meter: Meter,
    /// The call that stands still when nobody waits for it.
    call: Option<Shared<Call>>,
}

impl Ticket {
    /// Waits for the call, and takes a share of what comes of it. Without an answer it is an error, and the call is made again when this is asked for again.
    pub(crate) async fn share(&mut self) -> Share {
        let call = self.call();
        self.call = Some(call.clone());
        let waits = Waits::of(&self.fleet, self.number, &self.uid);
        let unanswered = call.await;
        drop(waits);
        self.call = None;
        match unanswered {
            Some(error) => Err(error),
            None => locked(&self.fleet).take(),
        }
    }

    /// The call under way, or a new one.
    fn call(&self) -> Shared<Call> {
        let own = self.call.as_ref().filter(|call| call.peek().is_none());
        if let Some(call) = own {
            return call.clone();
        }
        let mut fleet = locked(&self.fleet);
        if let Some(call) = fleet.call.as_ref().and_then(WeakShared::upgrade) {
            return call;
        }
        let (ec2, clock, meter) = (self.ec2.clone(), self.clock.clone(), self.meter.clone());
        let call = make(self.fleet.clone(), ec2, clock, meter).boxed().shared();
        fleet.call = call.downgrade();
        call
    }

    /// Whether EC2 was asked for an instance for this one.
    pub(crate) fn is_asked(&self) -> bool {
        let fleet = locked(&self.fleet);
        !fleet.is_open() && fleet.members.contains_key(&self.number)
    }

    /// The types that the call names, as they were before it was made: what is for sale when its answer comes may be something else.
    pub(crate) fn types(&self) -> Arc<[InstanceType]> {
        locked(&self.fleet).types.clone()
    }

    /// Whether EC2 has said what it has done.
    pub(crate) fn is_answered(&self) -> bool {
        locked(&self.fleet).is_answered()
    }
}

/// Somebody waits for a call. While it is open, instances are counted by those that do.
struct Waits<'a> {
    fleet: &'a Mutex<Fleet>,
    number: u64,
}

impl<'a> Waits<'a> {
    fn of(fleet: &'a Mutex<Fleet>, number: u64, uid: &str) -> Self {
        let mut open = locked(fleet);
        if open.is_open() {
            open.members.insert(number, uid.to_owned());
        }
        drop(open);
        Waits { fleet, number }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut fleet = locked(self.fleet);
        if fleet.is_open() {
            fleet.members.remove(&self.number);
        }
    }
}

/// Makes a call when its time has come, and keeps what comes of it. `Some` is why there was no answer.
async fn make(
    fleet: Arc<Mutex<Fleet>>,
    ec2: Arc<dyn Ec2>,
    clock: SharedClock,
    meter: Meter,
) -> Option<ApiError> {
    while locked(&fleet).is_open() {
        clock.sleep(IDLE).await;
        let (opened, count) = {
            let mut fleet = locked(&fleet);
            (fleet.close(clock.now()), fleet.members.len())
        };
        if let Some(opened) = opened {
            meter.batch("create_fleet", clock.since(opened), count);
        }
    }
    let (request, is_answered) = {
        let fleet = locked(&fleet);
        (fleet.request.clone(), fleet.is_answered())
    };
    if is_answered {
        return None;
    }
    let answer = ec2.create_fleet(&request).await;
    let mut fleet = locked(&fleet);
    match answer {
        Ok(reply) => {
            count(&meter, &request, &reply.errors);
            fleet.stage = Stage::Answered(Ok((reply.launched.into(), reply.errors)));
            None
        }
        // Without a token nothing could be asked again.
        Err(error) if is_no_answer(&error) && request.client_token.is_some() => {
            fleet.call = None;
            Some(error)
        }
        Err(error) => {
            fleet.stage = Stage::Answered(Err(error));
            None
        }
    }
}

fn count(meter: &Meter, request: &FleetRequest, errors: &[FleetError]) {
    let specification = &request.target_capacity_specification;
    let capacity_type = match specification.default_target_capacity_type.as_str() {
        "capacity-block" | "reserved-capacity" => "reserved",
        other => other,
    };
    for FleetError { error, place } in errors {
        let (reason, _) = launch_reason(error);
        meter.launch_failed(&place.zone, capacity_type, reason);
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

    /// One launch, from which nobody comes back.
    async fn launch(
        fleets: &Fleets,
        ec2: &Arc<FakeEc2>,
        clock: &SharedClock,
        request: FleetRequest,
    ) -> Share {
        let mut ticket = fleets.join(ec2.clone(), clock, "", request, Arc::default);
        ticket.share().await
    }

    fn clock() -> SharedClock {
        TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared()
    }

    #[tokio::test(start_paused = true)]
    async fn a_074_equal_launches_share_a_call_and_different_ones_do_not() {
        let (fleets, ec2, clock) = (Fleets::default(), cloud(1000), clock());
        let launches = (0..50).map(|number| {
            let kind = if number % 2 == 0 { "even" } else { "odd" };
            launch(&fleets, &ec2, &clock, request(kind))
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
        let launches = (0..3).map(|_| launch(&fleets, &ec2, &clock, request("a")));
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
                launch(fleets, ec2, clock, request("a")).await
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
        let mut first = Box::pin(launch(&fleets, &ec2, &clock, request("a")));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(launch(&fleets, &ec2, &clock, request("a")));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert!(second.await.unwrap().0.is_some());
        assert_eq!(ec2.fleets_asked(), [1], "nobody waits for the other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_074_a_launch_that_nobody_waits_for_any_more_is_not_made_and_not_joined() {
        let (fleets, ec2, clock) = (Fleets::default(), cloud(1000), clock());
        let mut first = Box::pin(launch(&fleets, &ec2, &clock, request("a")));
        assert!(futures::poll!(&mut first).is_pending());
        drop(first);
        let is_gone = |fleet: &Weak<Mutex<Fleet>>| fleet.strong_count() == 0;
        assert!(locked(&fleets.known).iter().all(is_gone));
        clock.sleep(LONGEST).await;
        assert!(ec2.fleets_asked().is_empty());
        let next = launch(&fleets, &ec2, &clock, request("a")).await;
        assert!(next.unwrap().0.is_some());
        assert_eq!(ec2.fleets_asked(), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_080_a_call_without_an_answer_is_made_again_with_its_token_and_each_gets_his_own() {
        let tokens = Arc::new(Mutex::new(Vec::new()));
        let told = tokens.clone();
        let ec2 = Arc::new(FakeEc2::with_fleets(move |request| {
            let mut tokens = locked(&told);
            tokens.push(request.client_token.clone());
            if tokens.len() == 1 {
                return Err(ApiError::new("", "no reply"));
            }
            let wanted = request.target_capacity_specification.total_target_capacity;
            Ok(FleetReply {
                launched: (0..wanted).map(instance).collect(),
                ..FleetReply::default()
            })
        }));
        let (fleets, clock) = (Fleets::default(), clock());
        let join = |uid: &str| fleets.join(ec2.clone(), &clock, uid, request("a"), Arc::default);
        let mut tickets = vec![join("u-1"), join("u-2")];
        let shares = futures::future::join_all(tickets.iter_mut().map(Ticket::share)).await;
        assert!(shares.iter().all(Result::is_err));
        assert!(
            tickets
                .iter()
                .all(|ticket| ticket.is_asked() && !ticket.is_answered())
        );
        assert!(fleets.unheard_since(clock.now()).is_some());
        let mut ids = Vec::new();
        for ticket in &mut tickets {
            let (launched, _) = ticket.share().await.unwrap();
            ids.push(launched.unwrap().instance_id);
        }
        assert_eq!(ids, ["i-0", "i-1"]);
        assert_eq!(ec2.fleets_asked(), [2, 2], "as it was made first");
        let tokens = locked(&tokens).clone();
        assert!(tokens[0].is_some() && tokens[0] == tokens[1], "{tokens:?}");
        assert!(
            fleets.unheard_since(clock.now()).is_some(),
            "what they got is not in its place yet"
        );
        drop(tickets);
        assert_eq!(fleets.unheard_since(clock.now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_080_who_gives_up_before_a_call_is_made_has_no_place_in_it() {
        let (fleets, ec2, clock) = (Fleets::default(), cloud(1000), clock());
        let mut ticket = fleets.join(ec2.clone(), &clock, "u-1", request("a"), Arc::default);
        let mut share = Box::pin(ticket.share());
        assert!(futures::poll!(&mut share).is_pending());
        drop(share);
        assert!(
            fleets
                .join(ec2.clone(), &clock, "u-2", request("a"), Arc::default)
                .share()
                .await
                .is_ok()
        );
        assert_eq!(ec2.fleets_asked(), [1]);
        assert!(!ticket.is_asked() && ticket.is_answered());
    }
}
