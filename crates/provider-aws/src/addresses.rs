//! In which subnet of a zone an instance is launched: the one with most free addresses, less what launches under way will take (A5.1, A-064).
//!
//! A value: what EC2 says of free addresses comes in with [`found`](Addresses::found), launches are counted from
//! [`choose`](Addresses::choose) until EC2 is asked again.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_api::ec2_node_class::Subnet;
use spokeshave_model::ResourceName;

use crate::choice::Candidate;

/// Free addresses of subnets, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    subnets: BTreeMap<String, Free>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Free {
    /// What EC2 said.
    found: i64,
    /// What launches since then will take.
    expected: i64,
    /// Differs whenever EC2 was asked again.
    version: u64,
}

impl Free {
    fn left(self) -> i64 {
        self.found.saturating_sub(self.expected)
    }
}

/// The subnets of one launch, by zone, with the addresses that were set aside in each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    places: BTreeMap<String, Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    subnet: Subnet,
    set_aside: i64,
    version: u64,
}

impl Chosen {
    /// The subnet of a zone.
    #[must_use]
    pub fn subnet(&self, zone: &str) -> Option<&Subnet> {
        self.places.get(zone).map(|place| &place.subnet)
    }

    /// All of them.
    pub fn subnets(&self) -> impl Iterator<Item = &Subnet> {
        self.places.values().map(|place| &place.subnet)
    }
}

impl Addresses {
    /// EC2 says how many addresses of a subnet are free. What was counted before is forgotten: EC2 has seen those launches.
    pub fn found(&mut self, subnet: &str, free: i64) {
        let version = self.subnets.get(subnet).map_or(0, |known| known.version + 1);
        self.subnets.insert(
            subnet.to_owned(),
            Free {
                found: free,
                expected: 0,
                version,
            },
        );
    }

    /// A launch has found no free address in a subnet: it comes last until EC2 is asked again.
    pub fn exhausted(&mut self, subnet: &str) {
        self.found(subnet, 0);
    }

    /// How many addresses of a subnet are likely to be free; 0 for one that nobody has asked about.
    #[must_use]
    pub fn left(&self, subnet: &str) -> i64 {
        self.subnets.get(subnet).map_or(0, |free| free.left())
    }

    /// Chooses the subnet of each zone for an instance of one of these types, and sets aside the addresses that the smallest will need. Of equal
    /// ones the first is taken.
    pub fn choose(&mut self, subnets: &[Subnet], candidates: &[Candidate<'_>]) -> Chosen {
        let mut best: BTreeMap<&str, &Subnet> = BTreeMap::new();
        for subnet in subnets {
            let known = best.entry(&subnet.zone).or_insert(subnet);
            if self.left(&subnet.id) > self.left(&known.id) {
                *known = subnet;
            }
        }
        let mut chosen = Chosen::default();
        for (zone, subnet) in best {
            let set_aside = fewest_pods(candidates, zone);
            let free = self.subnets.entry(subnet.id.clone()).or_default();
            free.expected = free.expected.saturating_add(set_aside);
            let place = Place {
                subnet: subnet.clone(),
                set_aside,
                version: free.version,
            };
            chosen.places.insert(zone.to_owned(), place);
        }
        chosen
    }

    /// The launch is done: subnets that it did not use have their addresses back, unless EC2 was asked since.
    pub fn settle(&mut self, chosen: &Chosen, used: &BTreeSet<&str>) {
        let unused = chosen
            .places
            .values()
            .filter(|place| !used.contains(place.subnet.id.as_str()));
        for place in unused {
            if let Some(free) = self.subnets.get_mut(&place.subnet.id)
                && free.version == place.version
            {
                free.expected = free.expected.saturating_sub(place.set_aside);
            }
        }
    }
}

/// Pods of the smallest type that is for sale in the zone.
fn fewest_pods(candidates: &[Candidate<'_>], zone: &str) -> i64 {
    let sold = candidates.iter().filter(|candidate| {
        candidate
            .offerings
            .iter()
            .any(|offering| offering.zone() == Some(zone))
    });
    // Capacity of pods is counted in whole pods.
    let pods = sold.map(|candidate| candidate.instance_type.capacity.get(ResourceName::PODS));
    pods.min().unwrap_or(0)
}
