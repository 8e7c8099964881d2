//! Numbers for the names that placements compare: host ports, volume attachments, reservations.

use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::HostPort;

/// Names met so far, each with its number.
#[derive(Clone, Debug)]
pub(crate) struct Numbers<'a> {
    ports: Vec<&'a HostPort>,
    port_ids: FxHashMap<&'a HostPort, u32>,
    reservations: Vec<(&'a str, &'a str)>,
    reservation_ids: FxHashMap<(&'a str, &'a str), u32>,
    drivers: FxHashMap<&'a str, u32>,
    /// Driver of each attachment.
    attachments: Vec<u32>,
    attachment_ids: FxHashMap<(&'a str, &'a str), u32>,
}

impl<'a> Numbers<'a> {
    pub(crate) fn new() -> Self {
        Numbers {
            ports: Vec::new(),
            port_ids: FxHashMap::with_hasher(FxBuildHasher),
            reservations: Vec::new(),
            reservation_ids: FxHashMap::with_hasher(FxBuildHasher),
            drivers: FxHashMap::with_hasher(FxBuildHasher),
            attachments: Vec::new(),
            attachment_ids: FxHashMap::with_hasher(FxBuildHasher),
        }
    }

    pub(crate) fn port(&mut self, port: &'a HostPort) -> u32 {
        *self.port_ids.entry(port).or_insert_with(|| {
            self.ports.push(port);
            self.ports.len() as u32 - 1
        })
    }

    /// Whether any port of one list conflicts with any of the other (P-114).
    pub(crate) fn conflict(&self, left: &[u32], right: &[u32]) -> bool {
        left.iter().any(|one| {
            right
                .iter()
                .any(|other| self.ports[*one as usize].conflicts_with(self.ports[*other as usize]))
        })
    }

    /// A reservation, named by label and ID.
    pub(crate) fn reservation(&mut self, name: (&'a str, &'a str)) -> u32 {
        *self.reservation_ids.entry(name).or_insert_with(|| {
            self.reservations.push(name);
            self.reservations.len() as u32 - 1
        })
    }

    pub(crate) fn reservation_name(&self, reservation: u32) -> (&'a str, &'a str) {
        self.reservations[reservation as usize]
    }

    pub(crate) fn reservation_count(&self) -> usize {
        self.reservations.len()
    }

    pub(crate) fn driver(&mut self, name: &'a str) -> u32 {
        let next = self.drivers.len() as u32;
        *self.drivers.entry(name).or_insert(next)
    }

    /// What a driver is called.
    pub(crate) fn driver_name(&self, driver: u32) -> &'a str {
        let mut names = self.drivers.iter();
        names
            .find(|(_, number)| **number == driver)
            .map_or("", |(name, _)| *name)
    }

    /// A claim attached by a driver.
    pub(crate) fn attachment(&mut self, driver: &'a str, claim: &'a str) -> u32 {
        let driver_id = self.driver(driver);
        *self.attachment_ids.entry((driver, claim)).or_insert_with(|| {
            self.attachments.push(driver_id);
            self.attachments.len() as u32 - 1
        })
    }

    pub(crate) fn driver_of(&self, attachment: u32) -> u32 {
        self.attachments[attachment as usize]
    }
}
