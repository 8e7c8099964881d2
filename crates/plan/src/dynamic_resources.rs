//! Whether the drivers that a NodeClaim's pods asked for have published their devices on its Node (P-168).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceSlice;
use spokeshave_api::{NodeClaim, labels};

/// The first driver, in order of the annotation, that has no complete pool among the ResourceSlices of the claim's Node. A pool is complete when it
/// has as many slices of its highest generation as these say that there are.
#[must_use]
pub fn unpublished_driver<'a>(claim: &'a NodeClaim, slices: &[Arc<ResourceSlice>]) -> Option<&'a str> {
    let drivers = claim
        .annotation(labels::REQUESTED_DRA_DRIVERS)
        .unwrap_or_default();
    let mut drivers = drivers
        .split(',')
        .map(str::trim)
        .filter(|driver| !driver.is_empty());
    drivers.find(|driver| !has_complete_pool(driver, slices))
}

fn has_complete_pool(driver: &str, slices: &[Arc<ResourceSlice>]) -> bool {
    // Pool → its highest generation, slices of that, slices that there should be.
    let mut pools: BTreeMap<&str, (i64, i64, i64)> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.spec.driver == driver) {
        let pool = &slice.spec.pool;
        let seen = pools.entry(&pool.name).or_insert((pool.generation, 0, 0));
        if pool.generation > seen.0 {
            *seen = (pool.generation, 0, 0);
        }
        if pool.generation == seen.0 {
            *seen = (seen.0, seen.1 + 1, pool.resource_slice_count);
        }
    }
    pools.values().any(|(_, found, declared)| found == declared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spokeshave_api::NodeClaimSpec;

    fn claim(drivers: &str) -> NodeClaim {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.metadata.annotations =
            Some([(labels::REQUESTED_DRA_DRIVERS.to_owned(), drivers.to_owned())].into());
        claim
    }

    fn slice(driver: &str, pool: &str, generation: i64, count: i64) -> Arc<ResourceSlice> {
        let slice = json!({"spec": {
            "driver": driver, "nodeName": "n",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        }});
        Arc::new(serde_json::from_value(slice).unwrap())
    }

    #[test]
    fn p_168_each_driver_must_have_published_a_complete_pool() {
        let both = claim("gpu.example.com,nic.example.com");
        let gpu = slice("gpu.example.com", "gpus", 1, 1);
        let nic = |generation| slice("nic.example.com", "nics", generation, 2);
        let missing = |slices: &[Arc<ResourceSlice>]| unpublished_driver(&both, slices).map(str::to_owned);
        assert_eq!(missing(&[]).as_deref(), Some("gpu.example.com"));
        assert_eq!(
            missing(std::slice::from_ref(&gpu)).as_deref(),
            Some("nic.example.com")
        );
        assert_eq!(
            missing(&[gpu.clone(), nic(1)]).as_deref(),
            Some("nic.example.com"),
            "one of two"
        );
        assert_eq!(missing(&[gpu.clone(), nic(1), nic(1)]), None);
        assert_eq!(
            missing(&[gpu.clone(), nic(1), nic(1), nic(2)]).as_deref(),
            Some("nic.example.com"),
            "the newer generation is not whole"
        );
        assert_eq!(missing(&[gpu, nic(1), nic(2), nic(2)]), None);
        assert_eq!(unpublished_driver(&claim(""), &[]), None);
        assert_eq!(
            unpublished_driver(&NodeClaim::new("c", NodeClaimSpec::default()), &[]),
            None
        );
    }
}
