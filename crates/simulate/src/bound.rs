//! The least that running pods could cost per hour, whatever the decisions.
//!
//! Owns which offers count for which pods. Every bound is a [`Mix`]: pods and instances may be split at will, each instance carries its daemons, reservations
//! exist as often as they do. It looks at all pods, and alone at those that cannot use everything (that never run on spot capacity, that ask for a GPU), and takes
//! the largest. It leaves out that pods and instances are whole, topology, and the time to boot: it never exceeds what is possible, and does not say
//! how closely that can be reached.

mod mix;

pub use mix::{Amounts, Mix, Offer, RESOURCES};

use spokeshave_model::{CapacityType, InstanceType, ResourceName, Resources};
use std::collections::BTreeSet;

/// The bounds of a catalogue.
#[derive(Debug, Clone)]
pub struct Bound {
    parts: Vec<Part>,
}

/// One set of pods with the offers that can take them.
#[derive(Debug, Clone)]
struct Part {
    pods: Pods,
    resources: [ResourceName; RESOURCES],
    mix: Mix,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pods {
    All,
    /// Those that cannot run on spot capacity.
    NeverSpot,
    /// Those that ask for this resource.
    Asking(ResourceName),
}

/// What one pod adds to the demand of each part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load(Vec<[i64; RESOURCES]>);

/// The sum of the loads of the pods that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand(Vec<[i64; RESOURCES]>);

impl Demand {
    /// A pod begins to count.
    pub fn add(&mut self, load: &Load) {
        self.change(load, i64::saturating_add);
    }

    /// A pod that counted no longer does.
    pub fn remove(&mut self, load: &Load) {
        self.change(load, i64::saturating_sub);
    }

    /// What is left of it where nodes that are not bought can take so much.
    #[must_use]
    pub fn beyond(&self, free: &Demand) -> Demand {
        let mut left = self.clone();
        for (sums, free) in left.0.iter_mut().zip(&free.0) {
            for (sum, free) in sums.iter_mut().zip(free) {
                *sum = sum.saturating_sub(*free).max(0);
            }
        }
        left
    }

    fn change(&mut self, load: &Load, change: fn(i64, i64) -> i64) {
        for (sum, part) in self.0.iter_mut().zip(&load.0) {
            for (sum, amount) in sum.iter_mut().zip(part) {
                *sum = change(*sum, *amount);
            }
        }
    }
}

impl Bound {
    /// The bounds of instance types, as NodePools may launch them: all their offerings count, available or not, since a node may have been launched before.
    /// `daemons` says what DaemonSets request at least on a node of a type, pods included.
    pub fn of<'a>(
        types: impl IntoIterator<Item = &'a InstanceType>,
        daemons: impl Fn(&InstanceType) -> Resources,
    ) -> Self {
        let mut kinds: Vec<Kind> = Vec::new();
        for instance_type in types {
            let least = daemons(instance_type);
            for group in instance_type.allocatable_groups() {
                let mut room = Resources::new();
                for (name, amount) in group.allocatable.iter() {
                    room.set(name, amount.saturating_sub(least.get(name)).max(0));
                }
                kinds.extend(group.offerings.iter().map(|index| {
                    let offering = &instance_type.offerings[*index];
                    let capacity_type = offering.capacity_type();
                    Kind {
                        room: room.clone(),
                        price: offering.price.0 as f64,
                        limit: (capacity_type == Some(CapacityType::Reserved))
                            .then(|| u32::try_from(offering.reservation_capacity.max(0)).unwrap_or(u32::MAX)),
                        spot: capacity_type == Some(CapacityType::Spot),
                    }
                }));
            }
        }
        let extended: BTreeSet<&str> = kinds
            .iter()
            .flat_map(|kind| kind.room.iter())
            .filter(|(name, amount)| *amount > 0 && name.contains('/'))
            .map(|(name, _)| name)
            .collect();
        let common = [ResourceName::CPU, ResourceName::MEMORY, ResourceName::PODS].map(ResourceName::new);
        let part = |pods: Pods, resources: [ResourceName; RESOURCES]| {
            let usable = kinds.iter().filter(|kind| match &pods {
                Pods::All => true,
                Pods::NeverSpot => !kind.spot,
                Pods::Asking(name) => kind.room.get(name.as_str()) > 0,
            });
            let offers: Vec<Offer> = usable
                .map(|kind| Offer {
                    capacity: std::array::from_fn(|index| kind.room.get(resources[index].as_str()) as f64),
                    price: kind.price,
                    limit: kind.limit,
                })
                .collect();
            Part {
                mix: Mix::of(&offers),
                pods,
                resources,
            }
        };
        let mut parts = vec![part(Pods::All, common.clone())];
        if kinds.iter().any(|kind| kind.spot) {
            parts.push(part(Pods::NeverSpot, common.clone()));
        }
        for name in extended {
            let name = ResourceName::new(name);
            let resources = [common[0].clone(), common[1].clone(), name.clone()];
            parts.push(part(Pods::Asking(name), resources));
        }
        parts.retain(|part| !part.mix.is_empty());
        Self { parts }
    }

    /// What a pod with these requests adds. `never_spot`: its own constraints keep it from spot capacity.
    pub fn load(&self, requests: &Resources, never_spot: bool) -> Load {
        let amount = |name: &ResourceName| match name.as_str() {
            ResourceName::PODS => 1,
            name => requests.get(name).max(0),
        };
        Load(
            self.parts
                .iter()
                .map(|part| {
                    let counts = match &part.pods {
                        Pods::All => true,
                        Pods::NeverSpot => never_spot,
                        Pods::Asking(name) => requests.get(name.as_str()) > 0,
                    };
                    std::array::from_fn(|index| if counts { amount(&part.resources[index]) } else { 0 })
                })
                .collect(),
        )
    }

    /// What a node that is not bought can take of each part at most.
    pub fn room(&self, allocatable: &Resources) -> Load {
        let amount = |name: &ResourceName| allocatable.get(name.as_str()).max(0);
        let parts = self.parts.iter();
        let room = parts.map(|part| std::array::from_fn(|index| amount(&part.resources[index])));
        Load(room.collect())
    }

    /// The demand of no pods.
    pub fn nothing(&self) -> Demand {
        Demand(vec![[0; RESOURCES]; self.parts.len()])
    }

    /// The least price of a demand, in micro-dollars per hour, rounded down.
    pub fn at(&self, demand: &Demand) -> u64 {
        let nanos = self
            .parts
            .iter()
            .zip(&demand.0)
            .map(|(part, sums)| part.mix.at(&sums.map(|sum| sum as f64)))
            .fold(0.0, f64::max);
        // What rounding has added to the true value is far below a thousandth of a micro-dollar per dollar.
        (nanos * (1.0 - 1e-9) / 1000.0) as u64
    }
}

/// An instance type under one of its offerings, without its daemons.
struct Kind {
    room: Resources,
    /// Nano-dollars per hour.
    price: f64,
    limit: Option<u32>,
    spot: bool,
}
