//! What the limits of a NodePool keep from being launched, as `explain nodepool` and `doctor` tell it.
//!
//! Owns the comparison that the scheduler makes (P-093): a limit stops the instance types of which each has more than it leaves, so that a limit of a resource stops none
//! that has none of it. It decides nothing.

use spokeshave_model::InstanceType;
use spokeshave_model::resources::ResourceName;
use spokeshave_model::snapshot::{PoolView, Snapshot};
use spokeshave_plan::standing::eligible;

/// Resources of which every machine has some.
const OF_EVERY_MACHINE: [&str; 3] = [ResourceName::NODES, ResourceName::CPU, ResourceName::MEMORY];

/// What a limit stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stops {
    /// Nothing, or only some of the instance types that have the resource.
    Little,
    /// Every instance type that has any of the resource; there are others.
    Having,
    /// Every launch.
    All,
}

/// One limit of a NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit<'a> {
    pub(crate) resource: &'a str,
    pub(crate) amount: i64,
    pub(crate) used: i64,
    /// What the smallest instance type has; none where no type is known.
    pub(crate) least: Option<i64>,
    pub(crate) stops: Stops,
}

/// All limits of a NodePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits<'a> {
    pub(crate) each: Vec<Limit<'a>>,
    /// Each of them leaves some instance type, and all of them together leave none.
    pub(crate) stop_together: bool,
}

impl Limit<'_> {
    /// What may still be launched; below zero where more is in use than may be.
    pub(crate) fn left(&self) -> i64 {
        self.amount.saturating_sub(self.used)
    }

    /// Whether all of it is in use.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left() <= 0
    }
}

impl<'a> Limits<'a> {
    /// Compares them with the instance types that meet the requirements of the NodePool.
    pub(crate) fn of(snapshot: &Snapshot, pool: &'a PoolView) -> Self {
        let types = eligible(snapshot, pool);
        let one = |(resource, amount): (&'a str, i64)| limit(resource, amount, pool, &types);
        let each: Vec<Limit<'a>> = pool.limits.iter().map(one).collect();
        let fits = |one: &InstanceType| each.iter().all(|limit| need(one, limit.resource) <= limit.left());
        let stop_together = !types.is_empty()
            && each.iter().all(|limit| limit.stops != Stops::All)
            && !types.iter().any(|one| fits(one));
        Self { each, stop_together }
    }

    /// The first of them that stops every launch.
    pub(crate) fn stopping(&self) -> Option<&Limit<'a>> {
        self.each.iter().find(|limit| limit.stops == Stops::All)
    }
}

fn limit<'a>(resource: &'a str, amount: i64, pool: &PoolView, types: &[&InstanceType]) -> Limit<'a> {
    let used = pool.usage.get(resource);
    let left = amount.saturating_sub(used);
    let needs: Vec<i64> = types.iter().map(|one| need(one, resource)).collect();
    let (fitting, stopped): (Vec<i64>, Vec<i64>) = needs.iter().partition(|need| **need <= left);
    let stops = if needs.is_empty() {
        // Their instance types are not known, and have some of these.
        let is_of_each = OF_EVERY_MACHINE.contains(&resource);
        match left < 0 || (left == 0 && is_of_each) {
            true => Stops::All,
            false => Stops::Little,
        }
    } else if fitting.is_empty() {
        Stops::All
    } else if !stopped.is_empty() && fitting.iter().all(|need| *need == 0) {
        Stops::Having
    } else {
        Stops::Little
    };
    Limit {
        resource,
        amount,
        used,
        least: needs.into_iter().min(),
        stops,
    }
}

/// What a node of an instance type is charged with.
fn need(one: &InstanceType, resource: &str) -> i64 {
    match resource {
        ResourceName::NODES => 1,
        resource => one.capacity.get(resource),
    }
}
