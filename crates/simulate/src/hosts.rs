//! The nodes of the model of kube-scheduler, side by side: the scheduler goes through all of them for each pod.
//!
//! Owns what is on each node and what it offers. Which node a pod gets is not decided here. A node has a place of its own until it is gone; then another gets it.

use rustc_hash::FxHashMap;
use spokeshave_model::vector::ResourceVector;
use spokeshave_model::{Requirements, taint};

/// A node as the scheduler sees it, besides its room.
#[derive(Debug)]
pub(crate) struct Host {
    /// Of equal nodes the first by name is chosen.
    pub(crate) name: String,
    pub(crate) labels: Requirements,
    pub(crate) taints: Vec<taint::Taint>,
    /// The domain for each topology key, if the node has one.
    pub(crate) domains: Vec<Option<u32>>,
}

/// Whether a node suits a shape of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suits {
    Unknown,
    Yes,
    /// It is selected, and has a taint that the pods do not tolerate.
    Tainted,
    No,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Hosts {
    width: usize,
    places: FxHashMap<u32, usize>,
    free_places: Vec<usize>,
    machines: Vec<u32>,
    is_there: Vec<bool>,
    is_open: Vec<bool>,
    /// `width` numbers each.
    allocatable: Vec<i64>,
    used: Vec<i64>,
    hosts: Vec<Host>,
    /// By shape and place.
    suits: Vec<Vec<Suits>>,
}

impl Hosts {
    pub(crate) fn new(width: usize, shapes: usize) -> Self {
        Hosts {
            width,
            places: FxHashMap::default(),
            free_places: Vec::new(),
            machines: Vec::new(),
            is_there: Vec::new(),
            is_open: Vec::new(),
            allocatable: Vec::new(),
            used: Vec::new(),
            hosts: Vec::new(),
            suits: vec![Vec::new(); shapes],
        }
    }

    /// One more shape of pods.
    pub(crate) fn add_shape(&mut self) {
        self.suits.push(vec![Suits::Unknown; self.hosts.len()]);
    }

    /// Takes a node in as it is now. What runs on it stays counted.
    pub(crate) fn set(&mut self, machine: u32, is_open: bool, allocatable: &ResourceVector, host: Host) {
        let place = match self.places.get(&machine) {
            Some(place) => *place,
            None => self.new_place(machine),
        };
        self.is_open[place] = is_open;
        self.hosts[place] = host;
        let range = self.range(place);
        self.allocatable[range].copy_from_slice(&allocatable.0);
        self.suits
            .iter_mut()
            .for_each(|suits| suits[place] = Suits::Unknown);
    }

    fn new_place(&mut self, machine: u32) -> usize {
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.machines.push(machine);
            self.is_there.push(false);
            self.is_open.push(false);
            self.allocatable.resize(self.allocatable.len() + self.width, 0);
            self.used.resize(self.used.len() + self.width, 0);
            self.hosts.push(Host {
                name: String::new(),
                labels: Requirements::default(),
                taints: Vec::new(),
                domains: Vec::new(),
            });
            self.suits.iter_mut().for_each(|suits| suits.push(Suits::Unknown));
            self.machines.len() - 1
        });
        self.machines[place] = machine;
        self.is_there[place] = true;
        let range = self.range(place);
        self.used[range].fill(0);
        self.places.insert(machine, place);
        place
    }

    /// A node is gone, with its pods.
    pub(crate) fn remove(&mut self, machine: u32) {
        if let Some(place) = self.places.remove(&machine) {
            self.is_there[place] = false;
            self.is_open[place] = false;
            self.free_places.push(place);
        }
    }

    fn range(&self, place: usize) -> std::ops::Range<usize> {
        place * self.width..(place + 1) * self.width
    }

    pub(crate) fn place(&self, machine: u32) -> Option<usize> {
        self.places.get(&machine).copied()
    }

    /// How many places there are.
    pub(crate) fn count(&self) -> usize {
        self.is_open.len()
    }

    /// Whether there is a node at a place.
    pub(crate) fn is_there(&self, place: usize) -> bool {
        self.is_there[place]
    }

    /// Whether there is a node at a place, and it takes pods.
    pub(crate) fn is_open(&self, place: usize) -> bool {
        self.is_open[place]
    }

    pub(crate) fn machine(&self, place: usize) -> u32 {
        self.machines[place]
    }

    pub(crate) fn host(&self, place: usize) -> &Host {
        &self.hosts[place]
    }

    pub(crate) fn allocatable(&self, place: usize) -> &[i64] {
        &self.allocatable[self.range(place)]
    }

    pub(crate) fn used(&self, place: usize) -> &[i64] {
        &self.used[self.range(place)]
    }

    /// Counts what a pod takes, or gives back.
    pub(crate) fn change(&mut self, place: usize, requests: &ResourceVector, by: i64) {
        let range = self.range(place);
        for (used, amount) in self.used[range].iter_mut().zip(&requests.0) {
            *used += by * amount;
        }
    }

    /// Whether a node suits a shape, and `find` says it where it is not known.
    pub(crate) fn suits(&mut self, shape: usize, place: usize, find: impl FnOnce(&Host) -> Suits) -> Suits {
        let known = &mut self.suits[shape][place];
        if *known == Suits::Unknown {
            *known = find(&self.hosts[place]);
        }
        *known
    }
}
