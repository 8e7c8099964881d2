//! Calls that ARM has too many of: which are counted together, and until when none goes out (Z-036).
//!
//! Owns that memory; it sends nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use spokeshave_ports::SharedClock;
use spokeshave_provider_azure::errors::ArmError;

/// A longer wait is left to whoever asked; whoever asks meanwhile is told so without a call.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// After this, calls go out again whatever ARM has asked for: it says once more when it has too many of them.
const LONGEST_THROTTLING: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Read,
    Write,
}

/// Calls that Azure counts together: those of one kind about one type of resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Counted {
    kind: Kind,
    resource_type: String,
}

impl Counted {
    /// `None` for deletions, each of which waits by itself: a machine costs money until it is asked to end.
    pub(crate) fn of(method: &str, path: &str) -> Option<Self> {
        let resource_type = resource_type(path);
        let kind = match method {
            "DELETE" => return None,
            // How AKS is asked to end machines.
            "POST" if resource_type.ends_with("/deletemachines") => return None,
            "GET" => Kind::Read,
            _ => Kind::Write,
        };
        Some(Counted { kind, resource_type })
    }
}

/// Provider and type of what a path or a URL is about, in small letters: `microsoft.compute/virtualmachines`.
fn resource_type(path: &str) -> String {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let path = path.to_lowercase();
    let below = path.rsplit_once("/providers/").map_or("", |(_, below)| below);
    let parts = below.split('/').enumerate();
    // Between the types are names.
    let types = parts.filter(|(place, _)| *place == 0 || place % 2 == 1);
    types.map(|(_, part)| part).collect::<Vec<_>>().join("/")
}

/// By the clock's timer.
#[derive(Debug, Clone, Copy)]
struct Throttled {
    /// When ARM said so last.
    said: Duration,
    /// When the next call goes out.
    until: Duration,
}

/// Calls that ARM has too many of.
#[derive(Debug, Default)]
pub(crate) struct Throttling {
    known: Mutex<BTreeMap<Counted, Throttled>>,
}

impl Throttling {
    fn throttled(&self) -> MutexGuard<'_, BTreeMap<Counted, Throttled>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until ARM wants such calls again.
    ///
    /// # Errors
    /// As ARM would say it, when that is not soon.
    pub(crate) async fn wait_for_turn(&self, clock: &SharedClock, calls: &Counted) -> Result<(), ArmError> {
        loop {
            let until = self.throttled().get(calls).map(|throttled| throttled.until);
            let wait = until.unwrap_or_default().saturating_sub(clock.elapsed());
            if wait.is_zero() {
                return Ok(());
            }
            if wait > LONGEST_WAIT {
                let message = format!(
                    "ARM takes no such calls for another {} s; it is not asked",
                    wait.as_secs()
                );
                return Err(ArmError {
                    status: 429,
                    retry_after: SignedDuration::try_from(wait).ok(),
                    ..ArmError::new("TooManyRequests", &message)
                });
            }
            clock.sleep(wait).await;
        }
    }

    /// ARM has said that it takes no such calls for so long.
    pub(crate) fn note_throttling(&self, clock: &SharedClock, calls: &Counted, wait: Duration) {
        let said = clock.elapsed();
        let until = said.saturating_add(wait.min(LONGEST_THROTTLING));
        let mut throttled = self.throttled();
        let known = throttled.get(calls).map_or(until, |known| known.until);
        let until = until.max(known);
        throttled.insert(calls.clone(), Throttled { said, until });
    }

    /// ARM takes such calls again when it takes one that was sent after it had said that it does not.
    pub(crate) fn note_success(&self, calls: &Counted, sent: Duration) {
        let mut throttled = self.throttled();
        if throttled.get(calls).is_some_and(|known| known.said < sent) {
            throttled.remove(calls);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_036_calls_are_counted_by_the_type_of_resource_and_deletions_are_not() {
        let counted = |method: &str, path: &str| {
            let counted = Counted::of(method, path)?;
            Some((counted.kind, counted.resource_type))
        };
        let group = "/subscriptions/s/resourceGroups/g/providers";
        let machine = format!("{group}/Microsoft.Compute/virtualMachines/a?api-version=1");
        let of_machines = |kind| Some((kind, "microsoft.compute/virtualmachines".to_owned()));
        assert_eq!(counted("GET", &machine), of_machines(Kind::Read));
        assert_eq!(counted("PUT", &machine), of_machines(Kind::Write));
        assert_eq!(counted("PATCH", &machine), of_machines(Kind::Write));
        assert_eq!(counted("DELETE", &machine), None);
        let pool = format!("{group}/Microsoft.ContainerService/managedClusters/c/agentPools/p");
        let ending = format!("{pool}/deleteMachines?api-version=1");
        assert_eq!(counted("POST", &ending), None);
        for (method, path, expected) in [
            (
                "PUT",
                format!("{pool}/machines/a?api-version=1"),
                "microsoft.containerservice/managedclusters/agentpools/machines",
            ),
            (
                "GET",
                "https://arm/subscriptions/s/providers/Microsoft.Compute/skus?skip=/providers/x".to_owned(),
                "microsoft.compute/skus",
            ),
            (
                "POST",
                "/providers/Microsoft.ResourceGraph/resources?api-version=1".to_owned(),
                "microsoft.resourcegraph/resources",
            ),
        ] {
            let (_, resource_type) = counted(method, &path).unwrap();
            assert_eq!(resource_type, expected);
        }
    }
}
