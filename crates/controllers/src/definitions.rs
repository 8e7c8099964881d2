//! Whether the API server serves our kinds, which is one half of being ready (P-204).
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

/// Pause between two looks for our kinds.
const LOOK_FOR_DEFINITIONS: Duration = Duration::from_secs(1);

/// The kinds without which there is nothing to do.
const NEEDED: [&str; 2] = ["nodepools", "nodeclaims"];

/// What the API server says of our kinds.
#[derive(Debug)]
enum Found {
    All,
    /// It has answered, and does not serve these.
    Without(Vec<&'static str>),
    /// It has not said which it serves.
    Unknown(kube::Error),
}

impl Found {
    fn of(answer: kube::Result<APIResourceList>) -> Self {
        let served = match answer {
            Ok(list) => list.resources,
            // A group of which there is not a single kind.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Self::Unknown(error),
        };
        let is_missing = |plural: &&str| served.iter().all(|resource| resource.name != **plural);
        let missing: Vec<&str> = NEEDED.into_iter().filter(is_missing).collect();
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
    let mut told_unknown: Option<String> = None;
    loop {
        match Found::of(client.list_api_group_resources("karpenter.sh/v1").await) {
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
            Found::Unknown(error) => {
                let cause = causes(&error);
                if told_unknown.as_deref() != Some(cause.as_str()) {
                    tracing::warn!(
                        error = cause,
                        "the API server does not say which kinds of karpenter.sh/v1 it serves; it is asked again"
                    );
                    told_unknown = Some(cause);
                }
            }
        }
        clock.sleep(LOOK_FOR_DEFINITIONS).await;
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
        let missing = |answer| match Found::of(answer) {
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
}
