//! One overlay as values: what it asks of a type, and what it does to it.

use std::collections::BTreeSet;

use spokeshave_api::NodeOverlay;
use spokeshave_api::validation::{LabelRules, node_overlay_failures};
use spokeshave_model::{InstanceType, Offering, Price, Requirements, Resources};

/// A hundred percent, in the unit in which percentages are kept: a thousand-millionth of a percent.
const WHOLE: i128 = 100 * 1_000_000_000;

/// A change of a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriceChange {
    /// Instead of the price.
    Absolute(Price),
    /// Added to the price; may be negative.
    Add(Price),
    /// Added in percent, times 10⁹; may be negative.
    Percent(i64),
}

impl PriceChange {
    /// What it makes of the price of an offering; none where nobody knows that: more or less than what is not known is not known either.
    fn on(self, offering: &Offering) -> Option<Price> {
        match self {
            PriceChange::Absolute(price) => Some(price),
            PriceChange::Add(_) | PriceChange::Percent(_) => {
                offering.known_price().map(|price| self.apply(price))
            }
        }
    }

    /// The price after the change, never below zero.
    pub(super) fn apply(self, price: Price) -> Price {
        let changed = match self {
            PriceChange::Absolute(price) => price,
            PriceChange::Add(change) => price.saturating_add(change),
            PriceChange::Percent(percent) => {
                let product = i128::from(price.0) * (WHOLE + i128::from(percent));
                let rounded = (product + WHOLE / 2) / WHOLE;
                Price(i64::try_from(rounded).unwrap_or(i64::MAX))
            }
        };
        changed.max(Price::ZERO)
    }

    /// From `price` or `priceAdjustment`.
    fn read(overlay: &NodeOverlay, failures: &mut Vec<String>) -> Option<Self> {
        match (&overlay.spec.price, &overlay.spec.price_adjustment) {
            (None, None) => None,
            (Some(_), Some(_)) => {
                failures.push("cannot set both 'price' and 'priceAdjustment'".to_owned());
                None
            }
            (Some(text), None) => {
                let parsed = text.parse().map(PriceChange::Absolute);
                if parsed.is_err() {
                    failures.push(format!(
                        "invalid value: {text:?} in price, expected dollars per hour such as 0.05"
                    ));
                }
                parsed.ok()
            }
            (None, Some(text)) => {
                let change = Self::adjustment(text);
                if change.is_none() {
                    failures.push(format!(
                        "invalid value: {text:?} in priceAdjustment, expected a signed change such as +0.05 or -10%, of which at most -100% can be taken away"
                    ));
                }
                change
            }
        }
    }

    /// `+x`, `-x`, `+x%`, or `-x%` down to -100 %.
    fn adjustment(text: &str) -> Option<Self> {
        let (sign, amount) = match text.strip_prefix('-') {
            Some(amount) => (-1, amount),
            None => (1, text.strip_prefix('+')?),
        };
        match amount.strip_suffix('%') {
            None => Some(PriceChange::Add(Price(sign * amount.parse::<Price>().ok()?.0))),
            Some(amount) => {
                let percent = sign * amount.parse::<Price>().ok()?.0;
                (i128::from(percent) >= -WHOLE).then_some(PriceChange::Percent(percent))
            }
        }
    }
}

/// An overlay that is valid in itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Effect {
    pub(super) name: String,
    pub(super) weight: i32,
    pub(super) requirements: Requirements,
    pub(super) price: Option<PriceChange>,
    pub(super) capacity: Resources,
}

impl Effect {
    /// All failures, when there is any.
    pub(super) fn read(overlay: &NodeOverlay, rules: &LabelRules) -> Result<Self, Vec<String>> {
        let mut failures = node_overlay_failures(overlay, rules);
        let price = PriceChange::read(overlay, &mut failures);
        let capacity = capacity(overlay, &mut failures);
        let requirements = Requirements::from_api(&overlay.spec.requirements);
        if let Err(error) = &requirements
            && failures.is_empty()
        {
            failures.push(format!("invalid value: {error} in requirements, restricted"));
        }
        if !failures.is_empty() {
            return Err(failures);
        }
        Ok(Self {
            name: overlay.name().to_owned(),
            weight: overlay.spec.weight.unwrap_or(0),
            requirements: requirements.unwrap_or_default(),
            price,
            capacity,
        })
    }

    pub(super) fn changes_anything(&self) -> bool {
        self.price.is_some() || !self.capacity.is_empty()
    }

    /// The offerings of a type that it is about, by position; none when it is not about the type. What the overlay names must be known of
    /// the node (no undefined labels, P §13); what only the offering names (zone, reservation) must not contradict.
    pub(super) fn offerings<'a>(
        &'a self,
        known: &Requirements,
        instance_type: &'a InstanceType,
    ) -> impl Iterator<Item = usize> + 'a {
        let matches = known.compatible(&self.requirements, &BTreeSet::new()).is_ok();
        let offerings = instance_type.offerings.iter().enumerate();
        offerings
            .filter(move |(_, offering)| {
                matches && self.requirements.intersects(&offering.requirements).is_ok()
            })
            .map(|(index, _)| index)
    }
}

/// A negative amount would close the type to every pod.
fn capacity(overlay: &NodeOverlay, failures: &mut Vec<String>) -> Resources {
    let mut capacity = Resources::new();
    for (name, quantity) in &overlay.spec.capacity {
        match Resources::parse([(name.as_str(), quantity.0.as_str())]) {
            Ok(one) if one.get(name) >= 0 => capacity.override_with(&one),
            _ => failures.push(format!(
                "invalid value: {:?} in capacity[{name}], expected a quantity that is not negative, such as 1",
                quantity.0
            )),
        }
    }
    capacity
}

/// A type as these overlays correct it, heaviest first: of several prices for an offering the first that comes to anything counts, of several amounts of a resource
/// the first.
/// `None` when none is about it, or it stays what it is. Capacity is that of the whole type, even if only some of its offerings match (P §13).
pub(super) fn correct(
    effects: &[&Effect],
    known: &Requirements,
    instance_type: &InstanceType,
) -> Option<InstanceType> {
    let mut prices: Vec<Option<Price>> = vec![None; instance_type.offerings.len()];
    let mut capacity = Resources::new();
    for effect in effects {
        let mut concerned = false;
        for offering in effect.offerings(known, instance_type) {
            concerned = true;
            let change = || effect.price?.on(&instance_type.offerings[offering]);
            prices[offering] = prices[offering].or_else(change);
        }
        if concerned {
            let mut merged = effect.capacity.clone();
            merged.override_with(&capacity);
            capacity = merged;
        }
    }
    let price = prices.iter().any(Option::is_some);
    if !price && capacity.is_empty() {
        return None;
    }
    let mut corrected = instance_type.clone();
    corrected.overlaid.price = price;
    corrected.overlaid.capacity = !capacity.is_empty();
    corrected.capacity.override_with(&capacity);
    for (offering, price) in corrected.offerings.iter_mut().zip(prices) {
        if let Some(price) = price {
            (offering.price, offering.overlaid) = (price, true);
        }
        // An offering that says otherwise of the same resource is corrected as well; whatever else it says stays (B-49).
        for (name, amount) in capacity.iter() {
            if let Some(overrides) = offering
                .overrides
                .as_mut()
                .filter(|own| own.capacity.contains(name))
            {
                overrides.capacity.set(name, amount);
            }
        }
    }
    Some(corrected)
}
