//! Which NodePools a pod asks for, and why a NodePool launches nothing: for explanations and events.
//!
//! It repeats no decision: a NodePool that takes no part is asked the packing engine's questions one requirement at a time, so that the one
//! that leaves nothing can be named.

use std::collections::BTreeSet;

use spokeshave_api::Condition;
use spokeshave_api::conditions::{Conditioned as _, LAUNCHABLE, READY};
use spokeshave_api::labels;
use spokeshave_model::reason::{PoolRefusal, Reason};
use spokeshave_model::snapshot::{InstanceTypesProblem, PodId, PoolId, PoolView, Snapshot};
use spokeshave_model::{InstanceType, Offering, Requirement, Requirements};
use spokeshave_schedule::MinValuesPolicy;

/// The NodePools that a pod asks for: those that it names, or else those that alone have the labels that it wants. Empty when any would do.
pub fn asked_pools(snapshot: &Snapshot, pod: PodId) -> Vec<PoolId> {
    let constraints = snapshot.constraints(pod);
    let selector = &constraints.node_selector;
    let mut asked = BTreeSet::new();
    if constraints.required_terms.is_empty() {
        asked.extend(asked_by(snapshot, selector));
    }
    for term in &constraints.required_terms {
        let mut wanted = selector.clone();
        wanted.add_all(term);
        asked.extend(asked_by(snapshot, &wanted));
    }
    asked.into_iter().collect()
}

fn asked_by(snapshot: &Snapshot, wanted: &Requirements) -> BTreeSet<PoolId> {
    let pools = || (0..snapshot.pools.len()).map(PoolId::from);
    let names_values =
        |requirement: &&Requirement| !requirement.is_complement() && !requirement.values().is_empty();
    if let Some(names) = wanted.find(labels::NODE_POOL).filter(names_values) {
        return pools()
            .filter(|pool| names.has(&snapshot.pool(*pool).name))
            .collect();
    }
    let mut asked: Option<BTreeSet<PoolId>> = None;
    let own = wanted.iter().filter(names_values);
    for requirement in own.filter(|requirement| !labels::WELL_KNOWN.contains(&requirement.key())) {
        let has = |pool: &PoolId| {
            let defined = snapshot.pool(*pool).requirements.find(requirement.key());
            defined.is_some_and(|defined| defined.has_intersection(requirement))
        };
        let having: BTreeSet<PoolId> = pools().filter(has).collect();
        // What every NodePool has, or none, says nothing about which one is meant.
        if having.is_empty() || having.len() == snapshot.pools.len() {
            continue;
        }
        asked = Some(match asked {
            None => having,
            Some(known) => known.intersection(&having).copied().collect(),
        });
    }
    asked.unwrap_or_default()
}

/// Why a NodePool launches nothing for pods, whatever they ask for. `None` when it takes part.
pub fn takes_no_part(snapshot: &Snapshot, pool: PoolId, min_values: MinValuesPolicy) -> Option<String> {
    let view = snapshot.pool(pool);
    if view.deleting {
        return Some("it is being deleted".to_owned());
    }
    if !view.supported {
        return Some(not_supported(view));
    }
    if !view.ready {
        let said = view
            .object
            .condition(READY)
            .map(|condition| condition.message.as_str());
        return Some(match said.filter(|said| !said.is_empty()) {
            Some(said) => format!("it is not Ready: {said}"),
            None => "it is not Ready".to_owned(),
        });
    }
    if view.is_static {
        return Some("it is static: it launches its replicas, and nothing for pods".to_owned());
    }
    if view.instance_types_problem == Some(InstanceTypesProblem::KnownElsewhere) {
        return Some(format!("it has no instance types: {KNOWN_ELSEWHERE}"));
    }
    no_instance_type(snapshot, view, min_values)
}

/// What is known of instance types that the operator of the cluster knows, and this program does not.
pub const KNOWN_ELSEWHERE: &str = "they are known to the operator only; --catalog FILE names some";

/// Why a NodePool has nothing that it could launch, for pods or as a replica. `None` also where only its operator knows them.
/// Too few for its minValues are enough under BestEffort (P-120).
pub fn no_instance_type(snapshot: &Snapshot, pool: &PoolView, min_values: MinValuesPolicy) -> Option<String> {
    match &pool.instance_types_problem {
        Some(InstanceTypesProblem::Unevaluated) => {
            return Some("its instance types are not known yet".to_owned());
        }
        Some(InstanceTypesProblem::Failed(why)) => return Some(format!("it has no instance types: {why}")),
        Some(InstanceTypesProblem::KnownElsewhere) => return None,
        None => {}
    }
    filtered_out(snapshot, pool, min_values)
}

/// What the operator has found out about a fixed number of nodes, where it can launch none.
pub fn not_launchable(pool: &PoolView) -> Option<&Condition> {
    let said = pool.object.condition(LAUNCHABLE);
    said.filter(|said| said.status == "False")
}

/// The provider does not know the kind of its NodeClass, or this version not what it asks for.
pub fn not_supported(pool: &PoolView) -> String {
    let template = &pool.object.spec.template.spec;
    match Requirements::from_api(&template.requirements) {
        Err(error) => format!("it asks for something that this version does not know: {error}"),
        Ok(_) => {
            let class = &template.node_class_ref;
            format!(
                "it is ignored: {} ({}) is not a kind of this operator's provider",
                class.kind, class.group
            )
        }
    }
}

/// The instance types that meet a NodePool's requirements and can be bought as it wants them.
pub fn eligible<'a>(snapshot: &Snapshot, pool: &'a PoolView) -> Vec<&'a InstanceType> {
    let types = pool.instance_types.iter();
    types
        .filter(|one| meets(one, &pool.requirements) && is_offered(snapshot, one, &pool.requirements))
        .collect()
}

fn meets(one: &InstanceType, wanted: &Requirements) -> bool {
    one.requirements.intersects(wanted).is_ok()
}

fn is_offered(snapshot: &Snapshot, one: &InstanceType, wanted: &Requirements) -> bool {
    let mut offerings = one.offerings.iter().filter(|offering| offering.available);
    offerings.any(|offering| suits(snapshot, offering, wanted))
}

fn suits(snapshot: &Snapshot, offering: &Offering, wanted: &Requirements) -> bool {
    wanted
        .compatible(&offering.requirements, &snapshot.well_known)
        .is_ok()
}

/// Whether it meets what is wanted and is sold so, be it available now or not.
fn is_sold(snapshot: &Snapshot, one: &InstanceType, wanted: &Requirements) -> bool {
    let mut offerings = one.offerings.iter();
    meets(one, wanted) && offerings.any(|offering| suits(snapshot, offering, wanted))
}

/// Whether a NodePool has no instance type because none of those that meet its requirements has an available offering: no requirement is to blame, and it may be
/// over by itself.
pub fn is_sold_out(snapshot: &Snapshot, pool: &PoolView) -> bool {
    let mut types = pool.instance_types.iter();
    types.any(|one| is_sold(snapshot, one, &pool.requirements)) && eligible(snapshot, pool).is_empty()
}

fn alone(requirement: &Requirement) -> Requirements {
    std::iter::once(requirement.clone()).collect()
}

/// Which of its own requirements leave no instance type, or too few for minValues.
fn filtered_out(snapshot: &Snapshot, pool: &PoolView, min_values: MinValuesPolicy) -> Option<String> {
    let all = pool.instance_types.len();
    if all == 0 {
        return Some("the provider offers no instance type".to_owned());
    }
    let left = eligible(snapshot, pool);
    if !left.is_empty() {
        if min_values == MinValuesPolicy::BestEffort {
            return None;
        }
        let reached = pool
            .requirements
            .satisfies_min_values(left.iter().copied())
            .err()?;
        let texts = reached.iter().map(|(key, reached)| {
            let wanted = pool.requirements.min_values(key);
            format!(
                "{reached} of the {} for minValues of {key}",
                wanted.unwrap_or_default()
            )
        });
        let texts: Vec<String> = texts.collect();
        return Some(format!(
            "the {} of {all} that meet its requirements have {}",
            types(left.len()),
            texts.join(", ")
        ));
    }
    Some(nothing_left(snapshot, pool, all))
}

/// Which requirements leave no instance type, whatever is available now: while everything is sold out, the first one would be blamed for that.
fn nothing_left(snapshot: &Snapshot, pool: &PoolView, all: usize) -> String {
    let sold = |wanted: &Requirements| {
        let types = pool.instance_types.iter();
        types.filter(|one| is_sold(snapshot, one, wanted)).count()
    };
    let left = sold(&pool.requirements);
    if left > 0 {
        let (meet, have) = match left {
            1 => ("meets", "has"),
            _ => ("meet", "have"),
        };
        return format!(
            "the {} of {all} that {meet} its requirements {have} no available offering",
            types(left)
        );
    }
    let requirements: Vec<&Requirement> = pool.requirements.iter().collect();
    let none = |wanted: &Requirements| sold(wanted) == 0;
    if let Some(one) = requirements.iter().find(|one| none(&alone(one))) {
        return format!("{one} leaves none of {}", types(all));
    }
    for (position, first) in requirements.iter().enumerate() {
        for second in &requirements[position + 1..] {
            let mut both = alone(first);
            both.add((*second).clone());
            if none(&both) {
                return format!("{first} and {second} together leave none of {}", types(all));
            }
        }
    }
    format!("its requirements together leave none of {}", types(all))
}

fn types(number: usize) -> String {
    match number {
        1 => "1 instance type".to_owned(),
        number => format!("{number} instance types"),
    }
}

/// Resources that a pod asks for and no instance type of any NodePool has, such as GPUs.
pub fn unknown_resources(snapshot: &Snapshot, pod: PodId) -> Vec<String> {
    let request = snapshot.pod(pod).request;
    let wanted = snapshot.resources.resources(&snapshot.requests[request.index()]);
    let missing = wanted.iter().filter(|(name, amount)| {
        let mut types = snapshot.pools.iter().flat_map(|pool| pool.instance_types.iter());
        *amount > 0 && !types.any(|one| one.capacity.get(name) > 0)
    });
    missing.map(|(name, _)| name.to_owned()).collect()
}

/// Why a pod has no place, what the NodePools say that it asks for before all others. `text` is the reason's own.
pub(crate) fn asked_first(
    snapshot: &Snapshot,
    pod: PodId,
    reason: &Reason,
    text: &str,
    min_values: MinValuesPolicy,
) -> String {
    let asked = asked_pools(snapshot, pod);
    if asked.is_empty() {
        return text.to_owned();
    }
    let refusals: &[PoolRefusal] = match reason {
        Reason::Pools(refusals) => refusals,
        Reason::NoTemplates => &[],
        _ => return text.to_owned(),
    };
    let is_asked = |refusal: &&PoolRefusal| {
        let mut names = asked.iter().map(|pool| &snapshot.pool(*pool).name);
        names.any(|name| *name == refusal.pool)
    };
    let (first, others): (Vec<&PoolRefusal>, Vec<&PoolRefusal>) = refusals.iter().partition(is_asked);
    let mut texts: Vec<String> = Vec::new();
    for pool in asked {
        let name = &snapshot.pool(pool).name;
        if !first.iter().any(|refusal| refusal.pool == *name)
            && let Some(why) = takes_no_part(snapshot, pool, min_values)
        {
            texts.push(format!("{why} (NodePool={name})"));
        }
    }
    texts.extend(first.iter().chain(&others).map(ToString::to_string));
    if refusals.is_empty() {
        texts.push(text.to_owned());
    }
    texts.join("; ")
}
