//! Where a size can be bought, and for how much (Z4): each of its zones and none, with each capacity type.

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::AKSNodeClass;
use spokeshave_model::labels as core;
use spokeshave_model::{CapacityType, InstanceType, Offering, Operator, Requirement};

use crate::instance_types::{self, Settings};
use crate::labels;
use crate::names::{self, REGIONAL};
use crate::prices::Prices;
use crate::skus::Sku;
use crate::unavailable::Unavailable;

/// Quota that is older says nothing any more: there is taken to be some (Z-023).
pub const QUOTA_LASTS: SignedDuration = SignedDuration::from_mins(15);

/// A family's quota of vCPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Whose quota.
    pub name: UsageName,
    /// vCPUs in use.
    #[serde(default)]
    pub current_value: i64,
    /// Most vCPUs.
    #[serde(default)]
    pub limit: i64,
}

/// Name of a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UsageName {
    /// The family, or `cores`, `lowPriorityCores`.
    #[serde(default)]
    pub value: String,
}

/// The subscription's quotas in a location.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    usages: Vec<Usage>,
    read_at: Option<Timestamp>,
}

impl Quota {
    /// What the list said, and when.
    #[must_use]
    pub fn new(usages: Vec<Usage>, read_at: Timestamp) -> Self {
        Quota {
            usages,
            read_at: Some(read_at),
        }
    }

    /// Whether the family has quota for so many vCPUs more. What is not known, or was long ago, allows.
    #[must_use]
    pub fn allows(&self, family: &str, cpus: i64, now: Timestamp) -> bool {
        let fresh = self
            .read_at
            .is_some_and(|read_at| now.duration_since(read_at) <= QUOTA_LASTS);
        let usage = self
            .usages
            .iter()
            .find(|usage| usage.name.value.eq_ignore_ascii_case(family));
        !fresh || usage.is_none_or(|usage| usage.current_value.saturating_add(cpus) <= usage.limit)
    }
}

/// What is known at an instant about prices and capacity.
#[derive(Debug, Clone, Copy)]
pub struct Market<'a> {
    /// Prices.
    pub prices: &'a Prices,
    /// What ran out lately.
    pub unavailable: &'a Unavailable,
    /// Quotas.
    pub quota: &'a Quota,
    /// Now.
    pub now: Timestamp,
}

/// All sizes that the class may use, as instance types ordered by name; also those without an available offering.
#[must_use]
pub fn instance_types(
    skus: &[Sku],
    class: &AKSNodeClass,
    settings: &Settings,
    market: &Market<'_>,
) -> Vec<InstanceType> {
    let mut types: Vec<InstanceType> = skus
        .iter()
        .filter(|sku| instance_types::check_used(sku, &settings.region).is_ok())
        .filter(|sku| instance_types::check_class(sku, class).is_ok())
        .map(|sku| one(sku, class, settings, market))
        .collect();
    types.sort_by(|a, b| a.name.cmp(&b.name));
    types.dedup_by(|a, b| a.name == b.name);
    types
}

fn one(sku: &Sku, class: &AKSNodeClass, settings: &Settings, market: &Market<'_>) -> InstanceType {
    let mut instance_type = instance_types::resolve(sku, class, settings);
    instance_type.offerings = offerings(sku, settings, market);
    let all = &instance_type.offerings;
    for key in [
        core::ZONE,
        core::CAPACITY_TYPE,
        labels::PLACEMENT_SCOPE,
        labels::SKU_STORAGE_ULTRA_SSD,
        labels::AKS_PRIORITY,
        labels::AKS_SCALE_SET_PRIORITY,
    ] {
        let values: Vec<String> = all
            .iter()
            .flat_map(|offering| offering.requirements.get(key).values().clone())
            .collect();
        instance_type
            .requirements
            .replace(Requirement::new(key, Operator::In, values));
    }
    instance_type
}

fn offerings(sku: &Sku, settings: &Settings, market: &Market<'_>) -> Vec<Offering> {
    let cpus = sku.cpus().unwrap_or(0);
    let zones = sku.zones(&settings.region);
    let places = zones.iter().map(|zone| Some(zone.as_str())).chain([None]);
    let mut offerings = Vec::new();
    for zone in places {
        let label = names::zone_label(&settings.region, zone);
        let ultra: &[&str] = if sku.has_ultra_disks(&settings.region, zone) {
            &["false", "true"]
        } else {
            &["false"]
        };
        for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
            let allowed = match capacity_type {
                CapacityType::Spot => sku.is("LowPriorityCapable"),
                _ => market.quota.allows(&sku.family, cpus, market.now),
            };
            let taken = market.unavailable.contains(
                (&sku.family, &sku.name, cpus),
                &label,
                capacity_type,
                market.now,
            );
            let priority = priority(capacity_type);
            let requirements = [
                Requirement::is(core::CAPACITY_TYPE, capacity_type.as_str()),
                Requirement::is(core::ZONE, &label),
                Requirement::is(
                    labels::PLACEMENT_SCOPE,
                    if label == REGIONAL { "regional" } else { "zonal" },
                ),
                Requirement::one_of(labels::SKU_STORAGE_ULTRA_SSD, ultra.iter().copied()),
                Requirement::is(labels::AKS_PRIORITY, priority),
                Requirement::is(labels::AKS_SCALE_SET_PRIORITY, priority),
            ];
            offerings.push(Offering {
                requirements: requirements.into_iter().collect(),
                price: market.prices.price(&sku.name, capacity_type),
                available: allowed && !taken,
                ..Offering::default()
            });
        }
    }
    offerings
}

/// The value of AKS's labels for a capacity type.
#[must_use]
pub fn priority(capacity_type: CapacityType) -> &'static str {
    match capacity_type {
        CapacityType::Spot => "spot",
        CapacityType::OnDemand | CapacityType::Reserved => "regular",
    }
}
