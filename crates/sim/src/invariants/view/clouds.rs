//! Machines of clouds that keep their own books, which no write of the API server tells of: they are what such a cloud says when it is asked.
//!
//! Owns which NodeClaim a machine belongs to, which is the one that names it. What operators were told of a machine that no NodeClaim names is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Change, Claim, Instance, Pair, View};
use crate::invariants::Machine;
use spokeshave_cluster::quantities::Amounts;

impl View {
    /// Folds in what such a cloud has now, and says what has changed.
    pub(crate) fn fold_machines(&mut self, there: Vec<Machine>) -> Vec<Change> {
        let named: BTreeMap<&str, &Claim> = self
            .claims
            .values()
            .map(|claim| (claim.instance(), &**claim))
            .collect();
        let mut gone = std::mem::take(&mut self.instances);
        let mut changes = Vec::new();
        let mut change = |before: Option<Arc<Instance>>, after: Option<Arc<Instance>>| {
            if before != after {
                changes.push(Change::Instance(Pair { before, after }));
            }
        };
        let mut instances = BTreeMap::new();
        for machine in there {
            let before = gone.remove(&machine.id);
            let claim = named.get(machine.id.as_str()).copied();
            let after = Arc::new(instance(machine, claim, before.as_deref(), self.now));
            change(before, Some(after.clone()));
            instances.insert(after.name.clone(), after);
        }
        for before in gone.into_values() {
            change(Some(before), None);
        }
        self.instances = instances;
        changes
    }
}

/// A machine that had a NodeClaim keeps it: that may be gone by now, or have lost its provider ID.
fn instance(
    machine: Machine,
    claim: Option<&Claim>,
    before: Option<&Instance>,
    now: jiff::Timestamp,
) -> Instance {
    let known =
        |part: fn(&Instance) -> &String| before.map(|before| part(before).clone()).unwrap_or_default();
    let ending = before.and_then(|before| before.ending).unwrap_or(now);
    Instance {
        claim_uid: claim.map_or_else(|| known(|it| &it.claim_uid), |claim| claim.uid.clone()),
        claim_name: claim.map_or_else(|| known(|it| &it.claim_name), |claim| claim.name.clone()),
        pool: claim.map_or_else(|| known(|it| &it.pool), |claim| claim.pool.clone()),
        capacity: match (claim, before) {
            (Some(claim), _) if !claim.capacity.is_empty() => claim.capacity.clone(),
            (_, Some(before)) => before.capacity.clone(),
            _ => Amounts::new(),
        },
        name: machine.id,
        of_kwok: false,
        created: machine
            .launched_at
            .unwrap_or_else(|| before.map_or(now, |before| before.created)),
        ending: machine.is_ending.then_some(ending),
        taken_back: machine.is_taken_back,
        ends_at: machine.ends_at,
        warned: machine.is_warned,
        word_takes: machine.word_takes,
        price: 0,
    }
}
