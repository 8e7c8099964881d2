//! Sizes as the Resource SKUs list has them.
//!
//! Owns what they can be given besides. What sizes have, and how the list spells it, is `provider-azure`'s.

use serde_json::{Value, json};
use spokeshave_provider_azure::skus::{Capability, ZoneDetails};

use crate::azure::Azure;
use crate::state::State;

impl Azure {
    /// Ultra disks can be attached to machines of this size in this zone, such as `2`.
    pub fn offer_ultra_disks(&self, size: &str, zone: &str) {
        let details = ZoneDetails {
            name: vec![zone.to_owned()],
            capabilities: vec![Capability {
                name: "UltraSSDAvailable".to_owned(),
                value: "True".to_owned(),
            }],
        };
        let mut state = self.state();
        let of_size = state.skus.iter_mut().filter(|sku| sku.name == size);
        for info in of_size.flat_map(|sku| &mut sku.location_info) {
            info.zone_details.push(details.clone());
        }
    }
}

impl State {
    pub(crate) fn sizes(&self) -> Vec<Value> {
        self.skus.iter().map(|sku| json!(sku)).collect()
    }
}
