//! What the kit has launched ends with it (G-024), whatever else its provider gets wrong: machines cost money.
//!
//! Owns what was launched in a run, and its end. Whether instances end as they should is for other checks to say.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tonic::Code;

use super::wire::{LIMIT, Wire, shown};
use super::{Shortcomings, failure};
use crate::link::within;
use crate::wire::{InstanceState, TerminateRequest};

/// The check by which is named what could not be ended.
const CHECK: &str = "launched_instances_end";
/// Time for all that was launched to be gone.
const END_LIMIT: Duration = Duration::from_secs(600);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(5);

/// A NodeClaim of this run.
#[derive(Debug, Default)]
struct Claim {
    name: String,
    /// Of all instances that were seen for it.
    provider_ids: BTreeSet<String>,
}

/// By UID.
type Claims = BTreeMap<String, Claim>;

/// What was launched in this run. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Launched(Arc<Mutex<Claims>>);

impl Launched {
    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An instance is asked for: there may be one from now on.
    pub(super) fn ask(&self, name: &str, uid: &str) {
        name.clone_into(&mut self.claims().entry(uid.to_owned()).or_default().name);
    }

    /// This instance was the answer.
    pub(super) fn see(&self, uid: &str, provider_id: &str) {
        if !provider_id.is_empty() {
            let mut claims = self.claims();
            let claim = claims.entry(uid.to_owned()).or_default();
            claim.provider_ids.insert(provider_id.to_owned());
        }
    }

    fn take(&self) -> Claims {
        std::mem::take(&mut *self.claims())
    }
}

impl Wire<'_> {
    /// Ends what was launched since the last time: by UID, by each ID that was seen, and what is listed, until it is gone. What is left is named.
    pub(super) async fn end_launched(&mut self, failures: &mut Shortcomings) {
        let mut claims = self.launched.take();
        if claims.is_empty() {
            return;
        }
        let started = self.clock.now();
        let left = loop {
            if let Err(problem) = self.reach().await {
                break unreached(&claims, &problem);
            }
            let left = self.end_once(&mut claims, started).await;
            if left.is_empty() || self.clock.since(started) + PAUSE >= END_LIMIT {
                break left;
            }
            self.clock.sleep(PAUSE).await;
        };
        failures.extend(left.into_iter().map(|what| failure(CHECK, what)));
    }

    /// A connection, made anew where the last one has ended.
    async fn reach(&mut self) -> Result<(), String> {
        if self.shaken.ended.0.is_finished() {
            self.renew().await?;
        }
        Ok(())
    }

    /// Asks for the end of each while there is time, and tells what is not known to be gone.
    async fn end_once(&self, claims: &mut Claims, started: Timestamp) -> Vec<String> {
        let running = self.running_of(claims).await;
        let mut left = Vec::new();
        for (uid, Claim { name, provider_ids }) in &*claims {
            for provider_id in once("").chain(provider_ids.iter().map(String::as_str)) {
                let request = TerminateRequest {
                    provider_id: provider_id.to_owned(),
                    nodeclaim_name: name.clone(),
                    nodeclaim_uid: uid.clone(),
                    leader_term: self.term,
                };
                let (is_gone, said) = if self.clock.since(started) < END_LIMIT {
                    self.end(request).await
                } else {
                    let limit = END_LIMIT.as_secs();
                    (
                        false,
                        format!("Terminate was not called any more after {limit} s"),
                    )
                };
                let is_running = running.contains(provider_id);
                if is_gone && !is_running {
                    continue;
                }
                let what = if provider_id.is_empty() {
                    format!("what was launched for NodeClaim {name} with UID {uid}")
                } else {
                    format!("{provider_id}, launched for NodeClaim {name}")
                };
                let listed = if is_running { "is listed and " } else { "" };
                left.push(format!(
                    "{what}, {listed}may go on running: {said}; end it by hand"
                ));
            }
        }
        left
    }

    /// Asks for the end of one: whether it is gone, and what was said.
    async fn end(&self, request: TerminateRequest) -> (bool, String) {
        let is_unnamed = request.provider_id.is_empty();
        let answer = within(self.clock, LIMIT, self.client().terminate(request)).await;
        let is_gone = match &answer {
            Some(Ok(reply)) => reply.get_ref().state() == InstanceState::Gone,
            Some(Err(status)) => {
                // Without an ID it may find nothing, and say so in either way.
                let is_none = is_unnamed && status.code() == Code::InvalidArgument;
                is_none || status.code() == Code::NotFound
            }
            None => false,
        };
        (is_gone, format!("Terminate says {}", shown(&answer)))
    }

    /// Takes in what is listed of these NodeClaims, and tells which instances of it are not ending.
    async fn running_of(&self, claims: &mut Claims) -> BTreeSet<String> {
        let mut running = BTreeSet::new();
        let Some(Ok((rows, _))) = within(self.clock, LIMIT, self.list()).await else {
            return running;
        };
        for row in rows {
            let claim = claims
                .iter_mut()
                .find(|(uid, claim)| row.nodeclaim_uid == **uid || row.nodeclaim_name == claim.name);
            let Some((_, claim)) = claim else { continue };
            let state = row.state();
            if row.provider_id.is_empty() || state == InstanceState::Gone {
                continue;
            }
            claim.provider_ids.insert(row.provider_id.clone());
            if state != InstanceState::Terminating {
                running.insert(row.provider_id);
            }
        }
        running
    }
}

fn unreached(claims: &Claims, problem: &str) -> Vec<String> {
    let named = claims.iter().map(|(uid, claim)| {
        let ids: Vec<&str> = claim.provider_ids.iter().map(String::as_str).collect();
        let (name, ids) = (&claim.name, ids.join(", "));
        format!(
            "what was launched for NodeClaim {name} with UID {uid} ({ids}) may go on running: {problem}; end it by hand"
        )
    });
    named.collect()
}
