//! The life of a NodeClaim from its creation to its initialisation (P §9.1–9.5), as functions of its objects and now.
//!
//! Owns what the conditions say and what is written onto the Node. It never calls a cloud: launching is the shell's, its result comes in as
//! a value.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use spokeshave_api::conditions::{Conditioned, DISRUPTION_REASON, INITIALIZED, LAUNCHED, REGISTERED, Status};
use spokeshave_api::constants::{LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT};
use spokeshave_api::labels::{self, TERMINATION_FINALIZER};
use spokeshave_api::{NodeClaim, Quantity, WireForm};
use spokeshave_model::taint::{format_taint, is_known_ephemeral, same_taint};
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef, Plan, Price, Subresource};

use crate::dynamic_resources::unpublished_driver;

/// A NodeClaim by name and UID.
#[must_use]
pub fn claim_ref(claim: &NodeClaim) -> ObjectRef {
    ObjectRef::cluster(ObjectKind::NodeClaim, claim.name(), claim.uid())
}

/// A Node by name and UID.
#[must_use]
pub fn node_ref(node: &Node) -> ObjectRef {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    ObjectRef::cluster(
        ObjectKind::Node,
        &text(&node.metadata.name),
        &text(&node.metadata.uid),
    )
}

/// P-160, P-171: the finalizer and the label of the NodeClass, before anything is launched.
#[must_use]
pub fn prepare_action(claim: &NodeClaim) -> Option<Action> {
    let mut after = claim.clone();
    let finalizers = after.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == TERMINATION_FINALIZER) {
        finalizers.push(TERMINATION_FINALIZER.to_owned());
    }
    let (key, value) = node_class_label(claim);
    after
        .metadata
        .labels
        .get_or_insert_default()
        .insert(key, value.to_owned());
    if after.metadata == claim.metadata {
        return None;
    }
    Action::patch(claim_ref(claim), Subresource::Main, claim, &after, true)
}

/// The label that says which NodeClass a NodeClaim and its Node come from; termination knows its Nodes by it (D-299).
fn node_class_label(claim: &NodeClaim) -> (String, &str) {
    let class = &claim.spec.node_class_ref;
    (class.label_key(), &class.name)
}

/// P-161: the claim after its instance was launched. The claim's labels win over the cloud's, the cloud's annotations over the claim's.
#[must_use]
pub fn launched(claim: &NodeClaim, instance: &NodeClaim, now: Timestamp) -> NodeClaim {
    let mut after = claim.clone();
    let own = after.metadata.labels.take().unwrap_or_default();
    let mut merged = instance.metadata.labels.clone().unwrap_or_default();
    merged.extend(own);
    after.metadata.labels = Some(merged);
    if let Some(annotations) = &instance.metadata.annotations {
        after
            .metadata
            .annotations
            .get_or_insert_default()
            .extend(annotations.clone());
    }
    if let Some(found) = &instance.status {
        let status = after.status.get_or_insert_default();
        status.provider_id.clone_from(&found.provider_id);
        status.image_id.clone_from(&found.image_id);
        status.capacity.clone_from(&found.capacity);
        status.allocatable.clone_from(&found.allocatable);
    }
    after.set_true(LAUNCHED, now);
    after
}

/// W-07: what was launched, and what it costs, unless the cloud has said so or nobody knows.
#[must_use]
pub fn priced(mut instance: NodeClaim, price: Price) -> NodeClaim {
    if price.is_known() {
        instance
            .metadata
            .annotations
            .get_or_insert_default()
            .entry(labels::PRICE_AT_LAUNCH.to_owned())
            .or_insert_with(|| price.to_string());
    }
    instance
}

/// P-163: the claim after a launch that will be tried again.
#[must_use]
pub fn launch_failed(claim: &NodeClaim, reason: &str, message: &str, now: Timestamp) -> NodeClaim {
    let mut after = claim.clone();
    after.set(LAUNCHED, Status::Unknown, reason, message, now);
    after
}

/// Something that has just become true of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its Node has joined.
    Registered {
        /// Name of the Node.
        node: String,
    },
    /// Its Node can run pods.
    Initialized {
        /// Name of the Node.
        node: String,
    },
    /// Its Node was made anew, and has what it had.
    Rejoined {
        /// Name of the Node.
        node: String,
    },
}

/// P §9.3–9.4: registers and initialises a launched claim whose Nodes (by provider ID) are given, and the ResourceSlices of its Node where
/// Dynamic Resource Allocation is on. The report: what became true. `pending` names the provider's hooks that do not let the Node register yet (P-167).
#[must_use]
pub fn advance(
    claim: &NodeClaim,
    nodes: &[Arc<Node>],
    slices: Option<&[Arc<ResourceSlice>]>,
    pending: &[String],
    now: Timestamp,
) -> Plan<Vec<Progress>> {
    let mut plan = Plan::default();
    let mut after = claim.clone();
    after.initialize_conditions(now);
    let mut node_now = nodes.first().map(|node| (**node).clone());
    if !after.is_true(REGISTERED) {
        register(&mut after, nodes, &mut node_now, pending, &mut plan, now);
    } else if let ([_], Some(node)) = (nodes, &mut node_now) {
        rejoin(&mut after, node, slices, &mut plan);
    }
    if after.is_true(REGISTERED) && !after.is_true(INITIALIZED) {
        initialize(&mut after, nodes, slices, &mut node_now, &mut plan, now);
    }
    if let Some(node) = node_now.as_mut().filter(|_| after.is_true(REGISTERED)) {
        // P-171: also a Node that joined before its claim had the label.
        let (key, value) = node_class_label(claim);
        node.metadata
            .labels
            .get_or_insert_default()
            .insert(key, value.to_owned());
    }
    if let (Some(before), Some(after)) = (nodes.first(), &node_now)
        && nodes.len() == 1
    {
        plan.actions.extend(Action::patch(
            node_ref(before),
            Subresource::Main,
            &**before,
            after,
            true,
        ));
    }
    plan.actions.extend(Action::patch(
        claim_ref(claim),
        Subresource::Status,
        claim,
        &after,
        true,
    ));
    plan
}

fn register(
    after: &mut NodeClaim,
    nodes: &[Arc<Node>],
    node_now: &mut Option<Node>,
    pending: &[String],
    plan: &mut Plan<Vec<Progress>>,
    now: Timestamp,
) {
    let node = match (nodes, node_now) {
        ([_], Some(node)) => node,
        ([], _) => {
            after.set(
                REGISTERED,
                Status::Unknown,
                "NodeNotFound",
                "Node not registered with cluster",
                now,
            );
            return;
        }
        _ => {
            after.set(
                REGISTERED,
                Status::False,
                "MultipleNodesFound",
                "Invariant violated, matched multiple nodes",
                now,
            );
            return;
        }
    };
    if !has_label(node, labels::REGISTERED) && !has_unregistered_taint(node) {
        plan.events.push(Event::new(
            claim_ref(after),
            EventType::Warning,
            "UnregisteredTaintMissing",
            "Missing karpenter.sh/unregistered taint which prevents registration related race conditions on Karpenter-managed nodes",
        ));
    }
    sync_node(after, node);
    if !pending.is_empty() {
        let names = pending.join(", ");
        after.set(
            REGISTERED,
            Status::Unknown,
            "RegistrationHookPending",
            &names,
            now,
        );
        return;
    }
    after.set_true(REGISTERED, now);
    let node = admit(node);
    after.status.get_or_insert_default().node_name = Some(node.clone());
    plan.report.push(Progress::Registered { node });
}

/// D-253: a Node that is registered by what its NodeClaim says, and not by its own word. Somebody has taken it away, and its kubelet has made it anew, as it made the
/// first one: it gets what it had. Or somebody has taken a label from it. Nothing was launched and the conditions stay; the Node says whether it can run pods.
fn rejoin(
    after: &mut NodeClaim,
    node: &mut Node,
    slices: Option<&[Arc<ResourceSlice>]>,
    plan: &mut Plan<Vec<Progress>>,
) {
    // What is on its way out takes no finalizer, and needs none of this any more.
    if node.metadata.deletion_timestamp.is_some() {
        return;
    }
    if !has_label(node, labels::REGISTERED) || has_unregistered_taint(node) {
        // On one that has started before, startup taints would have nobody any more who removes them.
        if !is_owned_by(node, after) {
            sync_node(after, node);
        }
        // Its command goes on, and no pod may come to it meanwhile. Where none stands, this is taken off again.
        if after.is_true(DISRUPTION_REASON) {
            add_taint(node, &labels::disrupted_taint());
        }
        let node = admit(node);
        plan.report.push(Progress::Rejoined { node });
    }
    // It may have another name than the first one had, and the write of that come to nothing after the Node was written.
    after
        .status
        .get_or_insert_default()
        .node_name
        .clone_from(&node.metadata.name);
    let is_due = after.is_true(INITIALIZED) && !has_label(node, labels::INITIALIZED);
    if is_due && closed_gate(after, node, slices).is_none() {
        set_label(node, labels::INITIALIZED);
    }
}

/// Lets pods onto a Node, which is that of its NodeClaim now. Returns its name.
fn admit(node: &mut Node) -> String {
    let unregistered = labels::unregistered_taint();
    if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|taint| !same_taint(taint, &unregistered));
    }
    set_label(node, labels::REGISTERED);
    node.metadata.name.clone().unwrap_or_default()
}

fn has_unregistered_taint(node: &Node) -> bool {
    let unregistered = labels::unregistered_taint();
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref());
    taints.flatten().any(|taint| same_taint(taint, &unregistered))
}

fn has_label(node: &Node, key: &str) -> bool {
    node.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(key))
        .is_some_and(|value| value == "true")
}

fn set_label(node: &mut Node, key: &str) {
    node.metadata
        .labels
        .get_or_insert_default()
        .insert(key.to_owned(), "true".to_owned());
}

/// Whether a Node names this NodeClaim as its owner.
pub(crate) fn is_owned_by(node: &Node, claim: &NodeClaim) -> bool {
    let mut owners = node.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == claim.uid())
}

fn add_taint(node: &mut Node, wanted: &Taint) {
    let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
    if !taints.iter().any(|taint| same_taint(taint, wanted)) {
        taints.push(wanted.clone());
    }
}

/// P-165: finalizer, owner, taints, labels and annotations of the claim onto its Node.
fn sync_node(claim: &NodeClaim, node: &mut Node) {
    let finalizers = node.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == TERMINATION_FINALIZER) {
        finalizers.push(TERMINATION_FINALIZER.to_owned());
    }
    if !is_owned_by(node, claim) {
        let owners = node.metadata.owner_references.get_or_insert_default();
        owners.push(OwnerReference {
            api_version: claim.api_version.clone(),
            kind: claim.kind.clone(),
            name: claim.name().to_owned(),
            uid: claim.uid().to_owned(),
            block_owner_deletion: Some(true),
            controller: None,
        });
    }
    if !has_label(node, labels::DO_NOT_SYNC_TAINTS) {
        for wanted in claim.spec.taints.iter().chain(&claim.spec.startup_taints) {
            add_taint(node, wanted);
        }
    }
    if let Some(wanted) = &claim.metadata.labels {
        node.metadata
            .labels
            .get_or_insert_default()
            .extend(wanted.clone());
    }
    if let Some(wanted) = &claim.metadata.annotations {
        node.metadata
            .annotations
            .get_or_insert_default()
            .extend(wanted.clone());
    }
}

fn initialize(
    after: &mut NodeClaim,
    nodes: &[Arc<Node>],
    slices: Option<&[Arc<ResourceSlice>]>,
    node_now: &mut Option<Node>,
    plan: &mut Plan<Vec<Progress>>,
    now: Timestamp,
) {
    let problem = match (nodes, &*node_now) {
        ([_], Some(node)) => closed_gate(after, node, slices),
        _ => Some(("NodeNotFound", "Node not registered with cluster".to_owned())),
    };
    if let Some((reason, message)) = problem {
        after.set(INITIALIZED, Status::Unknown, reason, &message, now);
        return;
    }
    if let Some(node) = node_now {
        set_label(node, labels::INITIALIZED);
        plan.report.push(Progress::Initialized {
            node: node.metadata.name.clone().unwrap_or_default(),
        });
    }
    after.set_true(INITIALIZED, now);
}

/// P-168: the first gate that is closed, in their order, and why.
fn closed_gate(
    claim: &NodeClaim,
    node: &Node,
    slices: Option<&[Arc<ResourceSlice>]>,
) -> Option<(&'static str, String)> {
    gate(claim, node).or_else(|| driver_gate(claim, slices?))
}

fn driver_gate(claim: &NodeClaim, slices: &[Arc<ResourceSlice>]) -> Option<(&'static str, String)> {
    let driver = unpublished_driver(claim, slices)?;
    let message = format!("DRA driver \"{driver}\" has not published a complete resource pool");
    Some(("DRADriverPoolsNotPublished", message))
}

fn gate(claim: &NodeClaim, node: &Node) -> Option<(&'static str, String)> {
    if !spokeshave_model::state_node::is_node_ready(node) {
        return Some(("NodeNotReady", "Node status is NotReady".to_owned()));
    }
    let taints: &[Taint] = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let starting = taints.iter().find(|taint| {
        claim
            .spec
            .startup_taints
            .iter()
            .any(|startup| same_taint(startup, taint))
    });
    if let Some(taint) = starting {
        return Some((
            "StartupTaintsExist",
            format!("StartupTaint \"{}\" still exists", format_taint(taint)),
        ));
    }
    if let Some(taint) = taints.iter().find(|taint| is_known_ephemeral(taint)) {
        return Some((
            "KnownEphemeralTaintsExist",
            format!("KnownEphemeralTaint \"{}\" still exists", format_taint(taint)),
        ));
    }
    let allocatable = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref());
    let is_zero = |quantity: Option<&_>| {
        quantity.is_none_or(|quantity| Quantity::from_wire(quantity).is_ok_and(Quantity::is_zero))
    };
    let missing = claim.spec.resources.requests.iter().find(|(name, wanted)| {
        !is_zero(Some(*wanted)) && is_zero(allocatable.and_then(|allocatable| allocatable.get(name.as_str())))
    });
    missing.map(|(name, _)| {
        (
            "ResourceNotRegistered",
            format!("Resource \"{name}\" was requested but not registered"),
        )
    })
}

/// Whether a claim has taken too long (P §9.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Nothing to watch for any more.
    Fine,
    /// To be looked at again after this time.
    Within(Duration),
    /// To be deleted, for this reason (label of `karpenter_nodeclaims_disrupted_total`).
    TimedOut(&'static str),
}

/// P-169. A claim that was launched late, because nobody was there to do it in its time, leaves its Node as long as one that was launched at the last moment.
#[must_use]
pub fn liveness(claim: &NodeClaim, now: Timestamp) -> Liveness {
    if claim.is_true(REGISTERED) {
        return Liveness::Fine;
    }
    let created = claim
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |time| time.0);
    let launched = claim.true_condition(LAUNCHED);
    let in_time = launched.and_then(|launched| {
        let latest = launched.last_transition_time.saturating_sub(LAUNCH_TIMEOUT);
        latest.ok()
    });
    let since = |type_: &str| {
        let said = claim.condition(type_);
        let since = said.map_or(created, |condition| condition.last_transition_time);
        in_time.map_or(since, |in_time| since.max(in_time))
    };
    let mut left = Duration::MAX;
    let checks = [
        (LAUNCHED, LAUNCH_TIMEOUT, "launch_timeout"),
        (REGISTERED, REGISTRATION_TIMEOUT, "registration_timeout"),
    ];
    for (type_, limit, reason) in checks {
        if claim.is_true(type_) {
            continue;
        }
        let passed = Duration::try_from(now.duration_since(since(type_))).unwrap_or(Duration::ZERO);
        if passed >= limit {
            return Liveness::TimedOut(reason);
        }
        left = left.min(limit - passed);
    }
    Liveness::Within(left)
}

/// D-245: time until the claim expires; zero when it has.
#[must_use]
pub fn until_expiry(claim: &NodeClaim, now: Timestamp) -> Option<Duration> {
    let expire_after = claim.spec.expire_after.duration()?;
    let created = claim.metadata.creation_timestamp.as_ref()?.0;
    let age = Duration::try_from(now.duration_since(created)).unwrap_or(Duration::ZERO);
    Some(expire_after.saturating_sub(age))
}

#[cfg(test)]
mod tests;
