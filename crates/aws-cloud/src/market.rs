//! What is for sale in the region, and for how much: types, zones, prices, what ran out lately (A3.1, A4).
//!
//! Owns what is known of the market and the instance types made from it, one list for all classes that see the same. The same list is given until something that it depends on
//! has changed, so that everything made from it can be kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_model::{InstanceType, Price, PriceFeed};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::fleet::Mark;
use spokeshave_provider_aws::instance_types::Context;
use spokeshave_provider_aws::offerings::{self, Region};
use spokeshave_provider_aws::prices::{Prices, parse_product};
use spokeshave_provider_aws::requests::Filter;
use spokeshave_provider_aws::unavailable::{OfferingKey, Unavailable};

use crate::options::AwsOptions;
use crate::ports::Aws;

/// The market of one region.
#[derive(Debug)]
pub(crate) struct Market {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    region: Arc<Region>,
    /// How often types or zones have changed; 0 before they are known.
    region_version: u64,
    prices: Prices,
    /// When spot prices were last read, or first looked for.
    prices_since: Option<Timestamp>,
    unavailable: Unavailable,
    reservations: BTreeMap<String, i64>,
    reservations_version: u64,
    /// Resource version and fingerprint of each class: most of what is written to a class changes nothing for sale.
    fingerprints: BTreeMap<String, (String, u64)>,
    /// By fingerprint: classes that see the same types share one list.
    sold: BTreeMap<u64, Sold>,
}

/// Versions of everything that a list of types is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    region: u64,
    prices: u64,
    unavailable: u64,
    reservations: u64,
}

#[derive(Debug)]
struct Sold {
    made: Made,
    types: Arc<[InstanceType]>,
}

impl State {
    /// The fingerprint of a class; lists that no class needs any more go.
    fn fingerprint(&mut self, class: &EC2NodeClass) -> u64 {
        let version = class.metadata.resource_version.as_deref().unwrap_or_default();
        let known = self.fingerprints.get(class.name());
        if let Some((_, fingerprint)) = known.filter(|(of, _)| of == version && !version.is_empty()) {
            return *fingerprint;
        }
        let fingerprint = offerings::fingerprint(class);
        let entry = (version.to_owned(), fingerprint);
        self.fingerprints.insert(class.name().to_owned(), entry);
        let needed = &self.fingerprints;
        self.sold
            .retain(|one, _| needed.values().any(|(_, it)| it == one));
        fingerprint
    }
}

impl Market {
    /// Nothing is for sale before the first [`discover`](Self::discover); on-demand prices are those of the program.
    pub(crate) fn new(region: &str) -> Self {
        Market {
            state: Mutex::new(State {
                region: Arc::new(Region {
                    name: region.to_owned(),
                    ..Region::default()
                }),
                region_version: 0,
                prices: Prices::built_in(region),
                prices_since: None,
                unavailable: Unavailable::default(),
                reservations: BTreeMap::new(),
                reservations_version: 0,
                fingerprints: BTreeMap::new(),
                sold: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether types and zones are known.
    pub(crate) fn is_known(&self) -> bool {
        self.state().region_version > 0
    }

    /// Asks EC2 for types and zones. An answer without any keeps what is known.
    pub(crate) async fn discover(&self, aws: &Aws) -> Result<(), ApiError> {
        let filters = [
            Filter::new("supported-virtualization-type", ["hvm"]),
            Filter::new("processor-info.supported-architecture", ["x86_64", "arm64"]),
        ];
        let types = aws.ec2.instance_types(&filters).await?;
        let offerings = aws.ec2.instance_type_offerings().await?;
        if types.is_empty() || offerings.is_empty() {
            return Err(ApiError::new(
                "",
                "EC2 described no instance types, or no zone that has any",
            ));
        }
        let mut state = self.state();
        let mut region = Region {
            name: state.region.name.clone(),
            types: types
                .into_iter()
                .map(|one| (one.instance_type.clone(), one))
                .collect(),
            ..Region::default()
        };
        for (name, zone) in offerings {
            region.zones.entry(name).or_default().insert(zone);
        }
        if *state.region != region {
            state.region = Arc::new(region);
            state.region_version += 1;
        }
        Ok(())
    }

    /// Asks for spot prices (A4.3).
    pub(crate) async fn refresh_spot(&self, aws: &Aws, now: Timestamp) -> Result<(), ApiError> {
        self.state().prices_since.get_or_insert(now);
        let history = aws.ec2.spot_prices(now).await?;
        let mut state = self.state();
        state.prices.set_spot(history);
        state.prices_since = Some(now);
        Ok(())
    }

    /// When spot prices were last read; before the first time, when they were first asked for.
    pub(crate) fn price_feed(&self) -> PriceFeed {
        self.state()
            .prices_since
            .map_or(PriceFeed::Fixed, PriceFeed::Since)
    }

    /// Asks for on-demand prices (A4.2): ordinary machines, then whole ones.
    pub(crate) async fn refresh_on_demand(&self, aws: &Aws, region: &str) -> Result<(), ApiError> {
        let mut prices: BTreeMap<String, Price> = BTreeMap::new();
        for (tenancy, family) in [
            ("Shared", "Compute Instance"),
            ("Dedicated", "Compute Instance (bare metal)"),
        ] {
            let filters = [
                ("regionCode", region),
                ("serviceCode", "AmazonEC2"),
                ("preInstalledSw", "NA"),
                ("operatingSystem", "Linux"),
                ("capacitystatus", "Used"),
                ("marketoption", "OnDemand"),
                ("tenancy", tenancy),
                ("productFamily", family),
            ];
            let filters: Vec<(String, String)> = filters
                .map(|(field, value)| (field.to_owned(), value.to_owned()))
                .into();
            let products = aws.pricing.products(&filters).await?;
            prices.extend(
                products
                    .iter()
                    .filter_map(|product| parse_product(product, region)),
            );
        }
        self.state().prices.set_on_demand(prices);
        Ok(())
    }

    /// Leaves out what a launch found empty.
    pub(crate) fn apply(&self, marks: impl IntoIterator<Item = Mark>, now: Timestamp) {
        let mut state = self.state();
        for mark in marks {
            if let Mark::Reservation(id) = &mark {
                state.reservations.insert(id.clone(), 0);
                state.reservations_version += 1;
            }
            mark.apply(&mut state.unavailable, now);
        }
    }

    /// Leaves out one offering, because an instance of it is taken back.
    pub(crate) fn withhold(&self, key: OfferingKey, now: Timestamp) {
        self.state().unavailable.offering(key, now);
    }

    /// Takes over how many instances capacity reservations have free.
    pub(crate) fn add_reservations(&self, free: BTreeMap<String, i64>) {
        let mut state = self.state();
        if free
            .iter()
            .any(|(id, count)| state.reservations.get(id) != Some(count))
        {
            state.reservations.extend(free);
            state.reservations_version += 1;
        }
    }

    /// The types that a class allows. `None` before types and zones are known.
    pub(crate) fn instance_types(
        &self,
        class: &EC2NodeClass,
        options: &AwsOptions,
        now: Timestamp,
    ) -> Option<Arc<[InstanceType]>> {
        let mut state = self.state();
        if state.region_version == 0 {
            return None;
        }
        state.unavailable.expire(now);
        let made = Made {
            region: state.region_version,
            prices: state.prices.version(),
            unavailable: state.unavailable.version(),
            reservations: state.reservations_version,
        };
        let fingerprint = state.fingerprint(class);
        let sold = state.sold.get(&fingerprint);
        if let Some(sold) = sold.filter(|sold| sold.made == made) {
            return Some(sold.types.clone());
        }
        let context = Context {
            class,
            region: &options.region,
            settings: &options.types,
            learned_memory_bytes: None,
        };
        let market = offerings::Market {
            prices: &state.prices,
            unavailable: &state.unavailable,
            reservations: &state.reservations,
            now,
        };
        let mut types = offerings::instance_types(&state.region, &context, &market);
        types.sort_by(|a, b| a.name.cmp(&b.name));
        let known = state.sold.get(&fingerprint).map(|sold| &sold.types);
        let types: Arc<[InstanceType]> = match known.filter(|known| known[..] == types[..]) {
            Some(known) => known.clone(),
            None => types.into(),
        };
        let sold = Sold {
            made,
            types: types.clone(),
        };
        state.sold.insert(fingerprint, sold);
        Some(types)
    }

    /// The instance type of this name as a class would have it.
    pub(crate) fn instance_type(
        &self,
        class: &EC2NodeClass,
        name: &str,
        options: &AwsOptions,
        now: Timestamp,
    ) -> Option<InstanceType> {
        let types = self.instance_types(class, options, now)?;
        types.iter().find(|one| one.name == name).cloned()
    }
}
