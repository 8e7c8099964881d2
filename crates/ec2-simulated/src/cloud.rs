//! The simulated EC2 as others hold it: services for an operator, and levers for whoever plays fate.
//!
//! Owns the lock around the state, the way of a call (latency, limits, failures that were ordered) and the deaths of callers. It draws no chance of its
//! own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_ports::SharedClock;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::replies::{CapacityReservation, Image, Instance, Profile};
use spokeshave_provider_aws::requests::LaunchTemplateData;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::market::PoolPattern;
use crate::options::Options;
use crate::queue;
use crate::state::{Check, Late, Machine, State, StoredProfile};

/// An EC2 in this process. Clones are the same.
#[derive(Clone, Debug)]
pub struct SimulatedEc2(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: SharedClock,
    state: Mutex<State>,
    changed: Notify,
}

/// A caller that dies: after so many calls, none gets an answer any more.
#[derive(Clone, Debug)]
pub struct Lifeline(Arc<Life>);

#[derive(Debug)]
struct Life {
    left: AtomicU64,
    ended: Notify,
}

impl Lifeline {
    /// The life of a caller that makes so many calls.
    pub(crate) fn after(calls: u64) -> Self {
        Lifeline(Arc::new(Life {
            left: AtomicU64::new(calls),
            ended: Notify::new(),
        }))
    }

    /// Completes when the last call has been made: it has taken effect, and nobody will learn of it.
    pub async fn ended(&self) {
        let told = self.0.ended.notified();
        if self.has_ended() {
            return;
        }
        told.await;
    }

    /// Whether the last call has been made.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.left.load(Ordering::Relaxed) == 0
    }

    /// Counts a call; waits for ever when there was none left.
    async fn begin(&self) {
        if self.has_ended() {
            std::future::pending::<()>().await;
        }
    }

    /// The answer of a call is under way; the last one's never arrives.
    async fn end(&self) {
        let before = self
            .0
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if matches!(before, Err(_) | Ok(1)) {
            self.0.ended.notify_waiters();
            std::future::pending::<()>().await;
        }
    }
}

impl SimulatedEc2 {
    /// An account in which nothing runs.
    #[must_use]
    pub fn new(clock: SharedClock, options: Options) -> Self {
        SimulatedEc2(Arc::new(Inner {
            clock,
            state: Mutex::new(State::new(options)),
            changed: Notify::new(),
        }))
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.0.clock
    }

    /// Completes when a machine or the queue changes next.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    /// The state as it is now.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance(self.0.clock.now());
        state
    }

    fn change<T>(&self, change: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state();
        let before = state.version;
        let changed = change(&mut state, self.0.clock.now());
        if state.version != before {
            self.0.changed.notify_waiters();
        }
        changed
    }

    /// Makes a call: there, what it does, and back.
    pub(crate) async fn call<T>(
        &self,
        life: Option<&Lifeline>,
        action: &str,
        what: impl FnOnce(&mut State, Timestamp) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let way = self.state().options.latency / 2;
        if let Some(life) = life {
            life.begin().await;
        }
        if !way.is_zero() {
            self.0.clock.sleep(way).await;
        }
        let (mut answer, late) = self.change(|state, now| {
            let answer = answered(state, action, what, now);
            let late = state.late.iter().position(|late| late.action == action);
            (answer, late.map(|at| state.late.remove(at)))
        });
        if !way.is_zero() {
            self.0.clock.sleep(way).await;
        }
        if let Some(late) = late {
            self.0.clock.sleep(late.after).await;
            if late.is_lost {
                answer = Err(ApiError::new("", "no reply"));
            }
        }
        if let Some(life) = life {
            life.end().await;
        }
        answer
    }
}

/// What a call does, or why it does nothing.
fn answered<T>(
    state: &mut State,
    action: &str,
    what: impl FnOnce(&mut State, Timestamp) -> Result<T, ApiError>,
    now: Timestamp,
) -> Result<T, ApiError> {
    *state.calls.entry(action.to_owned()).or_default() += 1;
    if let Some(at) = state.failures.iter().position(|(failing, _)| failing == action) {
        return Err(state.failures.remove(at).1);
    }
    if state.options.is_throttled {
        state.buckets.take(action, now)?;
    }
    what(state, now)
}

/// Levers.
impl SimulatedEc2 {
    /// Makes what a class selects or names and the account has not: subnets, groups, images, reservations, its instance profile.
    pub fn fit(&self, class: &EC2NodeClass) {
        self.change(|state, now| {
            state.account.fit(class, now);
            if let Some(name) = &class.spec.instance_profile {
                let made = || StoredProfile {
                    reply: Profile {
                        name: name.clone(),
                        path: "/".to_owned(),
                        roles: vec![name.clone()],
                        ..Profile::default()
                    },
                    known_at: now,
                };
                state.profiles.entry(name.clone()).or_insert_with(made);
            }
        });
    }

    /// From now on there are so many instances of the offerings that match.
    pub fn limit(&self, pattern: PoolPattern, instances: u32) {
        self.change(|state, _| state.market.limit(pattern, instances));
    }

    /// There is no end of any offering again.
    pub fn unlimited(&self) {
        self.change(|state, _| state.market.unlimited());
    }

    /// Takes a zone out, so that it launches nothing, or brings it back.
    pub fn set_outage(&self, zone: &str, is_out: bool) {
        self.change(|state, _| state.market.set_outage(zone, is_out));
    }

    /// Shifts the cluster's traffic away from a zone, or back (ARC).
    pub fn set_shifted(&self, zone: &str, is_shifted: bool) {
        let Some((_, id)) = crate::catalogue::ZONES.iter().find(|(name, _)| *name == zone) else {
            return;
        };
        self.change(|state, _| {
            if is_shifted {
                state.shifted.insert((*id).to_owned());
            } else {
                state.shifted.remove(*id);
            }
        });
    }

    /// Announces that a spot instance is taken back in two minutes, and does it. `false` for what is no spot instance that runs.
    pub fn interrupt(&self, instance: &str) -> bool {
        self.change(|state, now| state.interrupt(instance, now))
    }

    /// Announces that a spot instance is taken back that is not one of this account's machines here.
    pub fn interrupt_stranger(&self, instance: &str) {
        self.send_message(queue::spot_interruption(instance, self.0.clock.now()));
    }

    /// Says that a spot instance has a raised risk of being taken back.
    pub fn recommend_rebalance(&self, instance: &str) {
        self.send_message(queue::rebalance(instance, self.0.clock.now()));
    }

    /// Says that AWS will retire the hardware of an instance: by message, and in its status.
    pub fn announce_maintenance(&self, instance: &str) {
        self.change(|state, now| {
            state.send(queue::maintenance(instance, now), now);
            if let Some(machine) = state.machines.get_mut(instance) {
                machine.maintenance = Some(now);
            }
        });
    }

    /// Sends any text through the queue.
    pub fn send_message(&self, body: String) {
        self.change(|state, now| state.send(body, now));
    }

    /// Lets a check of an instance fail, or succeed again.
    pub fn impair(&self, instance: &str, check: Check, is_impaired: bool) {
        self.change(|state, now| {
            let Some(machine) = state.machines.get_mut(instance) else {
                return;
            };
            if is_impaired {
                machine.impaired.entry(check).or_insert(now);
            } else {
                machine.impaired.remove(&check);
            }
        });
    }

    /// Makes the queue of interruptions under this name, or removes it.
    pub fn set_queue(&self, name: Option<&str>) {
        self.change(|state, _| state.options.queue_name = name.map(str::to_owned));
    }

    /// Ends an instance as a user of the console does.
    pub fn terminate(&self, instance: &str) -> bool {
        self.change(|state, now| state.end(instance, "Client.UserInitiatedShutdown", now))
    }

    /// Lets the next calls of this name fail, each with this error; `ApiError` without a code is no answer.
    pub fn fail(&self, action: &str, error: &ApiError, times: usize) {
        let ordered = std::iter::repeat_n((action.to_owned(), error.clone()), times);
        self.change(|state, _| state.failures.extend(ordered));
    }

    /// The answers of the next calls of this name come so much later; what they do is done at once.
    pub fn answer_late(&self, action: &str, after: Duration, times: usize) {
        self.be_late(action, after, times, false);
    }

    /// The next calls of this name are carried out, and have no answer: their callers find out after so long.
    pub fn lose_answers(&self, action: &str, after: Duration, times: usize) {
        self.be_late(action, after, times, true);
    }

    fn be_late(&self, action: &str, after: Duration, times: usize, is_lost: bool) {
        let late = Late {
            action: action.to_owned(),
            after,
            is_lost,
        };
        self.change(|state, _| state.late.extend(std::iter::repeat_n(late, times)));
    }

    /// Forgets failures and delays that were ordered and have not happened.
    pub fn heal(&self) {
        self.change(|state, _| {
            state.failures.clear();
            state.late.clear();
        });
    }

    /// AWS publishes new images: parameters of the newest ones change.
    pub fn release_images(&self) {
        self.change(|state, _| state.account.release_images());
    }

    /// Removes a launch template behind everybody's back.
    pub fn remove_template(&self, name: &str) {
        self.change(|state, _| state.templates.remove(name));
    }

    /// Registers an image of the account's own.
    pub fn add_image(&self, id: &str, name: &str, architecture: &str) {
        self.change(|state, now| {
            let image = Image {
                id: id.to_owned(),
                name: name.to_owned(),
                architecture: architecture.to_owned(),
                state: "available".to_owned(),
                owner_id: crate::account::OWNER.to_owned(),
                created_at: Some(now),
                ..Image::default()
            };
            state.account.images.insert(image.id.clone(), image);
        });
    }

    /// From now on no spot price of a type is told.
    pub fn forget_price(&self, instance_type: &str) {
        self.change(|state, _| state.market.forget_price(instance_type));
    }

    /// From now on the price list leaves a type out.
    pub fn leave_out_price(&self, instance_type: &str) {
        self.change(|state, _| state.unlisted.insert(instance_type.to_owned()));
    }

    /// Sets a capacity reservation up, or changes it.
    pub fn reserve(&self, reservation: CapacityReservation) {
        self.change(|state, _| {
            let id = reservation.id.clone();
            state.account.reservations.insert(id, reservation)
        });
    }

    /// Sets how many addresses of a subnet are free.
    pub fn set_free_addresses(&self, subnet: &str, count: i64) {
        self.change(|state, _| {
            if let Some(subnet) = state.account.subnets.get_mut(subnet) {
                subnet.free_addresses = count;
            }
        });
    }

    /// Moves an instance out of its capacity reservation, as EC2 does when the reservation ends.
    pub fn lose_reservation(&self, instance: &str) {
        self.change(|state, _| {
            if let Some(machine) = state.machines.get_mut(instance) {
                machine.facts.capacity_reservation_id = None;
                machine.facts.capacity_reservation_preference = "open".to_owned();
            }
        });
    }

    /// Lets an instance boot whose node never joins the cluster.
    pub fn keep_from_joining(&self, instance: &str) {
        self.change(|state, _| {
            if let Some(machine) = state.machines.get_mut(instance) {
                machine.joins_at = None;
            }
        });
    }
}

/// What there is.
impl SimulatedEc2 {
    /// Instances that have not ended, ordered by ID, also those that calls do not find yet.
    #[must_use]
    pub fn instances(&self) -> Vec<Instance> {
        let now = self.0.clock.now();
        self.state()
            .living()
            .map(|machine: &Machine| machine.describe(now))
            .collect()
    }

    /// Names of launch templates.
    #[must_use]
    pub fn templates(&self) -> Vec<String> {
        self.state().templates.keys().cloned().collect()
    }

    /// From what instances of a launch template are made, if there is one of that name.
    #[must_use]
    pub fn template(&self, name: &str) -> Option<LaunchTemplateData> {
        let state = self.state();
        state.templates.get(name).map(|template| template.data.clone())
    }

    /// Names of instance profiles.
    #[must_use]
    pub fn profiles(&self) -> Vec<String> {
        self.state().profiles.keys().cloned().collect()
    }

    /// How many messages the queue holds.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.state().queue.len()
    }

    /// How often each call was made.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.state().calls.clone()
    }

    /// Whether traffic is shifted away from a zone.
    #[must_use]
    pub fn is_shifted(&self, zone: &str) -> bool {
        let zones = &crate::catalogue::ZONES;
        let id = zones.iter().find(|(name, _)| *name == zone).map(|(_, id)| *id);
        id.is_some_and(|id| self.state().shifted.contains(id))
    }

    /// How many instances of an offering there still are; `u32::MAX` where nothing limits it.
    #[must_use]
    pub fn capacity_left(&self, pool: &crate::market::Pool) -> u32 {
        self.state().market.left(pool)
    }
}
