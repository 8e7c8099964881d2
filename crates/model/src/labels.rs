//! The label keys that scheduling treats specially: well-known, restricted, and their older aliases (P §1.7).

pub use spokeshave_api::labels::{
    ARCH, CAPACITY_TYPE, HOSTNAME, INITIALIZED, INSTANCE_TYPE, NODE_POOL, OS, REGION, REGISTERED, WELL_KNOWN,
    WINDOWS_BUILD, ZONE, is_restricted, normalized as normalize,
};

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
