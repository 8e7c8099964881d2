//! Zonal shifts (D-295, D-296): while Application Recovery Controller moves the cluster's traffic away from a zone, nothing is launched or terminated
//! there, and what is known of its instances stays known.
//!
//! Owns the period of the question and the memory of instances. That offerings are left out is the market's.

use std::collections::BTreeSet;
use std::time::Duration;

use spokeshave_api::ec2_node_class::Subnet;
use spokeshave_ports::CloudError;
use spokeshave_provider_aws::replies::Instance;

use crate::notices;
use crate::ports::Shifts;
use crate::provider::Inner;

/// Shifts are asked for this often.
const PERIOD: Duration = Duration::from_secs(30);

impl Inner {
    /// Asks for shifts for as long as it is polled; an unanswered question leaves everything as it is.
    pub(crate) async fn follow_shifts(&self) {
        if !self.options.zonal_shift {
            return;
        }
        let mut known = Shifts::new();
        loop {
            let cluster = self.described_cluster();
            if let Some(cluster) = cluster.filter(|cluster| !cluster.arn.is_empty()) {
                match self.aws.zonal_shift.shifted(&cluster.arn).await {
                    Ok(shifted) => known = shifted,
                    Err(error) if error.is_unauthorized() => {
                        tracing::error!(%error, "arc-zonal-shift:GetManagedResource is not allowed: zonal shifts are not noticed until the operator starts again");
                        let effect = "zonal shifts are not noticed until the operator starts again";
                        loop {
                            self.tell_denied("arc-zonal-shift:GetManagedResource", effect, &error);
                            self.clock.sleep(PERIOD).await;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "arc-zonal-shift:GetManagedResource failed; what is known of zonal shifts counts, and it is tried again");
                    }
                }
            }
            // A shift ends by itself, also when nobody answers.
            let now = self.clock.now();
            known.retain(|_, end| end.is_none_or(|end| end > now));
            self.shift(known.keys().cloned().collect());
            self.clock.sleep(PERIOD).await;
        }
    }

    fn shift(&self, shifted: BTreeSet<String>) {
        let (news, back) = self.market.set_shifted(shifted);
        for (zone_ids, is_warning, reason) in [
            (news, true, "ZonalShiftActive"),
            (back, false, "ZonalShiftCleared"),
        ] {
            for zone_id in zone_ids {
                let zone = self.zone_named(&zone_id);
                tracing::info!(zone, zone_id, reason, "zonal shift");
                for pool in self.pools.all().unwrap_or_default() {
                    if pool.node_class_ref().group != spokeshave_api::EC2NodeClass::GROUP {
                        continue;
                    }
                    let message = if is_warning {
                        format!(
                            "Zonal shift detected: offerings in zone {zone} ({zone_id}) are unavailable for this NodePool"
                        )
                    } else {
                        format!(
                            "Zonal shift cleared: offerings in zone {zone} ({zone_id}) are restored for this NodePool"
                        )
                    };
                    self.notices
                        .tell(notices::of_pool(&pool, is_warning, reason, message));
                }
            }
        }
    }

    /// Whether traffic is shifted away from a zone.
    pub(crate) fn is_shifted(&self, zone: &str) -> bool {
        self.options.zonal_shift && self.market.is_shifted(&self.zone_id(zone))
    }

    /// The ID of a zone, from what subnets tell, or have told classes before.
    fn zone_id(&self, zone: &str) -> String {
        let told = self.aws.meter.zone_id(zone);
        if !told.is_empty() {
            return told;
        }
        let known = self.find_subnet(|subnet| subnet.zone == zone);
        known.map(|subnet| subnet.zone_id).unwrap_or_default()
    }

    fn zone_named(&self, zone_id: &str) -> String {
        let known = || self.find_subnet(|subnet| subnet.zone_id == zone_id);
        let told = self.aws.meter.zone_named(zone_id);
        told.or_else(|| Some(known()?.zone)).unwrap_or_default()
    }

    fn find_subnet(&self, is_it: impl Fn(&Subnet) -> bool) -> Option<Subnet> {
        let classes = self.classes.all()?;
        let subnets = classes
            .iter()
            .filter_map(|class| class.status.as_ref())
            .flat_map(|status| &status.subnets);
        subnets.into_iter().find(|subnet| is_it(subnet)).cloned()
    }

    /// Why an instance in a shifted zone is not terminated (W-30).
    pub(crate) fn postponed(zone: &str) -> CloudError {
        CloudError::Postponed {
            message: format!(
                "zone {zone} has an active zonal shift; instances there are terminated after it"
            ),
            again_after: PERIOD,
        }
    }

    /// Remembers all instances that EC2 describes; what it no longer describes is forgotten, shifted zones aside. Returns those that were kept.
    pub(crate) fn see(&self, found: &[Instance]) -> Vec<Instance> {
        if !self.options.zonal_shift {
            return Vec::new();
        }
        let mut seen = self.seen.lock();
        let ids: BTreeSet<&str> = found.iter().map(|instance| instance.id.as_str()).collect();
        seen.retain(|id, instance| !ids.contains(id.as_str()) && self.is_shifted(&instance.zone));
        let kept = seen.values().cloned().collect();
        seen.extend(
            found
                .iter()
                .map(|instance| (instance.id.clone(), instance.clone())),
        );
        kept
    }

    /// An instance as it was last described.
    pub(crate) fn seen(&self, id: &str) -> Option<Instance> {
        let seen = self.seen.lock();
        seen.get(id).cloned()
    }
}
