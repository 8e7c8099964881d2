//! The calls as they are, without the client that makes sense of them: handshake, catalog, IDs of strangers.

use std::time::Duration;

use spokeshave_model::InstanceType;
use spokeshave_ports::{CloudProvider as _, SharedClock};
use tonic::{Code, Status};

use super::class::GivenClass;
use super::leftovers::Launched;
use super::required::{CHECK, FOREIGN};
use super::snapshot::read_snapshot;
use super::{SanityOptions, Shortcomings, failure};
use crate::LONGEST_MESSAGE_BYTES;
use crate::client::{ClientOptions, GrpcProvider};
use crate::link::{Client, Shaken, Task, within};
use crate::wire::{
    Capability, CatalogChunk, CatalogRequest, EventsRequest, HandshakeRequest, InstanceRef, TerminateRequest,
};

/// Time for one answer.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// Time for a provider that does work of its own to know its catalog.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The calls to the provider.
pub(super) struct Wire<'a> {
    pub(super) options: &'a SanityOptions,
    pub(super) clock: &'a SharedClock,
    pub(super) hello: HandshakeRequest,
    pub(super) shaken: Shaken,
    pub(super) class: GivenClass,
    /// The leader's term of all calls: the largest that the provider had seen before.
    pub(super) term: u64,
    pub(super) launched: Launched,
}

impl Wire<'_> {
    pub(super) fn client(&self) -> Client {
        self.shaken.client.clone()
    }

    /// Lets a provider that does work of its own do what of it only reads, as an operator that looks on: it may know no catalog otherwise.
    pub(super) async fn follow(&self) -> Option<Task> {
        if !self.shaken.identity.can(Capability::Lead) {
            return None;
        }
        let options = ClientOptions {
            connector: self.options.connector.clone(),
            cluster_name: "sanity".to_owned(),
            cluster_uid: self.options.cluster_uid.clone(),
            kubernetes_version: String::new(),
            node_classes: None,
            nodes: None,
        };
        let provider = GrpcProvider::connect(options, self.clock.clone()).await.ok()?;
        Some(Task(tokio::spawn(async move { provider.follow().await })))
    }

    /// G-002.
    pub(super) async fn handshake(&self, failures: &mut Shortcomings) {
        let of_versions = HandshakeRequest {
            supported_versions: vec!["v0".to_owned()],
            ..self.hello.clone()
        };
        let of_cluster = HandshakeRequest {
            cluster_uid: "another-cluster".to_owned(),
            ..self.hello.clone()
        };
        let newer = HandshakeRequest {
            supported_versions: vec!["v99".to_owned(), crate::VERSIONS[0].to_owned()],
            ..self.hello.clone()
        };
        for (check, request, what) in [
            (
                "versions_are_negotiated",
                of_versions,
                "a version that nobody speaks",
            ),
            ("one_cluster_is_served", of_cluster, "the UID of another cluster"),
        ] {
            let answer = within(self.clock, LIMIT, self.client().handshake(request)).await;
            match answer {
                Some(Err(status)) if status.code() == Code::FailedPrecondition => {}
                other => failures.push(failure(
                    check,
                    format!(
                        "a handshake with {what}: expected FAILED_PRECONDITION, got {}",
                        shown(&other)
                    ),
                )),
            }
        }
        match within(self.clock, LIMIT, self.client().handshake(newer)).await {
            Some(Ok(answer)) if answer.get_ref().chosen_version == crate::VERSIONS[0] => {}
            other => failures.push(failure(
                "versions_are_negotiated",
                format!(
                    "of v99 and {0}, {0} was expected, got {1}",
                    crate::VERSIONS[0],
                    shown(&other)
                ),
            )),
        }
    }

    pub(super) async fn capabilities(&self, failures: &mut Shortcomings) {
        if !self.shaken.identity.can(Capability::Events) {
            return;
        }
        // A stream may stay silent; only a refusal counts.
        let opened = within(self.clock, Duration::from_secs(2), async {
            let mut stream = self.client().watch_events(EventsRequest {}).await?.into_inner();
            stream.message().await.map(drop)
        });
        if let Some(Err(status)) = opened.await
            && status.code() == Code::Unimplemented
        {
            failures.push(failure(
                "announced_calls_exist",
                "capability EVENTS is announced and WatchEvents is UNIMPLEMENTED",
            ));
        }
    }

    /// G-005, G-006. Without a catalog nothing else can be tried.
    pub(super) async fn catalog(&self, failures: &mut Shortcomings) -> Option<Vec<InstanceType>> {
        let received = within(self.clock, LIMIT, self.first_snapshot()).await;
        let (check, problem) = match received {
            Some(Ok(chunks)) => return read_snapshot(&chunks, failures),
            Some(Err(status)) if status.code() == Code::OutOfRange => (
                "catalog_chunks_are_small",
                format!(
                    "a chunk is longer than {LONGEST_MESSAGE_BYTES} bytes: {}",
                    status.message()
                ),
            ),
            Some(Err(status)) if status.code() == Code::Unimplemented => {
                (CHECK, "UNIMPLEMENTED: WatchCatalog".to_owned())
            }
            Some(Err(status)) => (
                "catalog_arrives",
                format!("{:?}: {}", status.code(), status.message()),
            ),
            None => (
                "snapshots_are_completed",
                format!("no chunk has said snapshot_complete within {} s", LIMIT.as_secs()),
            ),
        };
        failures.push(failure(check, problem));
        None
    }

    /// A provider that does work of its own may have to read its classes and prices first.
    async fn first_snapshot(&self) -> Result<Vec<CatalogChunk>, Status> {
        let started = self.clock.now();
        loop {
            match self.snapshot().await {
                Err(status)
                    if status.code() == Code::FailedPrecondition
                        && self.shaken.identity.can(Capability::Lead)
                        && self.clock.since(started) < START_LIMIT =>
                {
                    self.clock.sleep(Duration::from_secs(1)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn snapshot(&self) -> Result<Vec<CatalogChunk>, Status> {
        let request = CatalogRequest {
            node_class: Some(self.class.message()),
        };
        let mut stream = self.client().watch_catalog(request).await?.into_inner();
        let mut chunks = Vec::new();
        while let Some(chunk) = stream.message().await? {
            let is_complete = chunk.snapshot_complete;
            chunks.push(chunk);
            if is_complete {
                return Ok(chunks);
            }
        }
        Err(Status::data_loss("the stream ended before snapshot_complete"))
    }

    /// G-014: of an ID that is none of the provider's.
    pub(super) async fn strangers(&self, failures: &mut Shortcomings) {
        let request = TerminateRequest {
            provider_id: FOREIGN.to_owned(),
            nodeclaim_uid: "uid-of-a-stranger".to_owned(),
            leader_term: self.term,
            ..TerminateRequest::default()
        };
        let ended = within(self.clock, LIMIT, self.client().terminate(request)).await;
        let request = InstanceRef {
            provider_id: FOREIGN.to_owned(),
        };
        let got = within(self.clock, LIMIT, self.client().get_instance(request)).await;
        for (call, code, said) in [
            ("Terminate", code_of(&ended), shown(&ended)),
            ("GetInstance", code_of(&got), shown(&got)),
        ] {
            if !matches!(code, Some(Code::NotFound | Code::InvalidArgument)) {
                failures.push(failure(
                    "foreign_ids_are_never_ok",
                    format!("{call} of {FOREIGN}: expected NOT_FOUND or INVALID_ARGUMENT, got {said}"),
                ));
            }
        }
    }
}

pub(super) fn code_of<T>(answer: &Option<Result<tonic::Response<T>, Status>>) -> Option<Code> {
    match answer {
        Some(Ok(_)) => Some(Code::Ok),
        Some(Err(status)) => Some(status.code()),
        None => None,
    }
}

pub(super) fn shown<T: std::fmt::Debug>(answer: &Option<Result<tonic::Response<T>, Status>>) -> String {
    match answer {
        Some(Ok(answer)) => {
            // The beginning says what it is; a whole answer would hide what else is wrong.
            let text = format!("{:?}", answer.get_ref());
            let cut = text.char_indices().nth(80);
            cut.map_or(format!("OK: {text}"), |(end, _)| format!("OK: {}…", &text[..end]))
        }
        Some(Err(status)) => format!("{:?}: {}", status.code(), status.message()),
        None => format!("no answer within {} s", LIMIT.as_secs()),
    }
}
