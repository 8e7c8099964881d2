//! From a planned claim to the NodeClaim object (P §7).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use spokeshave_api::{NodeClaim, NodeClaimResources, NodeClaimSpec, NodePool, hash};
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Requirement, Requirements, labels};
use std::collections::BTreeMap;

/// The NodeClaim for a planned claim: `generateName`, labels, annotations, owner, requirements and requests. The API server names it.
pub fn to_node_claim(snapshot: &Snapshot, planned: &PlannedClaim) -> NodeClaim {
    let pool_view = snapshot.pool(planned.pool);
    let pool = &pool_view.object;
    let template = &pool.spec.template;
    let class = &template.spec.node_class_ref;

    let mut claim_labels = planned.requirements.custom_labels(&snapshot.well_known);
    claim_labels.extend(template.metadata.labels.clone());
    claim_labels.insert(labels::NODE_POOL.to_owned(), pool_view.name.clone());
    claim_labels.insert(class.label_key(), class.name.clone());

    let mut requirements = final_requirements(snapshot, planned);
    let is_lowered = requirements.lower_min_values_to_listed();
    let mut claim = of_template(pool, claim_labels, &requirements);
    claim.spec.resources = NodeClaimResources {
        requests: planned.requests.to_quantities(),
    };
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(
        spokeshave_api::labels::MIN_VALUES_RELAXED.to_owned(),
        (planned.min_values_relaxed || is_lowered).to_string(),
    );
    // P-187: if any type that the claim may become is corrected.
    let kept = || {
        planned
            .launches
            .iter()
            .map(|launch| pool_view.instance_types[launch.instance_type].overlaid)
    };
    for (key, applied) in [
        (
            spokeshave_api::labels::PRICE_OVERLAY_APPLIED,
            kept().any(|overlaid| overlaid.price),
        ),
        (
            spokeshave_api::labels::CAPACITY_OVERLAY_APPLIED,
            kept().any(|overlaid| overlaid.capacity),
        ),
    ] {
        if applied {
            annotations.insert(key.to_owned(), "true".to_owned());
        }
    }
    claim
}

/// A NodeClaim of a NodePool's template: what a planned one and a static one have in common.
pub(crate) fn of_template(
    pool: &NodePool,
    labels: BTreeMap<String, String>,
    requirements: &Requirements,
) -> NodeClaim {
    let template = &pool.spec.template.spec;
    let spec = NodeClaimSpec {
        taints: template.taints.clone(),
        startup_taints: template.startup_taints.clone(),
        requirements: requirements.iter().flat_map(Requirement::to_api).collect(),
        node_class_ref: template.node_class_ref.clone(),
        termination_grace_period: template.termination_grace_period.clone(),
        expire_after: template.expire_after.clone(),
        ..NodeClaimSpec::default()
    };
    let mut claim = NodeClaim::new("", spec);
    claim.metadata = ObjectMeta {
        generate_name: Some(format!("{}-", pool.name())),
        labels: Some(labels),
        annotations: Some(annotations(pool)),
        owner_references: Some(vec![owner(pool)]),
        ..ObjectMeta::default()
    };
    claim
}

/// P-067: the final requirements, the instance types kept (with their minValues), and the capacity types available among them.
fn final_requirements(snapshot: &Snapshot, planned: &PlannedClaim) -> Requirements {
    let types = &snapshot.pool(planned.pool).instance_types;
    let mut requirements = planned.requirements.clone();
    let min_values = requirements.min_values(labels::INSTANCE_TYPE);
    let names = planned
        .launches
        .iter()
        .map(|launch| types[launch.instance_type].name.clone());
    requirements.replace(Requirement::one_of(labels::INSTANCE_TYPE, names).with_min_values(min_values));
    let min_values = requirements.min_values(labels::CAPACITY_TYPE);
    let capacity_types = planned.capacity_types.iter().cloned();
    requirements
        .replace(Requirement::one_of(labels::CAPACITY_TYPE, capacity_types).with_min_values(min_values));
    requirements
}

fn annotations(pool: &NodePool) -> BTreeMap<String, String> {
    let mut annotations = pool.spec.template.metadata.annotations.clone();
    annotations.insert(
        spokeshave_api::labels::NODE_POOL_HASH.to_owned(),
        hash::node_pool_hash(pool),
    );
    annotations.insert(
        spokeshave_api::labels::NODE_POOL_HASH_VERSION.to_owned(),
        hash::VERSION.to_owned(),
    );
    annotations
}

fn owner(pool: &NodePool) -> OwnerReference {
    OwnerReference {
        api_version: pool.api_version.clone(),
        kind: pool.kind.clone(),
        name: pool.name().to_owned(),
        uid: pool.uid().to_owned(),
        block_owner_deletion: Some(true),
        controller: None,
    }
}
