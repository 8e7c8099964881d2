//! The retail price list, and pages of it that fail.
//!
//! Owns synthetic prices: $0.05 for each vCPU, spot a fifth of it. Real ones are never asked for.

use serde_json::json;
use spokeshave_azure_cloud::Response;

use crate::azure::Azure;
use crate::replies::{page, refused, with};
use crate::state::{FailedPrices, State};

impl Azure {
    /// The next requests for pages of prices whose address has this in it fail with a status, and are told to wait for so many seconds.
    pub fn fail_prices(&self, part: &str, requests: u32, status: u16, retry_after_seconds: u32) {
        self.state().failed_prices = FailedPrices {
            part: part.to_owned(),
            requests,
            status,
            retry_after_seconds,
        };
    }
}

impl State {
    pub(crate) fn prices(&mut self, url: &str) -> Response {
        if self.failed_prices.requests > 0 && url.contains(&self.failed_prices.part) {
            self.failed_prices.requests -= 1;
            let reply = refused(
                self.failed_prices.status,
                "ServerBusy",
                "The price list cannot be read now.",
            );
            return with(
                reply,
                "retry-after",
                &self.failed_prices.retry_after_seconds.to_string(),
            );
        }
        let mut items = Vec::new();
        for sku in &self.skus {
            let cpus = sku.cpus().unwrap_or(0);
            #[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
            let price = cpus as f64 * 0.05;
            for (suffix, product, price) in [
                ("", "", price),
                (" Spot", "", price * 0.2),
                (" Low Priority", "", price * 0.1),
                ("", " Windows", price * 2.0),
            ] {
                items.push(json!({
                    "armSkuName": sku.name,
                    "armRegionName": self.options.region,
                    "skuName": format!("{}{suffix}", sku.name),
                    "meterName": format!("{}{suffix}", sku.name),
                    "productName": format!("Virtual Machines Series{product}"),
                    "retailPrice": price,
                    "unitOfMeasure": "1 Hour",
                }));
            }
        }
        page(&items, (&self.options.base, url), 100, ("Items", "NextPageLink"))
    }
}
