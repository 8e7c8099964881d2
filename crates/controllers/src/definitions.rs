//! Whether the API server serves our kinds, which is one half of being ready (P-204).
//!
//! Owns the names of the conditions of readiness. It installs nothing.

use std::time::Duration;

use kube::Client;
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Readiness;

/// Conditions of readiness, with upstream's names (P-204): our kinds are served, and caches are filled.
pub(crate) const DEFINITIONS_SERVED: &str = "crd";
pub(crate) const CACHES_SYNCED: &str = "manager";

/// Pause between two looks for our kinds.
const LOOK_FOR_DEFINITIONS: Duration = Duration::from_secs(1);

/// Looks until the API server serves our kinds, and says once when it does not.
pub(crate) async fn definitions_served(client: Client, clock: SharedClock, readiness: Readiness) {
    let mut told = false;
    loop {
        let served = client.list_api_group_resources("karpenter.sh/v1").await;
        let served = served.map(|list| list.resources).unwrap_or_default();
        let missing: Vec<&str> = ["nodepools", "nodeclaims"]
            .into_iter()
            .filter(|plural| served.iter().all(|resource| resource.name != **plural))
            .collect();
        if missing.is_empty() {
            readiness.set(DEFINITIONS_SERVED, true);
            return;
        }
        if !told {
            let missing = missing.join(", ");
            tracing::error!(
                missing,
                "the API server does not serve kinds of karpenter.sh/v1; install them: spokeshave crds | kubectl apply --server-side -f -"
            );
            told = true;
        }
        clock.sleep(LOOK_FOR_DEFINITIONS).await;
    }
}
