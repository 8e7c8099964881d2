//! Whether the API server serves our kinds, which is one half of being ready (P-204), and those by which drivers of devices are known (P-168).
//!
//! Owns the names of the conditions of readiness. It installs nothing.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use spokeshave_ports::{SharedClock, causes};
use spokeshave_runtime::Readiness;

/// Conditions of readiness, with upstream's names (P-204): our kinds are served, and caches are filled.
pub(crate) const DEFINITIONS_SERVED: &str = "crd";
pub(crate) const CACHES_SYNCED: &str = "manager";

/// Pause between two looks for kinds.
const LOOK_FOR_DEFINITIONS: Duration = Duration::from_secs(1);

/// The kinds without which there is nothing to do.
const NEEDED: [&str; 2] = ["nodepools", "nodeclaims"];

/// What drivers of Dynamic Resource Allocation publish, and its version: Kubernetes has it from 1.34 on.
const DRIVERS: &str = "resource.k8s.io/v1";
const SLICES: [&str; 1] = ["resourceslices"];

/// What the API server says of some kinds.
#[derive(Debug)]
enum Found {
    All,
    /// It has answered, and does not serve these.
    Without(Vec<&'static str>),
    /// It has not said which it serves.
    Unknown(kube::Error),
}

impl Found {
    fn of(needed: &[&'static str], answer: kube::Result<APIResourceList>) -> Self {
        let served = match answer {
            Ok(list) => list.resources,
            // A group of which there is not a single kind.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Self::Unknown(error),
        };
        let is_missing = |plural: &&'static str| served.iter().all(|resource| resource.name != **plural);
        let missing: Vec<&'static str> = needed.iter().copied().filter(is_missing).collect();
        if missing.is_empty() {
            Self::All
        } else {
            Self::Without(missing)
        }
    }
}

/// Looks until the API server serves our kinds, and says once when it does not, and why it cannot be asked whenever that is something else.
pub(crate) async fn definitions_served(client: Client, clock: SharedClock, readiness: Readiness) {
    let mut told_missing = false;
    let mut unknown = Unknown::of("karpenter.sh/v1");
    loop {
        match Found::of(&NEEDED, client.list_api_group_resources("karpenter.sh/v1").await) {
            Found::All => {
                readiness.set(DEFINITIONS_SERVED, true);
                return;
            }
            Found::Without(missing) if !told_missing => {
                let missing = missing.join(", ");
                tracing::error!(
                    missing,
                    "the API server does not serve kinds of karpenter.sh/v1; install them: spokeshave crds | kubectl apply --server-side -f -"
                );
                told_missing = true;
            }
            Found::Without(_) => {}
            Found::Unknown(error) => unknown.tell(&error),
        }
        clock.sleep(LOOK_FOR_DEFINITIONS).await;
    }
}

/// Whether there are drivers that can be waited for, and says so where there are none: a store of a kind that is not served is never filled, and until every
/// store is filled nothing is decided (D-049). Whoever may not ask is told by the watch.
pub(crate) async fn drivers_served(client: &Client, clock: &SharedClock) -> bool {
    let mut unknown = Unknown::of(DRIVERS);
    loop {
        match Found::of(&SLICES, client.list_api_group_resources(DRIVERS).await) {
            Found::All => return true,
            Found::Without(_) => {
                tracing::warn!(
                    "the API server does not serve ResourceSlices of resource.k8s.io/v1, which Kubernetes has from 1.34 on: nodes do not wait for DRA drivers, as without IGNORE_DRA_REQUESTS=false (settings.ignoreDRARequests), which can go; once the cluster serves them, restart the operator"
                );
                return false;
            }
            Found::Unknown(kube::Error::Api(status)) if status.code == 403 => return true,
            Found::Unknown(error) => unknown.tell(&error),
        }
        clock.sleep(LOOK_FOR_DEFINITIONS).await;
    }
}

/// An API server that does not say which kinds it serves: each cause is said once.
struct Unknown {
    version: &'static str,
    told: Option<String>,
}

impl Unknown {
    fn of(version: &'static str) -> Self {
        Self { version, told: None }
    }

    fn tell(&mut self, error: &kube::Error) {
        let cause = causes(error);
        if self.told.as_deref() != Some(cause.as_str()) {
            let version = self.version;
            tracing::warn!(
                error = cause,
                "the API server does not say which kinds of {version} it serves; it is asked again"
            );
            self.told = Some(cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
    use kube::core::Status;

    use super::*;

    fn serving(plurals: &[&str]) -> kube::Result<APIResourceList> {
        let resource = |plural: &&str| APIResource {
            name: (*plural).to_owned(),
            ..APIResource::default()
        };
        Ok(APIResourceList {
            resources: plurals.iter().map(resource).collect(),
            ..APIResourceList::default()
        })
    }

    fn refused(code: u16) -> kube::Result<APIResourceList> {
        let status = Status::failure("etcdserver: leader changed", "").with_code(code);
        Err(kube::Error::Api(status.boxed()))
    }

    /// Whoever is told to install kinds that are there may replace them by those of another version.
    #[test]
    fn p_204_kinds_are_missing_only_where_the_server_says_which_it_serves() {
        let missing = |answer| match Found::of(&NEEDED, answer) {
            Found::All => Some(Vec::new()),
            Found::Without(missing) => Some(missing),
            Found::Unknown(_) => None,
        };
        assert_eq!(missing(serving(&["nodeclaims", "nodepools"])), Some(vec![]));
        assert_eq!(missing(serving(&["nodeclaims"])), Some(vec!["nodepools"]));
        assert_eq!(missing(refused(404)), Some(vec!["nodepools", "nodeclaims"]));
        for code in [401, 403, 429, 500, 503] {
            assert_eq!(missing(refused(code)), None, "{code}");
        }
        let cut = std::io::Error::other("connection refused");
        assert_eq!(missing(Err(kube::Error::Service(Box::new(cut)))), None);
    }

    /// Whoever took a server that stumbles for one without drivers would initialise nodes before their devices are known.
    #[test]
    fn p_168_drivers_are_given_up_only_where_the_server_says_so() {
        let is_given_up = |answer| matches!(Found::of(&SLICES, answer), Found::Without(_));
        assert!(!is_given_up(serving(&["deviceclasses", "resourceslices"])));
        assert!(is_given_up(serving(&["deviceclasses"])));
        assert!(is_given_up(refused(404)));
        for code in [401, 403, 429, 500, 503] {
            assert!(!is_given_up(refused(code)), "{code}");
        }
    }
}
