//! What is remembered of NodeClaims from one look to the next: one entry a name, and of a NodeClaim nothing that was said of a namesake before it.
//!
//! Owns the entries, so that there are never more than names. Who takes them out when a NodeClaim is gone is [`gone`](super::gone).

use std::collections::BTreeMap;
use std::sync::Mutex;

use spokeshave_api::NodeClaim;

use super::lock;

/// Entries by name, each with the UID of whom it is about.
#[derive(Debug)]
pub(super) struct Remembered<T>(Mutex<BTreeMap<String, (String, T)>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Remembered<T> {
    /// Remembers something of a claim, instead of what was known.
    pub(super) fn insert(&self, claim: &NodeClaim, value: T) {
        let entry = (claim.uid().to_owned(), value);
        lock(&self.0).insert(claim.name().to_owned(), entry);
    }

    /// Looks at what is known of a claim, which begins now if nothing is.
    pub(super) fn look<R>(
        &self,
        claim: &NodeClaim,
        begin: impl FnOnce() -> T,
        look: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut all = lock(&self.0);
        if let Some((_, known)) = all.get_mut(claim.name()).filter(|(uid, _)| uid == claim.uid()) {
            return look(known);
        }
        let mut begun = begin();
        let found = look(&mut begun);
        all.insert(claim.name().to_owned(), (claim.uid().to_owned(), begun));
        found
    }

    /// Forgets a claim, and no namesake.
    pub(super) fn remove(&self, claim: &NodeClaim) {
        let mut all = lock(&self.0);
        if all.get(claim.name()).is_some_and(|(uid, _)| uid == claim.uid()) {
            all.remove(claim.name());
        }
    }

    /// Forgets whoever has this name.
    pub(super) fn forget(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}

impl<T: Clone> Remembered<T> {
    /// What is known of a claim.
    pub(super) fn get(&self, claim: &NodeClaim) -> Option<T> {
        let all = lock(&self.0);
        let (uid, known) = all.get(claim.name())?;
        (uid == claim.uid()).then(|| known.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::NodeClaimSpec;

    fn claim(uid: &str) -> NodeClaim {
        let mut claim = NodeClaim::new("a", NodeClaimSpec::default());
        claim.metadata.uid = Some(uid.to_owned());
        claim
    }

    #[test]
    fn a_namesake_begins_anew_and_takes_the_place() {
        let seconds = Remembered::default();
        let count = |uid: &str| {
            seconds.look(
                &claim(uid),
                || 0,
                |count| {
                    *count += 1;
                    *count
                },
            )
        };
        assert_eq!([count("1"), count("1"), count("2"), count("2")], [1, 2, 1, 2]);
        assert_eq!(
            (seconds.get(&claim("1")), seconds.get(&claim("2"))),
            (None, Some(2))
        );
        seconds.remove(&claim("1"));
        assert_eq!(seconds.get(&claim("2")), Some(2), "another one");
        seconds.insert(&claim("1"), 7);
        assert_eq!(
            (seconds.get(&claim("1")), seconds.get(&claim("2"))),
            (Some(7), None)
        );
        seconds.remove(&claim("1"));
        assert_eq!(seconds.get(&claim("1")), None);
        seconds.insert(&claim("2"), 7);
        seconds.forget("a");
        assert!(lock(&seconds.0).is_empty());
    }
}
