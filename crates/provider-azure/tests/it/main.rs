//! The rules of part Z against facts of real sizes, and against what the specification says of upstream's provider.

mod aks_machines;
mod bootstraps;
mod classes;
mod errors;
mod images;
mod launches;
mod notices;
mod offers;
mod types;
mod upstream;

use jiff::Timestamp;
use spokeshave_api::AKSNodeClass;
use spokeshave_model::InstanceType;
use spokeshave_provider_azure::instance_types::Settings;
use spokeshave_provider_azure::offerings::{self, Market, Quota};
use spokeshave_provider_azure::prices::Prices;
use spokeshave_provider_azure::skus;
use spokeshave_provider_azure::unavailable::Unavailable;

pub(crate) const REGION: &str = "southcentralus";

pub(crate) fn class(spec: &str) -> AKSNodeClass {
    let spec = serde_saphyr::from_str(spec).unwrap();
    AKSNodeClass::new("class", spec)
}

pub(crate) fn settings() -> Settings {
    Settings {
        region: REGION.to_owned(),
        node_resource_group: "MC_group_cluster_southcentralus".to_owned(),
        ..Settings::default()
    }
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(crate) fn types_with(
    class: &AKSNodeClass,
    unavailable: &Unavailable,
    quota: &Quota,
) -> Vec<InstanceType> {
    let market = Market {
        prices: &Prices::built_in(),
        unavailable,
        quota,
        now: at(0),
    };
    offerings::instance_types(&skus::facts(REGION), class, &settings(), &market)
}

pub(crate) fn types(class: &AKSNodeClass) -> Vec<InstanceType> {
    types_with(class, &Unavailable::default(), &Quota::default())
}
