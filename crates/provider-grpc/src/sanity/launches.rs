//! Launches, lists and terminations on the wire (G-003, G-007, G-011, G-012).

use std::time::Duration;

use spokeshave_api::{Operator, Requirement, labels};
use spokeshave_model::{InstanceType, Resources};
use tonic::{Code, Response, Status};

use super::required::CHECK;
use super::wire::{LIMIT, Wire, code_of, shown};
use super::{Shortcomings, cheapest, claim, failure};
use crate::catalog::Catalog;
use crate::link::{self, within};
use crate::wire::launch_reply::Outcome;
use crate::wire::{CatalogChunk, Instance, InstanceRef, LaunchReply, LaunchRequest, ListRequest};
use crate::{convert, launch};

impl Wire<'_> {
    fn request(&self, types: &[InstanceType]) -> LaunchRequest {
        let wanted = Requirement::new(labels::INSTANCE_TYPE, Operator::In, &[&cheapest(types)]);
        let claim = claim(
            &self.class.reference(),
            "sanity-wire",
            &self.options.run,
            vec![wanted],
        );
        let requirements = launch::requirements_of(&claim).unwrap_or_default();
        let mut request = launch::request(&claim, self.class.message(), &requirements, self.term);
        let mut catalog = Catalog::default();
        let chunk = CatalogChunk {
            generation: 1,
            snapshot_complete: true,
            types: types.iter().map(convert::type_message).collect(),
            ..CatalogChunk::default()
        };
        drop(catalog.apply(&chunk));
        let well_known = self.shaken.identity.well_known();
        let requests = Resources::default();
        request.candidates = launch::candidates(types, &catalog, &requirements, &requests, &well_known);
        request
    }

    /// G-003, G-007, G-011, G-012 on the wire.
    pub(super) async fn launches(&mut self, types: &[InstanceType], failures: &mut Shortcomings) {
        let request = self.request(types);
        let Some(first) = self.launch(&request, failures).await else {
            return;
        };
        if let Some(second) = self.launch(&request, failures).await
            && second.provider_id != first.provider_id
        {
            failures.push(failure(
                "launches_are_idempotent",
                format!(
                    "one nodeclaim_uid has the instances {} and {}",
                    first.provider_id, second.provider_id
                ),
            ));
        }
        if !request.candidates.iter().any(|one| one.r#type == first.r#type) {
            failures.push(failure(
                "launches_take_a_candidate",
                format!(
                    "{} is of type {:?}, which is no candidate",
                    first.provider_id, first.r#type
                ),
            ));
        }
        for problem in convert::label_problems(&first.labels) {
            let message = format!("{}: {problem}", first.provider_id);
            failures.push(failure("instance_labels_are_valid", message));
        }
        let stale = LaunchRequest {
            leader_term: self.term - 1,
            ..request.clone()
        };
        let answer = self.asked(stale).await;
        if code_of(&answer) != Some(Code::FailedPrecondition) {
            failures.push(failure(
                "stale_leaders_are_refused",
                format!(
                    "a launch of leader_term {} after {}: expected FAILED_PRECONDITION, got {}",
                    self.term - 1,
                    self.term,
                    shown(&answer)
                ),
            ));
        }
        self.listed(&first, &request, failures).await;
        self.term_is_told(failures).await;
        self.found_anew(&first, failures).await;
        self.restarts(&request, &first, failures).await;
    }

    /// One call. What it may have launched is noted.
    async fn asked(&self, request: LaunchRequest) -> Option<Result<Response<LaunchReply>, Status>> {
        let uid = request.nodeclaim_uid.clone();
        self.launched.ask(&request.nodeclaim_name, &uid);
        let answer = within(self.clock, LIMIT, self.client().launch(request)).await;
        if let Some(Ok(reply)) = &answer
            && let Some(Outcome::Instance(instance)) = &reply.get_ref().outcome
        {
            self.launched.see(&uid, &instance.provider_id);
        }
        answer
    }

    /// Who begins to lead must be able to take a larger one (G-003).
    async fn term_is_told(&self, failures: &mut Shortcomings) {
        let answer = within(self.clock, LIMIT, self.client().handshake(self.hello.clone())).await;
        if let Some(Ok(answer)) = answer
            && answer.get_ref().leader_term < self.term
        {
            failures.push(failure(
                "leader_terms_are_told",
                format!(
                    "a handshake after a launch of leader_term {}: expected leader_term {0} or more, got {}",
                    self.term,
                    answer.get_ref().leader_term
                ),
            ));
        }
    }

    pub(super) async fn launch(
        &self,
        request: &LaunchRequest,
        failures: &mut Shortcomings,
    ) -> Option<Instance> {
        let started = self.clock.now();
        let problem = loop {
            match self.asked(request.clone()).await {
                Some(Ok(reply)) => match reply.into_inner().outcome {
                    Some(Outcome::Instance(instance)) if instance.provider_id.is_empty() => {
                        break "an instance without provider_id; answer `pending` until there is one"
                            .to_owned();
                    }
                    Some(Outcome::Instance(instance)) => return Some(instance),
                    Some(Outcome::Pending(_)) if self.clock.since(started) < LIMIT => {
                        self.clock.sleep(Duration::from_secs(1)).await;
                    }
                    other => break format!("{other:?}"),
                },
                Some(Err(status)) if status.code() == Code::Unimplemented => {
                    failures.push(failure(CHECK, "UNIMPLEMENTED: Launch"));
                    return None;
                }
                other => break shown(&other),
            }
        };
        failures.push(failure(
            "launches_succeed",
            format!("a launch of the cheapest available offering: {problem}"),
        ));
        None
    }

    async fn listed(&self, launched: &Instance, request: &LaunchRequest, failures: &mut Shortcomings) {
        let listed = within(self.clock, LIMIT, self.list()).await;
        let rows = match listed {
            Some(Ok((rows, true))) => rows,
            Some(Ok((rows, false))) => {
                let count = rows.len();
                failures.push(failure(
                    "lists_say_that_they_are_complete",
                    format!("the list ended after {count} rows without `complete`"),
                ));
                rows
            }
            Some(Err(status)) => {
                let said = format!("{:?}: {}", status.code(), status.message());
                failures.push(failure("lists_say_that_they_are_complete", said));
                return;
            }
            None => {
                let said = format!("no end of the list within {} s", LIMIT.as_secs());
                failures.push(failure("lists_say_that_they_are_complete", said));
                return;
            }
        };
        let found = rows.iter().find(|row| row.provider_id == launched.provider_id);
        match found {
            None => failures.push(failure(
                "lists_show_what_never_joined",
                format!(
                    "{} was launched and is not listed; no Node of it exists yet",
                    launched.provider_id
                ),
            )),
            Some(row) if row.nodeclaim_uid != request.nodeclaim_uid => failures.push(failure(
                "lists_remember_nodeclaims",
                format!(
                    "{} is listed with nodeclaim_uid {:?}, expected {:?}",
                    row.provider_id, row.nodeclaim_uid, request.nodeclaim_uid
                ),
            )),
            Some(_) => {}
        }
    }

    pub(super) async fn list(&self) -> Result<(Vec<Instance>, bool), Status> {
        let mut stream = self.client().list_instances(ListRequest {}).await?.into_inner();
        let mut rows = Vec::new();
        while let Some(chunk) = stream.message().await? {
            rows.extend(chunk.instances);
            if chunk.complete {
                return Ok((rows, true));
            }
        }
        Ok((rows, false))
    }

    /// What is known does not hang on a connection.
    async fn found_anew(&self, launched: &Instance, failures: &mut Shortcomings) {
        let again = link::connect(&*self.options.connector, self.clock, &self.hello).await;
        let Ok(again) = again else { return };
        let request = InstanceRef {
            provider_id: launched.provider_id.clone(),
        };
        let got = within(self.clock, LIMIT, again.client.clone().get_instance(request)).await;
        if !matches!(&got, Some(Ok(_))) {
            failures.push(failure(
                "instances_outlive_connections",
                format!("{} on another connection: {}", launched.provider_id, shown(&got)),
            ));
        }
    }
}
