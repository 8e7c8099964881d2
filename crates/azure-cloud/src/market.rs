//! What Azure sells now: sizes, prices, quota, and what ran out (Z4, Z5).
//!
//! Owns the lists that classes see, and keeps each until something that it depends on has changed. The rules are `provider-azure`'s.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::AKSNodeClass;
use spokeshave_model::{InstanceType, PriceFeed};
use spokeshave_provider_azure::class_hash::class_hash;
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::instance_types::Settings;
use spokeshave_provider_azure::offerings::{self, QUOTA_LASTS, Quota};
use spokeshave_provider_azure::prices::{Item, Prices};
use spokeshave_provider_azure::skus::Sku;
use spokeshave_provider_azure::unavailable::{Mark, Unavailable};

use crate::calls::Calls;
use crate::client::MOST_PAGES;
use crate::ports::UNREADABLE;

/// What a list depends on besides its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    skus: u64,
    prices: u64,
    quota: u64,
    quota_is_fresh: bool,
    unavailable: u64,
}

#[derive(Debug)]
struct State {
    skus: Arc<Vec<Sku>>,
    skus_version: u64,
    prices: Prices,
    prices_since: Option<Timestamp>,
    /// Where the list of prices is read on; none at its beginning.
    price_reading: Option<PriceReading>,
    quota: Quota,
    quota_version: u64,
    quota_read: Option<Timestamp>,
    unavailable: Unavailable,
    /// By the hash of the class.
    lists: BTreeMap<String, Listed>,
}

/// A list that was given.
#[derive(Debug)]
struct Listed {
    of: Version,
    types: Arc<[InstanceType]>,
    /// When it was last asked for.
    asked: Timestamp,
}

/// What Azure sells now.
#[derive(Debug)]
pub(crate) struct Market {
    state: Mutex<State>,
}

/// A list of prices that is being read, page by page.
#[derive(Debug)]
struct PriceReading {
    /// Address of the page that is read next.
    page: String,
    /// Pages that have been read.
    pages: usize,
    /// How often in a row the next one could not be.
    failures: u32,
    /// Whether any page had prices.
    found_any: bool,
}

impl PriceReading {
    fn new(first_page: String) -> Self {
        PriceReading {
            page: first_page,
            pages: 0,
            failures: 0,
            found_any: false,
        }
    }

    /// Reads to the end of the list, or to a page that cannot be had. An empty page is the end.
    async fn read_on(&mut self, calls: Calls<'_>, items: &mut Vec<Item>) -> Result<(), ArmError> {
        while self.pages < MOST_PAGES {
            let read = calls.price_page(&self.page).await;
            let page = read.inspect_err(|_| self.failures += 1)?;
            if page.items.is_empty() {
                return Ok(());
            }
            (self.failures, self.found_any) = (0, true);
            self.pages += 1;
            items.extend(page.items);
            match page.next_page_link.filter(|link| !link.is_empty()) {
                Some(next) => self.page = next,
                None => return Ok(()),
            }
        }
        Err(ArmError::new(UNREADABLE, "the list of prices has no end"))
    }

    /// Whether it has to begin again at the first page: the address of this one may not hold any more.
    fn is_lost(&self, error: &ArmError) -> bool {
        let is_refused = (400..500).contains(&error.status) && ![408, 429].contains(&error.status);
        is_refused || self.failures >= MOST_TRIES || self.pages >= MOST_PAGES
    }
}

/// How often a page of prices is asked for in a row before the list is begun again.
const MOST_TRIES: u32 = 5;

/// A list that nobody asks for any more is kept for so long. Core asks for those of classes in use every few seconds: one that had gone meanwhile would
/// be another allocation at each look.
const LIST_LASTS: SignedDuration = SignedDuration::from_hours(1);

impl Market {
    pub(crate) fn new() -> Self {
        Market {
            state: Mutex::new(State {
                skus: Arc::default(),
                skus_version: 0,
                prices: Prices::built_in(),
                prices_since: None,
                price_reading: None,
                quota: Quota::default(),
                quota_version: 0,
                quota_read: None,
                unavailable: Unavailable::default(),
                lists: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for sizes. An answer without any keeps what is known.
    pub(crate) async fn discover_skus(&self, calls: Calls<'_>) -> Result<(), ArmError> {
        let skus = calls.skus().await?;
        if skus.is_empty() {
            let region = &calls.options.settings.region;
            return Err(ArmError::new(
                "",
                &format!("Azure names no sizes for location {region:?}"),
            ));
        }
        let mut state = self.state();
        if *state.skus != skus {
            state.skus = Arc::new(skus);
            state.skus_version += 1;
        }
        Ok(())
    }

    /// Asks for prices. Pages that were read before one fails count, and the next call goes on with the one that failed.
    pub(crate) async fn discover_prices(&self, calls: Calls<'_>, now: Timestamp) -> Result<(), ArmError> {
        let begun = self.state().price_reading.take();
        let mut reading = begun.unwrap_or_else(|| PriceReading::new(calls.first_price_page()));
        let mut items = Vec::new();
        let answer = reading.read_on(calls, &mut items).await;
        let mut state = self.state();
        state.prices_since.get_or_insert(now);
        state.prices.update(&items);
        match answer {
            Ok(()) if reading.found_any => state.prices_since = Some(now),
            Ok(()) => {}
            Err(error) => {
                state.price_reading = (!reading.is_lost(&error)).then_some(reading);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Asks for quotas.
    pub(crate) async fn discover_quota(&self, calls: Calls<'_>, now: Timestamp) -> Result<(), ArmError> {
        let quota = Quota::new(calls.usages().await?, now);
        let mut state = self.state();
        state.quota = quota;
        state.quota_read = Some(now);
        state.quota_version += 1;
        Ok(())
    }

    /// How old prices are.
    pub(crate) fn price_feed(&self) -> PriceFeed {
        self.state()
            .prices_since
            .map_or(PriceFeed::Fixed, PriceFeed::Since)
    }

    /// A size by its name.
    pub(crate) fn sku(&self, name: &str) -> Option<Sku> {
        let skus = self.state().skus.clone();
        skus.iter().find(|sku| sku.name == name).cloned()
    }

    /// Leaves out what has run out. Returns whether any of it was for sale until now.
    pub(crate) fn mark(&self, marks: &[Mark], now: Timestamp) -> bool {
        let mut state = self.state();
        let before = state.unavailable.version();
        for mark in marks {
            state.unavailable.mark(mark, now);
        }
        state.unavailable.version() != before
    }

    /// What a class sees; the same allocation while nothing has changed. `None` before sizes are known.
    pub(crate) fn instance_types(
        &self,
        class: &AKSNodeClass,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<Arc<[InstanceType]>> {
        let mut state = self.state();
        if state.skus_version == 0 {
            return None;
        }
        state.unavailable.expire(now);
        let version = Version {
            skus: state.skus_version,
            prices: state.prices.version(),
            quota: state.quota_version,
            quota_is_fresh: state
                .quota_read
                .is_some_and(|read| now.duration_since(read) <= QUOTA_LASTS),
            unavailable: state.unavailable.version(),
        };
        let hash = class_hash(class);
        let kept = state.lists.get_mut(&hash).map(|kept| {
            kept.asked = now;
            (kept.of, kept.types.clone())
        });
        if let Some((_, types)) = kept.as_ref().filter(|(of, _)| *of == version) {
            return Some(types.clone());
        }
        let market = offerings::Market {
            prices: &state.prices,
            unavailable: &state.unavailable,
            quota: &state.quota,
            now,
        };
        let fresh = offerings::instance_types(&state.skus, class, settings, &market);
        let types: Arc<[InstanceType]> = match kept {
            Some((_, types)) if *types == *fresh => types,
            _ => fresh.into(),
        };
        let listed = Listed {
            of: version,
            types: types.clone(),
            asked: now,
        };
        state.lists.insert(hash, listed);
        state
            .lists
            .retain(|_, one| now.duration_since(one.asked) <= LIST_LASTS);
        Some(types)
    }
}
