//! Why the price is what it is: every change of it since the program looks is in one of a few sums, in whole nano-dollars, and together they are the price.
//!
//! Machines are told apart by their provider IDs. It remembers those that there are, and what commands under way have moved: nothing that grows with time.

use crate::Dollars;
use crate::world::World;
use jiff::Timestamp;
use serde::Serialize;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::labels;
use spokeshave_model::Price;
use spokeshave_model::snapshot::{NodeView, Snapshot};
use spokeshave_story::prices;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What has changed the price since the program looks. What has come and gone between two looks is in none of it, as it was in no price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// When it was begun.
    pub since: Timestamp,
    /// The price then, without replacements of commands that were under way: these count as such.
    pub price_then: Dollars,
    /// Nodes that have come for pods, for the number of nodes of a NodePool, or by hand; and replacements of commands that were rolled back.
    pub launched: Dollars,
    /// Nodes that have come as replacements of commands that are under way or have ended well.
    pub replacements: Dollars,
    /// Nodes that these commands named, and that have gone.
    pub ended_by_commands: Dollars,
    /// Other nodes that have gone: expired, interrupted, repaired, deleted by a user, or with a command that was rolled back.
    pub ended_otherwise: Dollars,
    /// What nodes that stayed cost more, or less, because their prices have changed, or are known only now.
    pub repriced: Dollars,
}

impl Account {
    /// What all of it comes to: the price now.
    pub fn price(&self) -> Price {
        let came = self.launched.0.saturating_add(self.replacements.0);
        let went = self.ended_by_commands.0.saturating_add(self.ended_otherwise.0);
        let moved = came.saturating_sub(went).saturating_add(self.repriced.0);
        self.price_then.0.saturating_add(moved)
    }
}

/// What has become of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    UnderWay,
    Done,
    RolledBack,
}

impl Fate {
    pub(crate) fn of(command: &Disruption) -> Self {
        match command.phase() {
            DisruptionPhase::RolledBack => Fate::RolledBack,
            DisruptionPhase::Succeeded => Fate::Done,
            _ => Fate::UnderWay,
        }
    }
}

/// The same of all that are known, by name.
pub(crate) type Fates<'a> = BTreeMap<&'a str, Fate>;

/// Machines by provider ID, and what each costs, where that is known.
type Present<'a> = BTreeMap<&'a str, (&'a NodeView, Option<Price>)>;

/// A machine that was there at the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    price: Price,
    /// The command that takes it away.
    taken_by: Option<String>,
}

/// What a command has moved until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    came: Price,
    went: Price,
}

/// What an [`Account`] is kept from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    /// All but what is open; none before the first look at which prices were known.
    settled: Option<Account>,
    machines: BTreeMap<String, Machine>,
    /// Of commands that may still be rolled back, by name.
    open: BTreeMap<String, Moved>,
    /// Whether the last look was one at which they could be kept.
    is_current: bool,
}

impl Books {
    /// Something that they are kept from could not be read: what happens meanwhile is found at the next look.
    pub(crate) fn pass_over(&mut self) {
        self.is_current = false;
    }

    /// Takes in what was read.
    pub(crate) fn take(&mut self, world: &World, snapshot: &Snapshot, fates: &Fates<'_>) {
        let present = present(snapshot);
        let sum: Price = present.values().filter_map(|(_, price)| *price).sum();
        let is_priced = sum > Price::ZERO || present.values().all(|(_, price)| price.is_some());
        self.is_current = is_priced;
        if !is_priced {
            return;
        }
        let first = Account {
            since: world.now,
            ..Account::default()
        };
        let mut account = self.settled.unwrap_or(first);
        self.come(&present, fates, &mut account);
        self.mark(&world.disruptions, fates);
        self.go(&present, &mut account);
        self.settle(&present, fates, &mut account);
        self.settled = Some(account);
    }

    /// Takes in what has come, and what costs something else now.
    fn come(&mut self, present: &Present<'_>, fates: &Fates<'_>, account: &mut Account) {
        let is_first = self.settled.is_none();
        for (id, (node, price)) in present {
            if let Some(known) = self.machines.get_mut(*id) {
                // Where a price is not known any more, none is in the sum either.
                let price = price.unwrap_or_default();
                add(&mut account.repriced, price.saturating_sub(known.price));
                known.price = price;
                continue;
            }
            let is_under_way = |name: &&str| fates.get(*name) == Some(&Fate::UnderWay);
            let command = command_of(node).filter(|name| !is_first || is_under_way(name));
            // What was there before is repriced once its price is known; what comes later, or for a command that is under way, comes with it.
            let is_old = is_first && command.is_none();
            let Some(price) = price.or(is_old.then_some(Price::ZERO)) else {
                continue;
            };
            match command {
                Some(name) => {
                    let moved = self.open.entry(name.to_owned()).or_default();
                    moved.came = moved.came.saturating_add(price);
                }
                None if is_first => add(&mut account.price_then, price),
                None => add(&mut account.launched, price),
            }
            let machine = Machine {
                price,
                taken_by: None,
            };
            self.machines.insert((*id).to_owned(), machine);
        }
    }

    /// Notes which machines commands take away: of several that name one, it is the latest that was not rolled back. The note outlives the command's object.
    fn mark(&mut self, commands: &[Arc<Disruption>], fates: &Fates<'_>) {
        let is_back = |name: &str| fates.get(name) == Some(&Fate::RolledBack);
        for machine in self.machines.values_mut() {
            if machine.taken_by.as_deref().is_some_and(is_back) {
                machine.taken_by = None;
            }
        }
        let mut standing: Vec<&Arc<Disruption>> =
            commands.iter().filter(|one| !is_back(one.name())).collect();
        standing.sort_by_key(|one| one.spec.decided_at.0);
        for command in standing {
            for node in &command.spec.nodes {
                if let Some(machine) = self.machines.get_mut(&node.provider_id)
                    && machine.taken_by.as_deref() != Some(command.name())
                {
                    machine.taken_by = Some(command.name().to_owned());
                }
            }
        }
    }

    /// Takes out what has gone.
    fn go(&mut self, present: &Present<'_>, account: &mut Account) {
        let open = &mut self.open;
        self.machines.retain(|id, machine| {
            let is_there = present.contains_key(id.as_str());
            if !is_there {
                match machine.taken_by.take() {
                    Some(name) => {
                        let moved = open.entry(name).or_default();
                        moved.went = moved.went.saturating_add(machine.price);
                    }
                    None => add(&mut account.ended_otherwise, machine.price),
                }
            }
            is_there
        });
    }

    /// Closes what commands have moved whose fate is known. It is not of one whose object has not been seen yet: what it has moved stays open while a node bears
    /// its name.
    fn settle(&mut self, present: &Present<'_>, fates: &Fates<'_>, account: &mut Account) {
        if self.open.is_empty() {
            return;
        }
        let came = present.values().filter_map(|(node, _)| command_of(node));
        let going = self.machines.values();
        let going = going.filter_map(|machine| machine.taken_by.as_deref());
        let borne: BTreeSet<&str> = came.chain(going).collect();
        self.open.retain(|name, moved| match fates.get(name.as_str()) {
            Some(Fate::UnderWay) => true,
            None if borne.contains(name.as_str()) => true,
            Some(Fate::RolledBack) => {
                add(&mut account.launched, moved.came);
                add(&mut account.ended_otherwise, moved.went);
                false
            }
            Some(Fate::Done) | None => {
                add(&mut account.replacements, moved.came);
                add(&mut account.ended_by_commands, moved.went);
                false
            }
        });
    }

    /// The account; none while it cannot be kept.
    pub(crate) fn account(&self) -> Option<Account> {
        let mut account = self.settled.filter(|_| self.is_current)?;
        for moved in self.open.values() {
            add(&mut account.replacements, moved.came);
            add(&mut account.ended_by_commands, moved.went);
        }
        Some(account)
    }
}

fn add(sum: &mut Dollars, price: Price) {
    sum.0 = sum.0.saturating_add(price);
}

/// Whether somebody pays for a node, and its price counts: what has not been launched yet costs nothing, and what is not managed nobody knows.
pub(crate) fn is_paid(node: &NodeView) -> bool {
    node.is_managed() && !node.is_stand_in()
}

fn present(snapshot: &Snapshot) -> Present<'_> {
    let paid = snapshot.nodes.iter().filter(|node| is_paid(node));
    let priced = paid.map(|node| {
        let price = prices::cost(snapshot, node).ok().map(|(price, _)| price);
        (node.provider_id.as_str(), (node, price))
    });
    priced.collect()
}

/// The command that a node is a replacement of.
fn command_of(node: &NodeView) -> Option<&str> {
    node.claim.as_ref()?.annotation(labels::DISRUPTION)
}
