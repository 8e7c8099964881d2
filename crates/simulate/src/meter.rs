//! The meter: integrals of money, pods and nodes over time, in integers, advanced at events.
//!
//! Owns the arithmetic of [`Measured`] and of the curves. It never looks at an object: the engine reports what changes.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{CapacityType, Price};

use crate::run::{Curve, Measured, WorkDone};
use crate::world::HOUR_MS;

/// The current state.
#[derive(Debug, Default, Clone, Copy)]
struct Level {
    /// Nano-dollars per hour: on demand, spot, reserved.
    price: [u64; 3],
    /// Micro-dollars per hour of the lower bound.
    bound: u64,
    nodes: u64,
    pods: u64,
    bound_pods: u64,
    pending: u64,
    /// Sum over nodes of what is not requested, in thousandths.
    wasted: u64,
    /// The same times the price of the node: thousandths of nano-dollars per hour.
    wasted_price: u128,
    idle: u64,
    down: u64,
}

/// Integrals of a level, in its unit times milliseconds.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    price: [u128; 3],
    bound: u128,
    nodes: u128,
    pods: u128,
    wasted: u128,
    wasted_price: u128,
    idle: u128,
    down: u64,
}

/// Integrals of a level since the last point of the curve, warm-up or not.
#[derive(Debug, Default, Clone, Copy)]
struct Stretch {
    price: u128,
    bound: u128,
    nodes: u128,
    pods: u128,
    pending: u128,
    /// Milliseconds that it has lasted.
    length: u64,
}

impl Stretch {
    fn integrate(&mut self, level: &Level, span_ms: u64) {
        let span = u128::from(span_ms);
        self.price += level.price.iter().copied().map(u128::from).sum::<u128>() * span;
        self.bound += u128::from(level.bound) * span;
        self.nodes += u128::from(level.nodes) * span;
        self.pods += u128::from(level.pods) * span;
        self.pending += u128::from(level.pending) * span;
        self.length += span_ms;
    }

    /// Writes its means as a point.
    fn end(self, curve: &mut Curve) {
        let length = u128::from(self.length.max(1));
        let narrow = |mean: u128| u64::try_from(mean).unwrap_or(u64::MAX);
        curve
            .cost_micros_per_hour
            .push(narrow(self.price / length / 1_000));
        curve.bound_micros_per_hour.push(narrow(self.bound / length));
        curve.nodes_thousandths.push(narrow(self.nodes * 1_000 / length));
        curve.pods_thousandths.push(narrow(self.pods * 1_000 / length));
        curve
            .pending_thousandths
            .push(narrow(self.pending * 1_000 / length));
        curve.last_ms = self.length;
    }
}

/// What a node contributes to the level.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its price per hour.
    pub price: Price,
    /// What is not requested, in thousandths.
    pub wasted: u64,
    /// It holds no pod but daemons.
    pub is_idle: bool,
}

/// The meter.
#[derive(Debug)]
pub struct Meter {
    now_ms: u64,
    warmup_ms: u64,
    level: Level,
    sum: Sum,
    curve: Curve,
    /// What the next point of the curve is the mean of.
    stretch: Stretch,
    /// Figures that are counted, not integrated.
    pub counted: Measured,
    /// What the run has taken so far, warm-up included.
    pub work: WorkDone,
    evictions_by_owner: BTreeMap<u32, u64>,
    owners: BTreeSet<u32>,
}

fn slot(capacity_type: CapacityType) -> usize {
    match capacity_type {
        CapacityType::OnDemand => 0,
        CapacityType::Spot => 1,
        CapacityType::Reserved => 2,
    }
}

fn nanos(price: Price) -> u64 {
    u64::try_from(price.0).unwrap_or(0)
}

/// Milliseconds of a wait, as lists of waits have them.
fn wait(waited_ms: u64) -> u32 {
    u32::try_from(waited_ms).unwrap_or(u32::MAX)
}

impl Meter {
    /// A meter at the start; what happens in the warm-up does not count.
    pub fn new(warmup_ms: u64, step_ms: u64) -> Self {
        Meter {
            now_ms: 0,
            warmup_ms,
            level: Level::default(),
            sum: Sum::default(),
            curve: Curve {
                step_ms: if step_ms == 0 { HOUR_MS } else { step_ms },
                ..Curve::default()
            },
            stretch: Stretch::default(),
            counted: Measured::default(),
            work: WorkDone::default(),
            evictions_by_owner: BTreeMap::new(),
            owners: BTreeSet::new(),
        }
    }

    /// Time passes.
    pub fn advance(&mut self, now_ms: u64) {
        self.draw(now_ms);
        let from = self.now_ms.max(self.warmup_ms);
        if now_ms > from {
            self.integrate(u128::from(now_ms - from));
        }
        self.now_ms = now_ms;
        // What the warm-up leaves behind is where counting begins.
        self.note_peaks();
    }

    fn note_peaks(&mut self) {
        if self.counts() {
            self.counted.peak_nodes = self.counted.peak_nodes.max(self.level.nodes);
            self.counted.peak_pods = self.counted.peak_pods.max(self.level.pods);
        }
    }

    fn integrate(&mut self, span: u128) {
        let (level, sum) = (&self.level, &mut self.sum);
        for (sum, price) in sum.price.iter_mut().zip(level.price) {
            *sum += u128::from(price) * span;
        }
        sum.bound += u128::from(level.bound) * span;
        sum.nodes += u128::from(level.nodes) * span;
        sum.pods += u128::from(level.bound_pods) * span;
        sum.wasted += u128::from(level.wasted) * span;
        sum.wasted_price += level.wasted_price * span;
        sum.idle += u128::from(level.idle) * span;
        sum.down += level.down * u64::try_from(span).unwrap_or(u64::MAX);
    }

    /// Takes the time until then into the curve: a point ends with its step.
    fn draw(&mut self, now_ms: u64) {
        let mut rest = now_ms.saturating_sub(self.now_ms);
        while rest > 0 {
            let span = rest.min(self.curve.step_ms - self.stretch.length);
            self.stretch.integrate(&self.level, span);
            rest -= span;
            if self.stretch.length == self.curve.step_ms {
                std::mem::take(&mut self.stretch).end(&mut self.curve);
            }
        }
    }

    /// How many instances there are.
    pub fn nodes(&self) -> u64 {
        self.level.nodes
    }

    /// Whether what happens now counts.
    pub fn counts(&self) -> bool {
        self.now_ms >= self.warmup_ms
    }

    /// Counts something, unless it happens in the warm-up.
    pub fn count(&mut self, counter: impl FnOnce(&mut Measured) -> &mut u64) {
        if self.counts() {
            *counter(&mut self.counted) += 1;
        }
    }

    /// A launch has failed.
    pub fn launch_fails(&mut self) {
        self.work.failed_launches += 1;
        self.count(|counted| &mut counted.failed_launches);
    }

    /// A command of disruption is carried out.
    pub fn command_starts(&mut self) {
        self.work.commands += 1;
        self.count(|counted| &mut counted.commands);
    }

    /// An instance was launched, and is paid for from now on.
    pub fn instance_begins(&mut self, price: Price, capacity_type: CapacityType) {
        self.work.launches += 1;
        self.count(|counted| &mut counted.launches);
        self.instance_stands(price, capacity_type);
    }

    /// An instance is there from the start, and is paid for from now on.
    pub fn instance_stands(&mut self, price: Price, capacity_type: CapacityType) {
        self.level.price[slot(capacity_type)] += nanos(price);
        self.level.nodes += 1;
        self.note_peaks();
    }

    /// An instance is not paid for any more.
    pub fn instance_ends(&mut self, price: Price, capacity_type: CapacityType) {
        let level = &mut self.level.price[slot(capacity_type)];
        *level = level.saturating_sub(nanos(price));
        self.level.nodes = self.level.nodes.saturating_sub(1);
    }

    /// A node contributes something else than before.
    pub fn share(&mut self, before: Option<Share>, after: Option<Share>) {
        let level = &mut self.level;
        if let Some(share) = before {
            level.wasted = level.wasted.saturating_sub(share.wasted);
            let price = u128::from(nanos(share.price)) * u128::from(share.wasted);
            level.wasted_price = level.wasted_price.saturating_sub(price);
            level.idle = level.idle.saturating_sub(u64::from(share.is_idle));
        }
        if let Some(share) = after {
            level.wasted += share.wasted;
            level.wasted_price += u128::from(nanos(share.price)) * u128::from(share.wasted);
            level.idle += u64::from(share.is_idle);
        }
    }

    /// The lower bound per hour, in micro-dollars.
    pub fn set_bound(&mut self, micros_per_hour: u64) {
        self.level.bound = micros_per_hour;
    }

    /// A workload pod comes into being.
    pub fn pod_begins(&mut self, owner: u32) {
        self.level.pods += 1;
        self.level.pending += 1;
        self.owners.insert(owner);
        self.note_peaks();
    }

    /// A workload pod that has just come into being is on a node from the start: it has not waited, and is in no list of waits.
    pub fn pod_stands(&mut self) {
        self.level.pending = self.level.pending.saturating_sub(1);
        self.level.bound_pods += 1;
    }

    /// Whether a wait of this length, which ends now, began when it counted: percentiles are over these alone. Of a cluster that stays as it is, all others
    /// would be the pods that no node takes, because pods that got one in the warm-up have waited before.
    fn counts_wait(&self, waited_ms: u64) -> bool {
        self.now_ms.saturating_sub(waited_ms) >= self.warmup_ms
    }

    /// A workload pod was bound after having waited so long.
    pub fn pod_bound(&mut self, waited_ms: u64, replaces: bool) {
        self.level.pending = self.level.pending.saturating_sub(1);
        self.level.bound_pods += 1;
        if self.counts_wait(waited_ms) {
            let list = if replaces {
                &mut self.counted.pending_moved_ms
            } else {
                &mut self.counted.pending_born_ms
            };
            list.push(wait(waited_ms));
        }
    }

    /// A workload pod is gone. `waited_ms` is for how long it had waited, when it never had a node; one that came and went at once says nothing.
    pub fn pod_ends(&mut self, waited_ms: Option<u64>) {
        self.level.pods = self.level.pods.saturating_sub(1);
        let Some(waited_ms) = waited_ms else {
            self.level.bound_pods = self.level.bound_pods.saturating_sub(1);
            return;
        };
        self.level.pending = self.level.pending.saturating_sub(1);
        if !self.counts() || waited_ms == 0 {
            return;
        }
        let list = if self.counts_wait(waited_ms) {
            &mut self.counted.pending_left_ms
        } else {
            &mut self.counted.left_since_warmup_ms
        };
        list.push(wait(waited_ms));
    }

    /// A workload pod was evicted.
    pub fn evicted(&mut self, owner: u32, is_voluntary: bool) {
        self.work.moves += u64::from(is_voluntary);
        if !self.counts() {
            return;
        }
        if is_voluntary {
            self.counted.evictions_voluntary += 1;
            *self.evictions_by_owner.entry(owner).or_default() += 1;
        } else {
            self.counted.evictions_involuntary += 1;
        }
    }

    /// So many owners that want one pod have no ready one.
    pub fn set_down(&mut self, owners: u64) {
        self.level.down = owners;
    }

    /// The figures, at the end. `waiting` are the times, in milliseconds, for which pods that still wait have waited.
    pub fn finish(mut self, waiting: impl Iterator<Item = u64>) -> (Measured, Curve) {
        if self.stretch.length > 0 {
            self.stretch.end(&mut self.curve);
        }
        let hour = u128::from(HOUR_MS);
        let narrow = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        // Nano-dollars per hour times milliseconds.
        let micros = |sum: u128| narrow(sum / hour / 1_000);
        let sum = self.sum;
        for waited_ms in waiting {
            let list = if self.counts_wait(waited_ms) {
                &mut self.counted.pending_at_end_ms
            } else {
                &mut self.counted.waiting_since_warmup_ms
            };
            list.push(wait(waited_ms));
        }
        let mut measured = self.counted;
        measured.span_ms = self.now_ms.saturating_sub(self.warmup_ms);
        measured.cost_on_demand_micros = micros(sum.price[0]);
        measured.cost_spot_micros = micros(sum.price[1]);
        measured.cost_reserved_micros = micros(sum.price[2]);
        measured.bound_micros = narrow(sum.bound / hour);
        measured.pod_ms = sum.pods;
        measured.evictions_by_owner = self.evictions_by_owner.into_iter().collect();
        measured.owners = self.owners.len() as u64;
        measured.wasted_node_ms_thousandths = sum.wasted;
        measured.wasted_micros = micros(sum.wasted_price / 1_000);
        measured.idle_node_ms = sum.idle;
        measured.node_ms = sum.nodes;
        measured.single_replica_down_ms = sum.down;
        for list in [
            &mut measured.pending_born_ms,
            &mut measured.pending_moved_ms,
            &mut measured.pending_left_ms,
            &mut measured.pending_at_end_ms,
            &mut measured.left_since_warmup_ms,
            &mut measured.waiting_since_warmup_ms,
        ] {
            list.sort_unstable();
        }
        (measured, self.curve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_price_times_time_without_the_warm_up() {
        let mut meter = Meter::new(HOUR_MS, HOUR_MS);
        meter.instance_begins(Price(500_000_000), CapacityType::OnDemand);
        meter.instance_begins(Price(100_000_000), CapacityType::Spot);
        meter.advance(2 * HOUR_MS + 1_800_000);
        meter.instance_ends(Price(500_000_000), CapacityType::OnDemand);
        meter.advance(3 * HOUR_MS);
        let (measured, curve) = meter.finish(std::iter::empty());
        assert_eq!(measured.span_ms, 2 * HOUR_MS);
        assert_eq!(
            measured.cost_on_demand_micros, 750_000,
            "an hour and a half at half a dollar"
        );
        assert_eq!(measured.cost_spot_micros, 200_000);
        assert_eq!(
            measured.node_ms,
            u128::from(3 * HOUR_MS + 1_800_000 - HOUR_MS + HOUR_MS)
        );
        assert_eq!(curve.cost_micros_per_hour, [600_000, 600_000, 350_000]);
        assert_eq!(curve.nodes_thousandths, [2_000, 2_000, 1_500]);
    }

    /// At every full hour there is nothing: an instance from ten past to twenty-five past, and one that is still there when all ends at half past.
    #[test]
    fn a_point_of_the_curve_is_the_mean_of_its_step() {
        const MINUTE: u64 = HOUR_MS / 60;
        let price = Price(240_000_000);
        let mut meter = Meter::new(0, HOUR_MS);
        meter.advance(10 * MINUTE);
        meter.instance_begins(price, CapacityType::OnDemand);
        meter.pod_begins(0);
        meter.advance(13 * MINUTE);
        meter.pod_bound(3 * MINUTE, false);
        meter.set_bound(120_000);
        meter.advance(25 * MINUTE);
        meter.instance_ends(price, CapacityType::OnDemand);
        meter.pod_ends(None);
        meter.set_bound(0);
        meter.advance(3 * HOUR_MS + 15 * MINUTE);
        meter.instance_begins(price, CapacityType::Spot);
        meter.advance(3 * HOUR_MS + 30 * MINUTE);
        let (measured, curve) = meter.finish(std::iter::empty());
        // A quarter of the first hour, and half of the half hour at the end.
        assert_eq!(curve.cost_micros_per_hour, [60_000, 0, 0, 120_000]);
        assert_eq!(curve.bound_micros_per_hour, [24_000, 0, 0, 0]);
        assert_eq!(curve.nodes_thousandths, [250, 0, 0, 500]);
        assert_eq!(curve.pods_thousandths, [250, 0, 0, 0]);
        assert_eq!(curve.pending_thousandths, [50, 0, 0, 0]);
        assert_eq!((curve.step_ms, curve.last_ms), (HOUR_MS, 30 * MINUTE));
        let points = curve.cost_micros_per_hour.iter().zip(curve.lengths());
        let whole: u64 = points.map(|(micros, length)| micros * length).sum::<u64>() / HOUR_MS;
        assert_eq!(whole, measured.cost_on_demand_micros + measured.cost_spot_micros);
    }

    /// Of two pods that wait from the start on, one gets a node in the warm-up and the other never does: half of all pods have not waited for hours.
    #[test]
    fn a_wait_that_began_in_the_warm_up_is_in_no_percentile() {
        let mut meter = Meter::new(HOUR_MS, HOUR_MS);
        for _ in 0..4 {
            meter.pod_begins(0);
        }
        meter.advance(60_000);
        meter.pod_bound(60_000, false);
        meter.advance(HOUR_MS + 1);
        meter.pod_bound(HOUR_MS + 1, true);
        meter.pod_begins(0);
        meter.pod_begins(0);
        meter.advance(2 * HOUR_MS);
        meter.pod_ends(Some(2 * HOUR_MS));
        meter.pod_ends(Some(HOUR_MS - 1));
        let (measured, _) = meter.finish([2 * HOUR_MS, HOUR_MS - 1].into_iter());
        assert!(measured.pending_born_ms.is_empty() && measured.pending_moved_ms.is_empty());
        assert_eq!(measured.pending_left_ms, [3_599_999]);
        assert_eq!(measured.left_since_warmup_ms, [7_200_000]);
        assert_eq!(measured.pending_at_end_ms, [3_599_999]);
        assert_eq!(measured.waiting_since_warmup_ms, [7_200_000]);
    }

    #[test]
    fn a_pod_that_leaves_in_the_millisecond_of_its_birth_has_not_waited() {
        let mut meter = Meter::new(0, HOUR_MS);
        meter.pod_begins(0);
        meter.pod_begins(0);
        meter.pod_ends(Some(0));
        meter.advance(1);
        meter.pod_ends(Some(1));
        let (measured, _) = meter.finish(std::iter::empty());
        assert_eq!(measured.pending_left_ms, [1]);
    }

    #[test]
    fn the_work_of_the_warm_up_is_work() {
        let mut meter = Meter::new(HOUR_MS, HOUR_MS);
        for hour in 1..=2 {
            meter.launch_fails();
            meter.instance_begins(Price(100_000_000), CapacityType::OnDemand);
            meter.command_starts();
            meter.evicted(0, true);
            meter.evicted(0, false);
            meter.advance(hour * HOUR_MS);
        }
        let all = WorkDone {
            launches: 2,
            failed_launches: 2,
            commands: 2,
            moves: 2,
            ..WorkDone::default()
        };
        assert_eq!(meter.work, all);
        let (measured, _) = meter.finish(std::iter::empty());
        assert_eq!(
            (
                measured.launches,
                measured.failed_launches,
                measured.commands,
                measured.evictions_voluntary,
                measured.evictions_involuntary
            ),
            (1, 1, 1, 1, 1)
        );
    }

    #[test]
    fn the_most_at_once_is_that_of_the_counted_time() {
        let mut meter = Meter::new(HOUR_MS, HOUR_MS);
        let price = Price(100_000_000);
        for _ in 0..3 {
            meter.instance_begins(price, CapacityType::OnDemand);
            meter.pod_begins(0);
        }
        meter.advance(HOUR_MS / 2);
        meter.instance_ends(price, CapacityType::OnDemand);
        meter.pod_ends(Some(HOUR_MS / 2));
        meter.advance(HOUR_MS);
        meter.instance_ends(price, CapacityType::OnDemand);
        meter.pod_ends(Some(HOUR_MS));
        let (measured, _) = meter.finish(std::iter::empty());
        assert!(
            measured.pending_left_ms.is_empty(),
            "both began to wait in the warm-up"
        );
        assert_eq!(
            measured.left_since_warmup_ms,
            [3_600_000],
            "the other one left in the warm-up"
        );
        assert_eq!(
            (measured.peak_nodes, measured.peak_pods),
            (2, 2),
            "three were there in the warm-up only, two at its end"
        );
    }
}
