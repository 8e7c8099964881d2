//! The effect of a takeover on NodeClaims and Nodes: kubelet settings, hash annotations, drift, expiry, incomplete commands, terminations, foreign instances.

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED, LAUNCHED};
use spokeshave_api::{NodeClaim, NodePool, hash, labels};
use spokeshave_model::ClusterState;

use super::{Successor, TakeOver, some};
use crate::doctor::{Finding, Level, expired};
use crate::expired::Expired;
use crate::replicas::is_looked_after;
use spokeshave_plan::drift;
use spokeshave_plan::report::count;

/// Where Karpenter 1.0 keeps what NodePools of v1beta1 said of the kubelet. It launches with that, whatever the NodeClass says; later versions refuse to start.
const KUBELET: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";

pub(super) fn look(state: &ClusterState, successor: &Successor, now: Timestamp, take_over: &mut TakeOver) {
    kubelets(state, take_over);
    stamps(state, take_over);
    drifts(state, now, take_over);
    ages(state, successor, now, take_over);
    half_done(state, take_over);
    ending(state, take_over);
    launching(state, take_over);
    strangers(state, successor, take_over);
    instances_without_record(state, successor, take_over);
}

fn names<'a>(claims: impl Iterator<Item = &'a NodeClaim>) -> Vec<String> {
    let mut names: Vec<String> = claims.map(|claim| claim.name().to_owned()).collect();
    names.sort();
    names
}

/// Settings that nobody reads once Karpenter 1.0 is gone.
fn kubelets(state: &ClusterState, take_over: &mut TakeOver) {
    let pools = state.node_pools.iter();
    let pools = pools.filter(|pool| pool.annotation(KUBELET).is_some());
    let mut pools: Vec<String> = pools.map(|pool| pool.name().to_owned()).collect();
    pools.sort();
    if !pools.is_empty() {
        take_over.findings.push(
            Finding::new(
                Level::Error,
                "kubelet-in-annotation",
                format!("NodePool {}", some(&pools)),
                format!(
                    "{} with kubelet settings in an annotation, which this operator does not read: new nodes would get those of the NodeClass alone",
                    count(pools.len(), "NodePool")
                ),
                format!("annotation {KUBELET}, with which Karpenter 1.0 launches"),
            )
            .field("metadata.annotations")
            .suggest(format!(
                "spokeshave convert --live > kubelets-in-classes.yaml, apply what it writes, and then kubectl annotate nodepools --all {KUBELET}-, \
                 because applying does not take the annotation away"
            )),
        );
    }
}

/// D-224, D-225: another version of the hash algorithm is no drift.
fn stamps(state: &ClusterState, take_over: &mut TakeOver) {
    let other = |version: Option<&str>| version.is_some_and(|version| version != hash::VERSION);
    let claims = state
        .node_claims
        .iter()
        .filter(|claim| other(claim.annotation(labels::NODE_POOL_HASH_VERSION)));
    let pools = state
        .node_pools
        .iter()
        .filter(|pool| other(pool.annotation(labels::NODE_POOL_HASH_VERSION)));
    let (claims, pools) = (claims.count(), pools.count());
    take_over.would_stamp = claims + pools;
    if take_over.would_stamp > 0 {
        take_over.findings.push(Finding::new(
            Level::Note,
            "hashes-stamped",
            format!("{} and {}", count(pools, "NodePool"), count(claims, "NodeClaim")),
            "get hash annotations of this operator's version, which drifts nothing".to_owned(),
            format!(
                "{} differs from {}; hashes of different versions are not compared",
                labels::NODE_POOL_HASH_VERSION,
                hash::VERSION
            ),
        ));
    }
}

/// D-212…D-232 as the operator would see them: with equal versions a hash counts, and requirements always do.
fn drifts(state: &ClusterState, now: Timestamp, take_over: &mut TakeOver) {
    let (mut fresh, mut known) = (Vec::new(), Vec::new());
    for claim in &state.node_claims {
        let pool: Option<&NodePool> = state
            .node_pools
            .iter()
            .map(|pool| &**pool)
            .find(|pool| claim.node_pool() == Some(pool.name()));
        let types = pool.and_then(|pool| state.instance_types.get(pool.name()));
        let types = types.and_then(|types| types.as_ref().ok()).map(|types| &**types);
        let already = claim.is_true(DRIFTED);
        match drift::check(claim, pool, types, now) {
            Ok(drift::Finding::Drifted(reason)) if !already => {
                fresh.push(format!("{} ({reason})", claim.name()));
            }
            _ if already => known.push(claim.name().to_owned()),
            _ => {}
        }
    }
    take_over.would_drift = fresh.len();
    if !fresh.is_empty() {
        take_over.findings.push(
            Finding::new(
                Level::Warning,
                "would-drift",
                format!("NodeClaim {}", some(&fresh)),
                format!(
                    "{} would become drifted and be replaced within budgets",
                    count(fresh.len(), "NodeClaim")
                ),
                "labels and hashes of the NodeClaims against templates of their NodePools and the catalogue"
                    .to_owned(),
            )
            .suggest("close disruption first: spec.disruption.budgets: [{nodes: \"0\", reasons: [Drifted]}]"),
        );
    }
    if !known.is_empty() {
        take_over.findings.push(Finding::new(
            Level::Note,
            "drifted",
            format!("NodeClaim {}", some(&known)),
            format!(
                "{} drifted already, and would be replaced within budgets, as now",
                count(known.len(), "NodeClaim")
            ),
            "condition Drifted".to_owned(),
        ));
    }
}

/// D-247: what is too old goes at once, all of it together.
fn ages(state: &ClusterState, successor: &Successor, now: Timestamp, take_over: &mut TakeOver) {
    let mut old = Expired::of(state, now);
    old.claims.retain(|claim| is_supported(successor, claim));
    take_over.would_expire = old.claims.len();
    take_over.findings.extend(expired(&old));
}

/// D-070, D-071: a command that its operator held in memory only.
fn half_done(state: &ClusterState, take_over: &mut TakeOver) {
    let mut tainted: Vec<String> = state
        .nodes
        .iter()
        .filter(|node| node.metadata.deletion_timestamp.is_none())
        .filter(|node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            taints.is_some_and(|taints| {
                taints
                    .iter()
                    .any(|taint| taint.key == labels::DISRUPTED_TAINT_KEY)
            })
        })
        .filter(|node| {
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            let claim = state
                .node_claims
                .iter()
                .find(|claim| claim.provider_id() == id && id.is_some());
            claim.is_some_and(|claim| !claim.is_deleting())
        })
        .filter_map(|node| node.metadata.name.clone())
        .collect();
    tainted.sort();
    if !tainted.is_empty() {
        take_over.findings.push(Finding::new(
            Level::Note,
            "half-done-command",
            format!("Node {}", some(&tainted)),
            format!(
                "{} in a command that was not finished: the taint is taken off, and it is decided again",
                count(tainted.len(), "node")
            ),
            format!(
                "taint {}, and the NodeClaim is not being deleted",
                labels::DISRUPTED_TAINT_KEY
            ),
        ));
    }
}

fn ending(state: &ClusterState, take_over: &mut TakeOver) {
    let ending = names(
        state
            .node_claims
            .iter()
            .map(|claim| &**claim)
            .filter(|claim| claim.is_deleting()),
    );
    if !ending.is_empty() {
        take_over.findings.push(Finding::new(
            Level::Note,
            "ending",
            format!("NodeClaim {}", some(&ending)),
            format!(
                "{} being deleted: the drain goes on, with the deadline that it has",
                count(ending.len(), "NodeClaim")
            ),
            "metadata.deletionTimestamp".to_owned(),
        ));
    }
}

/// An instance may have been launched whose ID was not written down.
fn launching(state: &ClusterState, take_over: &mut TakeOver) {
    let launching =
        names(state.node_claims.iter().map(|claim| &**claim).filter(|claim| {
            !claim.is_deleting() && claim.provider_id().is_none() && !claim.is_true(LAUNCHED)
        }));
    if !launching.is_empty() {
        take_over.findings.push(
            Finding::new(
                Level::Warning,
                "launching",
                format!("NodeClaim {}", some(&launching)),
                format!("{} without an instance: this operator would launch it, beside one that Karpenter may have launched and not written down", count(launching.len(), "NodeClaim")),
                "status.providerID is empty".to_owned(),
            )
            .suggest("wait until they are launched before Karpenter is stopped"),
        );
    }
}

/// Whether the provider looks after a NodeClaim.
fn is_supported(successor: &Successor, claim: &NodeClaim) -> bool {
    is_looked_after(&successor.node_classes, &claim.spec.node_class_ref)
}

/// NodeClaims of another provider, and instances that this one has no record of.
fn strangers(state: &ClusterState, successor: &Successor, take_over: &mut TakeOver) {
    let (own, others): (Vec<&NodeClaim>, Vec<&NodeClaim>) = state
        .node_claims
        .iter()
        .map(|claim| &**claim)
        .partition(|claim| is_supported(successor, claim));
    if !others.is_empty() {
        let kinds: Vec<&str> = successor
            .node_classes
            .iter()
            .map(|(_, kind)| kind.as_str())
            .collect();
        let others = names(others.into_iter());
        take_over.findings.push(
            Finding::new(
                Level::Error,
                "other-provider",
                format!("NodeClaim {}", some(&others)),
                format!(
                    "{} of a NodeClass that the provider does not support: these nodes would be left alone",
                    count(others.len(), "NodeClaim")
                ),
                format!("it supports {}", kinds.join(", ")),
            )
            .field("spec.nodeClassRef"),
        );
    }
    let unknown = |claim: &&NodeClaim| {
        let Some(id) = claim.provider_id() else {
            return false;
        };
        match id.strip_prefix(&successor.provider_id_prefix) {
            None => true,
            Some(rest) => {
                let recorded = successor.recorded_instances.as_ref();
                let mut known = recorded
                    .into_iter()
                    .flatten()
                    .chain(&successor.adoptable_instances);
                recorded.is_some() && !known.any(|one| one == rest)
            }
        }
    };
    let unknown = names(
        own.into_iter()
            .filter(|claim| !claim.is_deleting())
            .filter(unknown),
    );
    if !unknown.is_empty() {
        take_over.findings.push(
            Finding::new(
                Level::Error,
                "unknown-instance",
                format!("NodeClaim {}", some(&unknown)),
                format!("{} whose instance the provider does not know: it would be taken for vanished, and NodeClaim and Node would be deleted", count(unknown.len(), "NodeClaim")),
                format!("provider IDs of this provider begin with {:?}, and its records name its instances", successor.provider_id_prefix),
            )
            .field("status.providerID"),
        );
    }
}

/// Instances of Karpenter's kwok provider, where a Node is the instance.
fn instances_without_record(state: &ClusterState, successor: &Successor, take_over: &mut TakeOver) {
    let Some(recorded) = &successor.recorded_instances else {
        return;
    };
    let is_new = |claim: &&NodeClaim| {
        let id = claim.provider_id();
        let name = id.and_then(|id| id.strip_prefix(&successor.provider_id_prefix));
        name.is_some_and(|name| {
            let has = |names: &[String]| names.iter().any(|one| one == name);
            has(&successor.adoptable_instances) && !has(recorded)
        })
    };
    let found = names(state.node_claims.iter().map(|claim| &**claim).filter(is_new));
    if !found.is_empty() {
        take_over.findings.push(Finding::new(
            Level::Note,
            "instances-recorded",
            format!("NodeClaim {}", some(&found)),
            format!(
                "{} of Karpenter's kwok provider: a record is written for each when the operator first looks",
                count(found.len(), "instance")
            ),
            "the NodeClaim's provider ID names its Node, and there is no KWOKInstance".to_owned(),
        ));
    }
}
