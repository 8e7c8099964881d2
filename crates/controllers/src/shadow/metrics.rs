//! The ledger as metrics.

use spokeshave_runtime::{Gauge, Metrics};

use super::{Deeds, Ledger, Side};

/// The families.
#[derive(Clone, Debug)]
pub(super) struct ShadowFamilies {
    launches: Gauge,
    launch_price: Gauge,
    disrupted: Gauge,
    both: Gauge,
    moves: Gauge,
    price: Gauge,
    at_rest: Gauge,
}

impl ShadowFamilies {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let by_pool = |name: &str, help: &str| metrics.gauge(name, help, &["nodepool", "operator"]);
        Self {
            launches: by_pool(
                "spokeshave_shadow_launches",
                "NodeClaims since the shadow began: what it would have made (shadow) and what was made (other).",
            ),
            launch_price: by_pool(
                "spokeshave_shadow_launch_price",
                "Dollars per hour of these NodeClaims, as far as known.",
            ),
            disrupted: by_pool(
                "spokeshave_shadow_nodes_disrupted",
                "Nodes since the shadow began: what it would have disrupted (shadow) and what was disrupted (other).",
            ),
            both: metrics.gauge(
                "spokeshave_shadow_nodes_disrupted_by_both",
                "Nodes that were disrupted and that the shadow would have disrupted, too.",
                &["nodepool"],
            ),
            moves: by_pool(
                "spokeshave_shadow_pods_moved",
                "Pods that have to move because of these disruptions.",
            ),
            price: metrics.gauge(
                "spokeshave_shadow_cluster_price",
                "Dollars per hour that the cluster costs as it is.",
                &[],
            ),
            at_rest: metrics.gauge(
                "spokeshave_shadow_cluster_price_at_rest",
                "Dollars per hour that the cluster would cost after every move that the shadow would make.",
                &[],
            ),
        }
    }

    /// Shows the ledger as it is.
    pub(super) fn show(&self, ledger: &Ledger) {
        for (pool, row) in ledger.pools() {
            self.show_deeds(pool, Side::Shadow, &row.shadow);
            self.show_deeds(pool, Side::Other, &row.other);
            self.both.set(&[pool], number(row.disrupted_by_both));
        }
        let (now, at_rest) = ledger.prices();
        self.price.set(&[], now.dollars());
        if let Some(at_rest) = at_rest {
            self.at_rest.set(&[], at_rest.dollars());
        }
    }

    fn show_deeds(&self, pool: &str, side: Side, deeds: &Deeds) {
        let labels = [pool, side.as_str()];
        self.launches.set(&labels, number(deeds.launches));
        self.launch_price.set(&labels, deeds.launch_price.dollars());
        self.disrupted.set(&labels, number(deeds.disrupted));
        self.moves.set(&labels, number(deeds.moves));
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of nodes and pods are far below 2^52"
)]
fn number(count: u64) -> f64 {
    count as f64
}
