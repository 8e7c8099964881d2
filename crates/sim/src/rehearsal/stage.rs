//! What a seed needs of the cloud under its cluster.
//!
//! Owns the interface only. What may happen on a cloud is said by its stage; when it happens is drawn in `steps`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use spokeshave_api::crds::Cloud;
use spokeshave_ec2_simulated::SimulatedEc2;
use spokeshave_ports::CloudProvider;

use super::steps::Step;
use crate::lab::Lab;

/// A machine of the cloud.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// As in the last part of its provider ID.
    pub(super) id: String,
    /// The NodeClaim that its tags name.
    pub(super) claim: Option<String>,
    /// Whether its termination was requested.
    pub(super) is_ending: bool,
    /// Whether it can be reclaimed.
    pub(super) is_spot: bool,
    /// Whether it must not be terminated now.
    pub(super) is_held: bool,
    /// When it was launched, if its cloud says so.
    pub(super) launched_at: Option<Timestamp>,
    /// What its cloud has said of it.
    pub(super) said: Said,
}

/// What a cloud has said of a machine, as far as operators end it for that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// When it takes the machine back, if it has said that it does.
    pub(super) ends_at: Option<Timestamp>,
    /// Anything else.
    pub(super) is_warned: bool,
}

/// What a cloud has said so far, by machine. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Words(Arc<Mutex<BTreeMap<String, Said>>>);

impl Words {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Said>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It takes this machine back then.
    pub(super) fn take_back(&self, machine: &str, ends_at: Timestamp) {
        let mut all = self.all();
        let said = all.entry(machine.to_lowercase()).or_default();
        said.ends_at = said.ends_at.or(Some(ends_at));
    }

    /// It has said something else of this machine.
    pub(super) fn warn(&self, machine: &str) {
        self.all().entry(machine.to_lowercase()).or_default().is_warned = true;
    }

    /// What it has said of this machine.
    pub(super) fn about(&self, machine: &str) -> Said {
        self.all().get(machine).copied().unwrap_or_default()
    }
}

/// Says which machines there are.
pub(super) type Census = Arc<dyn Fn() -> Vec<Machine> + Send + Sync>;

/// Says whether a provider has made the last call that it will ever get an answer to.
pub(super) type HasDied = Box<dyn Fn() -> bool>;

/// A simulated cloud.
pub(super) trait Stage {
    /// Display name.
    fn name(&self) -> &'static str;
    /// The definitions that a cluster on it needs.
    fn definitions(&self) -> Cloud;
    /// The NodeClass of all NodePools, as a manifest.
    fn class(&self) -> Value;
    /// A merge patch of the class; nodes of another number have drifted.
    fn class_change(&self, number: u32) -> Value;
    /// Requirements of NodePools: as few types as keep a seed quick.
    fn requirements(&self) -> Value;
    /// Lets machines join the cluster, until it is stopped.
    fn join(&self, client: Client);
    /// A provider.
    fn provider(&self, lab: &Lab, client: Client) -> Arc<dyn CloudProvider>;
    /// A provider that gets no answer any more from its call of this number on.
    fn mortal_provider(&self, lab: &Lab, client: Client, calls: u64) -> (Arc<dyn CloudProvider>, HasDied);
    /// Counts the machines that are there, whenever it is called.
    fn census(&self) -> Census;
    /// How long its words about machines may be on their way to an operator.
    fn word_takes(&self) -> Duration;
    /// Machines that are there.
    fn machines(&self) -> Vec<Machine> {
        self.census()()
    }
    /// What the cluster has there besides machines: kinds and names.
    fn belongings(&self) -> Vec<(&'static str, Vec<String>)>;
    /// Calls that were made, by name.
    fn calls(&self) -> Vec<(String, u64)>;
    /// What may happen on it, besides what may happen on all.
    fn troubles(&self) -> &'static [Step];
    /// Lets something happen.
    fn act<'a>(
        &'a self,
        lab: &'a Lab,
        step: Step,
        chance: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<(), String>>;
    /// Takes a spot machine back, with notice.
    fn interrupt<'a>(&'a self, lab: &'a Lab, machine: &'a str) -> BoxFuture<'a, Result<(), String>>;
    /// Announces the termination of another owner's machine, on a cloud that sends such messages.
    fn interrupt_stranger(&self, _machine: &str) {}
    /// Messages that are not acknowledged yet.
    fn messages(&self) -> usize {
        0
    }
    /// The EC2 that it is, if it is one.
    fn ec2(&self) -> Option<SimulatedEc2> {
        None
    }
    /// Ends all troubles.
    fn heal(&self);
}
