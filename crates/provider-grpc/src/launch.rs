//! What a provider is told of a NodeClaim, and what its answer means.
//!
//! Owns the request of a launch: the choice is made here, cheapest first, so that a provider need not. It sends nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::{InstanceType, Requirement, Requirements, Resources};
use spokeshave_ports::CloudError;

use crate::catalog::Catalog;
use crate::wire::{Candidate, Instance, LaunchRequest, NodeClass, Taint};
use crate::{convert, wire};

/// The requirements of a NodeClaim, as the scheduler reads them.
pub(crate) fn requirements_of(claim: &NodeClaim) -> Result<Requirements, CloudError> {
    let mut requirements = Requirements::new();
    for one in &claim.spec.requirements {
        let parsed = Requirement::parse(&one.key, one.operator.as_str(), &one.values);
        let parsed = parsed.map_err(|error| CloudError::Create {
            reason: "InvalidRequirement".to_owned(),
            message: format!("NodeClaim {}: spec.requirements: {error}", claim.name()),
        })?;
        let least = one.min_values.and_then(|least| u32::try_from(least).ok());
        requirements.add(parsed.with_min_values(least));
    }
    Ok(requirements)
}

fn suits(claim: &Requirements, requests: &Resources, instance_type: &InstanceType) -> bool {
    instance_type.requirements.intersects(claim).is_ok()
        && instance_type
            .allocatable_groups()
            .iter()
            .any(|group| requests.fits(&group.allocatable))
}

/// What is left of the types for the NodeClaim.
pub(crate) fn suitable(
    types: &[InstanceType],
    claim: &Requirements,
    requests: &Resources,
) -> Vec<InstanceType> {
    let suitable = types.iter().filter(|one| suits(claim, requests, one));
    suitable.cloned().collect()
}

/// Offerings that can be had now and suit the NodeClaim, cheapest first; of equal price, in order of type and ID.
pub(crate) fn candidates(
    types: &[InstanceType],
    catalog: &Catalog,
    claim: &Requirements,
    well_known: &BTreeSet<String>,
) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for instance_type in types {
        for offering in instance_type.available_offerings(claim, well_known) {
            if let Some(id) = catalog.id_of(&instance_type.name, offering) {
                candidates.push(Candidate {
                    r#type: instance_type.name.clone(),
                    offering_id: id.to_owned(),
                    price_nano_per_hour: offering.price.0,
                });
            }
        }
    }
    candidates.sort_by(|a, b| {
        let key = |one: &Candidate| one.price_nano_per_hour;
        (key(a), &a.r#type, &a.offering_id).cmp(&(key(b), &b.r#type, &b.offering_id))
    });
    candidates
}

/// The request, but for candidates.
pub(crate) fn request(
    claim: &NodeClaim,
    node_class: NodeClass,
    requirements: &Requirements,
    leader_term: u64,
) -> LaunchRequest {
    let spec = &claim.spec;
    let unregistered = labels::unregistered_taint();
    let taints = spec.taints.iter().chain(&spec.startup_taints);
    let taints = taints.chain([&unregistered]).map(|taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    });
    let requests = spec.resources.requests.iter();
    LaunchRequest {
        nodeclaim_name: claim.name().to_owned(),
        nodeclaim_uid: claim.uid().to_owned(),
        node_class: Some(node_class),
        requirements: convert::requirement_messages(requirements),
        requests: requests
            .map(|(name, amount)| (name.clone(), amount.0.clone()))
            .collect(),
        labels: claim.metadata.labels.clone().unwrap_or_default(),
        taints: taints.collect(),
        leader_term,
        nodeclaim_json: serde_json::to_vec(claim).unwrap_or_default(),
        nodepool: claim.node_pool().unwrap_or_default().to_owned(),
        candidates: Vec::new(),
        corrected_types: Vec::new(),
    }
}

/// The NodeClaim with what its instance gives it. A provider that answers with somebody else's instance is named.
pub(crate) fn hydrated(
    claim: &NodeClaim,
    instance: Instance,
    catalog: &Catalog,
    now: Timestamp,
) -> Result<NodeClaim, CloudError> {
    let lie = |message: String| CloudError::Create {
        reason: "ProviderAnswerInvalid".to_owned(),
        message,
    };
    if !instance.nodeclaim_uid.is_empty() && instance.nodeclaim_uid != claim.uid() {
        return Err(lie(format!(
            "the provider answered the launch for NodeClaim {} (UID {}) with the instance {} of UID {}",
            claim.name(),
            claim.uid(),
            instance.provider_id,
            instance.nodeclaim_uid
        )));
    }
    let seen = as_claim(instance, catalog, now).map_err(|problem| {
        lie(format!(
            "the provider's answer to the launch for NodeClaim {}: {problem}",
            claim.name()
        ))
    })?;
    let mut answer = claim.clone();
    answer.metadata.labels = seen.metadata.labels;
    if let Some(annotations) = seen.metadata.annotations {
        let own = answer.metadata.annotations.get_or_insert_default();
        own.extend(annotations);
    }
    answer.metadata.creation_timestamp = seen
        .metadata
        .creation_timestamp
        .or(answer.metadata.creation_timestamp);
    answer.status = seen.status;
    Ok(answer)
}

/// An instance as a NodeClaim, with what the catalog knows of its type.
pub(crate) fn as_claim(
    instance: wire::Instance,
    catalog: &Catalog,
    now: Timestamp,
) -> Result<NodeClaim, String> {
    let known = catalog.find(&instance.r#type, &instance.offering_id);
    let known = known.as_ref().map(|(one, offering)| (one, offering.as_ref()));
    convert::claim_of(instance, known, now)
}
