//! A Command as the object that is its whole memory: names, prices, and the replacements as they will be created (D-098).
//!
//! Everything is fixed here, names included, so that whoever carries the command out, and however often, creates the same things once.

use super::budgets::BudgetMapping;
use super::command::{self, Command, CommandNode, Decision, Destination, Method};
use crate::disruption_policy;
use crate::disruption_policy::workloads::moved;
use crate::node_claim::to_node_claim;
use crate::static_pools::template_claim;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use spokeshave_api::disruption::{
    ChargedBudget, DisruptedNode, Disruption, DisruptionDecision, DisruptionMethod, DisruptionSpec,
    Replacement,
};
use spokeshave_api::hash::digest_of;
use spokeshave_api::{NodeClaim, NodePool, TemplateMetadata, labels};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Price, pod};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl From<Method> for DisruptionMethod {
    fn from(method: Method) -> Self {
        match method {
            Method::Emptiness => DisruptionMethod::Emptiness,
            Method::StaticDrift => DisruptionMethod::StaticDrift,
            Method::Drift => DisruptionMethod::Drift,
            Method::StaticExpiry => DisruptionMethod::StaticExpiry,
            Method::Expiry => DisruptionMethod::Expiry,
            Method::MultiNodeConsolidation => DisruptionMethod::MultiNodeConsolidation,
            Method::SingleNodeConsolidation => DisruptionMethod::SingleNodeConsolidation,
        }
    }
}

/// The label value `consolidation_type` of a command that was read back.
pub fn consolidation_type(method: &DisruptionMethod) -> &'static str {
    match method {
        DisruptionMethod::Emptiness => "empty",
        DisruptionMethod::MultiNodeConsolidation => "multi",
        DisruptionMethod::SingleNodeConsolidation => "single",
        _ => "",
    }
}

/// The object of a command that was decided on this Snapshot. `budgets` are as they were before it took from them.
pub fn record(
    snapshot: &Snapshot,
    command: &Command,
    budgets: &[BudgetMapping],
    now: Timestamp,
) -> Disruption {
    let name = name(command, now);
    let replacements: Vec<Replacement> = command
        .replacements
        .iter()
        .enumerate()
        .map(|(index, planned)| replacement(snapshot, command.method, planned, &name, index))
        .collect();
    let spec = DisruptionSpec {
        method: command.method.into(),
        reason: command.method.reason(),
        decision: match command.decision() {
            Decision::Replace => DisruptionDecision::Replace,
            Decision::Delete | Decision::NoOp => DisruptionDecision::Delete,
        },
        decided_at: MicroTime(now),
        nodes: command.nodes.iter().map(|one| node(snapshot, one, now)).collect(),
        price_before: command.price_before.to_string(),
        price_after: command.price_after.to_string(),
        savings: command.savings().to_string(),
        evictions: count(command.evictions()),
        budgets: charged(snapshot, command, budgets),
        node_summary: summary(command.nodes.iter().map(|node| node.node.clone())),
        replacement_summary: summary(command.replacements.iter().map(cheapest_text)),
        replacements,
        destinations: destinations(command),
        extra: BTreeMap::new(),
    };
    Disruption::new(&name, spec)
}

/// Sorts by time, so that a list of them reads as a ledger: `20260101-000512-empty-1c9f3a`.
fn name(command: &Command, now: Timestamp) -> String {
    let mut parts = vec![now.as_nanosecond().to_string()];
    parts.extend(command.nodes.iter().map(|node| node.node_claim_uid.clone()));
    let time = now.strftime("%Y%m%d-%H%M%S");
    let reason = command.method.reason().to_string().to_lowercase();
    format!("{time}-{reason}-{}", token(&parts, 6))
}

/// Letters and digits as API servers append them to generated names, from a fingerprint of the parts.
fn token(parts: &[String], length: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash = digest_of(parts.iter().flat_map(|part| part.bytes().chain([0])));
    // FNV's low bits are weak for short inputs.
    hash ^= hash >> 29;
    let mut text = String::new();
    for _ in 0..length {
        let index = (hash % ALPHABET.len() as u64) as usize;
        text.push(char::from(ALPHABET[index]));
        hash /= ALPHABET.len() as u64;
    }
    text
}

/// The nodes that are to take pods, each once.
fn destinations(command: &Command) -> Vec<String> {
    let nodes = command.moves.iter().filter_map(|step| match &step.to {
        Destination::Node { name, .. } => Some(name.clone()),
        Destination::Replacement(_) => None,
    });
    let nodes: BTreeSet<String> = nodes.collect();
    nodes.into_iter().collect()
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn node(snapshot: &Snapshot, node: &CommandNode, now: Timestamp) -> DisruptedNode {
    let mut views = snapshot.nodes.iter();
    let view = views.find(|view| view.provider_id == node.provider_id);
    let created = view.filter(|_| disruption_policy::is_judged(snapshot, &node.pool));
    let created = created.and_then(disruption_policy::claimed).map(Time);
    DisruptedNode {
        name: node.node.clone(),
        node_claim: node.node_claim.clone(),
        node_claim_uid: node.node_claim_uid.clone(),
        provider_id: node.provider_id.clone(),
        node_pool: node.pool.clone(),
        instance_type: node.instance_type.clone(),
        zone: node.zone.clone(),
        capacity_type: node.capacity_type.map(|capacity| capacity.as_str().to_owned()),
        price: node.price.to_string(),
        pods: count(node.reschedulable_pods),
        created_at: created,
        workloads: view.map_or_else(Vec::new, |view| moved(snapshot, view, now)),
    }
}

fn replacement(
    snapshot: &Snapshot,
    method: Method,
    planned: &command::Replacement,
    command: &str,
    index: usize,
) -> Replacement {
    let pool = snapshot.pool(planned.claim.pool);
    // D-139, P-067: a static NodePool's NodeClaims are all alike, and the cloud chooses their instance types.
    let claim = if method.is_static() {
        template_claim(&pool.object, &pool.instance_types)
    } else {
        to_node_claim(snapshot, &planned.claim)
    };
    let mut annotations = claim.metadata.annotations.unwrap_or_default();
    annotations.insert(labels::DISRUPTION.to_owned(), command.to_owned());
    Replacement {
        node_claim: format!(
            "{}-{}",
            pool.name,
            token(&[command.to_owned(), index.to_string()], 8)
        ),
        node_pool: pool.name.clone(),
        node_pool_uid: pool.uid.clone(),
        price: planned.price.to_string(),
        metadata: TemplateMetadata {
            labels: claim.metadata.labels.unwrap_or_default(),
            annotations,
            extra: BTreeMap::new(),
        },
        spec: claim.spec,
    }
}

/// The NodeClaim of a replacement, with the name that it has from the start.
pub(crate) fn replacement_claim(replacement: &Replacement) -> NodeClaim {
    let mut claim = NodeClaim::new(&replacement.node_claim, replacement.spec.clone());
    claim.metadata = ObjectMeta {
        name: Some(replacement.node_claim.clone()),
        labels: Some(replacement.metadata.labels.clone()),
        annotations: Some(replacement.metadata.annotations.clone()),
        owner_references: Some(vec![OwnerReference {
            api_version: format!("{}/{}", NodePool::GROUP, NodePool::VERSION),
            kind: NodePool::KIND.to_owned(),
            name: replacement.node_pool.clone(),
            uid: replacement.node_pool_uid.clone(),
            block_owner_deletion: Some(true),
            controller: None,
        }]),
        ..ObjectMeta::default()
    };
    claim
}

/// The same before it is made, as it is planned with: until it has a UID, its name stands for that.
pub fn unmade_claim(replacement: &Replacement) -> NodeClaim {
    let mut claim = replacement_claim(replacement);
    claim.metadata.uid = Some(replacement.node_claim.clone());
    claim
}

fn charged(snapshot: &Snapshot, command: &Command, budgets: &[BudgetMapping]) -> Vec<ChargedBudget> {
    let reason = command.method.reason();
    let budgets = budgets.iter().find(|mapping| mapping.reason == reason);
    let entry = |(name, charged): (&str, usize)| {
        let budget = budgets?.pools.get(&snapshot.find_pool(name)?)?;
        Some(ChargedBudget {
            node_pool: name.to_owned(),
            allowed: budget.allowed,
            disrupting: count(budget.disrupting),
            charged: count(charged),
        })
    };
    command.budget_use().into_iter().filter_map(entry).collect()
}

/// The first two, and how many more.
fn summary(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let shown = names.iter().take(2).cloned().collect::<Vec<_>>().join(",");
    match names.len() {
        0 => "-".to_owned(),
        1 | 2 => shown,
        more => format!("{shown} +{}", more - 2),
    }
}

fn cheapest_text(planned: &command::Replacement) -> String {
    let instance_type = planned.instance_types.first().map_or("", String::as_str);
    let capacity = planned.capacity_type.map_or("", |capacity| capacity.as_str());
    format!("{instance_type} {capacity}").trim().to_owned()
}

/// The command that an object tells of, without what only its Snapshot knew: for bookkeeping by node and NodePool.
pub fn command_of(disruption: &Disruption) -> Command {
    let spec = &disruption.spec;
    let price = |text: &str| text.parse().unwrap_or(Price::ZERO);
    let nodes = spec.nodes.iter().map(|node| CommandNode {
        node: node.name.clone(),
        node_claim: node.node_claim.clone(),
        node_claim_uid: node.node_claim_uid.clone(),
        provider_id: node.provider_id.clone(),
        pool: node.node_pool.clone(),
        instance_type: node.instance_type.clone(),
        capacity_type: node.capacity_type.as_deref().and_then(|text| text.parse().ok()),
        zone: node.zone.clone(),
        price: price(&node.price),
        reschedulable_pods: usize::try_from(node.pods).unwrap_or(0),
    });
    Command {
        method: match spec.method {
            DisruptionMethod::Emptiness => Method::Emptiness,
            DisruptionMethod::StaticDrift => Method::StaticDrift,
            DisruptionMethod::Drift => Method::Drift,
            DisruptionMethod::StaticExpiry => Method::StaticExpiry,
            DisruptionMethod::Expiry => Method::Expiry,
            DisruptionMethod::MultiNodeConsolidation => Method::MultiNodeConsolidation,
            DisruptionMethod::SingleNodeConsolidation | DisruptionMethod::Other(_) => {
                Method::SingleNodeConsolidation
            }
        },
        nodes: nodes.collect(),
        replacements: Vec::new(),
        moves: Arc::default(),
        price_before: price(&spec.price_before),
        price_after: price(&spec.price_after),
    }
}

/// Whether a pod keeps its node from going now, whatever its budgets say (D-011, D-014).
pub(super) fn is_protected(pod: &spokeshave_model::Pod, now: Timestamp) -> bool {
    pod::is_active(pod) && pod::DoNotDisrupt::of(pod).is_active(now)
}

/// What a command has saved an hour in fact, when its nodes are gone and its replacements cost so much, and the end of it in words.
pub(super) fn realised(disruption: &Disruption, price_after: Option<Price>) -> (Option<String>, String) {
    let spec = &disruption.spec;
    let gone = crate::report::count(spec.nodes.len(), "node");
    let prices = spec.price_before.parse::<Price>().ok().zip(price_after);
    let realised = prices.map(|(before, after)| before.saturating_sub(after).to_string());
    let predicted = &spec.savings;
    let message = match realised.as_ref().filter(|realised| *realised != predicted) {
        Some(realised) => format!("{gone} gone, {realised} $/h saved, {predicted} $/h predicted"),
        None => format!("{gone} gone, {predicted} $/h saved"),
    };
    (realised, message)
}
