//! What must hold in every run, checked after every write and every few seconds of every simulated scenario.
//!
//! Owns the checkers. They see the writes of the API server and who sent them, and nothing of the controllers: not their stores, not their
//! decisions, not their code. Each has the number of the invariant in its reports. What an operator cannot know yet (events travel, watches
//! have gaps) is not held against it; what it must do in time is counted from the last disturbance.
//!
//! Machines of the kwok cloud are objects of the API server. A cloud that keeps its own books, such as a simulated EC2, is asked which it has
//! ([`Invariants::machines_are`]) before each write of an operator that may depend on them is judged, and every few seconds; and the end of a machine is judged
//! when the operator asks for it.
//!
//! | Checker | Invariants |
//! |---|---|
//! | `evictions` | 1 Eviction API and budgets, 30 order of the tiers, 31 grace |
//! | `moves`, `windows`, `places` | 2 budgets of NodePools, 6 do-not-disrupt, 8 a place for every pod, 9 which is kept, 10 nothing left of a command |
//! | `reasons` | 2 what goes without a command has a reason |
//! | `instances` | 11 one instance a NodeClaim, 12 registration in time, 14 finalizers last, 15 limits |
//! | `endings` | 13 the end comes or says what it waits for, 29 volumes first |
//! | `waiting` | 22 a pod that fits gets a node, 34 daemons count and do not keep a node |
//! | `policies` | 3 budgets and windows of DisruptionPolicies, 4 freezes |
//! | `notices` | 33 instances that are reclaimed |
//! | `leadership` | 36 only the leader writes, and asks its cloud |
//!
//! Of clouds with their own books these judge less: a second machine for a NodeClaim and leaked ones (11) are found in `rehearsal`, which sees each launch and what
//! an operator that died was never told; a NodeClaim that was launched and names no machine has none here (14); and a limit (15) is compared once the NodeClaim
//! says what its machine has. 36 sees no calls to such a cloud but those for the end of a machine. Of a cloud that nobody asks, nothing is judged that depends
//! on its machines: what such a NodeClaim had may be gone.
//!
//! 37 is a test over all indexes of a kill, and 38 is that all of these hold with gaps in watches.

mod clouds;
mod endings;
mod evictions;
mod instances;
mod leadership;
mod moves;
mod notices;
mod places;
mod policies;
mod reasons;
mod view;
mod waiting;
mod windows;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_apiserver::Commit;
use spokeshave_ports::SharedClock;

use view::{Change, Instance, Pair, View};

pub(crate) use view::later;

pub use clouds::{Census, Machine};
pub use waiting::FITS;

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The user of the cluster.
    User,
    /// Scheduler, kubelets, workload controllers.
    Cluster,
    /// The cloud itself: instances that appear and end.
    Cloud,
    /// The controllers of an operator, by the name of the replica.
    Operator(String),
    /// The same replica, talking to its cloud.
    CloudCalls(String),
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::User => f.write_str("user"),
            Actor::Cluster => f.write_str("cluster"),
            Actor::Cloud => f.write_str("cloud"),
            Actor::Operator(name) => write!(f, "operator {name}"),
            Actor::CloudCalls(name) => write!(f, "operator {name} to its cloud"),
        }
    }
}

/// A request, while it is served.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// Who sends it.
    pub actor: Actor,
    /// HTTP method.
    pub method: String,
    /// Path without query.
    pub path: String,
}

impl RequestInfo {
    /// What somebody does without asking the API server.
    fn without_request(actor: Actor) -> Self {
        Self {
            actor,
            method: String::new(),
            path: String::new(),
        }
    }

    fn by_operator(&self) -> bool {
        matches!(self.actor, Actor::Operator(_))
    }

    fn is_eviction(&self) -> bool {
        self.method == "POST" && self.path.ends_with("/eviction")
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Number of the invariant.
    pub invariant: u8,
    /// Kind and name of the object.
    pub object: String,
    /// When.
    pub at: Timestamp,
    /// What was expected and what was seen.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invariant {} at {}: {}: {}",
            self.invariant, self.at, self.object, self.text
        )
    }
}

/// Where checkers write. The first report of an invariant about an object counts, the rest would repeat it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    now: Timestamp,
    found: Vec<Violation>,
    known: BTreeSet<(u8, String)>,
}

impl Report {
    pub(crate) fn fail(&mut self, invariant: u8, object: impl Into<String>, text: impl Into<String>) {
        let object = object.into();
        if self.known.insert((invariant, object.clone())) {
            self.found.push(Violation {
                invariant,
                object,
                at: self.now,
                text: text.into(),
            });
        }
    }
}

/// One subject's promises.
pub(crate) trait Checker: Send + fmt::Debug {
    /// After a write; `view` contains it.
    fn changed(&mut self, view: &View, change: &Change, request: &RequestInfo, report: &mut Report) {
        let _ = (view, change, request, report);
    }

    /// Before a mutating request is served.
    fn requested(&mut self, view: &View, request: &RequestInfo, report: &mut Report) {
        let _ = (view, request, report);
    }

    /// Time has passed.
    fn ticked(&mut self, view: &View, report: &mut Report) {
        let _ = (view, report);
    }
}

/// What the checkers must know of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Expectations {
    /// How long an instance takes to end.
    pub termination_delay: Duration,
    /// Within which time a fitting pod has a NodeClaim made for it (invariant 22).
    pub launch_within: Duration,
}

impl Default for Expectations {
    fn default() -> Self {
        Self {
            termination_delay: Duration::from_secs(3),
            launch_within: Duration::from_secs(5 * 60),
        }
    }
}

/// All checkers over one cluster. Clones share it.
#[derive(Clone, Debug)]
pub struct Invariants {
    inner: Arc<Mutex<Inner>>,
    clock: SharedClock,
    seed: u64,
}

#[derive(Debug)]
struct Inner {
    view: View,
    /// The books of the cloud, if it keeps its own.
    books: Option<clouds::Books>,
    checkers: Vec<Box<dyn Checker>>,
    report: Report,
    serving: Option<RequestInfo>,
}

impl Inner {
    /// Tells the checkers what has changed, which the view contains.
    fn tell(&mut self, change: &Change, request: &RequestInfo) {
        for checker in &mut self.checkers {
            checker.changed(&self.view, change, request, &mut self.report);
        }
    }

    /// Folds in what a cloud that keeps its own books has now.
    fn ask_cloud(&mut self) {
        let Some(clouds::Books(census)) = &self.books else {
            return;
        };
        let request = RequestInfo::without_request(Actor::Cloud);
        for change in self.view.fold_machines(census()) {
            self.tell(&change, &request);
        }
    }
}

impl Invariants {
    /// The checkers for a cluster that has not begun yet.
    #[must_use]
    pub fn new(clock: SharedClock, seed: u64, expectations: Expectations) -> Self {
        let checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(evictions::Evictions),
            Box::new(moves::Moves::default()),
            Box::new(reasons::Reasons::default()),
            Box::new(instances::Instances),
            Box::new(endings::Endings::new(expectations)),
            Box::new(waiting::Waiting::new(expectations)),
            Box::new(leadership::LeadershipKept),
            Box::new(notices::Notices::default()),
            Box::new(policies::Policies),
        ];
        let inner = Inner {
            view: View::new(clock.now()),
            books: None,
            checkers,
            report: Report::default(),
            serving: None,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            clock,
            seed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        inner.view.now = now;
        inner.report.now = now;
        inner
    }

    /// A request begins to be served; everything that is written until [`Self::served`] is its doing.
    pub(crate) fn serve(&self, request: &RequestInfo, mutating: bool) {
        let mut inner = self.lock();
        if mutating {
            let Inner {
                view,
                checkers,
                report,
                ..
            } = &mut *inner;
            for checker in checkers {
                checker.requested(view, request, report);
            }
        }
        inner.serving = Some(request.clone());
    }

    pub(crate) fn served(&self) {
        self.lock().serving = None;
    }

    /// A write, from the server's observer.
    pub fn committed(&self, commit: &Commit<'_>) {
        let mut inner = self.lock();
        let change = inner.view.fold(commit);
        let request = inner
            .serving
            .clone()
            .unwrap_or_else(|| RequestInfo::without_request(Actor::Cluster));
        // Nobody else's writes are judged by what the cloud has.
        if request.by_operator() && matches!(change, Change::Claim(_) | Change::Node(_)) {
            inner.ask_cloud();
        }
        inner.tell(&change, &request);
    }

    /// The cloud keeps its own books: this says which machines it has, whenever it is asked.
    pub fn machines_are(&self, census: Census) {
        self.lock().books = Some(clouds::Books(census));
    }

    /// Something has happened to machines of a cloud that keeps its own books.
    pub fn ask_cloud(&self) {
        self.lock().ask_cloud();
    }

    /// An operator asks such a cloud to end the machine with this provider ID: whatever comes of it, nobody must need it any more.
    pub fn ends(&self, operator: &str, provider_id: &str) {
        let mut inner = self.lock();
        inner.ask_cloud();
        let machine = view::instance_of(provider_id);
        let before = inner.view.instances.get(&machine).cloned();
        let Some(before) = before.filter(|before| !before.of_kwok && before.ending.is_none()) else {
            return;
        };
        let after = Arc::new(Instance {
            ending: Some(inner.view.now),
            ..(*before).clone()
        });
        let change = Change::Instance(Pair {
            before: Some(before),
            after: Some(after),
        });
        let request = RequestInfo::without_request(Actor::CloudCalls(operator.to_owned()));
        inner.tell(&change, &request);
    }

    /// Some time has passed.
    pub fn tick(&self) {
        let mut inner = self.lock();
        inner.ask_cloud();
        let Inner {
            view,
            checkers,
            report,
            ..
        } = &mut *inner;
        for checker in checkers {
            checker.ticked(view, report);
        }
    }

    /// Something keeps operators from their work now: a fault, a standstill, an edit that makes them wait.
    pub fn disturb(&self) {
        let mut inner = self.lock();
        inner.view.disturbed = inner.view.now;
    }

    /// The cloud rejects launches: operators may exclude all of its offerings for this long.
    pub fn run_out(&self, lasts: Duration) {
        let mut inner = self.lock();
        inner.view.left_out = inner.view.left_out.max(lasts);
    }

    /// Operators may be blind from now to then.
    pub fn blind(&self, until: Timestamp) {
        let mut inner = self.lock();
        let now = inner.view.now;
        let (from, to) = inner.view.blind;
        // A gap that follows another too soon prolongs it.
        let from = if now <= view::later(to, Duration::from_secs(60)) {
            from
        } else {
            now
        };
        inner.view.blind = (from, to.max(until));
        inner.view.disturbed = now.max(until);
    }

    /// What was broken so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().report.found.clone()
    }

    /// Fails with everything that was broken so far.
    ///
    /// # Panics
    /// A promise was broken.
    pub fn assert_kept(&self) {
        let found = self.violations();
        assert!(
            found.is_empty(),
            "seed {}: {} promise(s) broken:\n{}",
            self.seed,
            found.len(),
            found.iter().map(|one| format!("  {one}\n")).collect::<String>()
        );
    }

    /// How many instances there are.
    #[must_use]
    pub fn instances(&self) -> u64 {
        u64::try_from(self.lock().view.instances.len()).unwrap_or(u64::MAX)
    }

    /// Sum of the prices of all instances, in micro-dollars an hour.
    #[must_use]
    pub fn cost(&self) -> i64 {
        self.lock()
            .view
            .instances
            .values()
            .map(|instance| instance.price)
            .sum()
    }
}
