//! Where an instance type can be bought, and for how much (A4.1): each zone of the region with each capacity type, and reservations.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_model::labels as core;
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Requirement, Requirements};

use crate::compatibility;
use crate::describe::InstanceTypeInfo;
use crate::instance_types::{self, Context};
use crate::labels;
use crate::prices::Prices;
use crate::unavailable::{OfferingKey, Unavailable};

/// Reserved capacity costs nothing more, but keeps its order: a ten-millionth of the on-demand price.
const RESERVED_PRICE_DIVISOR: i64 = 10_000_000;

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
    /// Now.
    pub now: Timestamp,
}

/// All instance types of a region as a class sees them, ordered by name; also those without an available offering.
#[must_use]
pub fn instance_types(region: &Region, context: &Context<'_>, market: &Market<'_>) -> Vec<InstanceType> {
    let all_zones: BTreeSet<&String> = region.zones.values().flatten().collect();
    let class_zones = class_zones(context.class);
    let none = BTreeSet::new();
    region
        .types
        .values()
        .map(|info| {
            let zones = region.zones.get(&info.instance_type).unwrap_or(&none);
            let mut instance_type = instance_types::resolve(info, zones, context);
            instance_type.offerings = offerings(
                info,
                &instance_type,
                &all_zones,
                context.class,
                &class_zones,
                market,
            );
            instance_type
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
    all_zones: &BTreeSet<&String>,
    class: &EC2NodeClass,
    class_zones: &BTreeMap<&str, ClassZone<'_>>,
    market: &Market<'_>,
) -> Vec<Offering> {
    let compatible = compatibility::check(info, class, None).is_ok();
    let capacity_types = info
        .supported_usage_classes
        .iter()
        .filter_map(|usage| usage.parse::<CapacityType>().ok());
    let mut offerings = Vec::new();
    for capacity_type in capacity_types.filter(|capacity_type| *capacity_type != CapacityType::Reserved) {
        for zone in all_zones {
            let class_zone = class_zones.get(zone.as_str());
            let price = match capacity_type {
                CapacityType::Spot => market.prices.spot(&info.instance_type, zone),
                _ => market.prices.on_demand(&info.instance_type),
            };
            let key = OfferingKey {
                capacity_type,
                instance_type: info.instance_type.clone(),
                zone: (*zone).clone(),
                placement_group: None,
            };
            let subnets = class_zone.map_or(&[][..], |zone| &zone.subnets);
            let in_class = instance_type
                .requirements
                .find(core::ZONE)
                .is_some_and(|zones| zones.has(zone));
            let mut requirements: Requirements = [
                Requirement::is(core::CAPACITY_TYPE, capacity_type.as_str()),
                Requirement::is(core::ZONE, zone),
                Requirement::does_not_exist(labels::CAPACITY_RESERVATION_ID),
                Requirement::does_not_exist(labels::CAPACITY_RESERVATION_TYPE),
                Requirement::does_not_exist(labels::CAPACITY_RESERVATION_INTERRUPTIBLE),
            ]
            .into_iter()
            .collect();
            if let Some(class_zone) = class_zone {
                requirements.add(Requirement::is(labels::ZONE_ID, class_zone.id));
            }
            offerings.push(Offering {
                requirements,
                price: price.unwrap_or_default(),
                available: compatible
                    && in_class
                    && price.is_some()
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
        let free = market.reservations.get(&reservation.id).copied().unwrap_or(0);
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
        if let Some(zone) = class_zones.get(reservation.availability_zone.as_str()) {
            requirements.add(Requirement::is(labels::ZONE_ID, zone.id));
        }
        let price = Price(
            on_demand
                .unwrap_or_default()
                .0
                .saturating_add(RESERVED_PRICE_DIVISOR / 2)
                / RESERVED_PRICE_DIVISOR,
        );
        Offering {
            requirements,
            price,
            available: compatible && in_class && free > 0 && reservation.state != "expiring",
            reservation_capacity: free,
            reservation_id_label: Some(labels::CAPACITY_RESERVATION_ID.to_owned()),
            ..Offering::default()
        }
    })
}
