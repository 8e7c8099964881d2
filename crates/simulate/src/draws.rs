//! Everything that is drawn in a run, by name: delays of machines and pods, names and UIDs.
//!
//! Owns which draw goes by which path, so that both engines, and every policy, meet the same luck. Whatever is not drawn is not here.

use spokeshave_scenario::Spread;

use crate::luck::Luck;
use crate::world::{Delays, SpotInterruptions};

/// The draws of a seed. Machines are numbered in the order in which their NodeClaims are made.
#[derive(Debug, Clone)]
pub struct Draws(Luck);

impl Draws {
    /// The draws of this seed.
    pub fn new(seed: u64) -> Self {
        Draws(Luck::new(seed))
    }

    fn of_machine(&self, what: &str, machine: u32, spread: Spread) -> u64 {
        self.0.child(what).duration_ms(&format!("{machine}"), spread)
    }

    /// The end of the generated name of a NodeClaim.
    pub fn claim_suffix(&self, machine: u32) -> String {
        self.0.suffix(&format!("claim/{machine}"), 5)
    }

    /// Another one, because another machine has that by chance.
    pub fn claim_suffix_again(&self, machine: u32, attempt: u32) -> String {
        self.0.suffix(&format!("claim/{machine}/{attempt}"), 5)
    }

    /// From the launch call to its answer, in milliseconds.
    pub fn launch_ms(&self, machine: u32, delays: &Delays) -> u64 {
        self.of_machine("launch", machine, delays.launch)
    }

    /// From the answer until the kubelet joins, in milliseconds.
    pub fn boot_ms(&self, machine: u32, delays: &Delays) -> u64 {
        self.of_machine("boot", machine, delays.boot)
    }

    /// From joining until the node is ready, in milliseconds.
    pub fn node_ready_ms(&self, machine: u32, delays: &Delays) -> u64 {
        self.of_machine("node", machine, delays.node_ready)
    }

    /// From the termination call until the instance is gone, in milliseconds.
    pub fn end_ms(&self, machine: u32, delays: &Delays) -> u64 {
        self.of_machine("end", machine, delays.instance_end)
    }

    /// From the launch until the notice of an interruption, in milliseconds; `None` if there never is one.
    pub fn spot_ms(&self, machine: u32, spot: &SpotInterruptions) -> Option<u64> {
        let luck = self.0.child("spot");
        luck.waiting_ms(&format!("{machine}"), spot.per_million_node_hours)
    }

    /// The place of a zone among offerings of one price.
    pub fn zone(&self, machine: u32, zone: &str) -> u64 {
        self.0.child("zone").number(&format!("{machine}/{zone}"))
    }

    /// From the binding of a pod until it is ready, in milliseconds.
    pub fn pod_ready_ms(&self, owner: u32, number: u64, spread: Spread) -> u64 {
        self.0
            .child("ready")
            .duration_ms(&format!("{owner}/{number}"), spread)
    }
}

/// The UID of a workload's pod: distinct for each life, and equal under every policy for the first.
pub fn pod_uid(owner: u32, number: u64, born_ms: u64) -> String {
    format!("{:016x}-{owner}-{number}-{born_ms}", mixed(owner, number))
}

/// The UID of a DaemonSet's pod.
pub fn daemon_uid(daemon: u32, machine: u32) -> String {
    format!(
        "{:016x}-daemon-{daemon}-{machine}",
        mixed(daemon, u64::from(machine))
    )
}

/// Bits of two numbers mixed, so that consecutive UIDs do not sort by owner (splitmix64).
fn mixed(owner: u32, number: u64) -> u64 {
    let mut bits = (u64::from(owner) << 40) ^ number;
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
