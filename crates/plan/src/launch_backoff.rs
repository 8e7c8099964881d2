//! Launches that fail at once: how long a NodePool waits before it asks the cloud for the same thing again (invariant 24).
//!
//! Owns the memory of what failed and the arithmetic of the pauses. It creates nothing, and a NodeClaim that asks for something else (other
//! requirements, another NodeClass, what the cloud has left) waits for nothing: pods of one shape never delay those of another.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodeClaim;
use spokeshave_api::hash::digest;

/// Pause after the first failure: what upstream needs between two passes over pods that stay pending (P-052).
pub const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
/// Longest pause: once the cloud has capacity again, the next try is at most this far away.
pub const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// A failure is forgotten when nothing has failed for so long after its pause.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// What a NodeClaim asks its cloud for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    pool: String,
    /// Of the requirements and the NodeClass.
    what: u64,
}

impl Asked {
    fn of(claim: &NodeClaim) -> Self {
        let class = &claim.spec.node_class_ref;
        let mut text = format!("{}/{}/{}", class.group, class.kind, class.name);
        let mut requirements: Vec<String> = claim
            .spec
            .requirements
            .iter()
            .map(|one| {
                let mut values = one.values.clone();
                values.sort_unstable();
                let least = one.min_values.unwrap_or_default();
                format!("\n{} {} {values:?} {least}", one.key, one.operator)
            })
            .collect();
        requirements.sort_unstable();
        text.extend(requirements);
        Self {
            pool: claim.node_pool().unwrap_or_default().to_owned(),
            what: digest(&text),
        }
    }
}

/// A request that fails again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// How often it was tried in vain, launches of one moment counted once.
    pub tries: u32,
    /// Not tried again before.
    pub next: Timestamp,
    /// What the cloud said last.
    pub message: String,
    /// A single try is counted, and the cloud has not refused it so far.
    is_tried: bool,
}

impl Trouble {
    fn wait(&mut self, now: Timestamp) {
        self.tries = self.tries.saturating_add(1);
        self.next = now.saturating_add(pause(self.tries)).unwrap_or(Timestamp::MAX);
    }
}

/// How many NodeClaims of one kind may be created now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// As many as are wanted.
    All,
    /// A single one, to see whether the cloud has capacity again.
    One,
    /// None before this time.
    NotBefore(Timestamp),
}

/// What failed lately, of all NodePools. A restart forgets it: each request is then tried once more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchBackoff(BTreeMap<Asked, Trouble>);

/// The pause after so many tries in vain: ten seconds, doubling to five minutes.
fn pause(tries: u32) -> SignedDuration {
    let doubled = FIRST_PAUSE.checked_mul(1 << tries.saturating_sub(1).min(10));
    doubled.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
}

impl LaunchBackoff {
    /// The cloud has refused a NodeClaim, which is given up.
    pub fn failed(&mut self, claim: &NodeClaim, message: &str, now: Timestamp) {
        self.0.retain(|_, trouble| {
            let quiet = now.duration_since(trouble.next);
            quiet < FORGOTTEN_AFTER
        });
        let trouble = self.0.entry(Asked::of(claim)).or_insert_with(|| Trouble {
            tries: 0,
            next: Timestamp::MIN,
            message: String::new(),
            is_tried: false,
        });
        message.clone_into(&mut trouble.message);
        trouble.is_tried = false;
        // What was created with it, or as the try that `admit` has counted, is the same failure.
        if trouble.next <= now {
            trouble.wait(now);
        }
    }

    /// The cloud has launched a NodeClaim: whatever asks for the same may go on.
    pub fn succeeded(&mut self, claim: &NodeClaim) {
        if !self.0.is_empty() {
            self.0.remove(&Asked::of(claim));
        }
    }

    /// Whether NodeClaims like this one may be created now; a single try is counted with the answer.
    pub fn admit(&mut self, claim: &NodeClaim, now: Timestamp) -> Admission {
        match self.0.get_mut(&Asked::of(claim)) {
            None => Admission::All,
            Some(trouble) if trouble.next > now => Admission::NotBefore(trouble.next),
            Some(trouble) => {
                trouble.wait(now);
                trouble.is_tried = true;
                Admission::One
            }
        }
    }

    /// The NodeClaim of a single try was not created, which is certain: the cloud was not asked, so the next try may follow now.
    pub fn give_back(&mut self, claim: &NodeClaim, now: Timestamp) {
        let known = self.0.get_mut(&Asked::of(claim));
        if let Some(trouble) = known.filter(|trouble| trouble.is_tried) {
            trouble.is_tried = false;
            trouble.tries = trouble.tries.saturating_sub(1);
            trouble.next = now;
        }
    }

    /// Why NodeClaims like this one are not launched, if they are not.
    #[must_use]
    pub fn trouble(&self, claim: &NodeClaim) -> Option<&Trouble> {
        self.0.get(&Asked::of(claim))
    }

    /// Forgets NodePools that are no more.
    pub fn retain_pools(&mut self, is_alive: impl Fn(&str) -> bool) {
        self.0.retain(|asked, _| is_alive(&asked.pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::NodeClaimSpec;
    use spokeshave_api::labels;

    fn claim(pool: &str, instance_type: &str) -> NodeClaim {
        let spec = serde_json::json!({
            "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
            "requirements": [{"key": labels::INSTANCE_TYPE, "operator": "In", "values": [instance_type]}],
        });
        let mut claim = NodeClaim::new("c", serde_json::from_value::<NodeClaimSpec>(spec).unwrap());
        claim.metadata.labels = Some([(labels::NODE_POOL.to_owned(), pool.to_owned())].into());
        claim
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn invariant_24_tries_of_an_hour_without_capacity_are_few_and_never_further_apart_than_the_longest_pause()
    {
        let mut backoff = LaunchBackoff::default();
        let asked = claim("a", "large");
        let (mut tries, mut last, mut longest) = (Vec::new(), 0, 0);
        for second in 0..3_600 {
            match backoff.admit(&asked, at(second)) {
                Admission::NotBefore(next) => assert!(next > at(second)),
                Admission::All => {
                    assert_eq!(second, 0, "only before anything has failed");
                    for _ in 0..10 {
                        backoff.failed(&asked, "none left", at(second));
                    }
                }
                Admission::One => {
                    longest = longest.max(second - last);
                    (tries, last) = ([tries, vec![second]].concat(), second);
                    // The answer takes its time, and comes once or several times.
                    backoff.failed(&asked, "none left", at(second + 1));
                }
            }
        }
        assert_eq!(tries[..5], [10, 30, 70, 150, 310]);
        assert_eq!(tries.len(), 15, "{tries:?}");
        assert_eq!(longest, LONGEST_PAUSE.as_secs());
    }

    #[test]
    fn invariant_22_another_request_waits_for_nothing_and_success_ends_the_pause() {
        let mut backoff = LaunchBackoff::default();
        let asked = claim("a", "large");
        backoff.failed(&asked, "none left", at(0));
        assert_eq!(backoff.admit(&asked, at(5)), Admission::NotBefore(at(10)));
        assert_eq!(backoff.admit(&claim("a", "small"), at(5)), Admission::All);
        assert_eq!(backoff.admit(&claim("b", "large"), at(5)), Admission::All);
        assert_eq!(backoff.trouble(&asked).unwrap().message, "none left");
        assert_eq!(backoff.admit(&asked, at(10)), Admission::One);
        assert_eq!(
            backoff.admit(&asked, at(11)),
            Admission::NotBefore(at(30)),
            "a try under way is the only one"
        );
        backoff.succeeded(&asked);
        assert_eq!(backoff.admit(&asked, at(11)), Admission::All);
        assert_eq!(backoff.trouble(&asked), None);
    }

    #[test]
    fn invariant_24_a_try_that_is_not_created_is_not_counted_and_one_that_has_failed_is() {
        let mut backoff = LaunchBackoff::default();
        let asked = claim("a", "large");
        backoff.give_back(&asked, at(0));
        assert_eq!(backoff.trouble(&asked), None);
        backoff.failed(&asked, "none left", at(0));
        backoff.give_back(&asked, at(1));
        assert_eq!(
            backoff.admit(&asked, at(2)),
            Admission::NotBefore(at(10)),
            "what was created beside it has failed"
        );
        assert_eq!(backoff.admit(&asked, at(10)), Admission::One);
        backoff.give_back(&asked, at(11));
        assert_eq!(backoff.admit(&asked, at(11)), Admission::One);
        backoff.failed(&asked, "none left", at(12));
        backoff.give_back(&asked, at(13));
        assert_eq!(backoff.trouble(&asked).unwrap().tries, 2);
        assert_eq!(backoff.admit(&asked, at(13)), Admission::NotBefore(at(31)));
    }

    #[test]
    fn invariant_41_what_failed_long_ago_or_belongs_to_no_nodepool_is_forgotten() {
        let mut backoff = LaunchBackoff::default();
        backoff.failed(&claim("a", "one"), "", at(0));
        backoff.failed(&claim("b", "one"), "", at(3_700));
        assert_eq!(backoff.trouble(&claim("a", "one")), None);
        backoff.retain_pools(|pool| pool != "b");
        assert_eq!(backoff, LaunchBackoff::default());
    }
}
