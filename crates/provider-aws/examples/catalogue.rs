//! How long it takes to make what a region has for sale into instance types: `cargo run --release -p spokeshave-provider-aws --example catalogue`.
//!
//! 1,400 types in 4 zones, each on-demand and spot, for 1 and for 20 EC2NodeClasses. The types are those of `e2e/aws/catalog.json` under other names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{EC2NodeClassSpec, EC2NodeClassStatus, Subnet};
use spokeshave_provider_aws::describe::InstanceTypeInfo;
use spokeshave_provider_aws::instance_types::{Context, Settings};
use spokeshave_provider_aws::learned::Learned;
use spokeshave_provider_aws::offerings::{Market, Region, fingerprint, instance_types};
use spokeshave_provider_aws::prices::Prices;
use spokeshave_provider_aws::unavailable::Unavailable;

const TYPES: usize = 1_400;
const ZONES: [&str; 4] = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];
const CLASSES: usize = 20;
const ROUNDS: usize = 10;

/// A region of many types, and their prices.
fn region(catalogue: &serde_json::Value) -> (Region, Prices) {
    let infos: Vec<InstanceTypeInfo> =
        serde_json::from_value(catalogue["InstanceTypes"].clone()).expect("the catalogue has types");
    let mut region = Region {
        name: "us-west-2".to_owned(),
        ..Region::default()
    };
    let built_in = Prices::built_in(&region.name);
    let mut prices = BTreeMap::new();
    for (number, info) in infos.iter().cycle().take(TYPES).enumerate() {
        let (family, size) = info.instance_type.split_once('.').expect("a type has a size");
        let name = format!("{family}{}.{size}", number / infos.len());
        if let Some(price) = built_in.on_demand(&info.instance_type) {
            prices.insert(name.clone(), price);
        }
        let mut info = info.clone();
        info.instance_type.clone_from(&name);
        info.supported_usage_classes = vec!["on-demand".to_owned(), "spot".to_owned()];
        region
            .zones
            .insert(name.clone(), ZONES.map(str::to_owned).into_iter().collect());
        region.types.insert(name, info);
    }
    let mut all = built_in;
    all.set_on_demand(prices);
    (region, all)
}

fn class(number: usize) -> EC2NodeClass {
    let spec = EC2NodeClassSpec {
        ami_family: Some("AL2023".into()),
        ..EC2NodeClassSpec::default()
    };
    let mut class = EC2NodeClass::new(&format!("class-{number}"), spec);
    class.status = Some(EC2NodeClassStatus {
        subnets: ZONES
            .map(|zone| Subnet {
                id: format!("subnet-{zone}"),
                zone: zone.to_owned(),
                zone_id: zone.replace("us-west-2", "usw2-az"),
            })
            .into(),
        ..EC2NodeClassStatus::default()
    });
    class
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the time that passes"
)]
fn now() -> Instant {
    Instant::now()
}

/// Resident memory of this process.
fn resident_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or_default() * 4096.0 / f64::from(1 << 20)
}

fn main() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/aws/catalog.json");
    let text = std::fs::read_to_string(path).expect("the catalogue is in the repository");
    let catalogue = serde_json::from_str(&text).expect("the catalogue is JSON");
    let (region, prices) = region(&catalogue);
    let (unavailable, reservations) = (Unavailable::default(), BTreeMap::new());
    let market = Market {
        prices: &prices,
        unavailable: &unavailable,
        reservations: &reservations,
        shifted: &BTreeSet::new(),
        learned: &Learned::default(),
        now: Timestamp::UNIX_EPOCH,
    };
    let settings = Settings::default();
    let classes: Vec<EC2NodeClass> = (0..CLASSES).map(class).collect();
    for number in [1, CLASSES] {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let start = now();
            let mut offerings = 0;
            // As the provider does: classes that see the same types share one list.
            let mut seen = BTreeSet::new();
            for class in &classes[..number] {
                if !seen.insert(fingerprint(class)) {
                    continue;
                }
                let context = Context {
                    class,
                    region: &region.name,
                    settings: &settings,
                    learned_memory_bytes: None,
                };
                let types = instance_types(&region, &context, &market);
                offerings += types.iter().map(|it| it.offerings.len()).sum::<usize>();
            }
            best = best.min(start.elapsed());
            assert_eq!(offerings, TYPES * ZONES.len() * 2);
        }
        let before = resident_mib();
        let lists: Vec<_> = classes[..1]
            .iter()
            .map(|class| {
                let context = Context {
                    class,
                    region: &region.name,
                    settings: &settings,
                    learned_memory_bytes: None,
                };
                instance_types(&region, &context, &market)
            })
            .collect();
        let kept = resident_mib() - before;
        drop(lists);
        println!(
            "{number} EC2NodeClasses that see the same {TYPES} types, {} offerings: {:.1} ms; the list they share adds {kept:.0} MiB, the whole process has {:.0} MiB",
            TYPES * ZONES.len() * 2,
            best.as_secs_f64() * 1_000.0,
            resident_mib(),
        );
    }
}
