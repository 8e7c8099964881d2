//! What a provider is told of a NodeClaim, and what its answer means.
//!
//! Owns the request of a launch: the choice is made here, cheapest first, so that a provider need not. It sends nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use prost::Message as _;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::{InstanceType, Offering, Requirement, Requirements, Resources};
use spokeshave_ports::CloudError;

use crate::catalog::Catalog;
use crate::wire::{Candidate, Instance, LaunchRequest, NodeClass, Taint};
use crate::{LONGEST_MESSAGE_BYTES, convert, wire};

/// Bytes before each entry of a list in a message: the field and the entry's length.
const ENTRY_BYTES: usize = 5;

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

/// Offerings that can be had now, suit the NodeClaim and have room for its requests, cheapest first; of equal price, in order of type and ID. Capacity and
/// overhead are an offering's (P-089).
pub(crate) fn candidates(
    types: &[InstanceType],
    catalog: &Catalog,
    claim: &Requirements,
    requests: &Resources,
    well_known: &BTreeSet<String>,
) -> Vec<Candidate> {
    let meets = |one: &&InstanceType| one.requirements.intersects(claim).is_ok();
    let suits = |one: &&Offering| one.available && claim.compatible(&one.requirements, well_known).is_ok();
    let mut candidates = Vec::new();
    for instance_type in types.iter().filter(meets) {
        let groups = instance_type.allocatable_groups().into_iter();
        let roomy = groups.filter(|group| requests.fits(&group.allocatable));
        let places = roomy.flat_map(|group| group.offerings);
        let offerings = places.map(|place| &instance_type.offerings[place]);
        for offering in offerings.filter(suits) {
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

/// Puts the candidates into the request, cheapest first, as far as a message may hold them: those that are left out are dearer. Where NodeOverlays correct
/// the catalog, the types of these as corrected come with them; without any candidate one that does not suit, because a request without corrected types is
/// about the provider's own.
pub(crate) fn name_candidates(
    request: &mut LaunchRequest,
    candidates: Vec<Candidate>,
    corrected: Option<&[InstanceType]>,
) {
    let corrected = corrected.unwrap_or_default();
    let by_name: BTreeMap<&str, &InstanceType> =
        corrected.iter().map(|one| (one.name.as_str(), one)).collect();
    let mut room = LONGEST_MESSAGE_BYTES.saturating_sub(request.encoded_len());
    let mut types: BTreeMap<String, wire::InstanceType> = BTreeMap::new();
    for candidate in candidates {
        let is_new = !types.contains_key(&candidate.r#type);
        let new = by_name.get(candidate.r#type.as_str()).filter(|_| is_new);
        let new = new.copied().map(convert::type_message);
        let bytes = ENTRY_BYTES + candidate.encoded_len();
        let bytes = bytes + new.as_ref().map_or(0, |one| ENTRY_BYTES + one.encoded_len());
        if bytes > room {
            break;
        }
        room -= bytes;
        types.extend(new.map(|one| (one.name.clone(), one)));
        request.candidates.push(candidate);
    }
    request.corrected_types = types.into_values().collect();
    if request.candidates.is_empty() {
        request.corrected_types = corrected.first().map(convert::type_message).into_iter().collect();
    }
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
    for problem in convert::label_problems(&instance.labels) {
        tracing::warn!(
            NodeClaim = claim.name(),
            instance = instance.provider_id,
            problem,
            "a label of the provider's instance is left out"
        );
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
