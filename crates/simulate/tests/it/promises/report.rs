//! The promises, how often each of them was judged, and where one was broken.
//!
//! Owns their names. `docs/simulate-engine.md` says which invariant each of them is, and which invariants a log cannot show.

use std::collections::BTreeMap;
use std::fmt;

use spokeshave_simulate::Line;

/// A line of the log, owned.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at_ms: u64,
    pub what: String,
    pub of: String,
    pub more: String,
}

impl From<Line<'_>> for Entry {
    fn from(line: Line<'_>) -> Self {
        Entry {
            at_ms: line.at_ms,
            what: line.what.to_owned(),
            of: line.of.to_owned(),
            more: line.more.to_owned(),
        }
    }
}

impl Entry {
    /// What stands for a line where something is still there in the end.
    pub fn end(at_ms: u64, of: &str) -> Self {
        Line {
            at_ms,
            what: "the end",
            of,
            more: "",
        }
        .into()
    }
}

macro_rules! promises {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// What the fast engine promises.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Promise {
            $($(#[$meta])* $name,)*
        }

        impl Promise {
            /// All of them.
            pub const ALL: &'static [Promise] = &[$(Promise::$name,)*];
        }
    };
}

promises! {
    /// Each line is about something that is there, in order of time.
    Log,
    /// A NodeClaim is asked for once, and has one instance at most.
    OneInstance,
    /// A NodeClaim is asked for by a command that names it, or for pods that need a node, of which its instance can hold at least one.
    LaunchReason,
    /// An instance costs what its offering says, and its NodePool may buy that.
    Price,
    /// What cannot be had is not had.
    Shortage,
    /// What a NodePool has, and does not give back, is within its limit.
    Limits,
    /// An instance joins within the time for registration.
    Joins,
    /// An instance ends because of a command, its age, or its cloud.
    EndReason,
    /// A node that goes and holds nothing any more ends soon.
    EndsSoon,
    /// No drain lasts longer than the NodePool's terminationGracePeriod.
    Deadline,
    /// A NodeClaim is gone only after its instance has ended.
    GoneLast,
    /// In the end each instance has its NodeClaim and each NodeClaim its instance.
    NoLeak,
    /// Pods are bound to nodes that are ready and stay.
    BoundToStay,
    /// Nodes are never overfull, daemons included.
    Room,
    /// Selectors and taints hold.
    Selectors,
    /// A pod with volumes runs where they are.
    Volumes,
    /// Topology spread holds with every binding.
    Spread,
    /// Anti-affinity holds with every binding.
    Apart,
    /// Affinity holds with every binding.
    Near,
    /// A pod that fits gets a node in time.
    Placed,
    /// An eviction has a reason, and it is the one that there is: a command that has deleted the node, its age, or its cloud.
    EvictionReason,
    /// Pods that must not be disrupted are not, but for the deadline of their node.
    Protected,
    /// No eviction is beyond a PodDisruptionBudget, but for the deadline of the node.
    DisruptionBudget,
    /// Critical pods leave a node last.
    Tiers,
    /// Only the cloud cuts pods short.
    CutShort,
    /// A node that is taken back drains at once.
    DrainsAtOnce,
    /// A command takes nodes that are up, and in no other command.
    Chosen,
    /// Budgets of NodePools hold when a command begins.
    Budgets,
    /// A budget that cannot be read allows nothing of what it is for.
    UnreadableBudget,
    /// A node rests for `consolidateAfter` before it is consolidated.
    ConsolidateAfter,
    /// What consolidates has found it right 15 seconds before.
    SecondLook,
    /// Nodes that go as empty are, and so are those of NodePools in which only such ones may go.
    Empty,
    /// A node without pods goes.
    EmptyGoes,
    /// Taints stand for a second, and no pod has come in the meantime, before nodes are deleted.
    Settled,
    /// Each pod of a node that is deleted has a place on another one.
    Places,
    /// Replacements are ready before nodes are deleted.
    ReplacementsReady,
    /// Replacements stay as long as their command lasts.
    ReplacementsKept,
    /// A command that is taken back leaves no instance behind that had not come up.
    NoOrphan,
    /// Replacements are cheaper, and spot is not replaced by spot unless that is allowed.
    Cheaper,
    /// A command saves what it says.
    Savings,
    /// As long as nothing else changes, commands are no more than a small multiple of the nodes, and one more for each pod that a Job makes again, once.
    Quiescence,
    /// Nodes expire when they are old enough, and then.
    Expiry,
    /// Freezes hold.
    Freeze,
    /// Windows hold.
    Window,
    /// Holds hold.
    Hold,
    /// Rates hold.
    PerHour,
    /// Limits of each zone hold.
    PerZone,
    /// Of zones, one at a time.
    OneZone,
    /// Soft expiry takes nodes that are old enough, so many at once.
    SoftExpiry,
    /// Pods rest for as long as they ask.
    QuietTime,
    /// Of the members of a StatefulSet, one at a time.
    OneMember,
    /// Instances cost what the bill says.
    Bill,
    /// The lower bound is below the cost, at every minute.
    Bound,
    /// What is counted is what the log says.
    Figures,
    /// Workloads have as many pods as they want.
    Replicas,
    /// The same world with the same seed is the same life.
    Same,
}

/// What was judged.
#[derive(Debug, Default)]
pub struct Report {
    /// How often.
    pub judged: BTreeMap<Promise, u64>,
    /// What was broken.
    pub broken: Vec<Broken>,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Broken {
    pub promise: Promise,
    pub text: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.text)
    }
}

impl Report {
    /// Judges a promise by a line of the log.
    pub fn judge(&mut self, promise: Promise, entry: &Entry, is_kept: bool, why: impl FnOnce() -> String) {
        let Entry { at_ms, what, of, .. } = entry;
        self.judge_end(promise, is_kept, || format!("{at_ms} ms: {what} {of}: {}", why()));
    }

    /// Judges a promise when all is over.
    pub fn judge_end(&mut self, promise: Promise, is_kept: bool, why: impl FnOnce() -> String) {
        *self.judged.entry(promise).or_default() += 1;
        if !is_kept {
            self.broken.push(Broken { promise, text: why() });
        }
    }
}

/// How often each promise was judged in all of these lives.
pub fn tally<'r>(reports: impl IntoIterator<Item = &'r Report>) -> BTreeMap<Promise, u64> {
    let mut judged: BTreeMap<Promise, u64> = BTreeMap::new();
    for (promise, times) in reports.into_iter().flat_map(|report| &report.judged) {
        *judged.entry(*promise).or_default() += times;
    }
    judged
}

/// What was never judged: that would keep any promise.
pub fn never_judged(judged: &BTreeMap<Promise, u64>) -> Vec<Promise> {
    let all = Promise::ALL.iter().copied();
    all.filter(|promise| !judged.contains_key(promise)).collect()
}
