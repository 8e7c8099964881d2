//! Drift in waves: a canary, then larger waves, each of which has to be healthy for a while before the next begins.
//!
//! What a wave may take follows from the status of the policy, how much it has taken from the ledger, so that a restart goes on where it was. Each
//! NodePool has its own roll-out, so that one that fails holds up no other. The status is only ever written by [`advance`]: until it says
//! that a further wave has begun, none has.

use super::convergence::claimed;
use super::health::{self, Health};
use super::limits::{Left, Limit};
use super::rollout_times::{begun, earlier, first_since, just_after, moment_before, pull_back, second_after};
use super::rules::{Scene, is_out_of_sight, rule, selects};
use super::wave::{Taken, size, taken, unwritten};
use crate::drift::has_other_hash;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_api::disruption::{DisruptionPhase, Replacement};
use spokeshave_api::disruption_policy::{Rollout, RolloutApproval, RolloutPhase, RolloutStatus};
use spokeshave_api::{DisruptionPolicy, DisruptionReason, labels as api_labels, whole_seconds};
use spokeshave_model::snapshot::{PoolId, PoolView, Snapshot};
use std::collections::BTreeSet;

const SOAK: SignedDuration = SignedDuration::from_mins(10);

fn soak(rollout: &Rollout) -> SignedDuration {
    rollout.soak.as_ref().map_or(SOAK, |soak| soak.to_signed())
}

/// A length of time for people: seconds only where there are some.
fn length(length: SignedDuration) -> String {
    match length.as_secs() {
        seconds if seconds % 60 != 0 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    }
}

/// What NodePools asks for, in one word: another word begins another roll-out.
fn target(pool: &PoolView) -> String {
    let annotations = pool.object.metadata.annotations.as_ref();
    let hash = annotations.and_then(|all| all.get(api_labels::NODE_POOL_HASH));
    hash.cloned().unwrap_or_default()
}

fn known<'a>(policy: &'a DisruptionPolicy, pool: &PoolView) -> Option<&'a RolloutStatus> {
    let mut all = policy.status.as_ref()?.rollouts.iter();
    all.find(|one| one.node_pool == pool.name && one.target == target(pool))
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Adds what the roll-outs of a policy leave to drift now.
pub(super) fn add(scene: &Scene<'_>, rollout: &Rollout, limits: &mut Vec<Limit>) {
    let domains = scene.memo.pools();
    for (index, pool) in scene.snapshot.pools.iter().enumerate() {
        if !selects(scene.policy, pool) {
            continue;
        }
        let domain = domains.find(&pool.name);
        let Some((left, message)) = says(scene, rollout, PoolId::from(index), domain) else {
            continue;
        };
        let mut stands = rule(scene, "spec.rollout", &message, scene.all());
        stands.within = Some((domains.of.clone(), domain));
        stands.domain = Some(pool.name.clone());
        limits.push(Limit {
            rule: stands.into(),
            left,
        });
    }
}

/// What the roll-out of a NodePool leaves to drift now, and what it says for people; `None` where there is nothing to roll out.
fn says(scene: &Scene<'_>, rollout: &Rollout, pool: PoolId, domain: u32) -> Option<(Left, String)> {
    if rollout.paused {
        return Some((Left::Nothing, "the roll-out is paused".to_owned()));
    }
    let view = scene.snapshot.pool(pool);
    let known = known(scene.policy, view);
    let (wave, size, since) = match known {
        Some(status) => {
            if let Some(waits_for) = &status.waits_for {
                return Some((Left::Nothing, format!("the roll-out waits: {waits_for}")));
            }
            if status.phase != RolloutPhase::Rolling {
                let message = status.message.clone().unwrap_or_default();
                return Some((Left::Nothing, format!("the roll-out waits: {message}")));
            }
            (status.wave, status.size, status.wave_since.0)
        }
        None => {
            let drifted = drifted_since(scene.snapshot, pool)?;
            if has_objects(rollout) {
                let message = "the roll-out waits: nobody has looked at health.objects yet";
                return Some((Left::Nothing, message.to_owned()));
            }
            // Until the status says that it has begun, there is room for the canary. What went before anything had drifted was of another roll-out, and so was
            // what brings something else than is asked for now.
            let day_ago = earlier(scene.now, SignedDuration::from_hours(24));
            let earliest = day_ago.max(moment_before(drifted));
            let after = last_for_another(scene.snapshot, pool).map(just_after);
            let since = after.map_or(earliest, |after| after.min(scene.now).max(earliest));
            (1, size(rollout, 1, 0), since)
        }
    };
    if since > scene.now {
        // By a clock that was set back, commands of now would not count. The next look at the status mends it.
        let message = format!("the roll-out waits: wave {wave} counts from {since} on, which is to come");
        return Some((Left::Nothing, message));
    }
    let taken = taken(scene.snapshot, &view.name, since, scene.own);
    // Each command for drift is in the ledger as soon as it is decided: what waits for a second look is of another reason, and takes nothing of what is written.
    let waiting = match known {
        Some(_) => 0,
        None => unwritten(scene, domain, &taken.nodes),
    };
    let used = count(taken.nodes.len() + waiting);
    let message = format!(
        "wave {wave} is {}, {} of which have begun",
        crate::report::count(usize::try_from(size).unwrap_or(0), "node"),
        used.min(size)
    );
    let left = Left::Amount {
        left: size - used,
        is_unused: used == 0,
    };
    Some((left, message))
}

/// Since when the first of a NodePool's nodes has drifted, those included that are on their way out; `None` when none has.
fn drifted_since(snapshot: &Snapshot, pool: PoolId) -> Option<Timestamp> {
    let own = snapshot.nodes.iter().filter(|node| node.pool == Some(pool));
    let drifts = own.filter_map(|node| {
        let drifted = node.claim.as_ref()?.true_condition(DRIFTED)?;
        Some(drifted.last_transition_time)
    });
    drifts.min()
}

/// When the last of the commands for drift was decided that bring something else than a NodePool asks for now.
fn last_for_another(snapshot: &Snapshot, pool: PoolId) -> Option<Timestamp> {
    let pool = snapshot.pool(pool);
    let target = target(pool);
    let is_of_another = |new: &Replacement| {
        let hash = new.metadata.annotations.get(api_labels::NODE_POOL_HASH);
        new.node_pool == pool.name && hash.is_some_and(|hash| !target.is_empty() && *hash != target)
    };
    let commands = snapshot.disruptions.iter().filter(|one| {
        one.spec.reason == DisruptionReason::Drifted && one.spec.replacements.iter().any(is_of_another)
    });
    commands.map(|one| one.spec.decided_at.0).max()
}

/// Whether other objects have a say.
fn has_objects(rollout: &Rollout) -> bool {
    rollout
        .health
        .as_ref()
        .is_some_and(|health| !health.objects.is_empty())
}

/// Nodes of a NodePool that are not what it asks for and that nothing has taken yet.
fn remaining(snapshot: &Snapshot, pool: PoolId) -> usize {
    let is_left = |node: &&spokeshave_model::snapshot::NodeView| {
        let drifted = node.claim.as_ref().is_some_and(|claim| claim.is_true(DRIFTED));
        node.pool == Some(pool) && drifted && !node.marked_for_deletion && !node.in_command
    };
    snapshot.nodes.iter().filter(is_left).count()
}

/// The roll-outs that the status of a policy should name now: each one step on, where its time has come. Those of NodePools that are
/// [out of sight](is_out_of_sight) stay as they are: one that was halted is halted when its NodePool can be read again.
pub(super) fn advance(
    policy: &DisruptionPolicy,
    snapshot: &Snapshot,
    waits_for: Option<&str>,
    now: Timestamp,
) -> Vec<RolloutStatus> {
    let Some(rollout) = &policy.spec.rollout else {
        return Vec::new();
    };
    let written = policy.status.iter().flat_map(|status| &status.rollouts);
    let unseen = written.filter(|one| is_out_of_sight(policy, snapshot, &one.node_pool));
    let mut all: Vec<RolloutStatus> = unseen.cloned().collect();
    for (index, pool) in snapshot.pools.iter().enumerate() {
        if !selects(policy, pool) {
            continue;
        }
        let id = PoolId::from(index);
        let left = remaining(snapshot, id);
        let step = Step {
            rollout,
            snapshot,
            pool: id,
            left,
            waits_for: has_objects(rollout)
                .then(|| waits_for.unwrap_or("nobody has looked at health.objects yet")),
            now,
        };
        match known(policy, pool) {
            Some(known) => all.extend(step.on(known)),
            None if left > 0 => {
                let mut known = policy.status.iter().flat_map(|status| &status.rollouts);
                let unfinished = known.find(|one| one.node_pool == pool.name);
                all.push(step.begin(unfinished));
            }
            None => {}
        }
    }
    all.sort_by(|one, other| one.node_pool.cmp(&other.node_pool));
    all
}

/// When the waves of a policy that are watched have been so for a soak: where nothing has to settle, something else stands then.
pub(super) fn soak_ends(policy: &DisruptionPolicy) -> Vec<Timestamp> {
    let statuses = policy.status.iter().flat_map(|status| &status.rollouts);
    let watched = statuses.filter(|one| one.phase == RolloutPhase::Soaking);
    // It is written in whole seconds, and was up to one later.
    let finished = watched.filter_map(|one| Some(second_after(one.finished_at.as_ref()?.0)));
    let end = |finished: Timestamp| {
        let rollout = policy.spec.rollout.as_ref()?;
        finished.checked_add(soak(rollout)).ok()
    };
    finished.filter_map(end).collect()
}

/// One NodePool at one look.
struct Step<'a> {
    rollout: &'a Rollout,
    snapshot: &'a Snapshot,
    pool: PoolId,
    left: usize,
    /// What an object has to say and does not; empty when all do.
    waits_for: Option<&'a str>,
    now: Timestamp,
}

impl Step<'_> {
    fn waits_for(&self) -> Option<String> {
        self.waits_for.filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// What was taken of the NodePool since a time.
    fn taken(&self, since: Timestamp) -> Taken<'_> {
        let pool = &self.snapshot.pool(self.pool).name;
        taken(self.snapshot, pool, since, &BTreeSet::new())
    }

    /// `unfinished` is the roll-out of the NodePool that another one takes the place of before it was completed. Commands of a moment ago belong to its canary,
    /// but none from before the last that brings what was asked for before.
    fn begin(&self, unfinished: Option<&RolloutStatus>) -> RolloutStatus {
        let moment_ago = moment_before(self.now);
        let after = last_for_another(self.snapshot, self.pool).map(second_after);
        // By a clock that was set back they may be of a time to come, and what begins now has to count all the same.
        let since = after.map_or(moment_ago, |after| after.max(moment_ago).min(self.now));
        self.begin_with(unfinished, whole_seconds(since))
    }

    /// The same with a canary to which commands belong that were decided since a time.
    fn begin_with(&self, unfinished: Option<&RolloutStatus>, wave_since: Timestamp) -> RolloutStatus {
        let pool = self.snapshot.pool(self.pool);
        let mut status = RolloutStatus {
            node_pool: pool.name.clone(),
            target: target(pool),
            since: Time(whole_seconds(moment_before(self.now))),
            first_since: unfinished.map(|one| first_since(one).clone()),
            wave: 1,
            size: size(self.rollout, 1, 0),
            wave_since: Time(wave_since),
            begun: count(self.taken(wave_since).nodes.len()),
            remaining: count(self.left),
            phase: RolloutPhase::Rolling,
            finished_at: None,
            halted_at: None,
            resumed_at: None,
            approved_before: self.rollout.approved.get(&pool.name).copied(),
            waits_for: self.waits_for(),
            message: None,
            eta: None,
        };
        self.say(&mut status, false);
        status
    }

    /// One step on; `None` when nothing is left to do.
    fn on(&self, known: &RolloutStatus) -> Option<RolloutStatus> {
        let mut status = known.clone();
        pull_back(&mut status, self.now);
        let taken = self.taken(status.wave_since.0);
        status.begun = count(taken.nodes.len());
        status.remaining = count(self.left);
        status.waits_for = self.waits_for();
        self.resume(&mut status);
        if status.is_approved_anew(self.rollout) {
            status.approved_before = None;
        }
        let health = health::of(self.snapshot, self.pool, &status, self.rollout, self.now);
        if status.phase != RolloutPhase::Halted
            && let Some(sight) = &health.failure
        {
            self.halt(&mut status, sight);
        }
        if status.phase == RolloutPhase::Halted {
            // What it has seen stays written until somebody acts on it, or nothing is left to roll out.
            return (self.left > 0 || taken.is_under_way).then_some(status);
        }
        // A canary is healthy for a soak first, so that nodes that drift as soon as they are there go one by one.
        if status.wave > 1 && self.left > 0 && self.has_moved_on(&status) {
            return Some(self.begin_again(&status));
        }
        if self.left == 0 && taken.nodes.is_empty() {
            return None;
        }
        let is_through =
            self.left == 0 || taken.nodes.len() >= usize::try_from(status.size).unwrap_or(usize::MAX);
        if is_through && !taken.is_under_way {
            status = self.watch(status, &taken, &health)?;
        }
        self.say(&mut status, health.settling_since.is_some());
        Some(status)
    }

    fn resumed(&self) -> Option<Timestamp> {
        self.rollout.resumed_at.as_ref().map(|time| time.0)
    }

    /// Clears a halt from before somebody said that it may go on.
    fn resume(&self, status: &mut RolloutStatus) {
        if status.phase == RolloutPhase::Halted && status.is_resumed(self.rollout) {
            status.phase = RolloutPhase::Rolling;
            (status.halted_at, status.finished_at) = (None, None);
            // By a clock that was set back, and where somebody wrote a time to come, what comes next counts.
            let resumed = self.resumed();
            status.resumed_at = resumed.map(|at| Time(whole_seconds(at.min(self.now))));
        }
    }

    fn halt(&self, status: &mut RolloutStatus, sight: &str) {
        // What was said before does not clear it, also where it was said of a time to come.
        let ahead = self.resumed().filter(|at| *at > self.now);
        status.phase = RolloutPhase::Halted;
        status.halted_at = Some(Time(whole_seconds(ahead.map_or(self.now, second_after))));
        status.eta = None;
        status.message = Some(format!("halted in wave {}: {sight}", status.wave));
    }

    /// A wave that is through is watched for a soak, and then the next begins. `None` when nothing is left to do.
    fn watch(&self, mut status: RolloutStatus, taken: &Taken<'_>, health: &Health) -> Option<RolloutStatus> {
        // Before each later wave, and before what waits for approval, a canary was healthy for a soak, whatever has become of it.
        let was_tried = status.wave > 1 || status.phase == RolloutPhase::WaitingForApproval;
        let finished = taken.finished.unwrap_or(self.now);
        status.finished_at = Some(Time(whole_seconds(finished)));
        if status.phase != RolloutPhase::WaitingForApproval {
            // What waits stays so while something else has to settle: nothing but its phase tells that it was tried.
            status.phase = RolloutPhase::Soaking;
        }
        let soak = soak(self.rollout);
        let after = |time: Timestamp| time.saturating_add(soak).unwrap_or(Timestamp::MAX);
        let is_agreed = status.waits_for.is_none();
        // Where pods come and go, some young one is always not ready yet: what began after the end has its while, and holds up nothing.
        let is_settled = |end: Timestamp| health.settling_since.is_none_or(|since| since >= end);
        let is_over = |end: Timestamp| is_agreed && self.now >= end && is_settled(end);
        let end = after(finished);
        if self.left == 0 {
            return (!is_over(end)).then_some(status);
        }
        match was_tried.then_some(finished).or(health.tried_since) {
            // A node that only goes brings nothing that could be bad: no soak is needed before the next.
            None if is_over(end) || !taken.has_launched => self.repeat(&mut status),
            Some(tried) if is_over(after(tried.max(finished))) => self.next_wave(&mut status),
            // Where nodes live shorter than a soak, another young one is always there, and waiting for the last of them would never end. What is bad may look
            // like that as well, so that nothing larger follows.
            Some(_) if is_over(after(end)) => self.repeat(&mut status),
            _ => {}
        }
        Some(status)
    }

    /// Starts a canary once more, as nothing of it was there for a soak (invariant 25).
    fn repeat(&self, status: &mut RolloutStatus) {
        // By a clock that was set back, commands may be of a time to come: until then they would fill each canary as soon as it starts.
        let ahead = self.taken(whole_seconds(self.now));
        if ahead.nodes.is_empty() {
            self.start(status);
        }
    }

    /// Whether a node that came since the roll-out began has drifted itself: something else is asked for than then, an image of the NodeClass for example, of
    /// which no hash of the NodePool tells.
    fn has_moved_on(&self, status: &RolloutStatus) -> bool {
        // By its NodeClaim: one that was made before may have got its Node later. One of another template, that before for example, has drifted for that.
        let begun = begun(status);
        let pool = &self.snapshot.pool(self.pool).object;
        let mut own = self.snapshot.nodes.iter().filter(|node| {
            node.pool == Some(self.pool) && !node.marked_for_deletion && claimed(node) >= Some(begun)
        });
        own.any(|node| {
            let claim = node.claim.as_ref();
            claim.is_some_and(|claim| claim.is_true(DRIFTED) && !has_other_hash(claim, pool))
        })
    }

    /// From a canary on: what is asked for now has had none. Commands from a moment before belong to the wave that was.
    fn begin_again(&self, status: &RolloutStatus) -> RolloutStatus {
        self.begin_with(Some(status), whole_seconds(self.now))
    }

    fn is_approved(&self, status: &RolloutStatus, wave: i64) -> bool {
        let approved = self.rollout.approved.get(&status.node_pool);
        let reaches = approved.is_some_and(|approved| *approved >= wave);
        self.rollout.approval != Some(RolloutApproval::Manual)
            || (reaches && status.approved_before.is_none())
    }

    /// Begins the next wave, or waits for somebody to allow it.
    fn next_wave(&self, status: &mut RolloutStatus) {
        if self.has_moved_on(status) {
            *status = self.begin_again(status);
            return;
        }
        let next = status.wave + 1;
        if !self.is_approved(status, next) {
            status.phase = RolloutPhase::WaitingForApproval;
            return;
        }
        let own = self.snapshot.nodes.iter();
        let nodes = own.filter(|node| node.pool == Some(self.pool)).count();
        status.wave = next;
        status.size = size(self.rollout, next, count(nodes));
        self.start(status);
    }

    /// Starts a wave: the next, or a canary once more.
    fn start(&self, status: &mut RolloutStatus) {
        status.wave_since = Time(whole_seconds(self.now));
        status.begun = 0;
        status.finished_at = None;
        status.phase = RolloutPhase::Rolling;
    }

    /// What it comes to, for people, and when it will be done.
    fn say(&self, status: &mut RolloutStatus, is_settling: bool) {
        status.eta = self.eta(status).map(|at| Time(whole_seconds(at)));
        let wave = status.wave;
        let mut message = match status.phase {
            _ if self.rollout.paused => format!("paused in wave {wave}"),
            RolloutPhase::Soaking => format!(
                "wave {wave} is through and has to be healthy for {}",
                length(soak(self.rollout))
            ),
            RolloutPhase::WaitingForApproval => {
                let earlier = status.approved_before.map(|wave| {
                    format!("; the {wave} that stands there is from before it began, and does not count")
                });
                let healthy = if is_settling || status.waits_for.is_some() {
                    ""
                } else {
                    " and healthy"
                };
                format!(
                    "wave {wave} is through{healthy}; the next waits for spec.rollout.approved.{}: {}{}",
                    status.node_pool,
                    wave + 1,
                    earlier.unwrap_or_default()
                )
            }
            _ => {
                // Its size may be more than there is: a percentage is one of all nodes, those included that have been replaced.
                let size = status.size.min(status.begun + status.remaining);
                format!("wave {wave}: {} of {size} have begun", status.begun)
            }
        };
        if let Some(waits_for) = &status.waits_for {
            message.push_str("; nothing begins, because ");
            message.push_str(waits_for);
        }
        let deadline = self.rollout.deadline.as_ref().map(|deadline| {
            begun(status)
                .saturating_add(deadline.to_signed())
                .unwrap_or(Timestamp::MAX)
        });
        if let Some(deadline) = deadline {
            let eta = status.eta.as_ref().map(|eta| eta.0);
            if deadline <= self.now {
                message.push_str("; its deadline has passed");
            } else if eta.is_some_and(|eta| eta > deadline) {
                message.push_str("; it will not be done by its deadline");
            }
        }
        status.message = Some(message);
    }

    /// Each node that is left takes as long as those of the waves so far did, and each wave that is left has its soak. Unknown before the first is
    /// through, and while somebody has to act.
    fn eta(&self, status: &RolloutStatus) -> Option<Timestamp> {
        let is_open = matches!(status.phase, RolloutPhase::Rolling | RolloutPhase::Soaking);
        if !is_open || self.rollout.paused {
            return None;
        }
        let before = self.taken(status.since.0);
        let mut took: Vec<SignedDuration> = Vec::new();
        for one in &self.snapshot.disruptions {
            let is_own = one
                .spec
                .nodes
                .iter()
                .any(|node| before.nodes.iter().any(|own| own.provider_id == node.provider_id));
            let finished = one.status.as_ref().and_then(|status| status.finished_at.as_ref());
            if let Some(finished) = finished.filter(|_| is_own && one.phase() != DisruptionPhase::RolledBack)
            {
                took.push(finished.0.duration_since(one.spec.decided_at.0));
            }
        }
        took.sort_unstable();
        let one = *took.get(took.len() / 2)?;
        let soak = soak(self.rollout);
        let nodes = count(
            self.snapshot
                .nodes
                .iter()
                .filter(|node| node.pool == Some(self.pool))
                .count(),
        );
        let mut at = self.now;
        if status.phase == RolloutPhase::Soaking {
            let finished = status.finished_at.as_ref()?.0;
            at = at.max(finished.saturating_add(soak).unwrap_or(Timestamp::MAX));
        } else {
            at = at.saturating_add(one).ok()?.saturating_add(soak).ok()?;
        }
        let mut left = count(self.left)
            - if status.phase == RolloutPhase::Rolling {
                (status.size - status.begun).max(0)
            } else {
                0
            };
        let mut wave = status.wave;
        while left > 0 && wave < status.wave + 1000 {
            wave += 1;
            left -= size(self.rollout, wave, nodes);
            at = at.saturating_add(one).ok()?.saturating_add(soak).ok()?;
        }
        Some(at)
    }
}

/// The halt of a NodePool's roll-out, in words: a command for drift that has deleted no node yet is taken back for it.
pub(super) fn halted(policy: &DisruptionPolicy, pool: &str) -> Option<String> {
    policy.spec.rollout.as_ref()?;
    let mut all = policy.status.as_ref()?.rollouts.iter();
    let status = all.find(|one| one.node_pool == pool && one.phase == RolloutPhase::Halted)?;
    let message = status.message.as_deref().unwrap_or_default();
    Some(format!("the roll-out of NodePool {pool} is {message}"))
}
