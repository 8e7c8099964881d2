//! What there is: machines, network interfaces, operations, tokens.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_provider_azure::skus::{self, Sku};

use crate::machine_facts::Told;
use crate::options::{Options, Refusal};

/// A machine or a network interface. Names are in lower case: ARM does not tell them apart by case.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) body: Value,
    pub(crate) made_at: Timestamp,
    /// When it is made, or why it will have failed then.
    pub(crate) ready_at: Timestamp,
    pub(crate) failure: Option<(String, String)>,
    /// When it is gone.
    pub(crate) ends_at: Option<Timestamp>,
    /// When it will be taken back.
    pub(crate) evicted_at: Option<Timestamp>,
    /// What a machine was told, if machines from here understand it.
    pub(crate) told: Option<Told>,
}

impl Resource {
    pub(crate) fn state(&self, now: Timestamp) -> &'static str {
        match (self.ends_at, &self.failure) {
            (Some(_), _) => "Deleting",
            (None, _) if now < self.ready_at => "Creating",
            (None, Some(_)) => "Failed",
            (None, None) => "Succeeded",
        }
    }

    pub(crate) fn shown(&self, now: Timestamp) -> Value {
        let mut body = self.body.clone();
        body["properties"]["provisioningState"] = json!(self.state(now));
        body
    }
}

/// AKS's record of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) body: Value,
    /// Name of the virtual machine, in lower case.
    pub(crate) vm: String,
    pub(crate) vm_id: String,
    /// When AKS says which virtual machine it is.
    pub(crate) named_at: Timestamp,
    pub(crate) drift_action: String,
    /// Somebody has asked AKS to end it; one that ends otherwise leaves its record.
    pub(crate) ends: bool,
}

/// What an operation is about.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) done_at: Timestamp,
    pub(crate) failure: Option<(String, String)>,
}

/// Pages of prices that fail.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailedPrices {
    /// What stands in their address.
    pub(crate) part: String,
    /// How many requests fail.
    pub(crate) requests: u32,
    pub(crate) status: u16,
    pub(crate) retry_after_seconds: u32,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) skus: Vec<Sku>,
    pub(crate) tokens: BTreeMap<String, Timestamp>,
    pub(crate) machines: BTreeMap<String, Resource>,
    pub(crate) interfaces: BTreeMap<String, Resource>,
    /// AKS's records of machines, by its names in lower case.
    pub(crate) records: BTreeMap<String, Record>,
    /// What is gone, and that the graph may still show: kind, body, since when.
    pub(crate) ghosts: Vec<(&'static str, Value, Timestamp, Timestamp)>,
    pub(crate) operations: BTreeMap<String, Operation>,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) denied: BTreeSet<String>,
    /// Requests that are told to wait: how many, and how long.
    pub(crate) throttled: (u32, u32),
    /// Until when all writes are told to wait.
    pub(crate) no_writes_before: Option<Timestamp>,
    pub(crate) failed_prices: FailedPrices,
    /// Requests that are done and whose reply is lost: which, and how many.
    pub(crate) lost_replies: (String, u32),
    /// Kinds whose operations begin and never end.
    pub(crate) stuck: BTreeSet<String>,
    /// Machines of AKS never get the name of a virtual machine.
    pub(crate) unnamed: bool,
    /// Nobody can log in.
    pub(crate) login_is_down: bool,
    /// Images, in lower case, of which galleries and AKS have no version now.
    pub(crate) hidden_images: BTreeSet<String>,
    /// Interfaces that are kept for a machine, until when.
    pub(crate) reserved: BTreeMap<String, Timestamp>,
    pub(crate) log: Vec<String>,
    pub(crate) number: u64,
}

/// How long an operation that is done can be asked about.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);
/// Lines beyond which the older half of the log is forgotten.
const LONGEST_LOG: usize = 100_000;
pub(crate) const MACHINES: &str = "microsoft.compute/virtualmachines";
pub(crate) const INTERFACES: &str = "microsoft.network/networkinterfaces";

impl State {
    pub(crate) fn new(options: Options) -> Self {
        State {
            skus: skus::facts(&options.region),
            options,
            tokens: BTreeMap::new(),
            machines: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            records: BTreeMap::new(),
            ghosts: Vec::new(),
            operations: BTreeMap::new(),
            refusals: Vec::new(),
            denied: BTreeSet::new(),
            throttled: (0, 0),
            no_writes_before: None,
            failed_prices: FailedPrices::default(),
            lost_replies: (String::new(), 0),
            stuck: BTreeSet::new(),
            unnamed: false,
            login_is_down: false,
            hidden_images: BTreeSet::new(),
            reserved: BTreeMap::new(),
            log: Vec::new(),
            number: 0,
        }
    }

    /// Lets time do what it does: machines end, and take their network interfaces along, and interfaces that were deleted are gone.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        for machine in self.machines.values_mut() {
            if machine.evicted_at.is_some_and(|at| at <= now) {
                machine.ends_at.get_or_insert(now);
            }
        }
        for machine in ended(&mut self.machines, now) {
            for interface in attached(&machine.body) {
                let deleted = interface["properties"]["deleteOption"] == "Delete";
                let Some(name) = last_part(&interface["id"]).filter(|_| deleted) else {
                    continue;
                };
                if let Some(interface) = self.interfaces.remove(&name) {
                    self.bury(INTERFACES, &interface, now);
                }
            }
            self.bury(MACHINES, &machine, now);
        }
        for interface in ended(&mut self.interfaces, now) {
            self.bury(INTERFACES, &interface, now);
        }
        self.settle_records();
        let lag = self.options.graph_lag;
        self.ghosts.retain(|(.., gone)| now.duration_since(*gone) < lag);
        self.tokens.retain(|_, until| now < *until);
        self.operations
            .retain(|_, operation| now.duration_since(operation.done_at) < REMEMBERED);
        if self.log.len() > LONGEST_LOG {
            self.log.drain(..LONGEST_LOG / 2);
        }
    }

    /// Records of machines that were asked to end go with them.
    fn settle_records(&mut self) {
        let machines = &self.machines;
        self.records
            .retain(|_, record| !record.ends || machines.contains_key(&record.vm));
    }

    pub(crate) fn bury(&mut self, kind: &'static str, resource: &Resource, now: Timestamp) {
        self.ghosts
            .push((kind, resource.shown(now), resource.made_at, now));
    }

    /// Rows of the graph: what there was when it last looked.
    pub(crate) fn rows(&self, kind: &str, now: Timestamp) -> Vec<Value> {
        let lag = self.options.graph_lag;
        let seen = |made: Timestamp| now.duration_since(made) >= lag;
        let there = match kind {
            MACHINES => &self.machines,
            _ => &self.interfaces,
        };
        let mut rows: Vec<Value> = there
            .values()
            .filter(|resource| seen(resource.made_at))
            .map(|resource| resource.shown(now))
            .collect();
        let ghosts = self
            .ghosts
            .iter()
            .filter(|(of, _, made, _)| *of == kind && seen(*made));
        rows.extend(ghosts.map(|(_, body, ..)| body.clone()));
        rows
    }

    /// When what is begun now is made.
    pub(crate) fn made(&self, kind: &str, now: Timestamp, takes: SignedDuration) -> Timestamp {
        if self.stuck.contains(kind) {
            Timestamp::MAX
        } else {
            later(now, takes)
        }
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Begins an operation; the address at which it is asked about.
    pub(crate) fn begin(&mut self, done_at: Timestamp, failure: Option<(String, String)>) -> String {
        self.begin_at(("Microsoft.Compute", "2024-07-01"), done_at, failure)
    }

    /// The same with the provider that is asked, and the version of its API.
    pub(crate) fn begin_at(
        &mut self,
        (provider, version): (&str, &str),
        done_at: Timestamp,
        failure: Option<(String, String)>,
    ) -> String {
        let id = format!("op-{}", self.next_number());
        self.operations.insert(id.clone(), Operation { done_at, failure });
        format!(
            "{}/subscriptions/{}/providers/{provider}/locations/{}/operations/{id}?api-version={version}",
            self.options.base, self.options.subscription, self.options.region
        )
    }

    /// vCPUs of a family that machines use.
    pub(crate) fn used(&self, family: &str) -> i64 {
        self.machines
            .values()
            .filter_map(|machine| {
                let size = machine.body["properties"]["hardwareProfile"]["vmSize"].as_str()?;
                let spot = machine.body["properties"]["priority"] == "Spot";
                let sku = self.skus.iter().find(|sku| sku.name == size)?;
                (sku.family == family && !spot).then(|| sku.cpus())?
            })
            .sum()
    }
}

/// Takes out what is over.
fn ended(resources: &mut BTreeMap<String, Resource>, now: Timestamp) -> Vec<Resource> {
    let is_over = |resource: &Resource| resource.ends_at.is_some_and(|ends| ends <= now);
    let over = resources.extract_if(.., |_, resource| is_over(resource));
    over.map(|(_, resource)| resource).collect()
}

/// Network interfaces that a machine names.
pub(crate) fn attached(machine: &Value) -> Vec<Value> {
    let interfaces = machine["properties"]["networkProfile"]["networkInterfaces"].as_array();
    interfaces.cloned().unwrap_or_default()
}

/// The name at the end of a resource ID, in lower case.
pub(crate) fn last_part(id: &Value) -> Option<String> {
    id.as_str()?.rsplit('/').next().map(str::to_lowercase)
}

/// `now` and a while.
pub(crate) fn later(now: Timestamp, while_: SignedDuration) -> Timestamp {
    now.saturating_add(while_).unwrap_or(Timestamp::MAX)
}
