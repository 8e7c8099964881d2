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
use spokeshave_api::conditions::{Conditioned, INITIALIZED, LAUNCHED, REGISTERED, Status};
use spokeshave_api::constants::{LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT};
use spokeshave_api::labels::{self, TERMINATION_FINALIZER};
use spokeshave_api::{NodeClaim, Quantity};
use spokeshave_model::taint::{format_taint, is_known_ephemeral, same_taint};
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef, Plan, Subresource};

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
    let unregistered = labels::unregistered_taint();
    let registered_before = has_label(node, labels::REGISTERED);
    let tainted = node
        .spec
        .iter()
        .filter_map(|spec| spec.taints.as_ref())
        .flatten()
        .any(|taint| same_taint(taint, &unregistered));
    if !registered_before && !tainted {
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
    if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|taint| !same_taint(taint, &unregistered));
    }
    node.metadata
        .labels
        .get_or_insert_default()
        .insert(labels::REGISTERED.to_owned(), "true".to_owned());
    let name = node.metadata.name.clone().unwrap_or_default();
    after.set_true(REGISTERED, now);
    after.status.get_or_insert_default().node_name = Some(name.clone());
    plan.report.push(Progress::Registered { node: name });
}

fn has_label(node: &Node, key: &str) -> bool {
    node.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(key))
        .is_some_and(|value| value == "true")
}

/// P-165: finalizer, owner, taints, labels and annotations of the claim onto its Node.
fn sync_node(claim: &NodeClaim, node: &mut Node) {
    let finalizers = node.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == TERMINATION_FINALIZER) {
        finalizers.push(TERMINATION_FINALIZER.to_owned());
    }
    let owners = node.metadata.owner_references.get_or_insert_default();
    if !owners.iter().any(|owner| owner.uid == claim.uid()) {
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
        let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
        for wanted in claim.spec.taints.iter().chain(&claim.spec.startup_taints) {
            if !taints.iter().any(|taint| same_taint(taint, wanted)) {
                taints.push(wanted.clone());
            }
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

/// P-168: the gates, in order.
fn initialize(
    after: &mut NodeClaim,
    nodes: &[Arc<Node>],
    slices: Option<&[Arc<ResourceSlice>]>,
    node_now: &mut Option<Node>,
    plan: &mut Plan<Vec<Progress>>,
    now: Timestamp,
) {
    let problem = match (nodes, &*node_now) {
        ([_], Some(node)) => gate(after, node).or_else(|| driver_gate(after, slices?)),
        _ => Some(("NodeNotFound", "Node not registered with cluster".to_owned())),
    };
    if let Some((reason, message)) = problem {
        after.set(INITIALIZED, Status::Unknown, reason, &message, now);
        return;
    }
    if let Some(node) = node_now {
        node.metadata
            .labels
            .get_or_insert_default()
            .insert(labels::INITIALIZED.to_owned(), "true".to_owned());
        plan.report.push(Progress::Initialized {
            node: node.metadata.name.clone().unwrap_or_default(),
        });
    }
    after.set_true(INITIALIZED, now);
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

/// P-169.
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
    let since = |type_: &str| {
        claim
            .condition(type_)
            .map_or(created, |condition| condition.last_transition_time)
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
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{NodeCondition, NodeSpec, NodeStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use spokeshave_api::NodeClaimSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn claim() -> NodeClaim {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.metadata.uid = Some("uid-c".to_owned());
        claim.metadata.generation = Some(1);
        claim.metadata.creation_timestamp = Some(Time(at(0)));
        claim.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
        claim.set_true(LAUNCHED, at(0));
        claim.status.get_or_insert_default().provider_id = Some("kwok://n".to_owned());
        claim
    }

    fn node(ready: bool, taints: &[Taint]) -> Node {
        let condition = NodeCondition {
            type_: "Ready".to_owned(),
            status: if ready { "True" } else { "False" }.to_owned(),
            ..NodeCondition::default()
        };
        Node {
            metadata: ObjectMeta {
                name: Some("n".to_owned()),
                uid: Some("uid-n".to_owned()),
                resource_version: Some("7".to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: Some("kwok://n".to_owned()),
                taints: Some(taints.to_vec()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                conditions: Some(vec![condition]),
                ..NodeStatus::default()
            }),
        }
    }

    fn status_of(plan: &Plan<Vec<Progress>>, type_: &str) -> (String, String) {
        let patch = plan
            .actions
            .iter()
            .find_map(|action| match action {
                Action::Patch {
                    target,
                    subresource: Subresource::Status,
                    patch,
                    ..
                } if target.kind == ObjectKind::NodeClaim => Some(patch),
                _ => None,
            })
            .expect("a status patch");
        let condition = patch["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|condition| condition["type"] == type_)
            .unwrap()
            .clone();
        (
            condition["status"].as_str().unwrap().to_owned(),
            condition["reason"].as_str().unwrap().to_owned(),
        )
    }

    #[test]
    fn p_160_p_171_finalizer_and_class_label_come_first_and_once() {
        let mut claim = claim();
        claim.spec.node_class_ref = serde_json::from_value(
            serde_json::json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}),
        )
        .unwrap();
        let label = "karpenter.kwok.sh/kwoknodeclass";
        let Some(Action::Patch { patch, .. }) = prepare_action(&claim) else {
            panic!("a patch")
        };
        assert_eq!(patch["metadata"]["finalizers"][0], TERMINATION_FINALIZER);
        assert_eq!(patch["metadata"]["labels"][label], "default");
        claim.metadata.finalizers = Some(vec![TERMINATION_FINALIZER.to_owned()]);
        assert!(
            prepare_action(&claim).is_some(),
            "a claim made by hand has no label"
        );
        claim
            .metadata
            .labels
            .get_or_insert_default()
            .insert(label.to_owned(), "default".to_owned());
        assert_eq!(prepare_action(&claim), None);
        claim.set_true(REGISTERED, at(0));
        claim.set_true(INITIALIZED, at(0));
        let plan = advance(&claim, &[Arc::new(node(true, &[]))], None, &[], at(1));
        let Action::Patch { target, patch, .. } = &plan.actions[0] else {
            panic!("a patch")
        };
        assert_eq!(
            (target.kind, &patch["metadata"]["labels"][label]),
            (ObjectKind::Node, &"default".into())
        );
    }

    #[test]
    fn conditions_are_written_under_a_lock_because_a_merge_patch_replaces_the_list() {
        let mut claim = claim();
        claim.metadata.resource_version = Some("3".to_owned());
        let plan = advance(&claim, &[], None, &[], at(1));
        let Action::Patch { resource_version, .. } = &plan.actions[0] else {
            panic!("a patch")
        };
        assert_eq!(resource_version.as_deref(), Some("3"));
    }

    #[test]
    fn p_161_labels_of_the_claim_and_annotations_of_the_cloud_win() {
        let mut instance = NodeClaim::new("c", NodeClaimSpec::default());
        instance.metadata.labels = Some(
            [
                ("team".to_owned(), "cloud".to_owned()),
                ("zone".to_owned(), "z".to_owned()),
            ]
            .into(),
        );
        instance.metadata.annotations = Some([("x".to_owned(), "cloud".to_owned())].into());
        let mut before = claim();
        before.metadata.annotations = Some([("x".to_owned(), "claim".to_owned())].into());
        let after = launched(&before, &instance, at(5));
        assert_eq!(
            (after.label("team"), after.label("zone"), after.annotation("x")),
            (Some("a"), Some("z"), Some("cloud"))
        );
    }

    #[test]
    fn p_164_no_node_and_many_nodes() {
        assert_eq!(
            status_of(&advance(&claim(), &[], None, &[], at(1)), REGISTERED),
            ("Unknown".into(), "NodeNotFound".into())
        );
        let two = [Arc::new(node(true, &[])), Arc::new(node(true, &[]))];
        assert_eq!(
            status_of(&advance(&claim(), &two, None, &[], at(1)), REGISTERED),
            ("False".into(), "MultipleNodesFound".into())
        );
    }

    #[test]
    fn p_165_p_166_registration_writes_the_node_in_one_locked_patch() {
        let plan = advance(
            &claim(),
            &[Arc::new(node(false, &[labels::unregistered_taint()]))],
            None,
            &[],
            at(1),
        );
        let Action::Patch {
            target,
            patch,
            resource_version,
            ..
        } = &plan.actions[0]
        else {
            panic!("the Node first")
        };
        assert_eq!(
            (target.kind, resource_version.as_deref()),
            (ObjectKind::Node, Some("7"))
        );
        assert_eq!(patch["metadata"]["labels"]["team"], "a");
        assert_eq!(patch["metadata"]["labels"][labels::REGISTERED], "true");
        assert_eq!(patch["metadata"]["finalizers"][0], TERMINATION_FINALIZER);
        assert!(
            patch["spec"]["taints"].as_array().is_none_or(Vec::is_empty),
            "the unregistered taint goes"
        );
        assert_eq!(plan.report, [Progress::Registered { node: "n".to_owned() }]);
        assert_eq!(
            status_of(&plan, INITIALIZED),
            ("Unknown".into(), "NodeNotReady".into())
        );
        assert!(plan.events.is_empty());
        let untainted = advance(&claim(), &[Arc::new(node(false, &[]))], None, &[], at(1));
        assert_eq!(untainted.events[0].reason, "UnregisteredTaintMissing");
    }

    #[test]
    fn p_167_a_pending_hook_keeps_the_taint_and_is_named_but_the_node_is_synced() {
        let nodes = [Arc::new(node(true, &[labels::unregistered_taint()]))];
        let pending = ["disks".to_owned(), "network".to_owned()];
        let plan = advance(&claim(), &nodes, None, &pending, at(1));
        assert_eq!(
            status_of(&plan, REGISTERED),
            ("Unknown".into(), "RegistrationHookPending".into())
        );
        let Action::Patch { target, patch, .. } = &plan.actions[0] else {
            panic!("the Node first")
        };
        assert_eq!(target.kind, ObjectKind::Node);
        assert_eq!(patch["metadata"]["labels"]["team"], "a");
        assert_eq!(patch["metadata"]["labels"].get(labels::REGISTERED), None);
        assert!(
            patch["spec"].get("taints").is_none(),
            "the unregistered taint stays"
        );
        let text = format!("{:?}", plan.actions);
        assert!(text.contains("\"disks, network\""), "{text}");
        assert!(plan.report.is_empty());
        let done = advance(&claim(), &nodes, None, &[], at(1));
        assert_eq!(status_of(&done, REGISTERED).0, "True");
    }

    #[test]
    fn p_168_gates_in_order() {
        let startup = Taint {
            key: "agent".into(),
            effect: "NoSchedule".into(),
            value: None,
            time_added: None,
        };
        let not_ready = Taint {
            key: "node.kubernetes.io/not-ready".into(),
            effect: "NoSchedule".into(),
            value: None,
            time_added: None,
        };
        let mut claim = claim();
        claim.set_true(REGISTERED, at(0));
        claim.spec.startup_taints = vec![startup.clone()];
        claim.spec.resources.requests = [(
            "example.com/gpu".to_owned(),
            k8s_openapi::apimachinery::pkg::api::resource::Quantity("1".into()),
        )]
        .into();
        for (node, reason) in [
            (node(false, &[]), "NodeNotReady"),
            (node(true, &[startup]), "StartupTaintsExist"),
            (node(true, &[not_ready]), "KnownEphemeralTaintsExist"),
            (node(true, &[]), "ResourceNotRegistered"),
        ] {
            assert_eq!(
                status_of(&advance(&claim, &[Arc::new(node)], None, &[], at(1)), INITIALIZED),
                ("Unknown".into(), reason.into())
            );
        }
        claim.spec.resources.requests.clear();
        let done = advance(&claim, &[Arc::new(node(true, &[]))], None, &[], at(1));
        assert_eq!(status_of(&done, INITIALIZED).0, "True");
        assert_eq!(done.report, [Progress::Initialized { node: "n".to_owned() }]);
    }

    #[test]
    fn p_169_d_263_d_264_w_48_b_57_timeouts_count_from_the_last_transition() {
        let mut fresh = NodeClaim::new("c", NodeClaimSpec::default());
        fresh.metadata.creation_timestamp = Some(Time(at(0)));
        fresh.initialize_conditions(at(0));
        assert_eq!(
            liveness(&fresh, at(299)),
            Liveness::Within(Duration::from_secs(1))
        );
        // One answer, also when the time for registration is over as well: a NodeClaim is counted once.
        for seconds in [300, 900, 5000] {
            assert_eq!(
                liveness(&fresh, at(seconds)),
                Liveness::TimedOut("launch_timeout")
            );
        }
        let mut launched = claim();
        launched.initialize_conditions(at(0));
        assert_eq!(
            liveness(&launched, at(899)),
            Liveness::Within(Duration::from_secs(1))
        );
        assert_eq!(
            liveness(&launched, at(900)),
            Liveness::TimedOut("registration_timeout")
        );
        launched.set_true(REGISTERED, at(10));
        assert_eq!(liveness(&launched, at(5000)), Liveness::Fine);
    }

    #[test]
    fn d_245_d_246_p_174_expiry() {
        let mut claim = claim();
        claim.spec.expire_after = "1h".parse().unwrap();
        assert_eq!(until_expiry(&claim, at(600)), Some(Duration::from_secs(3000)));
        assert_eq!(until_expiry(&claim, at(4000)), Some(Duration::ZERO));
        claim.spec.expire_after = "Never".parse().unwrap();
        assert_eq!(until_expiry(&claim, at(4000)), None);
    }
}
