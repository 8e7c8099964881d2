//! Which minor version of Kubernetes the cluster runs (A8), also after its control plane was upgraded under a running operator.
//!
//! Owns the number and the period of the question. Which images follow from it is decided in `provider-aws`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kube::Client;
use spokeshave_ports::{SharedClock, causes};

/// The API server is asked for its version this often.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// Minor version of Kubernetes. It only moves up: while a control plane is upgraded, API servers of both versions answer, and images must not go back and
/// forth with them.
#[derive(Debug)]
pub(crate) struct Version(AtomicU32);

impl Version {
    pub(crate) fn new(minor: u32) -> Self {
        Version(AtomicU32::new(minor))
    }

    pub(crate) fn minor(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes a minor version as API servers write it; tells the one before, if this one is newer.
    fn raise(&self, minor: &str) -> Option<u32> {
        let minor = minor_version(minor)?;
        let before = self.0.fetch_max(minor, Ordering::Relaxed);
        (minor > before).then_some(before)
    }
}

/// The number in a minor version as API servers write it, some of them as `34+`.
#[must_use]
pub fn minor_version(text: &str) -> Option<u32> {
    let digits = text.split(|one: char| !one.is_ascii_digit()).next()?;
    digits.parse().ok()
}

impl Version {
    /// Asks for as long as it is polled. The version at the start is the operator's own question, and so the first one here comes a period later.
    pub(crate) async fn follow(&self, client: &Client, clock: &SharedClock) {
        loop {
            clock.sleep(PERIOD).await;
            match client.apiserver_version().await {
                Ok(told) => {
                    if let Some(before) = self.raise(&told.minor) {
                        tracing::info!(
                            before = format!("1.{before}"),
                            now = format!("1.{}", self.minor()),
                            "the control plane was upgraded; images of aliases are looked for again"
                        );
                    }
                }
                Err(error) => tracing::warn!(
                    error = %causes(&error),
                    "the API server does not say its version; the last one counts, and it is asked again in five minutes"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_026_the_version_only_moves_up_and_what_is_no_number_changes_nothing() {
        let version = Version::new(34);
        let told = ["34", "33", "", "+", "x35", "35+", "34", "35", "36"].map(|minor| version.raise(minor));
        let nothing = None;
        assert_eq!(
            told,
            [
                nothing,
                nothing,
                nothing,
                nothing,
                nothing,
                Some(34),
                nothing,
                nothing,
                Some(35)
            ]
        );
        assert_eq!(version.minor(), 36);
    }
}
