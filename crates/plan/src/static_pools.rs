//! NodePools with a fixed number of nodes (D-353…D-363): how many NodeClaims are missing, and which ones are too many.
//!
//! Owns the arithmetic and the order. Who is in a command is told to it; it counts nothing itself and writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned, READY};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodePool, Quantity, WireForm, labels};
use spokeshave_model::pod::{self, DoNotDisrupt};
use spokeshave_model::{InstanceType, Pod, Requirement, Requirements};

/// Shares are counted in parts of a million.
const WHOLE: i128 = 1_000_000;

/// What clouds put before their domain in the keys of labels: `karpenter.k8s.aws`, `topology.k8s.aws`, `kubernetes.azure.com`.
const CLOUD_SUBDOMAINS: [&str; 3] = ["karpenter.", "topology.", "kubernetes."];

/// How many NodeClaims of a NodePool are in which state (D-355).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Neither in a command nor being deleted.
    pub active: usize,
    /// Part of a started command, not deleted yet.
    pub pending_disruption: usize,
    /// Being deleted.
    pub deleting: usize,
}

/// D-355. `in_command` tells whether a provider ID belongs to a started command.
#[must_use]
pub fn count<'a>(
    claims: impl IntoIterator<Item = &'a NodeClaim>,
    in_command: impl Fn(&str) -> bool,
) -> Counts {
    let mut counts = Counts::default();
    for claim in claims {
        let part = if claim.is_deleting() {
            &mut counts.deleting
        } else if claim.provider_id().is_some_and(&in_command) {
            &mut counts.pending_disruption
        } else {
            &mut counts.active
        };
        *part += 1;
    }
    counts
}

/// How many NodeClaims are to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleUp {
    /// None: there are enough, or the NodePool is not ready or going (D-362).
    None,
    /// None, because `limits.nodes` is reached.
    AtLimit,
    /// So many.
    Create(usize),
}

/// D-140, D-356: replicas − active, as far as `limits.nodes` has room.
#[must_use]
pub fn scale_up(pool: &NodePool, counts: Counts) -> ScaleUp {
    let Some(replicas) = replicas(pool).filter(|_| pool.is_true(READY) && !pool.is_deleting()) else {
        return ScaleUp::None;
    };
    if counts.active + counts.pending_disruption >= replicas {
        return ScaleUp::None;
    }
    let all = counts.active + counts.pending_disruption + counts.deleting;
    let headroom = node_limit(pool).map_or(usize::MAX, |limit| limit.saturating_sub(all));
    match replicas.saturating_sub(counts.active).min(headroom) {
        0 => ScaleUp::AtLimit,
        missing => ScaleUp::Create(missing),
    }
}

fn replicas(pool: &NodePool) -> Option<usize> {
    usize::try_from(pool.spec.replicas?.max(0)).ok()
}

/// `limits.nodes`; an amount that is not a quantity permits nothing.
fn node_limit(pool: &NodePool) -> Option<usize> {
    let wire = pool.spec.limits.as_ref()?.get("nodes")?;
    let limit = Quantity::from_wire(wire).map_or(0, |quantity| quantity.to_units().max(0));
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// D-356: a NodeClaim straight from the template, without instance types and without requests. `types` are those that the cloud offers to the NodePool; none
/// where they are not known.
#[must_use]
pub fn template_claim(pool: &NodePool, types: &[InstanceType]) -> NodeClaim {
    let requirements = template_requirements(pool);
    // P-068: no cloud sets a custom label, and a node without one that its NodePool requires has drifted (D-227).
    let mut own = requirements.custom_labels(&cloud_keys(pool, types, &requirements));
    own.extend(template_labels(pool));
    crate::node_claim::of_template(pool, own, &requirements)
}

/// The required keys whose labels a cloud sets at launch: those that its instance types declare, as for other NodePools. No value is chosen for them: a
/// NodeClaim's own label would win over that of its instance (P-161).
fn cloud_keys(pool: &NodePool, types: &[InstanceType], requirements: &Requirements) -> BTreeSet<String> {
    let group = &pool.spec.template.spec.node_class_ref.group;
    let is_declared = |key: &str| types.iter().any(|one| declares(one, key));
    let is_clouds = |key: &&str| {
        let is_other = || match types {
            [] => is_of_cloud(key, group),
            _ => is_declared(key),
        };
        labels::WELL_KNOWN.contains(key) || is_other()
    };
    let required = requirements.iter().map(Requirement::key);
    required.filter(is_clouds).map(ToOwned::to_owned).collect()
}

fn declares(instance_type: &InstanceType, key: &str) -> bool {
    let offerings = instance_type.offerings.iter();
    let mut declared = offerings
        .map(|offering| &offering.requirements)
        .chain([&instance_type.requirements]);
    declared.any(|requirements| requirements.contains(key))
}

/// Whether a key seems to belong to the cloud whose node classes are of this API group: what is assumed while its instance types are not known.
fn is_of_cloud(key: &str, group: &str) -> bool {
    let domain = labels::domain(key);
    let base = group.strip_prefix("karpenter.").unwrap_or(group);
    let beside = domain
        .strip_suffix(base)
        .is_some_and(|rest| CLOUD_SUBDOMAINS.contains(&rest));
    beside || (!domain.is_empty() && domain == group)
}

/// The labels that a NodeClaim has from its template.
fn template_labels(pool: &NodePool) -> BTreeMap<String, String> {
    let template = &pool.spec.template;
    let class = &template.spec.node_class_ref;
    let mut own = template.metadata.labels.clone();
    own.insert(labels::NODE_POOL.to_owned(), pool.name().to_owned());
    own.insert(class.label_key(), class.name.clone());
    own
}

/// The requirements of such a NodeClaim.
pub(crate) fn template_requirements(pool: &NodePool) -> Requirements {
    let template = &pool.spec.template.spec;
    let mut requirements = Requirements::from_api(&template.requirements).unwrap_or_default();
    requirements.add_all(&Requirements::from_labels(&template_labels(pool)));
    requirements
}

/// What commands do to nodes that they hold. As long as a command holds a node, the node and what comes instead of it count as one (D-357).
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Provider IDs of the nodes that go.
    going: BTreeSet<String>,
    /// Names of the NodeClaims that come instead.
    coming: BTreeSet<String>,
}

impl Held {
    /// Takes in what a command holds: nothing, once its nodes are deleted or stay.
    pub fn add(&mut self, command: &Disruption) {
        if command.holds_nodes() {
            let (nodes, replacements) = (command.spec.nodes.iter(), command.spec.replacements.iter());
            self.going.extend(nodes.map(|node| node.provider_id.clone()));
            self.coming.extend(replacements.map(|one| one.node_claim.clone()));
        }
    }

    fn is_going(&self, claim: &NodeClaim) -> bool {
        claim.provider_id().is_some_and(|id| self.going.contains(id))
    }
}

/// D-357, D-358: the NodeClaims that are too many, in the order in which they go. `claims` are all those of the pool, `pods` the pods on a claim's node.
///
/// A node that is being replaced stands for its replacement too, and among used nodes with as much protection goes first: its pods have to move anyway. Its
/// replacement is counted, and goes if it is too many, once the command has let go of the node: one that is deleted before looks like a launch that has failed.
#[must_use]
pub fn scale_down(
    pool: &NodePool,
    claims: &[Arc<NodeClaim>],
    held: &Held,
    pods: impl Fn(&NodeClaim) -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> Vec<Arc<NodeClaim>> {
    let Some(replicas) = replicas(pool).filter(|_| !pool.is_deleting()) else {
        return Vec::new();
    };
    let counts = |claim: &&Arc<NodeClaim>| !claim.is_deleting() && !held.coming.contains(claim.name());
    let counted: Vec<&Arc<NodeClaim>> = claims.iter().filter(counts).collect();
    let excess = counted.len().saturating_sub(replicas);
    if excess == 0 {
        return Vec::new();
    }
    let mut ranked: Vec<(Rank, &Arc<NodeClaim>)> = counted
        .into_iter()
        .map(|claim| (rank(claim, !held.is_going(claim), &pods(claim), now), claim))
        .collect();
    ranked.sort_by(|(left, one), (right, other)| left.cmp(right).then_with(|| one.name().cmp(other.name())));
    ranked
        .into_iter()
        .take(excess)
        .map(|(_, claim)| claim.clone())
        .collect()
}

/// Whom it hurts least comes first, field by field. `would_stay` says that no command takes the node anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    NotLaunched,
    Empty {
        would_stay: bool,
    },
    Used {
        is_protected: bool,
        would_stay: bool,
        cost: i128,
    },
}

fn rank(claim: &NodeClaim, would_stay: bool, pods: &[Arc<Pod>], now: Timestamp) -> Rank {
    if claim.provider_id().is_none() {
        return Rank::NotLaunched;
    }
    let alive = || pods.iter().filter(|pod| pod::is_active(pod));
    let is_protected = alive().any(|pod| DoNotDisrupt::of(pod).is_active(now));
    if !is_protected && alive().all(|pod| pod::is_daemon(pod) || pod::is_mirror(pod)) {
        return Rank::Empty { would_stay };
    }
    // D-056: those of DaemonSets and those that cost less than nothing count, too.
    let cost: i128 = alive().map(|pod| i128::from(pod::eviction_cost(pod))).sum();
    Rank::Used {
        is_protected,
        would_stay,
        cost: cost * remaining_lifetime(claim, now) / WHOLE,
    }
}

/// D-055: the share of its life that a claim has left, in millionths; all of it when it never expires.
fn remaining_lifetime(claim: &NodeClaim, now: Timestamp) -> i128 {
    let left = crate::lifecycle::until_expiry(claim, now);
    match (left, claim.spec.expire_after.duration()) {
        (Some(left), Some(whole)) if !whole.is_zero() => {
            let millis =
                |duration: std::time::Duration| i128::try_from(duration.as_millis()).unwrap_or(i128::MAX);
            (millis(left) * WHOLE / millis(whole).max(1)).min(WHOLE)
        }
        _ => WHOLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drift;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use spokeshave_api::conditions::LAUNCHED;
    use spokeshave_api::disruption::{DisruptedNode, Replacement};
    use spokeshave_api::{NodeClaimSpec, NodePoolSpec};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn pool(replicas: i64, limit: Option<&str>) -> NodePool {
        let mut spec = serde_json::json!({
            "replicas": replicas,
            "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [{"key": labels::ZONE, "operator": "In", "values": ["z"]}],
                },
            },
        });
        if let Some(limit) = limit {
            spec["limits"] = serde_json::json!({"nodes": limit});
        }
        let mut pool = NodePool::new("fixed", serde_json::from_value::<NodePoolSpec>(spec).unwrap());
        pool.metadata.uid = Some("uid-p".to_owned());
        for condition in NodePool::DEPENDENTS {
            pool.set_true(condition, at(0));
        }
        pool
    }

    fn counts(active: usize, pending_disruption: usize, deleting: usize) -> Counts {
        Counts {
            active,
            pending_disruption,
            deleting,
        }
    }

    #[test]
    fn d_356_what_is_missing_is_made_within_the_limit() {
        for (replicas, limit, now, wanted) in [
            (3, None, counts(0, 0, 0), ScaleUp::Create(3)),
            (3, None, counts(1, 0, 5), ScaleUp::Create(2)),
            (3, None, counts(2, 1, 0), ScaleUp::None),
            (3, None, counts(1, 1, 0), ScaleUp::Create(2)),
            (3, Some("4"), counts(1, 0, 2), ScaleUp::Create(1)),
            (3, Some("3"), counts(1, 0, 2), ScaleUp::AtLimit),
            (0, None, counts(0, 0, 0), ScaleUp::None),
            (2, None, counts(5, 0, 0), ScaleUp::None),
        ] {
            assert_eq!(
                scale_up(&pool(replicas, limit), now),
                wanted,
                "{replicas} {limit:?} {now:?}"
            );
        }
    }

    #[test]
    fn d_356_d_362_only_a_ready_pool_that_stays_is_scaled() {
        let mut unready = pool(3, None);
        unready.set(
            READY,
            spokeshave_api::conditions::Status::False,
            "No",
            "no",
            at(0),
        );
        assert_eq!(scale_up(&unready, counts(0, 0, 0)), ScaleUp::None);
        let mut going = pool(3, None);
        going.metadata.deletion_timestamp = Some(Time(at(0)));
        assert_eq!(scale_up(&going, counts(0, 0, 0)), ScaleUp::None);
        let active = [Arc::new(NodeClaim::new("a", NodeClaimSpec::default()))];
        going.spec.replicas = Some(0);
        assert!(scale_down(&going, &active, &Held::default(), |_| Vec::new(), at(0)).is_empty());
    }

    #[test]
    fn d_355_three_states() {
        let claim = |name: &str, id: &str, going: bool| {
            let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
            claim.status.get_or_insert_default().provider_id = Some(id.to_owned());
            claim.metadata.deletion_timestamp = going.then(|| Time(at(0)));
            claim
        };
        let claims = [
            claim("a", "1", false),
            claim("b", "2", false),
            claim("c", "3", true),
        ];
        assert_eq!(count(&claims, |id| id == "2"), counts(1, 1, 1));
    }

    #[test]
    fn d_356_the_claim_comes_straight_from_the_template() {
        let claim = template_claim(&pool(1, None), &[]);
        assert_eq!(claim.metadata.generate_name.as_deref(), Some("fixed-"));
        assert_eq!(claim.label("team"), Some("a"));
        assert_eq!(claim.node_pool(), Some("fixed"));
        assert_eq!(claim.label("karpenter.kwok.sh/kwoknodeclass"), Some("default"));
        assert!(claim.spec.resources.requests.is_empty());
        let keys: Vec<&str> = claim
            .spec
            .requirements
            .iter()
            .map(|requirement| requirement.key.as_str())
            .collect();
        assert!(keys.contains(&labels::ZONE) && !keys.contains(&labels::INSTANCE_TYPE));
        assert_eq!(claim.metadata.owner_references.unwrap()[0].uid, "uid-p");
    }

    #[test]
    fn p_068_d_227_a_claim_has_the_custom_labels_that_its_pool_requires_and_does_not_drift() {
        let of = |requirement: serde_json::Value| {
            let mut pool = pool(1, None);
            pool.spec.template.spec.requirements =
                serde_json::from_value(serde_json::json!([requirement])).unwrap();
            let mut claim = template_claim(&pool, &[]);
            claim.set_true(LAUNCHED, at(0));
            (
                drift::check(&claim, Some(&pool), Some(&[]), at(60)).unwrap(),
                claim,
            )
        };
        for (requirement, value) in [
            (
                serde_json::json!({"key": "rack", "operator": "In", "values": ["b"]}),
                "b",
            ),
            (
                serde_json::json!({"key": "rack", "operator": "In", "values": ["d", "c"]}),
                "c",
            ),
            (serde_json::json!({"key": "rack", "operator": "Exists"}), "0"),
            (
                serde_json::json!({"key": "rack", "operator": "Gt", "values": ["4"]}),
                "5",
            ),
        ] {
            let (finding, claim) = of(requirement.clone());
            assert_eq!(finding, drift::Finding::AskCloud, "{requirement}");
            assert_eq!(claim.label("rack"), Some(value), "{requirement}");
        }
        // The cloud says what these are.
        for key in [
            labels::ZONE,
            "karpenter.kwok.sh/instance-size",
            "topology.kwok.sh/zone-id",
        ] {
            let values = serde_json::json!({"key": key, "operator": "In", "values": ["x", "y"]});
            assert_eq!(of(values).1.label(key), None, "{key}");
        }
    }

    // A provider of another process may have labels of any domain, and a custom label may be of the provider's.
    #[test]
    fn p_068_keys_of_a_cloud_are_those_that_its_instance_types_declare() {
        let mut pool = pool(1, None);
        let both = ["machines.example.net/size", "karpenter.kwok.sh/team"];
        let required =
            both.map(|key| serde_json::json!({"key": key, "operator": "In", "values": ["x", "y"]}));
        pool.spec.template.spec.requirements = serde_json::from_value(required.to_vec().into()).unwrap();
        let size = Requirement::is("machines.example.net/size", "y");
        let sized = InstanceType {
            requirements: [size].into_iter().collect(),
            ..InstanceType::default()
        };
        let claim = template_claim(&pool, &[sized]);
        assert_eq!(both.map(|key| claim.label(key)), [None, Some("x")]);
        // As long as nobody knows the types, the domain has to do.
        let unknown = template_claim(&pool, &[]);
        assert_eq!(both.map(|key| unknown.label(key)), [Some("x"), None]);
    }

    #[test]
    fn p_068_keys_of_a_cloud_are_told_by_their_domain() {
        for (key, group, expected) in [
            ("karpenter.k8s.aws/instance-family", "karpenter.k8s.aws", true),
            ("topology.k8s.aws/zone-id", "karpenter.k8s.aws", true),
            ("kubernetes.azure.com/os-sku", "karpenter.azure.com", true),
            ("clouds.example.com/size", "clouds.example.com", true),
            ("example.com/team", "karpenter.example.com", false),
            ("team.example.com/name", "karpenter.example.com", false),
            ("rack", "karpenter.k8s.aws", false),
            ("rack", "", false),
        ] {
            assert_eq!(is_of_cloud(key, group), expected, "{key} {group}");
        }
    }

    #[test]
    fn d_055_d_056_the_cost_of_pods_counts_less_the_sooner_the_node_expires() {
        let claim = |expire_after: &str| {
            let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
            claim.metadata.creation_timestamp = Some(Time(at(0)));
            claim.status.get_or_insert_default().provider_id = Some("id".to_owned());
            claim.spec.expire_after = serde_json::from_value(expire_after.into()).unwrap();
            claim
        };
        let left = |expire_after: &str, now| remaining_lifetime(&claim(expire_after), at(now));
        assert_eq!(left("Never", 1_000_000), WHOLE);
        assert_eq!(left("1h", 0), WHOLE);
        assert_eq!(left("1h", 900), WHOLE * 3 / 4);
        assert_eq!(left("1h", 3_600), 0);
        assert_eq!(left("1h", 9_999), 0, "never below nothing");
        assert_eq!(left("1h", -50), WHOLE, "nor above the whole");
        // Daemon pods and negative costs count.
        let pod = |deletion_cost: &str| {
            let value = serde_json::json!({"metadata": {"name": "p", "annotations": {"controller.kubernetes.io/pod-deletion-cost": deletion_cost}},
                "spec": {"nodeName": "n", "containers": []}});
            Arc::new(serde_json::from_value::<Pod>(value).unwrap())
        };
        let used = |pods: &[Arc<Pod>]| match rank(&claim("Never"), true, pods, at(0)) {
            Rank::Used { cost, .. } => cost,
            other => panic!("{other:?}"),
        };
        let (one, cheap) = (used(&[pod("0")]), used(&[pod("0"), pod("-268435456")]));
        assert!(one > cheap, "{one} {cheap}");
    }

    #[test]
    fn d_358_p_184_those_whom_it_hurts_least_go_first() {
        let claim = |name: &str, launched: bool| {
            let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
            claim.status.get_or_insert_default().provider_id = launched.then(|| format!("id-{name}"));
            Arc::new(claim)
        };
        let pod = |value: serde_json::Value| Arc::new(serde_json::from_value::<Pod>(value).unwrap());
        let plain = |priority: i32| {
            pod(
                serde_json::json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [], "priority": priority}}),
            )
        };
        let protected = pod(
            serde_json::json!({"metadata": {"name": "p", "annotations": {labels::DO_NOT_DISRUPT: "true"}}, "spec": {"nodeName": "n", "containers": []}}),
        );
        let daemon = pod(
            serde_json::json!({"metadata": {"name": "d", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]}, "spec": {"nodeName": "n", "containers": []}}),
        );
        let active = [
            claim("a-protected", true),
            claim("b-dear", true),
            claim("c-cheap", true),
            claim("d-daemons", true),
            claim("e-young", false),
        ];
        let pods = |claim: &NodeClaim| match claim.name() {
            "a-protected" => vec![protected.clone()],
            "b-dear" => vec![plain(1_000_000_000)],
            "c-cheap" => vec![plain(0)],
            "d-daemons" => vec![daemon.clone()],
            _ => Vec::new(),
        };
        let order = |replicas| -> Vec<String> {
            scale_down(&pool(replicas, None), &active, &Held::default(), pods, at(0))
                .iter()
                .map(|claim| claim.name().to_owned())
                .collect()
        };
        assert_eq!(
            order(0),
            ["e-young", "d-daemons", "c-cheap", "b-dear", "a-protected"]
        );
        assert_eq!(order(3), ["e-young", "d-daemons"]);
        assert!(order(5).is_empty());
    }

    /// A command of a static NodePool that replaces a node by another.
    fn replacing(provider_id: &str, replacement: &str, phase: &str) -> Disruption {
        let mut command: Disruption = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "command"},
            "spec": {
                "method": "StaticDrift", "reason": "Drifted", "decision": "Replace", "decidedAt": "2023-11-14T22:13:20.000000Z", "nodes": [],
                "priceBefore": "1", "priceAfter": "1", "savings": "0", "evictions": 1, "nodeSummary": "n", "replacementSummary": "r",
            },
            "status": {"phase": phase},
        }))
        .unwrap();
        command.spec.nodes.push(DisruptedNode {
            provider_id: provider_id.to_owned(),
            ..DisruptedNode::default()
        });
        command.spec.replacements.push(Replacement {
            node_claim: replacement.to_owned(),
            ..Replacement::default()
        });
        command
    }

    #[test]
    fn d_357_d_358_a_node_that_is_replaced_counts_once_with_its_replacement_and_goes_before_others() {
        let claim = |name: &str| {
            let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
            claim.status.get_or_insert_default().provider_id = (name != "new").then(|| format!("id-{name}"));
            Arc::new(claim)
        };
        let claims = ["a", "b", "drifted", "empty", "new"].map(claim);
        let pods = |claim: &NodeClaim| {
            let priority = if claim.name() == "drifted" { 1_000 } else { 0 };
            let value = serde_json::json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [], "priority": priority}});
            match claim.name() {
                "empty" | "new" => Vec::new(),
                _ => vec![Arc::new(serde_json::from_value::<Pod>(value).unwrap())],
            }
        };
        let order = |replicas, phase| -> Vec<String> {
            let mut held = Held::default();
            held.add(&replacing("id-drifted", "new", phase));
            scale_down(&pool(replicas, None), &claims, &held, pods, at(0))
                .iter()
                .map(|claim| claim.name().to_owned())
                .collect()
        };
        for phase in ["Starting", "Replacing", "Deleting"] {
            assert!(order(4, phase).is_empty(), "{phase}");
            assert_eq!(order(3, phase), ["empty"], "{phase}: no pod has to move");
            assert_eq!(order(2, phase), ["empty", "drifted"], "{phase}: the dearest");
            assert_eq!(order(0, phase), ["empty", "drifted", "a", "b"], "{phase}");
        }
        for phase in ["Draining", "RolledBack"] {
            assert_eq!(order(4, phase), ["new"], "{phase}: the command holds nothing");
        }
    }
}
