//! The label keys that scheduling treats specially: well-known, restricted, and their older aliases (P §1.7).

/// `karpenter.sh/nodepool`.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
/// `karpenter.sh/capacity-type`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// `karpenter.sh/initialized`.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// `karpenter.sh/registered`.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// `kubernetes.io/hostname`.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// `topology.kubernetes.io/zone`.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// `topology.kubernetes.io/region`.
pub const REGION: &str = "topology.kubernetes.io/region";
/// `node.kubernetes.io/instance-type`.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// `kubernetes.io/arch`.
pub const ARCH: &str = "kubernetes.io/arch";
/// `kubernetes.io/os`.
pub const OS: &str = "kubernetes.io/os";
/// `node.kubernetes.io/windows-build`.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";

/// The well-known labels of the core, sorted; providers add the keys their instance types declare.
pub const WELL_KNOWN: [&str; 8] = [
    CAPACITY_TYPE,
    NODE_POOL,
    ARCH,
    OS,
    INSTANCE_TYPE,
    WINDOWS_BUILD,
    REGION,
    ZONE,
];

/// Resolves an older alias to the canonical key; other keys pass through (P-033).
pub fn normalize(key: &str) -> &str {
    match key {
        "failure-domain.beta.kubernetes.io/zone" => ZONE,
        "failure-domain.beta.kubernetes.io/region" => REGION,
        "beta.kubernetes.io/arch" => ARCH,
        "beta.kubernetes.io/os" => OS,
        "beta.kubernetes.io/instance-type" => INSTANCE_TYPE,
        _ => key,
    }
}

/// Whether users may not set this key: hostname, or a key in the domain `karpenter.sh` or below, unless well known (P-037).
pub fn is_restricted(key: &str) -> bool {
    if WELL_KNOWN.contains(&key) {
        return false;
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    key == HOSTNAME || domain == "karpenter.sh" || domain.ends_with(".karpenter.sh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_037_restricted_domains_include_sub_domains_but_not_well_known_keys() {
        for (key, expected) in [
            ("karpenter.sh/initialized", true),
            ("foo.karpenter.sh/x", true),
            ("notkarpenter.sh/x", false),
            ("karpenter.sh/nodepool", false),
            ("karpenter.sh/capacity-type", false),
            ("kubernetes.io/hostname", true),
            ("team", false),
        ] {
            assert_eq!(is_restricted(key), expected, "{key}");
        }
    }
}
