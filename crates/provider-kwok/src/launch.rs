//! The choice of an offering and the making of a record. Pure: no request is sent from here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::{GoDuration, KWOKInstance, KWOKInstanceSpec, NodeClaim, labels};
use spokeshave_model::{InstanceType, Offering, Price, Requirement, Requirements, Resources};
use spokeshave_ports::{CloudError, Entropy};

use crate::{KwokOptions, keys, record};

/// An offering that is to be launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) instance_type: &'a InstanceType,
    pub(crate) offering: &'a Offering,
}

/// Instance type, zone, capacity type.
pub(crate) type OfferingKey = (String, String, String);

impl Choice<'_> {
    pub(crate) fn key(&self) -> OfferingKey {
        let capacity_type = self.offering.capacity_type().map(|it| it.to_string());
        let zone = self.offering.zone().unwrap_or_default().to_owned();
        (
            self.instance_type.name.clone(),
            zone,
            capacity_type.unwrap_or_default(),
        )
    }
}

/// The NodeClaim's requirements, or why they have no meaning.
pub(crate) fn requirements_of(claim: &NodeClaim) -> Result<Requirements, CloudError> {
    let parsed = claim
        .spec
        .requirements
        .iter()
        .map(|entry| Requirement::parse(&entry.key, entry.operator.as_str(), &entry.values));
    parsed
        .collect::<Result<Requirements, _>>()
        .map_err(|error| CloudError::Create {
            reason: "InvalidRequirements".to_owned(),
            message: format!("spec.requirements: {error}"),
        })
}

/// Every offering that satisfies the NodeClaim, cheapest first. Among equal prices the first type wins, and within a type a draw from
/// `entropy` and the NodeClaim's UID (P §14.1), so that zones are used evenly and a repetition draws the same.
pub(crate) fn candidates<'a>(
    claim: &NodeClaim,
    requirements: &'a Requirements,
    types: &'a Arc<[InstanceType]>,
    well_known: &'a BTreeSet<String>,
    entropy: &Entropy,
) -> Result<Vec<Choice<'a>>, CloudError> {
    let name = claim.name();
    let requests =
        Resources::from_quantities(&claim.spec.resources.requests).map_err(|error| CloudError::Create {
            reason: "InvalidResources".to_owned(),
            message: format!("spec.resources.requests of NodeClaim {name}: {error}"),
        })?;
    let wanted = requirements.get(labels::INSTANCE_TYPE);
    let listed: Vec<&InstanceType> = types.iter().filter(|it| wanted.has(&it.name)).collect();
    if listed.is_empty() {
        return Err(insufficient(format!(
            "NodeClaim {name} lists no instance type that is for sale ({wanted})"
        )));
    }
    let fitting = listed
        .iter()
        .filter(|it| it.requirements.intersects(requirements).is_ok() && requests.fits(&it.allocatable()));
    let mut drawn: Vec<(Price, &str, u64, Choice<'a>)> = Vec::new();
    for instance_type in fitting {
        for offering in instance_type.available_offerings(requirements, well_known) {
            let choice = Choice {
                instance_type,
                offering,
            };
            let zone = offering.zone().unwrap_or_default();
            let draw = entropy.number(&format!("{}/{zone}", claim.uid()));
            drawn.push((offering.price, &instance_type.name, draw, choice));
        }
    }
    if drawn.is_empty() {
        return Err(insufficient(format!(
            "none of the {} instance types that NodeClaim {name} lists has an offering that meets its requirements [{requirements}] and requests {}",
            listed.len(),
            requests.to_json_text(),
        )));
    }
    drawn.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    Ok(drawn.into_iter().map(|(_, _, _, choice)| choice).collect())
}

pub(crate) fn insufficient(message: String) -> CloudError {
    CloudError::InsufficientCapacity(message)
}

/// The record of an instance: everything that its Node will be, decided once.
pub(crate) fn new_record(
    claim: &NodeClaim,
    requirements: &Requirements,
    choice: Choice<'_>,
    options: &KwokOptions,
    registration_delay: Option<Duration>,
) -> KWOKInstance {
    let (instance_type, zone, capacity_type) = choice.key();
    let name = record::instance_name(claim);
    let spec = KWOKInstanceSpec {
        node_claim_name: claim.name().to_owned(),
        node_claim_uid: claim.uid().to_owned(),
        node_pool: claim.node_pool().map(str::to_owned),
        instance_type,
        zone,
        capacity_type,
        price: choice.offering.price.to_string(),
        node_name: name.clone(),
        labels: node_labels(claim, requirements, choice),
        taints: vec![labels::unregistered_taint()],
        capacity: choice.instance_type.capacity.to_quantities(),
        allocatable: choice.instance_type.allocatable().to_quantities(),
        tags: tags(claim, &options.cluster_name),
        registration_delay: registration_delay.map(GoDuration::from),
        ..KWOKInstanceSpec::default()
    };
    let mut instance = KWOKInstance::new(&name, spec);
    // By which the records of a reservation are found among all others.
    let reservation = instance.spec.labels.get_key_value(keys::RESERVATION_ID);
    instance.metadata.labels = reservation.map(|(key, id)| BTreeMap::from([(key.clone(), id.clone())]));
    instance
}

/// Labels of the Node: the NodeClaim's, its single-valued requirements, those of type and offering, and the kwok ones (P §14.1).
fn node_labels(
    claim: &NodeClaim,
    requirements: &Requirements,
    choice: Choice<'_>,
) -> BTreeMap<String, String> {
    let mut node_labels = claim.metadata.labels.clone().unwrap_or_default();
    node_labels
        .entry(claim.spec.node_class_ref.label_key())
        .or_insert_with(|| claim.spec.node_class_ref.name.clone());
    let sets = [
        requirements,
        &choice.instance_type.requirements,
        &choice.offering.requirements,
    ];
    for requirement in sets.into_iter().flat_map(Requirements::iter) {
        if let Some(value) = requirement.single_value() {
            node_labels.insert(requirement.key().to_owned(), value.to_owned());
        }
    }
    // A type for several operating systems: the one that the NodeClaim allows.
    let os = requirements
        .get(labels::OS)
        .intersection(&choice.instance_type.requirements.get(labels::OS))
        .any();
    if let Some(os) = os {
        node_labels.insert(labels::OS.to_owned(), os);
    }
    for (key, value) in [
        (keys::INSTANCE_PRICE, choice.offering.price.to_string().as_str()),
        (keys::PARTITION, "a"),
        (labels::HOSTNAME, claim.name()),
        (keys::NODE, keys::NODE_FAKE),
    ] {
        node_labels.insert(key.to_owned(), value.to_owned());
    }
    node_labels
}

fn tags(claim: &NodeClaim, cluster_name: &str) -> BTreeMap<String, String> {
    let pool = claim
        .node_pool()
        .map(|pool| (labels::NODE_POOL.to_owned(), pool.to_owned()));
    let fixed = [
        (keys::TAG_NODE_CLAIM.to_owned(), claim.name().to_owned()),
        (
            format!("{}{cluster_name}", keys::TAG_CLUSTER_PREFIX),
            "owned".to_owned(),
        ),
    ];
    fixed.into_iter().chain(pool).collect()
}
