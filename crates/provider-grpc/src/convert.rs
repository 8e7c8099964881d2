//! Messages as values of the model, and back.
//!
//! Owns what a message must hold to be a value; errors name the row and the field. Nothing is lost on the way there and back.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use spokeshave_api::{NodeClaim, NodeClaimSpec, NodeClaimStatus, labels};
use spokeshave_model::{
    InstanceType, Offering, Operator, Overhead, Overrides, Price, Requirement, Requirements, Resources,
};
use spokeshave_syntax::names::{label_value_problems, qualified_name_problems};

use crate::wire;

type Quantities = BTreeMap<String, String>;

fn operator_of(operator: wire::Operator) -> Option<Operator> {
    Some(match operator {
        wire::Operator::Unspecified => return None,
        wire::Operator::In => Operator::In,
        wire::Operator::NotIn => Operator::NotIn,
        wire::Operator::Exists => Operator::Exists,
        wire::Operator::DoesNotExist => Operator::DoesNotExist,
        wire::Operator::Gt => Operator::Gt,
        wire::Operator::Lt => Operator::Lt,
        wire::Operator::Gte => Operator::Gte,
        wire::Operator::Lte => Operator::Lte,
    })
}

fn operator_message(operator: Operator) -> wire::Operator {
    match operator {
        Operator::In => wire::Operator::In,
        Operator::NotIn => wire::Operator::NotIn,
        Operator::Exists => wire::Operator::Exists,
        Operator::DoesNotExist => wire::Operator::DoesNotExist,
        Operator::Gt => wire::Operator::Gt,
        Operator::Lt => wire::Operator::Lt,
        Operator::Gte => wire::Operator::Gte,
        Operator::Lte => wire::Operator::Lte,
    }
}

/// Why this cannot be a label: the API server would refuse a NodeClaim or Node that has it, whatever else it has.
fn label_problem(key: &str, value: &str) -> Option<String> {
    let of_key = qualified_name_problems(key).into_iter();
    let of_key = of_key.map(|problem| format!("the key of label {:?}: {problem}", cut(key)));
    let of_value = label_value_problems(value).into_iter();
    let of_value = of_value.map(|problem| format!("value {:?} of label {}: {problem}", cut(value), cut(key)));
    of_key.chain(of_value).next()
}

/// The same of each of these that cannot be a label.
pub(crate) fn label_problems(labels: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    let each = labels.iter();
    each.filter_map(|(key, value)| label_problem(key, value))
}

/// The beginning of a text that may have no end.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(80);
    end.map_or(text, |(end, _)| &text[..end])
}

/// Requirements, each key's entries together. Their keys and the values of those that allow only one become labels.
pub(crate) fn requirements_of(messages: &[wire::Requirement]) -> Result<Requirements, String> {
    let mut requirements = Requirements::new();
    for message in messages {
        let key = &message.key;
        if key.is_empty() {
            return Err("a requirement without a key".to_owned());
        }
        let operator = operator_of(message.operator())
            .ok_or_else(|| format!("requirement on {key}: unknown operator {}", message.operator))?;
        if let Some(problem) = label_problem(key, "") {
            return Err(format!("requirement on {}: {problem}", cut(key)));
        }
        let requirement = Requirement::parse(key, operator.as_str(), &message.values)
            .map_err(|error| format!("requirement on {key}: {error}"))?;
        requirements.add(requirement.with_min_values(message.min_values));
    }
    for requirement in requirements.iter() {
        let (key, value) = (requirement.key(), requirement.single_value());
        if let Some(problem) = value.and_then(|value| label_problem(key, value)) {
            return Err(format!("requirement on {key}: {problem}"));
        }
    }
    Ok(requirements)
}

/// Of requirements that cannot all be read, those that can.
fn readable_requirements(messages: &[wire::Requirement]) -> Requirements {
    let mut requirements = Requirements::new();
    for one in messages {
        if let Ok(read) = requirements_of(std::slice::from_ref(one)) {
            requirements.add_all(&read);
        }
    }
    requirements
}

/// The entries of all keys. Exclusions beside bounds are an entry of their own.
pub(crate) fn requirement_messages(requirements: &Requirements) -> Vec<wire::Requirement> {
    let mut messages = Vec::with_capacity(requirements.len());
    for requirement in requirements.iter() {
        let mut entries = requirement.to_entries();
        let is_bounded = requirement.gte().is_some() || requirement.lte().is_some();
        if is_bounded && !requirement.values().is_empty() {
            let excluded = requirement.values().iter().cloned().collect();
            entries.push((Operator::NotIn, excluded, requirement.min_values()));
        }
        messages.extend(
            entries
                .into_iter()
                .map(|(operator, values, min_values)| wire::Requirement {
                    key: requirement.key().to_owned(),
                    operator: operator_message(operator).into(),
                    values,
                    min_values,
                }),
        );
    }
    messages
}

fn resources_of(what: &str, quantities: &Quantities) -> Result<Resources, String> {
    Resources::parse(
        quantities
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str())),
    )
    .map_err(|error| format!("{what}: {error}"))
}

/// Of amounts that cannot all be read, those that can.
fn readable_resources(quantities: &Quantities) -> Resources {
    let mut readable = quantities.clone();
    readable.retain(|name, text| Resources::parse([(name.as_str(), text.as_str())]).is_ok());
    resources_of("", &readable).unwrap_or_default()
}

pub(crate) fn quantities(resources: &Resources) -> Quantities {
    let named = resources.to_quantities().into_iter();
    named.map(|(name, quantity)| (name, quantity.0)).collect()
}

fn kube_quantities(what: &str, texts: &Quantities) -> Result<BTreeMap<String, Quantity>, String> {
    resources_of(what, texts)?;
    let named = texts.iter();
    Ok(named
        .map(|(name, text)| (name.clone(), Quantity(text.clone())))
        .collect())
}

fn overhead_of(kube: &Quantities, system: &Quantities, eviction: &Quantities) -> Result<Overhead, String> {
    Ok(Overhead {
        kube_reserved: resources_of("kube_reserved", kube)?,
        system_reserved: resources_of("system_reserved", system)?,
        eviction_threshold: resources_of("eviction_threshold", eviction)?,
    })
}

/// An offering. Without a price it cannot be launched (G-023).
pub(crate) fn offering_of(message: &wire::Offering) -> Result<Offering, String> {
    let named = |what: String| format!("offering {:?}: {what}", message.id);
    if message.id.is_empty() {
        return Err("an offering without an id".to_owned());
    }
    if message.price_nano_per_hour.is_some_and(|price| price < 0) {
        return Err(named("price_nano_per_hour is negative".to_owned()));
    }
    let requirements = requirements_of(&message.requirements).map_err(named)?;
    let overrides = message.overrides.as_ref().map(|overrides| {
        Ok::<_, String>(Overrides {
            capacity: resources_of("overrides.capacity", &overrides.capacity)?,
            overhead: overhead_of(
                &overrides.kube_reserved,
                &overrides.system_reserved,
                &overrides.eviction_threshold,
            )?,
        })
    });
    let offering = Offering {
        overrides: overrides.transpose().map_err(named)?,
        ..sold_as(message, requirements)
    };
    if !says_where(&offering) {
        return Err(named(format!(
            "requirements must give one value each of {} and {} (on-demand, spot or reserved)",
            labels::ZONE,
            labels::CAPACITY_TYPE
        )));
    }
    Ok(offering)
}

fn sold_as(message: &wire::Offering, requirements: Requirements) -> Offering {
    Offering {
        requirements,
        price: Price(message.price_nano_per_hour.unwrap_or(0).max(0)),
        available: message.available && message.price_nano_per_hour.is_some(),
        reservation_capacity: message.reservation_capacity,
        reservation_id_label: Some(message.reservation_id_label.clone()).filter(|label| !label.is_empty()),
        overrides: None,
        overlaid: false,
    }
}

fn says_where(offering: &Offering) -> bool {
    offering.zone().is_some() && offering.capacity_type().is_some()
}

/// Of an offering that cannot be read whole, where and how it is sold.
fn readable_part(message: &wire::Offering) -> Option<Offering> {
    let offering = sold_as(message, readable_requirements(&message.requirements));
    (!message.id.is_empty() && says_where(&offering)).then_some(offering)
}

/// The ID of an offering of a provider that has none: how and where it is bought.
pub(crate) fn offering_id(offering: &Offering) -> String {
    let kind = offering.capacity_type().map_or("", |kind| kind.as_str());
    let zone = offering.zone().unwrap_or_default();
    match offering.reservation_id() {
        Some(reservation) => format!("{kind}/{zone}/{reservation}"),
        None => format!("{kind}/{zone}"),
    }
}

pub(crate) fn offering_message(id: String, offering: &Offering) -> wire::Offering {
    let overrides = offering
        .overrides
        .as_ref()
        .map(|overrides| wire::OfferingOverrides {
            capacity: quantities(&overrides.capacity),
            kube_reserved: quantities(&overrides.overhead.kube_reserved),
            system_reserved: quantities(&overrides.overhead.system_reserved),
            eviction_threshold: quantities(&overrides.overhead.eviction_threshold),
        });
    wire::Offering {
        id,
        requirements: requirement_messages(&offering.requirements),
        price_nano_per_hour: Some(offering.price.0),
        available: offering.available,
        reservation_capacity: offering.reservation_capacity,
        reservation_id_label: offering.reservation_id_label.clone().unwrap_or_default(),
        overrides,
    }
}

/// The IDs of a type's offerings, made unique in their order.
pub(crate) fn offering_ids(instance_type: &InstanceType) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let offerings = instance_type.offerings.iter();
    offerings
        .map(|offering| {
            let id = offering_id(offering);
            let count = seen.entry(id.clone()).or_insert(0);
            *count += 1;
            if *count == 1 { id } else { format!("{id}#{count}") }
        })
        .collect()
}

pub(crate) fn type_message(instance_type: &InstanceType) -> wire::InstanceType {
    let ids = offering_ids(instance_type).into_iter();
    wire::InstanceType {
        name: instance_type.name.clone(),
        requirements: requirement_messages(&instance_type.requirements),
        capacity: quantities(&instance_type.capacity),
        kube_reserved: quantities(&instance_type.overhead.kube_reserved),
        system_reserved: quantities(&instance_type.overhead.system_reserved),
        eviction_threshold: quantities(&instance_type.overhead.eviction_threshold),
        offerings: ids
            .zip(&instance_type.offerings)
            .map(|(id, offering)| offering_message(id, offering))
            .collect(),
    }
}

/// An instance type as it was read.
#[derive(Debug)]
pub(crate) struct ReadType {
    /// Without what cannot be read of the type itself.
    pub(crate) instance_type: InstanceType,
    /// Of its offerings, in their order.
    pub(crate) ids: Vec<String>,
    /// Whether everything could be read but for offerings.
    pub(crate) is_whole: bool,
    /// What cannot be read, each by name, with what was expected.
    pub(crate) problems: Vec<String>,
}

/// An instance type. The error names the field without which nobody knows which type it is. An offering that cannot be read is as `known` knows that of its
/// ID, or has what can be read of it, and cannot be launched: left out, it would count as withdrawn, and nodes that were bought as it says would drift (D-230).
pub(crate) fn type_of(
    message: &wire::InstanceType,
    known: impl Fn(&str) -> Option<Offering>,
) -> Result<ReadType, String> {
    if message.name.is_empty() {
        return Err("an instance type without a name".to_owned());
    }
    let named = |what: String| format!("instance type {:?}: {what}", cut(&message.name));
    if let Some(problem) = label_problem(labels::INSTANCE_TYPE, &message.name) {
        return Err(named(problem));
    }
    let mut unread = Vec::new();
    let mut instance_type = readable_type(message, &mut unread);
    let mut ids: Vec<String> = Vec::with_capacity(message.offerings.len());
    let mut unread_offerings = Vec::new();
    for one in &message.offerings {
        let offering = match offering_of(one) {
            Ok(offering) => Some(offering),
            Err(problem) => {
                unread_offerings.push(problem);
                let part = known(&one.id).or_else(|| readable_part(one));
                part.map(|offering| Offering {
                    available: false,
                    ..offering
                })
            }
        };
        if let Some(offering) = offering {
            instance_type.offerings.push(offering);
            ids.push(one.id.clone());
        }
    }
    let mut sorted: Vec<&String> = ids.iter().collect();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        unread.push(format!("two offerings have the id {:?}", twice[0]));
    }
    Ok(ReadType {
        instance_type,
        ids,
        is_whole: unread.is_empty(),
        problems: unread.into_iter().chain(unread_offerings).map(named).collect(),
    })
}

/// What can be read of a type itself, without its offerings, and what cannot.
fn readable_type(message: &wire::InstanceType, unread: &mut Vec<String>) -> InstanceType {
    let mut requirements = requirements_of(&message.requirements).unwrap_or_else(|problem| {
        unread.push(problem);
        readable_requirements(&message.requirements)
    });
    if !requirements.contains(labels::INSTANCE_TYPE) {
        requirements.add(Requirement::is(labels::INSTANCE_TYPE, &message.name));
    }
    let mut amounts = |what: &str, quantities: &Quantities| {
        resources_of(what, quantities).unwrap_or_else(|problem| {
            unread.push(problem);
            readable_resources(quantities)
        })
    };
    InstanceType {
        name: message.name.clone(),
        requirements,
        offerings: Vec::with_capacity(message.offerings.len()),
        capacity: amounts("capacity", &message.capacity),
        overhead: Overhead {
            kube_reserved: amounts("kube_reserved", &message.kube_reserved),
            system_reserved: amounts("system_reserved", &message.system_reserved),
            eviction_threshold: amounts("eviction_threshold", &message.eviction_threshold),
        },
        overlaid: Default::default(),
    }
}

pub(crate) fn timestamp_message(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: time.as_second(),
        nanos: time.subsec_nanosecond(),
    }
}

pub(crate) fn timestamp_of(message: &prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(message.seconds, message.nanos).ok()
}

pub(crate) fn duration_of(message: Option<prost_types::Duration>) -> Option<Duration> {
    Duration::try_from(message?).ok()
}

/// What a provider in this process says of an instance.
pub(crate) fn instance_message(claim: &NodeClaim) -> wire::Instance {
    let status = claim.status.clone().unwrap_or_default();
    let texts = |map: BTreeMap<String, Quantity>| map.into_iter().map(|(name, it)| (name, it.0)).collect();
    let time = |time: &Option<Time>| time.as_ref().map(|time| timestamp_message(time.0));
    let metadata = &claim.metadata;
    let state = if metadata.deletion_timestamp.is_some() {
        wire::InstanceState::Terminating
    } else {
        wire::InstanceState::Running
    };
    wire::Instance {
        provider_id: status.provider_id.unwrap_or_default(),
        nodeclaim_name: metadata.name.clone().unwrap_or_default(),
        nodeclaim_uid: metadata.uid.clone().unwrap_or_default(),
        state: state.into(),
        r#type: claim.label(labels::INSTANCE_TYPE).unwrap_or_default().to_owned(),
        offering_id: String::new(),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        image_id: status.image_id.unwrap_or_default(),
        capacity: texts(status.capacity),
        allocatable: texts(status.allocatable),
        created_at: time(&metadata.creation_timestamp),
        terminating_since: time(&metadata.deletion_timestamp),
    }
}

/// Whether an instance will run no pod: a launch that is answered with it has failed.
pub(crate) fn is_lost(instance: &wire::Instance) -> bool {
    use wire::InstanceState::{Failed, Gone, Terminating};
    matches!(instance.state(), Failed | Gone | Terminating)
}

/// An instance as a NodeClaim: labels, capacity and allocatable that it does not give are those of its type and offering. An instance of a type that is
/// not in the catalog has what it says (G-012). What cannot be a label or an annotation is left out: with it the API server would take in none of them.
pub(crate) fn claim_of(
    instance: wire::Instance,
    catalog: Option<(&InstanceType, Option<&Offering>)>,
    now: Timestamp,
) -> Result<NodeClaim, String> {
    if instance.provider_id.is_empty() {
        return Err(format!(
            "an instance without provider_id, of nodeclaim_uid {:?} and in state {}; expected provider_id, or INSTANCE_STATE_PENDING in a list",
            instance.nodeclaim_uid,
            instance.state().as_str_name()
        ));
    }
    let state = instance.state();
    let named = |what: String| format!("instance {:?}: {what}", instance.provider_id);
    let mut status = NodeClaimStatus {
        provider_id: Some(instance.provider_id.clone()),
        image_id: Some(instance.image_id).filter(|image| !image.is_empty()),
        capacity: kube_quantities("capacity", &instance.capacity).map_err(named)?,
        allocatable: kube_quantities("allocatable", &instance.allocatable).map_err(named)?,
        ..NodeClaimStatus::default()
    };
    let mut all_labels = instance.labels;
    if !instance.r#type.is_empty() {
        all_labels
            .entry(labels::INSTANCE_TYPE.to_owned())
            .or_insert(instance.r#type);
    }
    all_labels.retain(|key, value| label_problem(key, value).is_none());
    let mut annotations = instance.annotations;
    annotations.retain(|key, _| qualified_name_problems(&key.to_lowercase()).is_empty());
    if let Some((instance_type, offering)) = catalog {
        let of_offering = offering.map(|offering| &offering.requirements);
        for requirements in of_offering.into_iter().chain([&instance_type.requirements]) {
            for requirement in requirements.iter() {
                if let Some(value) = requirement.single_value() {
                    let label = all_labels.entry(requirement.key().to_owned());
                    label.or_insert_with(|| value.to_owned());
                }
            }
        }
        if status.capacity.is_empty() || status.allocatable.is_empty() {
            let (capacity, allocatable) = instance_type.amounts(offering);
            if status.capacity.is_empty() {
                status.capacity = capacity.to_quantities();
            }
            if status.allocatable.is_empty() {
                status.allocatable = allocatable.to_quantities();
            }
        }
    }
    let time = |message: &prost_types::Timestamp| timestamp_of(message).map(Time);
    let is_ending = state == wire::InstanceState::Terminating;
    let terminating_since = instance.terminating_since.as_ref().and_then(time);
    let mut claim = NodeClaim::new(&instance.nodeclaim_name, NodeClaimSpec::default());
    claim.metadata = ObjectMeta {
        name: Some(instance.nodeclaim_name).filter(|name| !name.is_empty()),
        uid: Some(instance.nodeclaim_uid).filter(|uid| !uid.is_empty()),
        labels: Some(all_labels),
        annotations: Some(annotations).filter(|map| !map.is_empty()),
        creation_timestamp: instance.created_at.as_ref().and_then(time),
        deletion_timestamp: terminating_since.or_else(|| is_ending.then_some(Time(now))),
        ..ObjectMeta::default()
    };
    claim.status = Some(status);
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> wire::Offering {
        let one = |key: &str, value: &str| wire::Requirement {
            key: key.to_owned(),
            operator: wire::Operator::In.into(),
            values: vec![value.to_owned()],
            min_values: None,
        };
        wire::Offering {
            id: "spot/a".to_owned(),
            requirements: vec![one(labels::ZONE, "a"), one(labels::CAPACITY_TYPE, "spot")],
            price_nano_per_hour: Some(7),
            available: true,
            ..wire::Offering::default()
        }
    }

    #[test]
    fn g_023_an_offering_without_a_price_cannot_be_launched_and_a_negative_price_is_named() {
        let priced = offering_of(&message()).expect("an offering");
        assert_eq!((priced.price, priced.available), (Price(7), true));
        let mut free = message();
        free.price_nano_per_hour = None;
        assert!(!offering_of(&free).expect("an offering").available);
        free.price_nano_per_hour = Some(-1);
        let said = offering_of(&free).expect_err("refused");
        assert_eq!(said, "offering \"spot/a\": price_nano_per_hour is negative");
    }

    #[test]
    fn g_011_a_row_without_provider_id_is_named_by_its_nodeclaim() {
        let row = wire::Instance {
            nodeclaim_uid: "u-1".to_owned(),
            state: wire::InstanceState::Running.into(),
            ..wire::Instance::default()
        };
        let said = claim_of(row, None, Timestamp::UNIX_EPOCH).expect_err("refused");
        let named =
            "an instance without provider_id, of nodeclaim_uid \"u-1\" and in state INSTANCE_STATE_RUNNING";
        assert!(said.starts_with(named), "{said}");
    }

    #[test]
    fn g_008_an_instance_that_runs_is_not_lost_whatever_time_it_names_for_its_end() {
        let mut row = wire::Instance {
            state: wire::InstanceState::Running.into(),
            terminating_since: Some(prost_types::Timestamp::default()),
            ..wire::Instance::default()
        };
        assert!(!is_lost(&row));
        row.state = wire::InstanceState::Terminating.into();
        assert!(is_lost(&row));
    }

    #[test]
    fn p_089_an_instance_that_tells_no_amounts_has_those_of_its_offering() {
        let mut instance_type = InstanceType {
            name: "m1".to_owned(),
            capacity: Resources::from_amounts([("cpu", 4000), ("memory", 16 << 30)]),
            ..InstanceType::default()
        };
        instance_type.overhead.kube_reserved = Resources::from_amounts([("memory", 1 << 30)]);
        let plain = offering_of(&message()).expect("an offering");
        let mut smaller = plain.clone();
        smaller.overrides = Some(Overrides {
            capacity: Resources::from_amounts([("memory", 8 << 30)]),
            overhead: Overhead::default(),
        });
        instance_type.offerings = vec![plain.clone(), smaller.clone()];
        let instance = wire::Instance {
            provider_id: "shed://1".to_owned(),
            ..wire::Instance::default()
        };
        for (offering, capacity, allocatable) in [
            (Some(&plain), "16Gi", "15Gi"),
            (Some(&smaller), "8Gi", "7Gi"),
            (None, "16Gi", "15Gi"),
        ] {
            let catalog = Some((&instance_type, offering));
            let claim = claim_of(instance.clone(), catalog, Timestamp::UNIX_EPOCH).expect("a NodeClaim");
            let status = claim.status.expect("a status");
            let memory = |amounts: &BTreeMap<String, Quantity>| amounts["memory"].0.clone();
            assert_eq!(
                (memory(&status.capacity), memory(&status.allocatable)),
                (capacity.to_owned(), allocatable.to_owned())
            );
        }
    }

    #[test]
    fn requirements_are_the_same_there_and_back_also_exclusions_beside_bounds() {
        let mut requirements = Requirements::new();
        for (operator, values) in [
            (Operator::Gt, vec!["2"]),
            (Operator::Lt, vec!["9"]),
            (Operator::NotIn, vec!["5"]),
        ] {
            requirements.add(Requirement::new("a.example/generation", operator, values));
        }
        requirements.add(Requirement::does_not_exist("a.example/gpu"));
        let there = requirement_messages(&requirements);
        assert_eq!(requirements_of(&there), Ok(requirements));
    }
}
