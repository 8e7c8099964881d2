//! NodePools that nothing can use, that are full, whose budgets are wrong, whose daemons leave no room, or whose drains never end.

use std::collections::BTreeSet;

use jiff::Timestamp;
use spokeshave_api::Condition;
use spokeshave_api::conditions::{Conditioned as _, NODE_CLASS_READY, READY, VALIDATION_SUCCEEDED};
use spokeshave_model::resources::{ResourceName, Resources};
use spokeshave_model::snapshot::{InstanceTypesProblem, PodId, PoolId, PoolView, Snapshot};
use spokeshave_model::taint::first_untolerated;
use spokeshave_model::{InstanceType, Requirements, snapshot::DaemonView};
use spokeshave_schedule::MinValuesPolicy;

use super::pdb::{Standing, Verdict};
use super::pods::{is_of_job, is_protected_for_ever};
use super::{Finding, Level, is_unjudged};
use crate::limits::{Limit, Limits, Stops};
use crate::replicas::{no_instance_type, not_launchable};
use spokeshave_plan::budget_lint;
use spokeshave_plan::pool_conditions::STATIC_CAPACITY_DISABLED;
use spokeshave_plan::report::{count, some_of};
use spokeshave_plan::standing::{KNOWN_ELSEWHERE, eligible, is_sold_out, not_supported};

/// Findings about NodePools.
pub(super) fn findings(standing: &Standing, snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    for index in 0..snapshot.pools.len() {
        let pool = &snapshot.pools[index];
        if pool.deleting {
            continue;
        }
        findings.extend(not_judged(pool));
        findings.extend(unusable(snapshot, pool));
        findings.extend(limits(snapshot, pool));
        findings.extend(daemons(snapshot, pool));
        findings.extend(budgets(pool, now));
        findings.extend(drains(standing, snapshot, PoolId::from(index)));
    }
    findings
}

fn object(pool: &PoolView) -> String {
    format!("NodePool {}", pool.name)
}

/// It counts as ready without an operator that says so: everything else that is found about it may be right, and yet nothing launches.
fn not_judged(pool: &PoolView) -> Option<Finding> {
    is_unjudged(&pool.object).then(|| {
        Finding::new(
            Level::Note,
            "pool-not-ready",
            object(pool),
            "nothing is launched from it until an operator judges it".to_owned(),
            "no operator has judged it yet: it has no conditions".to_owned(),
        )
    })
}

/// Why nothing is launched from it, or why that is not known here.
fn unusable(snapshot: &Snapshot, pool: &PoolView) -> Option<Finding> {
    if !pool.supported {
        return Some(nothing_to_launch(
            pool,
            not_supported(pool),
            unsupported_part(pool),
        ));
    }
    if !pool.ready {
        return Some(not_ready(pool));
    }
    // The operator's setting is not in the cluster: what is said of minValues is true of the default.
    if let Some(why) = no_instance_type(snapshot, pool, MinValuesPolicy::Strict) {
        let is_sold_out = is_sold_out(snapshot, pool);
        let remedy = match pool.instance_types_problem {
            Some(InstanceTypesProblem::Failed(_)) => {
                (CLASS, "add the class to the files, or correct the name")
            }
            _ if is_sold_out => (
                REQUIREMENTS,
                "allow further instance types, zones or capacity types",
            ),
            _ => (REQUIREMENTS, "widen the requirement that is named"),
        };
        let mut finding = nothing_to_launch(pool, why, remedy);
        if is_sold_out {
            // The cloud may have room again.
            finding.level = Level::Warning;
        }
        return Some(finding);
    }
    // What the operator has found out is on the NodePool, wherever its instance types are known.
    if let Some(said) = not_launchable(snapshot, pool) {
        return Some(no_replicas(pool, said));
    }
    let known_elsewhere = pool.instance_types_problem == Some(InstanceTypesProblem::KnownElsewhere);
    known_elsewhere.then(|| types_unknown(pool))
}

/// What the operator says of a fixed number of nodes that it does not launch.
fn no_replicas(pool: &PoolView, said: &Condition) -> Finding {
    let remedy = ("spec.replicas", "correct what the condition names");
    let mut finding = nothing_to_launch(pool, said.message.clone(), remedy);
    if said.reason != STATIC_CAPACITY_DISABLED {
        // The cloud may have room again.
        finding.level = Level::Warning;
    }
    finding
}

fn types_unknown(pool: &PoolView) -> Finding {
    Finding::new(
        Level::Note,
        "pool-types-unknown",
        object(pool),
        "whether its instance types meet its requirements is not examined".to_owned(),
        KNOWN_ELSEWHERE.to_owned(),
    )
}

const CLASS: &str = "spec.template.spec.nodeClassRef";

const REQUIREMENTS: &str = "spec.template.spec.requirements";

/// A field, and what to do about it.
type Remedy = (&'static str, &'static str);

/// What to change in a NodePool that the operator ignores.
fn unsupported_part(pool: &PoolView) -> Remedy {
    match Requirements::from_api(&pool.object.spec.template.spec.requirements) {
        Err(_) => (REQUIREMENTS, "replace the requirement that is named"),
        Ok(_) => (CLASS, "name a class of a kind that the operator's provider knows"),
    }
}

fn nothing_to_launch(pool: &PoolView, why: String, (field, suggestion): Remedy) -> Finding {
    Finding::new(
        Level::Error,
        "pool-unusable",
        object(pool),
        "nothing can be launched from it".to_owned(),
        why,
    )
    .field(field)
    .suggest(suggestion)
}

/// A condition that is False stays so until somebody acts. One that nobody has judged yet may only take time, or no operator is there.
fn not_ready(pool: &PoolView) -> Finding {
    let types = [VALIDATION_SUCCEEDED, NODE_CLASS_READY, READY];
    let mut conditions = types.iter().filter_map(|type_| pool.object.condition(type_));
    let message = "nothing is launched from it: it is not Ready".to_owned();
    let Some(condition) = conditions.find(|condition| condition.status == "False") else {
        return Finding::new(
            Level::Note,
            "pool-not-ready",
            object(pool),
            message,
            "no operator has judged it yet: its condition Ready is neither True nor False".to_owned(),
        );
    };
    let said = [&condition.message, &condition.reason];
    let said = said.into_iter().find(|said| !said.is_empty());
    let proof = format!(
        "condition {} is False{}",
        condition.type_,
        said.map(|said| format!(": {said}")).unwrap_or_default()
    );
    let finding = Finding::new(Level::Error, "pool-not-ready", object(pool), message, proof);
    let kind = &pool.object.node_class_ref().kind;
    match condition.type_.as_str() {
        NODE_CLASS_READY => finding.field(CLASS).suggest(format!(
            "the name of a {kind} that is there and Ready: `kubectl get {}` lists them",
            kind.to_lowercase()
        )),
        VALIDATION_SUCCEEDED => finding.field("spec").suggest("correct what the condition names"),
        _ => finding.suggest(format!(
            "correct what its conditions name: `kubectl describe nodepool {}`",
            pool.name
        )),
    }
}

/// Limits that are reached, or that leave less than any instance type.
fn limits(snapshot: &Snapshot, pool: &PoolView) -> Vec<Finding> {
    let limits = Limits::of(snapshot, pool);
    let mut findings: Vec<Finding> = limits.each.iter().filter_map(|one| limit(pool, one)).collect();
    if limits.stop_together {
        let left = limits.each.iter().map(|one| {
            let left = ResourceName::format(one.resource, one.left());
            format!("{} {left}", one.resource)
        });
        let left: Vec<String> = left.collect();
        let message = "what its limits leave together is less than any of its instance types has".to_owned();
        let proof = format!(
            "{} left, and no instance type has as little of each",
            left.join(", ")
        );
        findings.push(
            Finding::new(
                Level::Warning,
                "limit-leaves-no-type",
                object(pool),
                message,
                proof,
            )
            .field("spec.limits")
            .suggest("a higher limit of one of them"),
        );
    }
    findings
}

/// None where it stops nothing, or only what it is there to stop: a limit of 0 keeps a resource out.
fn limit(pool: &PoolView, limit: &Limit<'_>) -> Option<Finding> {
    let resource = limit.resource;
    let amount = |value| ResourceName::format(resource, value);
    let (level, code, message) = match limit.stops {
        Stops::All if limit.is_used_up() => (
            Level::Warning,
            "limit-reached",
            format!("its limit of {resource} is reached: nothing more is launched"),
        ),
        Stops::All => (
            Level::Warning,
            "limit-leaves-no-type",
            format!("what its limit of {resource} leaves is less than any of its instance types has"),
        ),
        Stops::Having if limit.is_used_up() && limit.amount > 0 => (
            Level::Note,
            "limit-reached",
            format!(
                "its limit of {resource} is reached: no instance type that has any is launched, and others are"
            ),
        ),
        Stops::Having | Stops::Little => return None,
    };
    let mut proof = format!(
        "{} of {} in use, {} left",
        amount(limit.used),
        amount(limit.amount),
        amount(limit.left().max(0))
    );
    if let Some(least) = limit.least.filter(|least| *least > 0) {
        proof.push_str(&format!("; its smallest instance type has {}", amount(least)));
    }
    let finding = Finding::new(level, code, object(pool), message, proof);
    Some(
        finding
            .field(format!("spec.limits.{resource}"))
            .suggest(format!("a higher limit than {}", amount(limit.amount))),
    )
}

/// Whether a daemon runs on nodes of this type from this pool.
fn runs_on(snapshot: &Snapshot, daemon: &DaemonView, pool: &PoolView, one: &InstanceType) -> bool {
    let wanted = &daemon.constraints;
    if first_untolerated(&pool.taints, &wanted.tolerations).is_some() {
        return false;
    }
    let fits = |requirements: &Requirements| {
        pool.requirements
            .compatible(requirements, &snapshot.well_known)
            .is_ok()
            && one.requirements.intersects(requirements).is_ok()
    };
    fits(&wanted.node_selector)
        && (wanted.required_terms.is_empty() || wanted.required_terms.iter().any(fits))
}

/// Daemons that leave no processor or no memory on any node that the pool may launch.
fn daemons(snapshot: &Snapshot, pool: &PoolView) -> Option<Finding> {
    let types = eligible(snapshot, pool);
    let mut largest: Option<(&InstanceType, Resources)> = None;
    for one in types {
        let mut taken = Resources::new();
        for daemon in snapshot
            .daemons
            .iter()
            .filter(|daemon| runs_on(snapshot, daemon, pool, one))
        {
            taken.add(&snapshot.resources.resources(&daemon.requests));
        }
        let room = one.allocatable();
        let is_full = [ResourceName::CPU, ResourceName::MEMORY]
            .into_iter()
            .any(|name| taken.get(name) > 0 && taken.get(name) >= room.get(name));
        if !is_full {
            return None;
        }
        let cores = room.get(ResourceName::CPU);
        if largest
            .as_ref()
            .is_none_or(|(known, _)| known.allocatable().get(ResourceName::CPU) < cores)
        {
            largest = Some((one, taken));
        }
    }
    let (one, taken) = largest?;
    let room = one.allocatable();
    let amounts = [ResourceName::CPU, ResourceName::MEMORY].map(|name| {
        format!(
            "{name} {} of {}",
            ResourceName::format(name, taken.get(name)),
            ResourceName::format(name, room.get(name))
        )
    });
    Some(
        Finding::new(
            Level::Error,
            "daemons-fill-every-node",
            object(pool),
            "DaemonSets take all of every node that it may launch".to_owned(),
            format!(
                "on {}, its largest instance type, daemons request {}",
                one.name,
                amounts.join(", ")
            ),
        )
        .field("spec.template.spec.requirements")
        .suggest("larger instance types, or smaller requests of the DaemonSets"),
    )
}

/// Errors and warnings of the linter of budgets, as they are.
fn budgets(pool: &PoolView, now: Timestamp) -> Vec<Finding> {
    let Ok(value) = serde_json::to_value(&*pool.object) else {
        return Vec::new();
    };
    budget_lint::lint(&value, None, now)
        .into_iter()
        .filter(|found| found.level != Level::Note)
        .map(|found| {
            let mut finding = Finding::new(
                found.level,
                found.code,
                object(pool),
                found.message,
                "the windows of its budgets over a year; `spokeshave budgets` shows them".to_owned(),
            )
            .field(found.field);
            finding.suggestion = found.suggestion;
            finding
        })
        .collect()
}

/// Why a pod is never evicted.
#[derive(Clone, Copy)]
enum Hold {
    /// Its PodDisruptionBudgets.
    Budget,
    /// Its annotation.
    DoNotDisrupt,
}

/// Nodes whose pods are never evicted: a drain either ends by force, or never (D-322).
fn drains(standing: &Standing, snapshot: &Snapshot, id: PoolId) -> Vec<Finding> {
    let never = standing.keys_with(Verdict::Never);
    let pool = snapshot.pool(id);
    // What a Job has made ends on its own, and the drain with it.
    let has_end = pool.object.spec.template.spec.termination_grace_period.is_some();
    let (mut by_budget, mut by_annotation): (Vec<PodId>, Vec<PodId>) = (Vec::new(), Vec::new());
    for pod in snapshot.pod_ids() {
        let view = snapshot.pod(pod);
        let node = view.node.map(|node| snapshot.node(node));
        if node.is_none_or(|node| node.pool != Some(id)) || view.tolerates_disrupted_taint {
            continue;
        }
        if never.contains(view.key().as_str()) && (has_end || !is_of_job(view)) {
            by_budget.push(pod);
        } else if is_protected_for_ever(view) {
            by_annotation.push(pod);
        }
    }
    let found = [(Hold::Budget, by_budget), (Hold::DoNotDisrupt, by_annotation)].into_iter();
    found
        .filter(|(_, held)| !held.is_empty())
        .map(|(hold, held)| drain(snapshot, pool, hold, &held))
        .collect()
}

fn drain(snapshot: &Snapshot, pool: &PoolView, hold: Hold, held: &[PodId]) -> Finding {
    let names: Vec<String> = held.iter().map(|pod| snapshot.pod(*pod).key()).collect();
    let nodes: BTreeSet<_> = held.iter().filter_map(|pod| snapshot.pod(*pod).node).collect();
    let (cause, overrules, level, protection, mend, whatever) = match hold {
        Hold::Budget => (
            "that no PodDisruptionBudget ever lets go",
            "grace-period-overrules-pdb",
            Level::Warning,
            "that their PodDisruptionBudgets protect",
            "mend the PodDisruptionBudgets",
            "whatever their budgets say",
        ),
        // Who sets both may well mean it: so long, and no longer.
        Hold::DoNotDisrupt => (
            "with do-not-disrupt without an end",
            "grace-period-overrules-do-not-disrupt",
            Level::Note,
            "that do-not-disrupt protects",
            "give do-not-disrupt an end, such as \"4h\"",
            "whatever their annotations say",
        ),
    };
    let proof = format!(
        "{} {cause} on {}: {}",
        count(names.len(), "pod"),
        count(nodes.len(), "node"),
        some_of(&names, 3)
    );
    let template = &pool.object.spec.template.spec;
    let finding = match &template.termination_grace_period {
        Some(period) => Finding::new(
            level,
            overrules,
            object(pool),
            format!("its terminationGracePeriod of {period} ends every drain of theirs by deleting pods {protection}"),
            proof,
        )
        .suggest(format!("{mend}, so that drains need no force")),
        None => Finding::new(
            Level::Warning,
            "drain-never-ends",
            object(pool),
            "drains of its nodes never end: after expiry or a deletion by hand they wait for pods that may never go, and are paid for".to_owned(),
            proof,
        )
        .suggest(format!(
            "{mend}; or set terminationGracePeriod, which deletes pods after that time {whatever}"
        )),
    };
    let finding = finding.field("spec.template.spec.terminationGracePeriod");
    finding.keeps(snapshot, held)
}
