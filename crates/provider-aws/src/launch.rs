//! From a choice of instance types to the requests that launch one of them: launch templates and a fleet (A5.2, A5.4).
//!
//! Owns what the requests say. Equal inputs give equal requests, and a template's name is a function of its content, so that it is found again
//! instead of being made twice.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_api::ec2_node_class::{BlockDeviceMapping as ClassMapping, EC2NodeClassStatus, InterfaceType};
use spokeshave_api::hash::digest;
use spokeshave_api::{EC2NodeClass, NodeClaim, Quantity, labels as api};
use spokeshave_model::{CapacityType, InstanceType, Offering, Requirement, ResourceName};

use crate::addresses::Chosen;
use crate::capacity_blocks::CAPACITY_BLOCK;
use crate::choice::{Candidate, Choice};
use crate::family;
use crate::fleet::{Asked, Place};
use crate::images;
use crate::labels;
use crate::requests::fleet::{
    Allocation, FleetRequest, LaunchTemplateConfig, LaunchTemplateReference, Override, ReservedCapacity,
    TargetCapacity,
};
use crate::requests::launch_template::{
    BlockDeviceMapping, CapacityReservationSpecification, CapacityReservationTarget, ConnectionTracking,
    CpuOptions, EbsVolume, Enabled, InstanceMarketOptions, InstanceProfileName, LaunchTemplateData,
    LaunchTemplateRequest, MetadataOptions, NetworkInterface, Placement,
};
use crate::requests::{ResourceType, Tags, tag_specifications};
use crate::user_data::{self, Bootstrap, Cluster, UserDataError};

/// What names of our launch templates begin with.
pub const TEMPLATE_NAME_PREFIX: &str = "karpenter.k8s.aws/";

/// A pod that asks for this needs an instance with enclaves.
const ENCLAVES: &str = "eks.amazonaws.com/nip-slots";

/// What names of regions begin with whose metadata service has no switch for IPv6.
const REGIONS_WITHOUT_IPV6_METADATA: [&str; 3] = ["us-iso-", "us-isob-", "us-isof-"];

const GIB: i64 = 1 << 30;

/// For whom and in which cluster something is launched.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The class.
    pub class: &'a EC2NodeClass,
    /// The NodeClaim.
    pub claim: &'a NodeClaim,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The region.
    pub region: &'a str,
    /// Tags of everything that is made.
    pub tags: &'a Tags,
    /// Whether instances take capacity reservations only when they were meant for them (feature gate `ReservedCapacity`).
    pub reserved_capacity: bool,
}

/// Why there are no requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// The class has found no images.
    #[error("no amis exist given constraints")]
    NoImages,
    /// None of the class's images is for one of the types.
    #[error("no instance types satisfy requirements of amis {0}")]
    NoImageFits(String),
    /// The class has found no subnet in a zone in which a type is for sale.
    #[error("no capacity offerings are currently available given the constraints")]
    NoPlace,
    /// There is no user data.
    #[error(transparent)]
    UserData(#[from] UserDataError),
}

/// A launch template with the places for which it is meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Template<'a> {
    /// The request that makes it.
    pub request: LaunchTemplateRequest,
    /// Types with the offerings that may be launched from it.
    pub candidates: Vec<Candidate<'a>>,
    /// The reservation that it launches into.
    pub reservation_id: Option<String>,
}

/// What tells launch templates of one launch apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// Place of the image in the class's status.
    image: usize,
    efa_interfaces: i64,
    pods: i64,
    reservation: Option<Reservation>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reservation {
    id: String,
    is_block: bool,
    is_interruptible: bool,
}

/// The launch templates for a choice: one for each image, number of pods, number of fabric adapters and reservation.
///
/// # Errors
/// When no image fits, or there is no user data.
pub fn templates<'a>(context: &Context<'_>, choice: &Choice<'a>) -> Result<Vec<Template<'a>>, LaunchError> {
    let status = context.class.status.as_ref();
    let amis = status.map_or(&[][..], |status| &status.amis);
    if amis.is_empty() {
        return Err(LaunchError::NoImages);
    }
    let wants_efa = context.claim.spec.resources.requests.contains_key(labels::EFA);
    let mut groups: BTreeMap<Group, Vec<Candidate<'a>>> = BTreeMap::new();
    for candidate in &choice.candidates {
        let instance_type = candidate.instance_type;
        let Some(chosen) = images::image_for(amis, &instance_type.requirements) else {
            continue;
        };
        let image = amis
            .iter()
            .position(|ami| ami.id == chosen.id)
            .unwrap_or_default();
        let mut by_reservation: BTreeMap<Option<Reservation>, Vec<&'a Offering>> = BTreeMap::new();
        for offering in &candidate.offerings {
            by_reservation
                .entry(reservation(offering))
                .or_default()
                .push(offering);
        }
        for (reservation, offerings) in by_reservation {
            let group = Group {
                image,
                efa_interfaces: if wants_efa {
                    instance_type.capacity.get(labels::EFA)
                } else {
                    0
                },
                pods: instance_type.capacity.get(ResourceName::PODS),
                reservation,
            };
            groups.entry(group).or_default().push(Candidate {
                instance_type,
                offerings,
            });
        }
    }
    if groups.is_empty() {
        let ids: BTreeSet<&str> = amis.iter().map(|ami| ami.id.as_str()).collect();
        let ids = ids.into_iter().collect::<Vec<_>>().join(", ");
        return Err(LaunchError::NoImageFits(ids));
    }
    groups
        .into_iter()
        .map(|(group, candidates)| {
            let image = &amis[group.image].id;
            Ok(Template {
                request: template(context, choice, image, &group)?,
                candidates,
                reservation_id: group.reservation.map(|reservation| reservation.id),
            })
        })
        .collect()
}

fn reservation(offering: &Offering) -> Option<Reservation> {
    let value = |key| {
        offering
            .requirements
            .find(key)
            .and_then(Requirement::single_value)
    };
    Some(Reservation {
        id: offering.reservation_id()?.to_owned(),
        is_block: value(labels::CAPACITY_RESERVATION_TYPE) == Some(CAPACITY_BLOCK),
        is_interruptible: value(labels::CAPACITY_RESERVATION_INTERRUPTIBLE) == Some("true"),
    })
}

fn template(
    context: &Context<'_>,
    choice: &Choice<'_>,
    image: &str,
    group: &Group,
) -> Result<LaunchTemplateRequest, LaunchError> {
    let spec = &context.class.spec;
    let mut tagged = vec![ResourceType::NetworkInterface];
    if choice.capacity_type == CapacityType::Spot {
        tagged.push(ResourceType::SpotInstancesRequest);
    }
    let nested = spec
        .cpu_options
        .as_ref()
        .and_then(|options| options.nested_virtualization.clone());
    let data = LaunchTemplateData {
        image_id: image.to_owned(),
        user_data: user_data(context, choice.capacity_type, group.pods)?,
        block_device_mappings: block_device_mappings(context.class),
        iam_instance_profile: InstanceProfileName {
            name: status_profile(context.class.status.as_ref()),
        },
        monitoring: Enabled {
            enabled: spec.detailed_monitoring.unwrap_or(false),
        },
        enclave_options: Enabled {
            enabled: context.claim.spec.resources.requests.contains_key(ENCLAVES),
        },
        cpu_options: nested.map(|nested_virtualization| CpuOptions {
            nested_virtualization,
        }),
        metadata_options: metadata_options(context),
        network_interfaces: network_interfaces(context, group.efa_interfaces),
        placement: Placement {
            tenancy: choice.tenancy.to_owned(),
            ..Placement::default()
        },
        capacity_reservation_specification: context
            .reserved_capacity
            .then(|| reservation_specification(group.reservation.as_ref())),
        instance_market_options: group.reservation.as_ref().and_then(market),
        tag_specifications: tag_specifications(&tagged, context.tags),
    };
    let mut request = LaunchTemplateRequest {
        launch_template_name: String::new(),
        launch_template_data: data,
        tag_specifications: tag_specifications(&[ResourceType::LaunchTemplate], context.tags),
    };
    request.launch_template_name = template_name(&request);
    Ok(request)
}

/// The name of a template: a function of all that it says, so that another content has another name.
fn template_name(request: &LaunchTemplateRequest) -> String {
    let content = serde_json::to_string(request).unwrap_or_default();
    format!("{TEMPLATE_NAME_PREFIX}{}", digest(&content))
}

fn status_profile(status: Option<&EC2NodeClassStatus>) -> String {
    status
        .and_then(|status| status.instance_profile.clone())
        .unwrap_or_default()
}

fn user_data(context: &Context<'_>, capacity_type: CapacityType, pods: i64) -> Result<String, UserDataError> {
    let claim = context.claim;
    let mut node_labels = claim.metadata.labels.clone().unwrap_or_default();
    node_labels.insert(api::CAPACITY_TYPE.to_owned(), capacity_type.as_str().to_owned());
    let taints = [&claim.spec.taints[..], &claim.spec.startup_taints[..]].concat();
    user_data::render(&Bootstrap::of(
        context.class,
        context.cluster,
        &node_labels,
        &taints,
        pods,
    ))
}

fn block_device_mappings(class: &EC2NodeClass) -> Vec<BlockDeviceMapping> {
    let configured = &class.spec.block_device_mappings;
    if configured.is_empty() {
        let defaults = family::default_block_device_mappings(&class.resolved_ami_family());
        return defaults.iter().map(block_device_mapping).collect();
    }
    configured.iter().map(block_device_mapping).collect()
}

fn block_device_mapping(mapping: &ClassMapping) -> BlockDeviceMapping {
    let ebs = mapping.ebs.clone().unwrap_or_default();
    let size = ebs
        .volume_size
        .as_ref()
        .and_then(|size| size.0.parse::<Quantity>().ok());
    BlockDeviceMapping {
        device_name: mapping.device_name.clone(),
        ebs: EbsVolume {
            delete_on_termination: ebs.delete_on_termination,
            encrypted: ebs.encrypted,
            iops: ebs.iops.filter(|iops| *iops != 0),
            kms_key_id: ebs.kms_key_id,
            snapshot_id: ebs.snapshot_id,
            throughput: ebs.throughput.filter(|throughput| *throughput != 0),
            volume_initialization_rate: ebs.volume_initialization_rate,
            volume_size_gib: size.map(|size| gib_rounded_up(size.to_units())),
            volume_type: ebs.volume_type,
        },
    }
}

/// EC2 counts volumes in whole GiB.
fn gib_rounded_up(bytes: i64) -> i64 {
    bytes / GIB + i64::from(bytes % GIB > 0)
}

fn metadata_options(context: &Context<'_>) -> MetadataOptions {
    let options = context.class.spec.metadata_options.clone().unwrap_or_default();
    let or = |value: Option<String>, default: &str| Some(value.unwrap_or_else(|| default.to_owned()));
    let has_ipv6 = !REGIONS_WITHOUT_IPV6_METADATA
        .iter()
        .any(|prefix| context.region.starts_with(prefix));
    MetadataOptions {
        http_endpoint: or(options.http_endpoint, "enabled"),
        http_protocol_ipv6: or(options.http_protocol_ipv6, "disabled").filter(|_| has_ipv6),
        http_put_response_hop_limit: Some(options.http_put_response_hop_limit.unwrap_or(1)),
        http_tokens: or(options.http_tokens, "required"),
        instance_metadata_tags: "disabled".to_owned(),
    }
}

/// The configured interfaces; else one fabric adapter a card where pods ask for them; else one on card 0.
fn network_interfaces(context: &Context<'_>, efa_interfaces: i64) -> Vec<NetworkInterface> {
    let ordinary = ordinary_interface(context);
    let configured = &context.class.spec.network_interfaces;
    if !configured.is_empty() {
        let interfaces = configured.iter().map(|interface| {
            let base = match &interface.interface_type {
                InterfaceType::EfaOnly => NetworkInterface {
                    security_group_ids: ordinary.security_group_ids.clone(),
                    ..NetworkInterface::default()
                },
                _ => ordinary.clone(),
            };
            NetworkInterface {
                network_card_index: Some(interface.network_card_index),
                device_index: interface.device_index,
                interface_type: Some(interface.interface_type.as_str().to_owned()),
                ..base
            }
        });
        return interfaces.collect();
    }
    if efa_interfaces > 0 {
        let cards = 0..i32::try_from(efa_interfaces).unwrap_or(i32::MAX);
        // On card 0 it is the primary interface; the other cards leave that place free.
        let interfaces = cards.map(|card| NetworkInterface {
            network_card_index: Some(card),
            device_index: i32::from(card != 0),
            interface_type: Some("efa".to_owned()),
            ..ordinary.clone()
        });
        return interfaces.collect();
    }
    vec![ordinary]
}

fn ordinary_interface(context: &Context<'_>) -> NetworkInterface {
    let spec = &context.class.spec;
    let is_ipv6 = context.cluster.dns.is_some_and(|address| address.is_ipv6());
    let groups = context
        .class
        .status
        .iter()
        .flat_map(|status| &status.security_groups);
    let tracking = spec.connection_tracking.as_ref().filter(|tracking| {
        tracking.tcp_established_timeout.is_some()
            || tracking.udp_stream_timeout.is_some()
            || tracking.udp_timeout.is_some()
    });
    NetworkInterface {
        device_index: 0,
        associate_public_ip_address: spec.associate_public_ip_address,
        ipv4_prefix_count: spec.ip_prefix_count.filter(|_| !is_ipv6),
        ipv6_prefix_count: spec.ip_prefix_count.filter(|_| is_ipv6),
        primary_ipv6: is_ipv6.then_some(true),
        ipv6_address_count: is_ipv6.then_some(1),
        connection_tracking_specification: tracking.map(|tracking| ConnectionTracking {
            tcp_established_timeout: tracking.tcp_established_timeout,
            udp_stream_timeout: tracking.udp_stream_timeout,
            udp_timeout: tracking.udp_timeout,
        }),
        security_group_ids: groups.map(|group| group.id.clone()).collect(),
        ..NetworkInterface::default()
    }
}

fn reservation_specification(reservation: Option<&Reservation>) -> CapacityReservationSpecification {
    let preference = match reservation {
        Some(_) => "capacity-reservations-only",
        None => "none",
    };
    CapacityReservationSpecification {
        capacity_reservation_preference: preference.to_owned(),
        capacity_reservation_target: reservation.map(|reservation| CapacityReservationTarget {
            capacity_reservation_id: reservation.id.clone(),
        }),
    }
}

fn market(reservation: &Reservation) -> Option<InstanceMarketOptions> {
    let market = match (reservation.is_block, reservation.is_interruptible) {
        (true, _) => "capacity-block",
        (false, true) => "interruptible-capacity-reservation",
        (false, false) => return None,
    };
    Some(InstanceMarketOptions {
        market_type: market.to_owned(),
    })
}

/// The fleet that launches one instance from these templates, in these subnets, and what it means for its reply.
///
/// # Errors
/// When no template has a place in one of the subnets.
pub fn fleet(
    context: &Context<'_>,
    choice: &Choice<'_>,
    templates: &[Template<'_>],
    subnets: &Chosen,
) -> Result<(FleetRequest, Asked), LaunchError> {
    let mut asked = Asked {
        capacity_type: choice.capacity_type,
        places: Vec::new(),
        reservations: BTreeMap::new(),
        placement_group: None,
    };
    let mut configs = Vec::new();
    for template in templates {
        let overrides = overrides(template, subnets);
        if overrides.is_empty() {
            continue;
        }
        asked.places.extend(overrides.iter().map(|place| Place {
            instance_type: place.instance_type.clone(),
            zone: place.availability_zone.clone(),
            subnet_id: place.subnet_id.clone(),
        }));
        if let Some(id) = &template.reservation_id {
            let key = |place: &Override| (place.instance_type.clone(), place.availability_zone.clone());
            let reserved = overrides.iter().map(|place| (key(place), id.clone()));
            asked.reservations.extend(reserved);
        }
        configs.push(LaunchTemplateConfig {
            launch_template_specification: LaunchTemplateReference::latest(
                &template.request.launch_template_name,
            ),
            overrides,
        });
    }
    if configs.is_empty() {
        return Err(LaunchError::NoPlace);
    }
    let claim = context.claim;
    let is_relaxed = claim.annotation(api::MIN_VALUES_RELAXED) == Some("true");
    let has_overlay = claim.annotation(api::PRICE_OVERLAY_APPLIED).is_some();
    let mut request = empty_fleet(choice.capacity_type, has_overlay, context.tags);
    request.context = context.class.spec.context.clone().filter(|_| !is_relaxed);
    request.launch_template_configs = configs;
    if let Some(reservation) = templates.iter().find_map(template_reservation) {
        into_reservation(&mut request, &reservation);
    }
    Ok((request, asked))
}

/// Each type in each zone once, in the zone's subnet, cheapest first.
fn overrides(template: &Template<'_>, subnets: &Chosen) -> Vec<Override> {
    let mut places: BTreeMap<(&str, &str), Override> = BTreeMap::new();
    for candidate in &template.candidates {
        let InstanceType { name, .. } = candidate.instance_type;
        for offering in &candidate.offerings {
            let Some((zone, subnet)) = offering
                .zone()
                .and_then(|zone| Some((zone, subnets.subnet(zone)?)))
            else {
                continue;
            };
            places.entry((name, zone)).or_insert_with(|| Override {
                instance_type: name.clone(),
                subnet_id: subnet.id.clone(),
                availability_zone: subnet.zone.clone(),
                image_id: template.request.launch_template_data.image_id.clone(),
                priority: Some(offering.price),
            });
        }
    }
    let mut overrides: Vec<Override> = places.into_values().collect();
    overrides.sort_by_key(|place| place.priority);
    overrides
}

fn template_reservation(template: &Template<'_>) -> Option<Reservation> {
    let mut offerings = template
        .candidates
        .iter()
        .flat_map(|candidate| &candidate.offerings);
    offerings.find_map(|offering| reservation(offering))
}

/// A fleet of one instance without places.
pub(crate) fn empty_fleet(capacity_type: CapacityType, has_overlay: bool, tags: &Tags) -> FleetRequest {
    let allocation = |plain: &str, by_priority: &str| {
        Some(Allocation {
            allocation_strategy: if has_overlay { by_priority } else { plain }.to_owned(),
        })
    };
    let is_spot = capacity_type == CapacityType::Spot;
    FleetRequest {
        type_: "instant".to_owned(),
        target_capacity_specification: TargetCapacity {
            default_target_capacity_type: if is_spot { "spot" } else { "on-demand" }.to_owned(),
            total_target_capacity: 1,
        },
        spot_options: is_spot
            .then(|| allocation("price-capacity-optimized", "capacity-optimized-prioritized"))
            .flatten(),
        on_demand_options: (!is_spot)
            .then(|| allocation("lowest-price", "prioritized"))
            .flatten(),
        tag_specifications: tag_specifications(
            &[ResourceType::Instance, ResourceType::Volume, ResourceType::Fleet],
            tags,
        ),
        ..FleetRequest::default()
    }
}

fn into_reservation(request: &mut FleetRequest, reservation: &Reservation) {
    let target = &mut request.target_capacity_specification.default_target_capacity_type;
    if reservation.is_block {
        "capacity-block".clone_into(target);
        request.on_demand_options = None;
    } else if reservation.is_interruptible {
        "reserved-capacity".clone_into(target);
        request.on_demand_options = None;
        request.reserved_capacity_options = Some(ReservedCapacity {
            reservation_types: vec!["interruptible-capacity-reservation".to_owned()],
        });
    }
}
