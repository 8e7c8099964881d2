//! Labels, annotations, taints and finalizers of the interface (P §1.7).

use k8s_openapi::api::core::v1::Taint;

/// Name of the NodePool.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
/// `"true"` once a Node is initialized.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// `"true"` once a Node is registered.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// `spot`, `on-demand` or `reserved`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// `"true"` on a Node whose taints are set by its provider only.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// Capacity type: may be reclaimed at any time.
pub const CAPACITY_TYPE_SPOT: &str = "spot";
/// Capacity type: stays until given back.
pub const CAPACITY_TYPE_ON_DEMAND: &str = "on-demand";
/// Capacity type: paid for in advance.
pub const CAPACITY_TYPE_RESERVED: &str = "reserved";
/// Availability zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// Instance type.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// CPU architecture.
pub const ARCH: &str = "kubernetes.io/arch";
/// Operating system.
pub const OS: &str = "kubernetes.io/os";
/// Host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Availability zone, as the driver of Azure disks writes it on volumes and nodes.
pub const AZURE_DISK_ZONE: &str = "topology.disk.csi.azure.com/zone";
/// Availability zone, as the driver of Azure Elastic SAN writes it on volumes and nodes.
pub const AZURE_SAN_ZONE: &str = "topology.san.csi.azure.com/zone";
/// The zone of a machine of Azure that is in none; its drivers leave theirs empty.
pub const AZURE_NO_ZONE: &str = "0";
/// Windows build.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// Excludes a Node that is being removed from load balancers (D-310).
pub const EXCLUDE_FROM_EXTERNAL_LOAD_BALANCERS: &str =
    "node.kubernetes.io/exclude-from-external-load-balancers";

/// Protects a pod or a Node from voluntary disruption.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Hash of the NodePool's template.
pub const NODE_POOL_HASH: &str = "karpenter.sh/nodepool-hash";
/// Version of the hash.
pub const NODE_POOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
/// The Disruption for which a NodeClaim was created as a replacement.
pub const DISRUPTION: &str = "spokeshave.dev/disruption";
/// Pods, their owners, Namespaces: how long a pod is not moved after it was created, if a DisruptionPolicy has `workloads`.
pub const QUIET_TIME: &str = "spokeshave.dev/quiet-time";
/// Pods, their owners, Namespaces: how many pods of a workload may be moved per day, if a DisruptionPolicy has `workloads`.
pub const MOVES_PER_DAY: &str = "spokeshave.dev/moves-per-day";
/// Pods, their owners, Namespaces: when pods may move, such as `Mon-Fri 22:00-06:00 Europe/Kyiv`, if a DisruptionPolicy has `workloads`.
pub const MOVE_WINDOWS: &str = "spokeshave.dev/move-windows";
/// When a termination stops waiting (RFC 3339).
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// `"true"` if minValues were lowered to what was available.
pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
/// DRA drivers that the pods of a NodeClaim request, sorted and separated by commas.
pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
/// `"true"` on a NodeClaim whose price came from a NodeOverlay.
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
/// `"true"` on a NodeClaim whose capacity came from a NodeOverlay.
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
/// A provider's own version mark, for migrations.
pub const PROVIDER_COMPATIBILITY: &str = "compatibility.karpenter.sh/provider";
/// `"true"` on the virtual pods of a CapacityBuffer, which exist in memory only.
pub const CAPACITY_BUFFER_FAKE_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
/// Name of the CapacityBuffer of a virtual pod.
pub const CAPACITY_BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
/// Namespace of the CapacityBuffer of a virtual pod.
pub const CAPACITY_BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";
/// Cost of deleting a pod, relative to others of its ReplicaSet.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// On a NodeClaim: its price in dollars per hour when it was launched, used when its offering is no longer available (W-07).
/// What this version has not launched has none, and neither has what had no known price then.
pub const PRICE_AT_LAUNCH: &str = "spokeshave.dev/price-at-launch";

/// Finalizer of NodeClaims and Nodes.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";

/// Key of the taint on a Node that is being disrupted.
pub const DISRUPTED_TAINT_KEY: &str = "karpenter.sh/disrupted";
/// Key of the taint on a Node that is not yet registered.
pub const UNREGISTERED_TAINT_KEY: &str = "karpenter.sh/unregistered";

/// The domain that only Karpenter may use.
pub const RESTRICTED_DOMAIN: &str = "karpenter.sh";

/// Resources that every provider knows; a NodeOverlay may not change them (P §1.7).
pub const WELL_KNOWN_RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// Every capacity type.
pub const CAPACITY_TYPES: [&str; 3] = [
    CAPACITY_TYPE_ON_DEMAND,
    CAPACITY_TYPE_RESERVED,
    CAPACITY_TYPE_SPOT,
];

/// Labels that a user may name in requirements although the NodePool does not define them; providers add theirs.
pub const WELL_KNOWN: [&str; 8] = [
    NODE_POOL,
    ZONE,
    REGION,
    INSTANCE_TYPE,
    ARCH,
    OS,
    CAPACITY_TYPE,
    WINDOWS_BUILD,
];

/// `karpenter.sh/disrupted:NoSchedule`.
#[must_use]
pub fn disrupted_taint() -> Taint {
    taint(DISRUPTED_TAINT_KEY, "NoSchedule")
}

/// `karpenter.sh/unregistered:NoExecute`.
#[must_use]
pub fn unregistered_taint() -> Taint {
    taint(UNREGISTERED_TAINT_KEY, "NoExecute")
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        time_added: None,
        value: None,
    }
}

/// The canonical key of an older alias, or of one that volumes of a cloud carry; other keys pass through (P-033).
#[must_use]
pub fn normalized(key: &str) -> &str {
    match key {
        // Drivers of EBS and of Azure put theirs on every volume that they make: a pod that has one could be placed nowhere.
        "failure-domain.beta.kubernetes.io/zone"
        | "topology.ebs.csi.aws.com/zone"
        | AZURE_DISK_ZONE
        | AZURE_SAN_ZONE => ZONE,
        "failure-domain.beta.kubernetes.io/region" => REGION,
        "beta.kubernetes.io/arch" => ARCH,
        "beta.kubernetes.io/os" => OS,
        "beta.kubernetes.io/instance-type" => INSTANCE_TYPE,
        other => other,
    }
}

/// What a value under a key means under its canonical key (P-033); nearly always the same.
#[must_use]
pub fn normalized_value<'v>(key: &str, value: &'v str) -> &'v str {
    match (key, value) {
        (AZURE_DISK_ZONE | AZURE_SAN_ZONE, "") => AZURE_NO_ZONE,
        (_, same) => same,
    }
}

/// The part before the first `/`; empty without one.
#[must_use]
pub fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

/// True when users may not use the label: the domain is restricted and the label is not well known, or it is the host name (P-037).
#[must_use]
pub fn is_restricted(key: &str) -> bool {
    is_restricted_with(key, &[], &[])
}

/// As [`is_restricted`], with a provider's further restricted domains and well-known labels.
#[must_use]
pub fn is_restricted_with(key: &str, domains: &[&str], well_known: &[&str]) -> bool {
    if WELL_KNOWN.contains(&key) || well_known.contains(&key) {
        return false;
    }
    if key == HOSTNAME {
        return true;
    }
    let domain = domain(key);
    std::iter::once(RESTRICTED_DOMAIN)
        .chain(domains.iter().copied())
        .any(|restricted| {
            domain
                .strip_suffix(restricted)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_037_restricted_labels() {
        for key in ["karpenter.sh/custom", "sub.karpenter.sh/x", HOSTNAME, REGISTERED] {
            assert!(is_restricted(key), "{key}");
        }
        for key in [
            CAPACITY_TYPE,
            NODE_POOL,
            ZONE,
            "team",
            "notkarpenter.sh/x",
            "example.com/karpenter.sh",
        ] {
            assert!(!is_restricted(key), "{key}");
        }
        assert!(is_restricted_with(
            "karpenter.kwok.sh/x",
            &["karpenter.kwok.sh"],
            &[]
        ));
        assert!(!is_restricted_with(
            "karpenter.kwok.sh/x",
            &["karpenter.kwok.sh"],
            &["karpenter.kwok.sh/x"]
        ));
    }

    #[test]
    fn p_033_aliases() {
        assert_eq!(normalized("beta.kubernetes.io/arch"), ARCH);
        assert_eq!(normalized("failure-domain.beta.kubernetes.io/zone"), ZONE);
        assert_eq!(normalized("team"), "team");
    }

    #[test]
    fn p_033_drivers_of_azure_leave_the_zone_of_what_is_in_none_empty() {
        for key in [
            "topology.disk.csi.azure.com/zone",
            "topology.san.csi.azure.com/zone",
        ] {
            assert_eq!(normalized(key), ZONE);
            assert_eq!(normalized_value(key, ""), "0", "{key}");
            assert_eq!(normalized_value(key, "westeurope-1"), "westeurope-1", "{key}");
        }
        for key in [ZONE, "topology.ebs.csi.aws.com/zone", "team"] {
            assert_eq!(normalized_value(key, ""), "", "{key}");
        }
    }
}
