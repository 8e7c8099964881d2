//! NodeClaims, Nodes and instances in the chronicle.

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_apiserver::Commit;
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Resources};
use spokeshave_plan::termination;
use spokeshave_simulate::StandingNode;
use spokeshave_simulate::fixed::said;
use spokeshave_simulate::meter::Share;

use super::{Chronicle, HOUR_MS, State};

use jiff::Timestamp;

/// A NodeClaim with its Node and its instance.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// The NodeClaim as it was written last.
    pub(super) claim: Value,
    /// When its node is ready.
    pub(super) ready_at: Option<Timestamp>,
    instance: Option<Instance>,
    /// Its Node is of no NodePool: its instance is nobody's here, and there to the end.
    is_fixed: bool,
    /// The cloud has announced that it takes the instance back.
    is_interrupted: bool,
    has_node: bool,
    allocatable: Resources,
    used: Resources,
    /// Pods of workloads on it.
    workload_pods: u64,
    /// What it contributes to the meter.
    share: Option<Share>,
}

#[derive(Debug)]
struct Instance {
    price: Price,
    capacity_type: CapacityType,
    launched_ms: u64,
    /// How long it had been there before the start.
    age_ms: u64,
}

impl Machine {
    /// Whether the cloud still has its instance.
    pub(super) fn has_instance(&self) -> bool {
        self.instance.is_some() || self.is_fixed
    }

    /// The NodeClaim, while there is one.
    pub(super) fn claim(&self) -> Option<NodeClaim> {
        serde_json::from_value(self.claim.clone()).ok()
    }

    /// The share that is requested, of the resource of which most is, in thousandths; at most 1,000.
    fn share_thousandths(&self) -> u64 {
        if !self.has_node {
            return 0;
        }
        let shares = self.allocatable.iter().filter(|(_, total)| *total > 0);
        let shares = shares.map(|(name, total)| {
            let share = i128::from(self.used.get(name)) * 1_000 / i128::from(total);
            u64::try_from(share.clamp(0, 1_000)).unwrap_or(0)
        });
        shares.max().unwrap_or(0)
    }
}

fn annotation<'v>(object: &'v Value, key: &str) -> &'v str {
    object["metadata"]["annotations"][key]
        .as_str()
        .unwrap_or_default()
}

/// Whether a Node says that it is ready.
fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

impl Chronicle {
    pub(super) fn claim_committed(&self, commit: &Commit<'_>) {
        let (mut state, now_ms) = self.now();
        if commit.deleted {
            state.note(now_ms, "gone", commit.name, "");
            if let Some(machine) = state.machines.get_mut(commit.name) {
                machine.claim = Value::Null;
            }
            state.forget(commit.name);
            return;
        }
        let machine = state.machines.entry(commit.name.to_owned()).or_default();
        machine.claim = commit.new.clone();
        if commit.old.is_none() && !state.is_standing {
            let command = annotation(commit.new, labels::DISRUPTION);
            state.note(now_ms, "nodeclaim", commit.name, command);
        }
    }

    pub(super) fn node_committed(&self, commit: &Commit<'_>) {
        let (mut state, now_ms) = self.now();
        let name = state.machine_of(commit.name);
        let name = name.as_str();
        let is_standing = state.is_standing;
        let Some(machine) = state.machines.get_mut(name) else {
            return;
        };
        if commit.deleted {
            machine.has_node = false;
            state.measure(name);
            state.forget(name);
            return;
        }
        machine.has_node = true;
        let quantities = serde_json::from_value(commit.new["status"]["allocatable"].clone()).ok();
        machine.allocatable = Resources::from_quantities_lossy(quantities.as_ref());
        let was_ready = commit.old.is_some_and(is_ready);
        // Of one that stands, that has been said.
        if commit.old.is_none() && !is_standing {
            state.note(now_ms, "joined", name, "");
        } else if is_ready(commit.new) && !was_ready && !is_standing {
            state.note(now_ms, "ready", name, "");
        }
        state.measure(name);
    }
}

impl State {
    /// Drops a machine of which nothing is left.
    fn forget(&mut self, name: &str) {
        let is_empty = self.machines.get(name).is_some_and(|machine| {
            machine.claim.is_null() && !machine.has_node && machine.instance.is_none()
        });
        if is_empty {
            self.machines.remove(name);
        }
    }

    pub(super) fn launched(
        &mut self,
        now_ms: u64,
        name: &str,
        instance_type: &InstanceType,
        offering: &Offering,
    ) {
        let capacity_type = offering.capacity_type().unwrap_or(CapacityType::OnDemand);
        self.meter.instance_begins(offering.price, capacity_type);
        let zone = offering.zone().unwrap_or_default();
        let line = format!(
            "{} {} {} {zone}",
            instance_type.name, capacity_type, offering.price
        );
        self.note(now_ms, "launched", name, &line);
        let machine = self.machines.entry(name.to_owned()).or_default();
        machine.instance = Some(Instance {
            price: offering.price,
            capacity_type,
            launched_ms: now_ms,
            age_ms: 0,
        });
        let claim = &machine.claim;
        let pool = claim["metadata"]["labels"][labels::NODE_POOL].as_str();
        let pool = pool.filter(|_| annotation(claim, labels::DISRUPTION).is_empty());
        if let Some(pool) = pool.map(str::to_owned) {
            self.savings_are_lost(now_ms, &pool, offering.price);
        }
        self.measure(name);
    }

    /// An instance is there from the start.
    pub(super) fn instance_stands(&mut self, now_ms: u64, name: &str, standing: &StandingNode, age_ms: u64) {
        let (price, capacity_type) = (standing.price, standing.capacity_type);
        self.meter.instance_stands(price, capacity_type);
        let line = standing.said();
        self.note(now_ms, "standing", name, &line);
        let machine = self.machines.entry(name.to_owned()).or_default();
        machine.instance = Some(Instance {
            price,
            capacity_type,
            launched_ms: now_ms,
            age_ms,
        });
        self.measure(name);
    }

    /// A Node of no NodePool is there from the start; it is in no figure of nodes and money.
    pub(super) fn fixed(&mut self, now_ms: u64, node: &Node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.note(now_ms, "fixed", name, &said(node));
        self.names.node_is_fixed(name);
        let machine = self.machines.entry(name.to_owned()).or_default();
        machine.is_fixed = true;
    }

    /// The cloud has announced the end of an instance.
    pub(super) fn interrupted(&mut self, now_ms: u64, name: &str) {
        if let Some(machine) = self.machines.get_mut(name) {
            machine.is_interrupted = true;
        }
        self.meter.count(|counted| &mut counted.interruptions);
        self.note(now_ms, "interrupted", name, "");
    }

    pub(super) fn ended(&mut self, now_ms: u64, name: &str) {
        let Some(machine) = self.machines.get_mut(name) else {
            return;
        };
        let Some(instance) = machine.instance.take() else {
            return;
        };
        // Its pods are noticed to be gone when its NodeClaim may be gone, too.
        if !machine.is_interrupted && termination::could_have_waited(machine.claim().as_ref()) {
            self.disrupted.insert(name.to_owned());
        }
        self.meter.instance_ends(instance.price, instance.capacity_type);
        if now_ms - instance.launched_ms + instance.age_ms < HOUR_MS {
            self.meter.count(|counted| &mut counted.short_lived_nodes);
        }
        self.note(now_ms, "ended", name, "");
        self.measure(name);
        self.forget(name);
    }

    /// A pod is on a node now, or has left it.
    pub(super) fn takes(&mut self, name: &str, requests: &Resources, is_workload: bool, takes: bool) {
        let Some(machine) = self.machines.get_mut(name) else {
            return;
        };
        let count = &mut machine.workload_pods;
        if takes {
            machine.used.add(requests);
            *count += u64::from(is_workload);
        } else {
            machine.used.subtract(requests);
            *count = count.saturating_sub(u64::from(is_workload));
        }
        self.measure(name);
    }

    /// A node contributes something else to the meter, perhaps.
    fn measure(&mut self, name: &str) {
        let Some(machine) = self.machines.get_mut(name) else {
            return;
        };
        let after = machine.instance.as_ref().map(|instance| Share {
            price: instance.price,
            wasted: 1_000 - machine.share_thousandths(),
            is_idle: machine.workload_pods == 0,
        });
        if machine.share != after {
            self.meter.share(machine.share, after);
            machine.share = after;
        }
    }
}
