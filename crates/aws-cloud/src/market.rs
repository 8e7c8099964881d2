//! What is for sale in the region, and for how much: types, zones, prices, what ran out lately (A3.1, A4).
//!
//! Owns what is known of the market and the instance types made from it, one list for all classes that see the same. The same list is given until something that it depends on
//! has changed, so that everything made from it can be kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_api::hash::digest;
use spokeshave_model::{CapacityType, InstanceType, Price, PriceFeed, ResourceName};
use spokeshave_ports::{MeasuredValue, Measurement, MeasurementKind};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::fleet::Mark;
use spokeshave_provider_aws::images;
use spokeshave_provider_aws::instance_types::Context;
use spokeshave_provider_aws::learned::{self, Learned};
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
    /// Reservations that EC2 was asked for, whether it has answered or not: what it has not told of has none free.
    reservations_asked: BTreeSet<String>,
    /// IDs of zones that are shifted away from.
    shifted: BTreeSet<String>,
    shifted_version: u64,
    learned: Learned,
    /// Resource version, version of what was learned and fingerprint of each class: most of what is written to a class changes nothing for sale.
    fingerprints: BTreeMap<String, (String, u64, u64)>,
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
    shifted: u64,
    learned: u64,
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
        let learned = self.learned.version();
        let is_known =
            |known: &&(String, u64, u64)| known.0 == version && !version.is_empty() && known.1 == learned;
        if let Some((_, _, fingerprint)) = known.filter(is_known) {
            return *fingerprint;
        }
        let mut fingerprint = offerings::fingerprint(class);
        // Only classes of whose nodes something is known see other memory than their neighbours.
        let images = learned::images_of(class);
        if self.learned.knows(images) {
            fingerprint = digest(&format!("{fingerprint} {images}"));
        }
        let entry = (version.to_owned(), learned, fingerprint);
        self.fingerprints.insert(class.name().to_owned(), entry);
        let needed = &self.fingerprints;
        self.sold
            .retain(|one, _| needed.values().any(|(_, _, it)| it == one));
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
                reservations_asked: BTreeSet::new(),
                shifted: BTreeSet::new(),
                shifted_version: 0,
                learned: Learned::default(),
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
    ///
    /// # Errors
    /// The text of the call that failed: which it was, what EC2 said, and what to do about it.
    pub(crate) async fn discover(&self, aws: &Aws) -> Result<(), String> {
        let filters = [
            Filter::new("supported-virtualization-type", ["hvm"]),
            Filter::new("processor-info.supported-architecture", ["x86_64", "arm64"]),
        ];
        let failed = |call: &'static str| move |error: ApiError| error.told(call);
        let types = aws.ec2.instance_types(&filters).await;
        let types = types.map_err(failed("ec2:DescribeInstanceTypes"))?;
        let offerings = aws.ec2.instance_type_offerings().await;
        let offerings = offerings.map_err(failed("ec2:DescribeInstanceTypeOfferings"))?;
        if types.is_empty() || offerings.is_empty() {
            return Err("EC2 described no instance types, or no zone that has any".to_owned());
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

    /// Asks for on-demand prices (A4.2): ordinary machines, then whole ones. What is told of the one counts also where nothing is told of the other.
    ///
    /// # Errors
    /// The call that failed, or a list without any price: price lists are not empty.
    pub(crate) async fn refresh_on_demand(&self, aws: &Aws, region: &str) -> Result<(), ApiError> {
        let mut prices: BTreeMap<String, Price> = BTreeMap::new();
        let mut without: Vec<&str> = Vec::new();
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
            let known = prices.len();
            prices.extend(
                products
                    .iter()
                    .filter_map(|product| parse_product(product, region)),
            );
            if prices.len() == known {
                without.push(family);
            }
        }
        self.state().prices.set_on_demand(prices);
        if without.is_empty() {
            return Ok(());
        }
        let without = without.join(" and of ");
        Err(ApiError::new(
            "",
            &format!("pricing:GetProducts has no prices of {without} in {region}"),
        ))
    }

    /// Takes over what NodeOverlays say of types that nobody else has a price of.
    pub(crate) fn set_overlaid(&self, prices: BTreeMap<String, Price>) {
        self.state().prices.set_overlaid(prices);
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

    /// An instance was launched into a capacity reservation: EC2 is not asked again before the next one is planned (A4.1). Those that end are counted by EC2 alone:
    /// that one is gone is told several times, and also after EC2 has counted it.
    pub(crate) fn launched(&self, reservation: &str) {
        let mut state = self.state();
        if let Some(free) = state.reservations.get_mut(reservation) {
            *free = free.saturating_sub(1).max(0);
            state.reservations_version += 1;
        }
    }

    /// Leaves out one offering, because an instance of it is taken back.
    pub(crate) fn withhold(&self, key: OfferingKey, now: Timestamp) {
        self.state().unavailable.offering(key, now);
    }

    /// Takes over from which zones traffic is shifted away: those that are news, and those that are back.
    pub(crate) fn set_shifted(&self, shifted: BTreeSet<String>) -> (Vec<String>, Vec<String>) {
        let mut state = self.state();
        let news = shifted.difference(&state.shifted).cloned().collect();
        let back = state.shifted.difference(&shifted).cloned().collect();
        if state.shifted != shifted {
            state.shifted = shifted;
            state.shifted_version += 1;
        }
        (news, back)
    }

    /// Whether traffic is shifted away from the zone with this ID.
    pub(crate) fn is_shifted(&self, zone_id: &str) -> bool {
        self.state().shifted.contains(zone_id)
    }

    /// Takes in how much memory a node of a class has. What has another image than the class gives the type now says nothing about new nodes.
    pub(crate) fn learn(
        &self,
        class: &EC2NodeClass,
        (instance_type, image_id): (&InstanceType, &str),
        bytes: i64,
        now: Timestamp,
    ) {
        let amis = class.status.as_ref().map_or(&[][..], |status| &status.amis);
        let image = images::image_for(amis, &instance_type.requirements);
        if bytes > 0 && image.is_some_and(|image| image.id == image_id) {
            let images = learned::images_of(class);
            let learned = &mut self.state().learned;
            learned.see(images, &instance_type.name, bytes, now);
        }
    }

    /// Takes over how many instances capacity reservations have free.
    pub(crate) fn add_reservations(&self, free: BTreeMap<String, i64>) {
        let mut state = self.state();
        state.reservations_asked.extend(free.keys().cloned());
        if free
            .iter()
            .any(|(id, count)| state.reservations.get(id) != Some(count))
        {
            state.reservations.extend(free);
            state.reservations_version += 1;
        }
    }

    /// EC2 does not answer for these: nobody waits for it any longer.
    pub(crate) fn ask_in_vain(&self, reservations: impl IntoIterator<Item = String>) {
        self.state().reservations_asked.extend(reservations);
    }

    /// Those of these reservations that EC2 was not asked for yet.
    pub(crate) fn unasked<'a>(&self, reservations: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        let state = self.state();
        let all = reservations.into_iter();
        let unasked = all.filter(|id| !state.reservations_asked.contains(*id));
        unasked.map(str::to_owned).collect()
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
        state.learned.expire(now);
        let made = Made {
            region: state.region_version,
            prices: state.prices.version(),
            unavailable: state.unavailable.version(),
            reservations: state.reservations_version,
            shifted: state.shifted_version,
            learned: state.learned.version(),
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
            shifted: &state.shifted,
            learned: &state.learned,
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

    /// Offerings, prices and sizes of instance types as metrics (A11). An offering is available where some class may use it. The label `instance_type`
    /// leaves their thousands of series to those who ask for metrics of single objects.
    pub(crate) fn measurements(&self) -> Vec<Measurement> {
        let lists: Vec<Arc<[InstanceType]>> = {
            let state = self.state();
            state.sold.values().map(|sold| sold.types.clone()).collect()
        };
        let mut offerings: BTreeMap<[&str; 3], (bool, Price)> = BTreeMap::new();
        let mut sizes: BTreeMap<&str, &InstanceType> = BTreeMap::new();
        for instance_type in lists.iter().flat_map(|list| list.iter()) {
            sizes.insert(&instance_type.name, instance_type);
            for offering in &instance_type.offerings {
                let capacity_type = offering.capacity_type().map_or("", CapacityType::as_str);
                let zone = offering.zone().unwrap_or_default();
                let key = [instance_type.name.as_str(), capacity_type, zone];
                let (available, price) = offerings.entry(key).or_insert((false, offering.price));
                *available |= offering.available;
                *price = offering.price;
            }
        }
        let by_offering = |value: fn(&(bool, Price)) -> f64| {
            let series = offerings
                .iter()
                .map(|(key, it)| (key.map(str::to_owned).into(), MeasuredValue::Number(value(it))));
            series.collect::<Vec<_>>()
        };
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
        let by_type = |resource: &str, unit: f64| {
            let series = sizes.iter().map(|(name, it)| {
                let amount = it.capacity.get(resource) as f64 / unit;
                (vec![(*name).to_owned()], MeasuredValue::Number(amount))
            });
            series.collect::<Vec<_>>()
        };
        let gauge = |name, help, labels, series| Measurement {
            name,
            help,
            labels,
            kind: MeasurementKind::Gauge,
            series,
        };
        let of_offering: &[&str] = &["instance_type", "capacity_type", "zone"];
        vec![
            gauge(
                "karpenter_cloudprovider_instance_type_offering_available",
                "Instance type offering availability, based on instance type, capacity type, and zone",
                of_offering,
                by_offering(|(available, _)| f64::from(u8::from(*available))),
            ),
            gauge(
                "karpenter_cloudprovider_instance_type_offering_price_estimate",
                "Instance type offering estimated hourly price used when making informed decisions on node cost calculation, based on instance type, capacity type, and zone.",
                of_offering,
                by_offering(|(_, price)| price.dollars()),
            ),
            gauge(
                "karpenter_cloudprovider_instance_type_cpu_cores",
                "VCPUs cores for a given instance type.",
                &["instance_type"],
                by_type(ResourceName::CPU, 1000.0),
            ),
            gauge(
                "karpenter_cloudprovider_instance_type_memory_bytes",
                "Memory, in bytes, for a given instance type.",
                &["instance_type"],
                by_type(ResourceName::MEMORY, 1.0),
            ),
        ]
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
