//! All that the simulated EC2 knows, and what happens in it as time passes.
//!
//! Owns machines from launch to oblivion, launch templates, instance profiles and the agenda. It is a value: every change comes with the instant at
//! which it happens, and what is due before is made up for first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::hash::digest;
use spokeshave_model::CapacityType;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::replies::{FleetReply, Instance, LaunchTemplate, Profile, Tags};
use spokeshave_provider_aws::requests::LaunchTemplateData;

use crate::account::Account;
use crate::catalogue::Catalogue;
use crate::instants::later;
use crate::market::{Market, Pool};
use crate::options::Options;
use crate::queue::{self, Queue};
use crate::throttle::Buckets;

/// EC2 takes a spot instance back so long after it has said so.
const SPOT_NOTICE: SignedDuration = SignedDuration::from_secs(120);
/// An instance that has ended can be described for about an hour.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);

/// Something that will happen by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A spot instance is taken back.
    Reclaim(String),
    /// An instance that was shutting down has ended.
    Ended(String),
    /// An instance that ended is described no more.
    Forgotten(String),
}

/// A machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// As it is described, but for its state.
    pub(crate) facts: Instance,
    /// From when on calls find it.
    pub(crate) visible_at: Timestamp,
    pub(crate) running_at: Timestamp,
    /// When its node joins the cluster, if it ever does.
    pub(crate) joins_at: Option<Timestamp>,
    /// When it began to shut down.
    pub(crate) ending_at: Option<Timestamp>,
    pub(crate) ended: bool,
    pub(crate) pool: Pool,
    pub(crate) user_data: String,
    /// Checks that fail, and since when.
    pub(crate) impaired: BTreeMap<Check, Timestamp>,
    /// Maintenance that is planned for it.
    pub(crate) maintenance: Option<Timestamp>,
    /// Whether its end was announced as a spot interruption.
    pub(crate) is_doomed: bool,
}

/// A check of an instance's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Of the instance.
    Instance,
    /// Of the hardware below it.
    System,
}

impl Machine {
    pub(crate) fn state(&self, now: Timestamp) -> &'static str {
        if self.ended {
            "terminated"
        } else if self.ending_at.is_some() {
            "shutting-down"
        } else if now >= self.running_at {
            "running"
        } else {
            "pending"
        }
    }

    pub(crate) fn describe(&self, now: Timestamp) -> Instance {
        Instance {
            state: self.state(now).to_owned(),
            ..self.facts.clone()
        }
    }
}

/// A launch template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) reply: LaunchTemplate,
    pub(crate) data: LaunchTemplateData,
}

/// An answer that comes later than others, or never: what was asked for is done all the same.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) action: String,
    pub(crate) after: Duration,
    pub(crate) is_lost: bool,
}

/// An instance profile, and from when on EC2 knows it.
#[derive(Clone, Debug)]
pub(crate) struct StoredProfile {
    pub(crate) reply: Profile,
    pub(crate) known_at: Timestamp,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) catalogue: &'static Catalogue,
    pub(crate) account: Account,
    pub(crate) market: Market,
    pub(crate) machines: BTreeMap<String, Machine>,
    pub(crate) templates: BTreeMap<String, Template>,
    pub(crate) profiles: BTreeMap<String, StoredProfile>,
    pub(crate) queue: Queue,
    pub(crate) buckets: Buckets,
    /// By client token what was asked for, as a digest, and the reply: a call that is repeated launches nothing.
    pub(crate) fleets: BTreeMap<String, (u64, FleetReply)>,
    /// IDs of zones that are shifted away from.
    pub(crate) shifted: BTreeSet<String>,
    /// How often each call was made.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Calls that fail, the next ones first.
    pub(crate) failures: Vec<(String, ApiError)>,
    /// Answers that come late, the next ones first.
    pub(crate) late: Vec<Late>,
    /// Types of which the price list does not tell.
    pub(crate) unlisted: BTreeSet<String>,
    /// Differs when machines or the queue have changed.
    pub(crate) version: u64,
    agenda: BTreeMap<(Timestamp, u64), Due>,
    number: u64,
}

impl State {
    pub(crate) fn new(options: Options) -> Self {
        let mut account = Account::for_cluster(&options.cluster_name);
        account.roles.clone_from(&options.roles);
        State {
            catalogue: Catalogue::built_in(),
            account,
            market: Market::new(options.seed),
            machines: BTreeMap::new(),
            templates: BTreeMap::new(),
            profiles: BTreeMap::new(),
            queue: Queue::default(),
            buckets: Buckets::default(),
            fleets: BTreeMap::new(),
            shifted: BTreeSet::new(),
            calls: BTreeMap::new(),
            failures: Vec::new(),
            late: Vec::new(),
            unlisted: BTreeSet::new(),
            version: 0,
            agenda: BTreeMap::new(),
            number: 0,
            options,
        }
    }

    /// A number that was never given before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// An ID that differs between runs of other seeds.
    pub(crate) fn next_id(&mut self, prefix: &str) -> String {
        let number = self.next_number();
        format!(
            "{prefix}-0{:016x}",
            digest(&format!("{}/{prefix}/{number}", self.options.seed))
        )
    }

    fn plan(&mut self, at: Timestamp, due: Due) {
        let number = self.next_number();
        self.agenda.insert((at, number), due);
    }

    /// When something happens next by itself.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.agenda.keys().next().map(|(at, _)| *at)
    }

    /// Makes up for everything that was due by now.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), due) = entry.remove_entry();
            match due {
                Due::Reclaim(id) => drop(self.end(&id, "Server.SpotInstanceTermination", at)),
                Due::Ended(id) => self.ended(&id, at),
                Due::Forgotten(id) => drop(self.machines.remove(&id)),
            }
        }
    }

    pub(crate) fn add(&mut self, machine: Machine) {
        self.market.take(&machine.pool);
        self.count_address(&machine.facts.subnet_id, -1);
        self.count_reserved(&machine.facts, -1);
        self.machines.insert(machine.facts.id.clone(), machine);
        self.version += 1;
    }

    /// Sends a message through the queue, where there is one.
    pub(crate) fn send(&mut self, body: String, now: Timestamp) {
        if self.options.queue_name.is_some() {
            self.queue.send(body, now);
            self.version += 1;
        }
    }

    fn count_address(&mut self, subnet: &str, change: i64) {
        if let Some(subnet) = self.account.subnets.get_mut(subnet) {
            subnet.free_addresses += change;
        }
    }

    fn count_reserved(&mut self, facts: &Instance, change: i64) {
        let id = facts.capacity_reservation_id.as_deref().unwrap_or_default();
        if let Some(reservation) = self.account.reservations.get_mut(id) {
            reservation.available += change;
        }
    }

    /// Begins to end an instance. `false` when it is ending already.
    pub(crate) fn end(&mut self, id: &str, reason: &str, now: Timestamp) -> bool {
        let Some(machine) = self
            .machines
            .get_mut(id)
            .filter(|machine| machine.ending_at.is_none())
        else {
            return false;
        };
        machine.ending_at = Some(now);
        machine.facts.state_reason = reason.to_owned();
        self.version += 1;
        self.send(queue::state_change(id, "shutting-down", now), now);
        let at = later(now, self.options.termination_delay);
        self.plan(at, Due::Ended(id.to_owned()));
        true
    }

    fn ended(&mut self, id: &str, now: Timestamp) {
        let Some(machine) = self.machines.get_mut(id) else {
            return;
        };
        machine.ended = true;
        self.version += 1;
        let (pool, facts) = (machine.pool.clone(), machine.facts.clone());
        self.market.give_back(&pool);
        self.count_address(&facts.subnet_id, 1);
        self.count_reserved(&facts, 1);
        self.send(queue::state_change(id, "terminated", now), now);
        self.plan(
            now.saturating_add(REMEMBERED).unwrap_or(Timestamp::MAX),
            Due::Forgotten(id.to_owned()),
        );
    }

    /// Announces that a spot instance is taken back, and takes it back two minutes later. `false` for what is no spot instance, or ends anyhow.
    pub(crate) fn interrupt(&mut self, id: &str, now: Timestamp) -> bool {
        let interruptible = |machine: &&mut Machine| {
            machine.pool.capacity_type == CapacityType::Spot
                && machine.ending_at.is_none()
                && !machine.is_doomed
        };
        let Some(machine) = self.machines.get_mut(id).filter(interruptible) else {
            return false;
        };
        machine.is_doomed = true;
        self.send(queue::spot_interruption(id, now), now);
        self.plan(
            now.saturating_add(SPOT_NOTICE).unwrap_or(Timestamp::MAX),
            Due::Reclaim(id.to_owned()),
        );
        true
    }

    /// Instances that exist, whether calls find them yet or not.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values().filter(|machine| !machine.ended)
    }

    pub(crate) fn template_by_id(&self, id: &str) -> Option<&str> {
        let found = self
            .templates
            .iter()
            .find(|(_, template)| template.reply.id == id);
        found.map(|(name, _)| name.as_str())
    }
}

/// Tags of one kind of thing in a request.
pub(crate) fn tags_of(
    specifications: &[spokeshave_provider_aws::requests::TagSpecification],
    resource_type: spokeshave_provider_aws::requests::ResourceType,
) -> Tags {
    let own = specifications
        .iter()
        .filter(|it| it.resource_type == resource_type);
    own.flat_map(|it| it.tags.0.clone()).collect()
}
