//! Past commands, with their predicted and realised savings, and the account of the price beside them.
//!
//! It remembers commands after their objects are gone, the newest two hundred; sums go on over all of them. It is fed with what was read, in order of time.

use crate::Dollars;
use crate::account::{Account, Books, Fate, Fates};
use crate::world::World;
use jiff::Timestamp;
use serde::Serialize;
use spokeshave_api::constants::{DISRUPTION_HISTORY, DISRUPTION_HISTORY_ENTRIES};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_model::Price;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_story::prices;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Commands that are remembered.
const ENTRIES: usize = 200;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The name of its Disruption.
    pub name: String,
    /// When it was decided.
    pub decided: Timestamp,
    /// When it ended; none while it is under way.
    pub ended: Option<Timestamp>,
    /// Its phase: `Starting`, `Replacing`, `Deleting`, `Draining`, `Succeeded`, `RolledBack`; `Ended` if nobody looked while it ended and was forgotten.
    pub phase: String,
    /// What it is waiting for, or why it ended.
    pub message: String,
    /// The method that decided.
    pub method: String,
    /// `Empty`, `Drifted` or `Underutilized`.
    pub reason: String,
    /// The nodes that go.
    pub nodes: Vec<String>,
    /// The NodeClaims that come.
    pub replacements: Vec<String>,
    /// Pods that have to move.
    pub evictions: i64,
    /// The price of the nodes.
    pub before: Dollars,
    /// The saving, with the cheapest of the requested types.
    pub predicted: Dollars,
    /// The saving, with the launched types; none before that is known, or if the command was rolled back.
    pub realised: Option<Dollars>,
}

impl Entry {
    fn is_over(&self) -> bool {
        [SUCCEEDED, ROLLED_BACK, ENDED].contains(&self.phase.as_str())
    }

    fn fate(&self) -> Fate {
        match self.phase.as_str() {
            ROLLED_BACK => Fate::RolledBack,
            _ if self.is_over() => Fate::Done,
            _ => Fate::UnderWay,
        }
    }
}

/// When a command was decided, and its name.
type Key = (Timestamp, String);

/// Commands by the time of their decision, and sums over all that there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    entries: BTreeMap<Key, Entry>,
    /// Of commands that have been forgotten.
    forgotten: Sums,
    /// The decision up to which commands have been forgotten: an object that old is not a new command.
    horizon: Option<Timestamp>,
    /// When all Disruptions were read last.
    read: Option<Timestamp>,
    books: Books,
}

/// Sums over commands that were not rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sums {
    /// How many.
    pub commands: usize,
    /// Pods that had to move.
    pub evictions: i64,
    /// Dollars per hour that were predicted to be saved.
    pub predicted: Dollars,
    /// Dollars per hour that came of those that have succeeded, as far as that is known.
    pub realised: Dollars,
}

impl Sums {
    fn add(&mut self, entry: &Entry) {
        if entry.phase == ROLLED_BACK {
            return;
        }
        self.commands += 1;
        self.evictions += entry.evictions;
        self.predicted.0 = self.predicted.0.saturating_add(entry.predicted.0);
        if entry.phase == SUCCEEDED {
            let realised = entry.realised.unwrap_or_default();
            self.realised.0 = self.realised.0.saturating_add(realised.0);
        }
    }
}

const DRAINING: &str = "Draining";
pub(crate) const SUCCEEDED: &str = "Succeeded";
const ROLLED_BACK: &str = "RolledBack";
const ENDED: &str = "Ended";

/// In so short a pause not so many commands end that others have to make room for them.
const SHORT: Duration = Duration::from_secs(60);

impl Ledger {
    /// Takes in what was read.
    pub fn take(&mut self, world: &World, snapshot: &Snapshot) {
        let wanted: BTreeSet<&str> = world
            .disruptions
            .iter()
            .flat_map(|one| one.spec.replacements.iter().map(|one| one.node_claim.as_str()))
            .collect();
        let prices: BTreeMap<&str, Price> = snapshot
            .nodes
            .iter()
            .filter(|node| node.claim_name().is_some_and(|name| wanted.contains(name)))
            .filter_map(|node| Some((node.claim_name()?, prices::cost(snapshot, node).ok()?.0)))
            .collect();
        let mut listed = BTreeSet::new();
        for disruption in &world.disruptions {
            let mut entry = entry(disruption, &prices);
            let key = (entry.decided, entry.name.clone());
            listed.insert(key.clone());
            if self.horizon.is_some_and(|horizon| key.0 <= horizon) && !self.entries.contains_key(&key) {
                continue;
            }
            if let Some(known) = self.entries.get(&key)
                && entry.phase != ROLLED_BACK
            {
                // The replacement may be gone again; what it cost when it came stays true.
                entry.realised = written(disruption).or(known.realised).or(entry.realised);
            }
            self.entries.insert(key, entry);
        }
        let is_complete = world.knows_commands();
        if is_complete {
            let last = self.read.replace(world.now);
            let is_missed = last.is_some_and(|last| may_have_missed(world, last));
            self.end_deleted(&listed, world.now, is_missed);
        }
        if is_complete && world.knows("price") {
            self.books.take(world, snapshot, &fates(&self.entries, world));
        } else {
            self.books.pass_over();
        }
        while self.entries.len() > ENTRIES {
            if let Some(((decided, _), entry)) = self.entries.pop_first() {
                self.forgotten.add(&entry);
                self.horizon = Some(decided);
            }
        }
    }

    /// A command whose Disruption is deleted before it has ended is rolled back, unless its NodeClaims are deleted already: nothing brings them back. Where
    /// its end may have been `missed`, nobody knows which it was.
    fn end_deleted(&mut self, listed: &BTreeSet<Key>, now: Timestamp, missed: bool) {
        for (key, entry) in &mut self.entries {
            if entry.is_over() || listed.contains(key) {
                continue;
            }
            let is_done = entry.phase == DRAINING;
            let (phase, message) = match (is_done, missed) {
                (true, _) => (SUCCEEDED, "its Disruption was deleted"),
                (false, true) => (ENDED, "it ended while nobody looked, and is not kept any more"),
                (false, false) => (ROLLED_BACK, "its Disruption was deleted"),
            };
            phase.clone_into(&mut entry.phase);
            message.clone_into(&mut entry.message);
            entry.ended = Some(now);
            // Where nothing comes instead, nothing is left to find out.
            let deleted = entry.replacements.is_empty().then_some(entry.before);
            entry.realised = entry.realised.or(deleted).filter(|_| is_done);
        }
    }

    /// Why the price is what it was at the last look, if it was known then, and all commands.
    pub fn account(&self) -> Option<Account> {
        self.books.account()
    }

    /// The commands that are remembered, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.values()
    }

    /// Sums over all commands that were kept when the ledger was begun, and all since.
    pub fn sums(&self) -> Sums {
        let mut sums = self.forgotten;
        self.entries.values().for_each(|entry| sums.add(entry));
        sums
    }
}

/// What has become of each command that is remembered, or of which an object tells.
fn fates<'a>(entries: &'a BTreeMap<Key, Entry>, world: &'a World) -> Fates<'a> {
    let remembered = entries.values();
    let mut fates: Fates<'_> = remembered
        .map(|entry| (entry.name.as_str(), entry.fate()))
        .collect();
    let listed = world.disruptions.iter();
    fates.extend(listed.map(|one| (one.name(), Fate::of(one))));
    fates
}

/// Whether a command may have ended and been forgotten since Disruptions were read last: those that have ended are kept for a day, and so many at most.
fn may_have_missed(world: &World, last: Timestamp) -> bool {
    let gap = Duration::try_from(world.now.duration_since(last)).unwrap_or_default();
    let ended = world.disruptions.iter().filter(|one| one.is_finished());
    gap >= DISRUPTION_HISTORY || (gap > SHORT && ended.count() >= DISRUPTION_HISTORY_ENTRIES)
}

fn entry(disruption: &Disruption, prices: &BTreeMap<&str, Price>) -> Entry {
    let spec = &disruption.spec;
    let price = |text: &str| signed(text);
    let before = price(&spec.price_before);
    let names: Vec<&str> = spec
        .replacements
        .iter()
        .map(|one| one.node_claim.as_str())
        .collect();
    let came: Option<Vec<Price>> = names.iter().map(|name| prices.get(name).copied()).collect();
    let phase = disruption.phase();
    let realised = came
        .filter(|came| {
            phase != DisruptionPhase::RolledBack && (!came.is_empty() || phase == DisruptionPhase::Succeeded)
        })
        .map(|came| Dollars(before.saturating_sub(came.into_iter().sum())));
    let status = disruption.status.as_ref();
    Entry {
        name: disruption.metadata.name.clone().unwrap_or_default(),
        decided: spec.decided_at.0,
        ended: status
            .and_then(|status| status.finished_at.as_ref())
            .map(|time| time.0),
        phase: phase.to_string(),
        message: status
            .and_then(|status| status.message.clone())
            .unwrap_or_default(),
        method: spec.method.to_string(),
        reason: spec.reason.to_string(),
        nodes: spec.nodes.iter().map(|node| node.name.clone()).collect(),
        replacements: names.into_iter().map(str::to_owned).collect(),
        evictions: spec.evictions,
        before: Dollars(before),
        predicted: Dollars(price(&spec.savings)),
        realised: written(disruption).or(realised),
    }
}

/// What the operator has written when the command ended.
fn written(disruption: &Disruption) -> Option<Dollars> {
    let status = disruption.status.as_ref()?;
    Some(Dollars(signed(status.realised_savings.as_deref()?)))
}

/// A decimal text that may be negative; one that cannot be read counts nothing.
fn signed(text: &str) -> Price {
    match text.strip_prefix('-') {
        Some(rest) => Price(rest.parse::<Price>().unwrap_or_default().0.saturating_neg()),
        None => text.parse().unwrap_or_default(),
    }
}
