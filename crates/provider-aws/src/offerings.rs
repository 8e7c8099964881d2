//! Where an instance type can be bought, and for how much (A4.1): each zone of the region with each capacity type, and reservations.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_api::hash::digest;
use spokeshave_model::labels as core;
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Requirement, Requirements};

use crate::compatibility;
use crate::describe::InstanceTypeInfo;
use crate::instance_types::{self, Context};
use crate::labels;
use crate::learned::{self, Learned};
use crate::prices::Prices;
use crate::status::subnets_by_id;
use crate::unavailable::{OfferingKey, Unavailable};

/// Reserved capacity costs nothing more, but keeps its order: a millionth of the on-demand price. Prices are whole nano-dollars, so that upstream's
/// ten-millionth would make one of all that are within a cent, and nothing of the smallest.
const RESERVED_PRICE_DIVISOR: i64 = 1_000_000;

/// What a region has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Instance types, by name.
    pub types: BTreeMap<String, InstanceTypeInfo>,
    /// Zones in which each type is offered.
    pub zones: BTreeMap<String, BTreeSet<String>>,
}

/// What is known at an instant about prices and capacity.
#[derive(Debug, Clone, Copy)]
pub struct Market<'a> {
    /// Prices.
    pub prices: &'a Prices,
    /// What ran out lately.
    pub unavailable: &'a Unavailable,
    /// Instances that are free in each capacity reservation; one that is absent has none.
    pub reservations: &'a BTreeMap<String, i64>,
    /// IDs of zones from which a zonal shift moves traffic away: nothing is launched there (D-295).
    pub shifted: &'a BTreeSet<String>,
    /// Memory that nodes have shown to have.
    pub learned: &'a Learned,
    /// Now.
    pub now: Timestamp,
}

/// All instance types of a region as a class sees them, ordered by name; also those without an available offering.
///
/// The answer depends on what of the class [`fingerprint`] names, on the region and on the market: it can be kept while these are the same.
#[must_use]
pub fn instance_types(region: &Region, context: &Context<'_>, market: &Market<'_>) -> Vec<InstanceType> {
    let class_zones = class_zones(context.class);
    let sales = sales(region, &class_zones);
    let none = BTreeSet::new();
    let images = learned::images_of(context.class);
    region
        .types
        .values()
        .map(|info| {
            let zones = region.zones.get(&info.instance_type).unwrap_or(&none);
            let learned = market.learned.memory(images, &info.instance_type);
            let context = Context {
                learned_memory_bytes: learned.or(context.learned_memory_bytes),
                ..*context
            };
            let mut instance_type = instance_types::resolve(info, zones, &context);
            instance_type.offerings =
                offerings(info, &instance_type, &sales, context.class, &class_zones, market);
            instance_type
        })
        .collect()
}

/// A number that is the same for classes which see the same instance types: they can share one list.
#[must_use]
pub fn fingerprint(class: &EC2NodeClass) -> u64 {
    let spec = &class.spec;
    let status = class.status.as_ref();
    let parts = serde_json::json!([
        class.resolved_ami_family(),
        spec.kubelet,
        spec.block_device_mappings,
        spec.instance_store_policy,
        spec.network_interfaces,
        spec.connection_tracking,
        spec.cpu_options,
        subnets_by_id(class),
        status.map(|status| &status.capacity_reservations),
    ]);
    digest(&parts.to_string())
}

/// A zone and a way to buy, with the requirements that all types share there.
struct Sale<'a> {
    zone: &'a str,
    capacity_type: CapacityType,
    requirements: Requirements,
}

fn sales<'a>(region: &'a Region, class_zones: &BTreeMap<&str, ClassZone<'_>>) -> Vec<Sale<'a>> {
    let zones: BTreeSet<&String> = region.zones.values().flatten().collect();
    let capacity_types = [CapacityType::OnDemand, CapacityType::Spot].into_iter();
    let places =
        capacity_types.flat_map(|capacity_type| zones.iter().map(move |zone| (capacity_type, *zone)));
    places
        .map(|(capacity_type, zone)| {
            let mut requirements: Requirements = [
                Requirement::is(core::CAPACITY_TYPE, capacity_type.as_str()),
                Requirement::is(core::ZONE, zone),
                Requirement::does_not_exist(labels::CAPACITY_RESERVATION_ID),
                Requirement::does_not_exist(labels::CAPACITY_RESERVATION_TYPE),
                Requirement::does_not_exist(labels::CAPACITY_RESERVATION_INTERRUPTIBLE),
            ]
            .into_iter()
            .collect();
            if let Some(class_zone) = class_zones.get(zone.as_str()) {
                requirements.add(Requirement::is(labels::ZONE_ID, class_zone.id));
            }
            Sale {
                zone,
                capacity_type,
                requirements,
            }
        })
        .collect()
}

/// Subnets of a class in one zone.
struct ClassZone<'a> {
    id: &'a str,
    subnets: Vec<&'a str>,
}

fn class_zones(class: &EC2NodeClass) -> BTreeMap<&str, ClassZone<'_>> {
    let mut zones: BTreeMap<&str, ClassZone<'_>> = BTreeMap::new();
    for subnet in class.status.iter().flat_map(|status| &status.subnets) {
        let zone = zones.entry(&subnet.zone).or_insert(ClassZone {
            id: &subnet.zone_id,
            subnets: Vec::new(),
        });
        zone.subnets.push(&subnet.id);
    }
    zones
}

fn offerings(
    info: &InstanceTypeInfo,
    instance_type: &InstanceType,
    sales: &[Sale<'_>],
    class: &EC2NodeClass,
    class_zones: &BTreeMap<&str, ClassZone<'_>>,
    market: &Market<'_>,
) -> Vec<Offering> {
    let compatible = compatibility::check(info, class, None).is_ok();
    let zones = instance_type.requirements.find(core::ZONE);
    let mut key = OfferingKey {
        capacity_type: CapacityType::OnDemand,
        instance_type: info.instance_type.clone(),
        zone: String::new(),
        placement_group: None,
    };
    let mut offerings = Vec::with_capacity(sales.len());
    for usage in &info.supported_usage_classes {
        let Ok(capacity_type) = usage.parse::<CapacityType>() else {
            continue;
        };
        for sale in sales.iter().filter(|sale| sale.capacity_type == capacity_type) {
            let price = match capacity_type {
                CapacityType::Spot => market.prices.spot(&info.instance_type, sale.zone),
                _ => market.prices.on_demand(&info.instance_type),
            };
            let price = price.or_else(|| market.prices.overlaid(&info.instance_type));
            key.capacity_type = capacity_type;
            sale.zone.clone_into(&mut key.zone);
            let class_zone = class_zones.get(sale.zone);
            let subnets = class_zone.map_or(&[][..], |zone| &zone.subnets);
            let is_shifted = class_zone.is_some_and(|zone| market.shifted.contains(zone.id));
            offerings.push(Offering {
                requirements: sale.requirements.clone(),
                price: price.unwrap_or_default(),
                available: compatible
                    && zones.is_some_and(|zones| zones.has(sale.zone))
                    && price.is_some()
                    && !is_shifted
                    && !market.unavailable.contains(&key, subnets, market.now),
                ..Offering::default()
            });
        }
    }
    offerings.extend(reserved(
        info,
        instance_type,
        class,
        compatible,
        class_zones,
        market,
    ));
    offerings
}

fn reserved<'a>(
    info: &'a InstanceTypeInfo,
    instance_type: &'a InstanceType,
    class: &'a EC2NodeClass,
    compatible: bool,
    class_zones: &'a BTreeMap<&str, ClassZone<'a>>,
    market: &'a Market<'_>,
) -> impl Iterator<Item = Offering> {
    let reservations = class
        .status
        .iter()
        .flat_map(|status| &status.capacity_reservations)
        .filter(|reservation| reservation.instance_type == info.instance_type);
    reservations.map(move |reservation| {
        let on_demand = market.prices.on_demand(&info.instance_type);
        let class_zone = class_zones.get(reservation.availability_zone.as_str());
        let subnets = class_zone.map_or(&[][..], |zone| &zone.subnets);
        let is_left_out = market
            .unavailable
            .contains_reservation(&reservation.id, subnets, market.now);
        let free = market.reservations.get(&reservation.id).copied();
        let free = free.filter(|_| !is_left_out).unwrap_or(0);
        let in_class = instance_type
            .requirements
            .find(core::ZONE)
            .is_some_and(|zones| zones.has(&reservation.availability_zone));
        let mut requirements: Requirements = [
            Requirement::is(core::CAPACITY_TYPE, CapacityType::Reserved.as_str()),
            Requirement::is(core::ZONE, &reservation.availability_zone),
            Requirement::is(labels::CAPACITY_RESERVATION_ID, &reservation.id),
            Requirement::is(labels::CAPACITY_RESERVATION_TYPE, &reservation.reservation_type),
            Requirement::is(
                labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
                &reservation.interruptible.to_string(),
            ),
        ]
        .into_iter()
        .collect();
        let is_shifted = class_zone.is_some_and(|zone| market.shifted.contains(zone.id));
        if let Some(zone) = class_zone {
            requirements.add(Requirement::is(labels::ZONE_ID, zone.id));
        }
        let price = on_demand.map_or(Price::ZERO, reserved_price);
        Offering {
            requirements,
            price,
            available: compatible && in_class && free > 0 && reservation.state != "expiring" && !is_shifted,
            reservation_capacity: free,
            reservation_id_label: Some(labels::CAPACITY_RESERVATION_ID.to_owned()),
            ..Offering::default()
        }
    })
}

/// What reserved capacity counts as: nothing only where the price is not known.
fn reserved_price(on_demand: Price) -> Price {
    let half = RESERVED_PRICE_DIVISOR / 2;
    Price(on_demand.0.saturating_add(half) / RESERVED_PRICE_DIVISOR).max(Price(1))
}
