//! Sizes as the Resource SKUs list has them.
//!
//! Owns how the list spells them. What sizes have are facts of `provider-azure`.

use serde_json::{Value, json};
use spokeshave_provider_azure::skus::{Capability, Sku, ZoneDetails};

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

/// The service names zones under `Name`, which is not what its documents say.
fn spelled(sku: &Sku) -> Value {
    let mut row = json!(sku);
    let infos = row["locationInfo"].as_array_mut().into_iter().flatten();
    let details = infos
        .filter_map(|info| info["zoneDetails"].as_array_mut())
        .flatten();
    for fields in details.filter_map(Value::as_object_mut) {
        if let Some(zones) = fields.remove("name") {
            fields.insert("Name".to_owned(), zones);
        }
    }
    row
}

impl State {
    pub(crate) fn sizes(&self) -> Vec<Value> {
        self.skus.iter().map(spelled).collect()
    }
}
