//! NodeOverlays (P §13): which are in force, and what instance types look like under them.
//!
//! Owns the order of overlays, the rule of conflicts, and the correction of prices and capacities. It is the only place that corrects them: whoever
//! reads instance types reads corrected ones. It never talks to a cloud; the types come as values.

mod conflict;
mod effect;

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, Status, VALIDATION_SUCCEEDED};
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{NodeOverlay, NodePool};
use spokeshave_model::{
    Action, InstanceType, ObjectKind, ObjectRef, Requirement, Requirements, Subresource, labels,
};

pub use conflict::Conflict;
use effect::Effect;

/// A NodePool with the instance types that its cloud offers it, uncorrected.
#[derive(Clone, Debug)]
pub struct PoolTypes {
    /// The NodePool.
    pub pool: Arc<NodePool>,
    /// Its instance types.
    pub types: Arc<[InstanceType]>,
}

/// What became of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It applies wherever it matches, also if that is nowhere.
    InForce,
    /// It breaks a rule of its own; all of its failures, joined with `; `.
    Invalid(String),
    /// Another overlay of the same weight says something else of the same thing; nothing of it applies.
    Conflict(Conflict),
}

/// What all overlays come to.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// Every overlay with its verdict, heaviest first.
    pub verdicts: Vec<(Arc<NodeOverlay>, Verdict)>,
    /// Those that apply.
    pub in_force: InForce,
}

/// The overlays that apply, heaviest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InForce {
    effects: Vec<Effect>,
}

/// Judges all overlays together: by weight descending, then by name descending, each as a whole (P-187).
#[must_use]
pub fn evaluate(overlays: &[Arc<NodeOverlay>], pools: &[PoolTypes], rules: &LabelRules) -> Evaluation {
    let mut ordered: Vec<&Arc<NodeOverlay>> = overlays.iter().collect();
    ordered.sort_by(|left, right| {
        let key = |overlay: &NodeOverlay| overlay.spec.weight.unwrap_or(0);
        key(right)
            .cmp(&key(left))
            .then_with(|| right.name().cmp(left.name()))
    });
    let mut ledger = conflict::Ledger::new(pools, &ordered);
    let mut evaluation = Evaluation::default();
    for overlay in ordered {
        let verdict = match Effect::read(overlay, rules) {
            Err(failures) => Verdict::Invalid(failures.join("; ")),
            Ok(effect) => match ledger.admit(&effect) {
                Some(conflict) => Verdict::Conflict(conflict),
                None => {
                    evaluation.in_force.effects.push(effect);
                    Verdict::InForce
                }
            },
        };
        evaluation.verdicts.push((Arc::clone(overlay), verdict));
    }
    evaluation
}

impl InForce {
    /// The instance types of a NodePool as the overlays correct them. When none of them is concerned they are the very same.
    #[must_use]
    pub fn decorate(&self, pool: &NodePool, types: &Arc<[InstanceType]>) -> Arc<[InstanceType]> {
        let base = pool_requirements(pool);
        let near: Vec<&Effect> = self
            .effects
            .iter()
            .filter(|effect| effect.changes_anything() && base.intersects(&effect.requirements).is_ok())
            .collect();
        if near.is_empty() {
            return Arc::clone(types);
        }
        let corrected: Vec<Option<InstanceType>> = types
            .iter()
            .map(|instance_type| effect::correct(&near, &known_of(&base, instance_type), instance_type))
            .collect();
        if corrected.iter().all(Option::is_none) {
            return Arc::clone(types);
        }
        let both = types.iter().zip(corrected);
        both.map(|(plain, corrected)| corrected.unwrap_or_else(|| plain.clone()))
            .collect()
    }
}

/// What is known of every node of a pool: its name and the labels of its template.
fn pool_requirements(pool: &NodePool) -> Requirements {
    let mut requirements = Requirements::from_labels(&pool.spec.template.metadata.labels);
    requirements.add(Requirement::is(labels::NODE_POOL, pool.name()));
    requirements
}

/// What is known of a node of a pool and a type.
fn known_of(base: &Requirements, instance_type: &InstanceType) -> Requirements {
    let mut known = base.clone();
    known.add_all(&instance_type.requirements);
    known
}

/// The write that brings an overlay's status up to date, with upstream's reasons (P §13); none when it says so already.
#[must_use]
pub fn status_action(overlay: &NodeOverlay, verdict: &Verdict, now: Timestamp) -> Option<Action> {
    let mut after = overlay.clone();
    let type_ = VALIDATION_SUCCEEDED;
    match verdict {
        Verdict::InForce => after.set_true(type_, now),
        Verdict::Invalid(failures) => after.set(type_, Status::False, "RuntimeValidation", failures, now),
        Verdict::Conflict(_) => after.set(
            type_,
            Status::False,
            "Conflict",
            "conflict with another overlay",
            now,
        ),
    };
    let uid = overlay.metadata.uid.as_deref().unwrap_or_default();
    let target = ObjectRef::cluster(ObjectKind::NodeOverlay, overlay.name(), uid);
    Action::patch(target, Subresource::Status, overlay, &after, true)
}

#[cfg(test)]
mod tests;
