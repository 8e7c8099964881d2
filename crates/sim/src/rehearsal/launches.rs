//! Who was launched for whom: the provider as it is called, and what each launch answered. The checkers of every seed are told of the end of a machine here.
//!
//! Owns the ledger behind "no double launch". It does not go by tags, which a machine may get when its Node has joined: it sees the call of every launch and
//! every machine that is there, so that a second machine for one NodeClaim is found when the launch answers, and a machine that nobody asked for at the next look.
//!
//! What it allows, and why:
//! - a second machine when the first was launched under an operator that has been killed since: its answer was not written down, and nobody can know of it before
//!   garbage collection finds it;
//! - a machine of which no launch has told, for each launch that was cut off (killed, or given up at its time limit) since it was known that all were told of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::volumes::Unsupported;
use spokeshave_model::{InstanceType, PriceFeed};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Interruption, Interruptions, Measurement, NodeClassKind, Notices,
    RegistrationHook, RepairPolicy, SharedWrites, WatchFailures,
};

use super::OPERATOR;
use super::checks::machine_of;
use super::stage::{Census, Machine};
use crate::invariants::Invariants;

/// What launches have answered, and who is told of ends.
#[derive(Clone)]
pub(super) struct Launches {
    book: Arc<Mutex<Book>>,
    census: Census,
    invariants: Invariants,
}

#[derive(Debug, Default)]
struct Book {
    /// Operators so far.
    operators: u64,
    /// Machines by the NodeClaim that they were launched for, by UID, and the operator that was told.
    told: BTreeMap<String, BTreeMap<String, u64>>,
    /// Launches that have no answer yet.
    under_way: u64,
    /// Launches that never got one.
    cut_off: u64,
    /// Machines of such launches.
    excused: BTreeSet<String>,
    /// What is wrong: a machine, and why.
    found: Vec<(String, String)>,
}

impl Book {
    fn answered(&mut self, uid: &str, machine: &str, living: &[Machine]) {
        let lives = |id: &str| living.iter().any(|one| one.id == id && !one.is_ending);
        let operator = self.operators;
        let machines = self.told.entry(uid.to_owned()).or_default();
        let other = machines
            .iter()
            .find(|(other, told)| *other != machine && **told == operator && lives(other));
        if let (Some((other, _)), true) = (other, lives(machine)) {
            let text =
                format!("is the second for NodeClaim {uid}, beside {other}, which this operator was told of");
            self.found.push((machine.to_owned(), text));
        }
        machines.insert(machine.to_owned(), operator);
    }

    /// `written` are the machines that NodeClaims name, by UID.
    fn look(&mut self, living: &[Machine], written: &BTreeMap<String, String>) {
        let lives = |id: &str| living.iter().any(|one| one.id == id && !one.is_ending);
        for (uid, machines) in &self.told {
            let Some((named, at)) = written.get(uid).and_then(|id| machines.get_key_value(id)) else {
                continue;
            };
            let later = machines.iter().find(|(id, told)| lives(id) && *told > at);
            if let (Some((later, _)), true) = (later, lives(named)) {
                let text = format!("was launched for NodeClaim {uid}, whose status already named {named}");
                self.found.push((later.clone(), text));
            }
        }
        let told: BTreeSet<&String> = self.told.values().flat_map(BTreeMap::keys).collect();
        // A machine that is tagged with its NodeClaim from the start is looked after by its tag.
        let untold = living
            .iter()
            .filter(|one| !one.is_ending && one.claim.is_none())
            .filter(|one| !told.contains(&one.id) && !self.excused.contains(&one.id));
        let untold: Vec<String> = untold.map(|one| one.id.clone()).collect();
        if self.under_way > 0 {
            return;
        }
        for machine in untold {
            if self.cut_off > 0 {
                self.cut_off -= 1;
            } else {
                let text =
                    "was launched, and no launch of a NodeClaim has told of it or was cut off".to_owned();
                self.found.push((machine.clone(), text));
            }
            self.excused.insert(machine);
        }
        self.cut_off = 0;
    }
}

impl Launches {
    pub(super) fn new(census: Census, invariants: Invariants) -> Self {
        Launches {
            book: Arc::default(),
            census,
            invariants,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The provider of another operator; the one before is dead.
    pub(super) fn of_next_operator(&self, provider: Arc<dyn CloudProvider>) -> Arc<dyn CloudProvider> {
        self.book().operators += 1;
        Arc::new(Told {
            provider,
            launches: self.clone(),
        })
    }

    /// What has been found since the last look.
    pub(super) fn look(&self, claims: &[NodeClaim]) -> Vec<(String, String)> {
        let living = (self.census)();
        let named = claims.iter().filter_map(|claim| {
            let machine = machine_of(claim.provider_id()?);
            Some((claim.uid().to_owned(), machine))
        });
        let mut book = self.book();
        book.look(&living, &named.collect());
        std::mem::take(&mut book.found)
    }

    async fn launched(
        &self,
        claim: &NodeClaim,
        launch: CloudFuture<'_, NodeClaim>,
    ) -> Result<NodeClaim, CloudError> {
        self.book().under_way += 1;
        let mut open = Open {
            launches: self,
            is_answered: false,
        };
        let answer = launch.await;
        // What a call without an answer has done is unknown.
        open.is_answered = !matches!(answer, Err(CloudError::Timeout(_)));
        drop(open);
        if let Ok(launched) = &answer {
            let machine = machine_of(launched.provider_id().unwrap_or_default());
            let living = (self.census)();
            self.book().answered(claim.uid(), &machine, &living);
        }
        answer
    }
}

/// A launch that has no answer yet.
struct Open<'a> {
    launches: &'a Launches,
    is_answered: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut book = self.launches.book();
        book.under_way -= 1;
        book.cut_off += u64::from(!self.is_answered);
    }
}

/// A provider whose launches are written down.
struct Told {
    provider: Arc<dyn CloudProvider>,
    launches: Launches,
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.provider.fmt(f)
    }
}

impl CloudProvider for Told {
    fn name(&self) -> &str {
        self.provider.name()
    }
    fn supported_node_classes(&self) -> &[NodeClassKind] {
        self.provider.supported_node_classes()
    }
    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        self.launches.launched(claim, self.provider.create(claim)).boxed()
    }
    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        self.launches
            .launched(claim, self.provider.create_from(claim, types))
            .boxed()
    }
    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        async move {
            if let Some(id) = claim.provider_id() {
                self.launches.invariants.ends(OPERATOR, id);
            }
            self.provider.delete(claim).await
        }
        .boxed()
    }
    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        self.provider.get(provider_id)
    }
    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        self.provider.list()
    }
    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        self.provider.instance_types(pool)
    }
    fn is_drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        self.provider.is_drifted(claim, class)
    }
    fn repair_policies(&self) -> &[RepairPolicy] {
        self.provider.repair_policies()
    }
    fn interruptions(&self) -> Option<Interruptions<'_>> {
        self.provider.interruptions()
    }
    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        self.provider.acknowledge(message)
    }
    fn lead(&self, writes: SharedWrites) -> BoxFuture<'_, ()> {
        self.provider.lead(writes)
    }
    fn follow(&self) -> BoxFuture<'_, ()> {
        self.provider.follow()
    }
    fn price_feed(&self) -> PriceFeed {
        self.provider.price_feed()
    }
    fn measurements(&self) -> Vec<Measurement> {
        self.provider.measurements()
    }
    fn watch_failures(&self) -> Option<&WatchFailures> {
        self.provider.watch_failures()
    }
    fn notices(&self) -> Option<Notices<'_>> {
        self.provider.notices()
    }
    fn registration_hooks(&self) -> &[Arc<dyn RegistrationHook>] {
        self.provider.registration_hooks()
    }
    fn unsupported_volumes(&self) -> Unsupported {
        self.provider.unsupported_volumes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Said;
    use super::*;

    fn machine(id: &str) -> Machine {
        Machine {
            id: id.to_owned(),
            claim: None,
            is_ending: false,
            is_spot: false,
            is_held: false,
            launched_at: None,
            said: Said::default(),
        }
    }

    fn after_operators(operators: u64) -> Book {
        Book {
            operators,
            ..Book::default()
        }
    }

    #[test]
    fn invariant_11_a_second_machine_for_a_nodeclaim_is_found_when_its_launch_answers() {
        let mut book = after_operators(1);
        let mut living = vec![machine("i-1"), machine("i-2")];
        book.answered("uid", "i-1", &living);
        book.answered("uid", "i-1", &living);
        assert_eq!(book.found, [], "the same again");
        book.answered("uid", "i-2", &living);
        assert_eq!(book.found[0].0, "i-2");
        book.found.clear();
        // The first is on its way out: this is a new try.
        living[0].is_ending = true;
        book.answered("uid", "i-2", &living);
        assert_eq!(book.found, []);
    }

    #[test]
    fn invariant_11_only_what_a_killed_operator_has_not_written_down_may_be_launched_again() {
        let living = [machine("i-1"), machine("i-2")];
        let mut book = after_operators(1);
        book.answered("uid", "i-1", &living);
        book.operators = 2;
        book.answered("uid", "i-2", &living);
        assert_eq!(book.found, []);
        let names = |machine: &str| BTreeMap::from([("uid".to_owned(), machine.to_owned())]);
        book.look(&living, &names("i-2"));
        assert_eq!(book.found, [], "the first was forgotten");
        book.look(&living, &names("i-1"));
        assert_eq!(book.found[0].0, "i-2", "it was known, and launched again");
    }

    #[test]
    fn invariant_11_each_machine_of_which_no_launch_tells_needs_a_launch_that_was_cut_off() {
        let living = [machine("i-1"), machine("i-2")];
        let nobody = BTreeMap::new();
        let mut book = after_operators(1);
        book.under_way = 1;
        book.look(&living, &nobody);
        assert_eq!(book.found, [], "it may be told in a moment");
        book.under_way = 0;
        book.cut_off = 1;
        book.look(&living, &nobody);
        assert_eq!(book.found.len(), 1);
        assert_eq!(book.found[0].0, "i-2");
        // A launch that was cut off and made nothing excuses nothing later.
        let mut book = after_operators(1);
        book.cut_off = 1;
        book.look(&[], &nobody);
        book.look(&living[..1], &nobody);
        assert_eq!(book.found.len(), 1);
    }
}
