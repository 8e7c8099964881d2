//! The kit that checks a provider from outside (G-024): every promise of the protocol that can be tried, and those of the port over the protocol.
//!
//! Owns the checks; what is broken is reported by the name of the promise. It launches a few instances of the cheapest offering and ends them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::{ApiResource, DynamicObject};
use prost::Message as _;
use spokeshave_api::{NodeClaim, NodeClaimSpec, NodeClassRef, NodePool, Operator, Requirement, labels};
use spokeshave_model::InstanceType;
use spokeshave_ports::conformance::{Failure, Failures, Harness, check_all};
use spokeshave_ports::{CloudProvider, SharedClock};
use tonic::{Code, Status};

use crate::catalog::Catalog;
use crate::client::{ClientOptions, GrpcProvider};
use crate::errors::ConnectError;
use crate::link::{self, Client, Shaken, within};
use crate::transport::Connector;
use crate::wire::launch_reply::Outcome;
use crate::wire::{
    Capability, CatalogChunk, CatalogRequest, EventsRequest, HandshakeRequest, Instance, InstanceRef,
    LaunchRequest, ListRequest, NodeClass, TerminateRequest,
};
use crate::{LONGEST_MESSAGE_BYTES, convert, launch};

/// Time for one answer.
const LIMIT: Duration = Duration::from_secs(120);
/// An ID of no provider.
const FOREIGN: &str = "stranger:///nowhere/i-0";

/// What the kit needs to know.
#[derive(Clone, Debug)]
pub struct SanityOptions {
    /// Where the provider is.
    pub connector: Arc<dyn Connector>,
    /// Name of a NodeClass that the provider accepts.
    pub node_class: String,
    /// UID of the cluster that the provider serves.
    pub cluster_uid: String,
    /// Distinguishes the instances of this run from those of others.
    pub run: String,
}

type Shortcomings = Vec<Failure>;

fn failure(check: &'static str, message: impl Into<String>) -> Failure {
    Failure {
        check,
        message: message.into(),
    }
}

/// Checks a provider.
///
/// # Errors
/// All broken promises.
pub async fn check(options: &SanityOptions, clock: &SharedClock) -> Result<(), Failures> {
    let mut failures = Shortcomings::new();
    let hello = link::hello("sanity", &options.cluster_uid, "");
    let shaken = match link::connect(&*options.connector, clock, &hello).await {
        Ok(shaken) => shaken,
        Err(ConnectError::Refused { reason, .. }) => {
            return Err(Failures(vec![failure("handshake_is_complete", reason)]));
        }
        Err(unreachable) => {
            return Err(Failures(vec![failure(
                "provider_answers",
                unreachable.to_string(),
            )]));
        }
    };
    let wire = Wire {
        options,
        clock,
        hello,
        shaken,
    };
    wire.handshake(&mut failures).await;
    wire.capabilities(&mut failures).await;
    if let Some(types) = wire.catalog(&mut failures).await {
        wire.strangers(&mut failures).await;
        wire.launches(&types, &mut failures).await;
        if let Err(broken) = over_the_port(options, clock, &wire, &types).await {
            failures.extend(broken.0);
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(Failures(failures))
    }
}

/// The suite of the port, on the client that the operator uses.
async fn over_the_port(
    options: &SanityOptions,
    clock: &SharedClock,
    wire: &Wire<'_>,
    types: &[InstanceType],
) -> Result<(), Failures> {
    let client = ClientOptions {
        connector: options.connector.clone(),
        cluster_name: "sanity".to_owned(),
        cluster_uid: options.cluster_uid.clone(),
        kubernetes_version: String::new(),
        node_classes: None,
        nodes: None,
    };
    let provider = GrpcProvider::connect(client, clock.clone()).await;
    let provider =
        provider.map_err(|error| Failures(vec![failure("handshake_is_complete", error.to_string())]))?;
    let harness = Kit {
        provider,
        clock: clock.clone(),
        class: wire.class_ref(),
        run: options.run.clone(),
        cheapest: cheapest(types),
    };
    check_all(&harness).await
}

fn cheapest(types: &[InstanceType]) -> String {
    let priced = types.iter().filter_map(|one| {
        let available = one.offerings.iter().filter(|offering| offering.available);
        Some((available.map(|offering| offering.price).min()?, &one.name))
    });
    priced.min().map(|(_, name)| name.clone()).unwrap_or_default()
}

/// What the suite of the port is lent.
struct Kit {
    provider: GrpcProvider,
    clock: SharedClock,
    class: NodeClassRef,
    run: String,
    cheapest: String,
}

fn claim(class: &NodeClassRef, name: &str, run: &str, requirements: Vec<Requirement>) -> NodeClaim {
    let spec = NodeClaimSpec {
        requirements,
        node_class_ref: class.clone(),
        ..NodeClaimSpec::default()
    };
    let name = format!("{name}-{run}");
    let mut claim = NodeClaim::new(&name, spec);
    claim.metadata.uid = Some(format!("uid-of-{name}"));
    claim.metadata.labels = Some(BTreeMap::from([(
        labels::NODE_POOL.to_owned(),
        "sanity".to_owned(),
    )]));
    claim
}

impl Harness for Kit {
    fn provider(&self) -> &dyn CloudProvider {
        &self.provider
    }
    fn clock(&self) -> SharedClock {
        self.clock.clone()
    }
    fn node_pool(&self) -> NodePool {
        crate::server::pool_of(&self.class)
    }
    fn node_claim(&self, name: &str) -> NodeClaim {
        let cheapest = Requirement::new(labels::INSTANCE_TYPE, Operator::In, &[&self.cheapest]);
        claim(&self.class, name, &self.run, vec![cheapest])
    }
    fn impossible_node_claim(&self, name: &str) -> NodeClaim {
        let nowhere = Requirement::new(labels::ZONE, Operator::In, &["sanity-nowhere"]);
        claim(&self.class, name, &self.run, vec![nowhere])
    }
    fn node_claim_without_class(&self, _name: &str) -> Option<NodeClaim> {
        None
    }
    fn node_class(&self) -> BoxFuture<'_, Option<DynamicObject>> {
        let (group, kind) = (&self.class.group, &self.class.kind);
        let resource = ApiResource {
            group: group.clone(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: kind.clone(),
            plural: String::new(),
        };
        let class = DynamicObject::new(&self.class.name, &resource).data(serde_json::json!({"spec": {}}));
        std::future::ready(Some(class)).boxed()
    }
}

/// The calls as they are, without the client that makes sense of them.
struct Wire<'a> {
    options: &'a SanityOptions,
    clock: &'a SharedClock,
    hello: HandshakeRequest,
    shaken: Shaken,
}

impl Wire<'_> {
    fn client(&self) -> Client {
        self.shaken.client.clone()
    }

    fn class_ref(&self) -> NodeClassRef {
        let kind = &self.shaken.identity.kinds[0];
        NodeClassRef {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            name: self.options.node_class.clone(),
        }
    }

    fn class(&self) -> NodeClass {
        let reference = self.class_ref();
        NodeClass {
            group: reference.group,
            kind: reference.kind,
            name: reference.name,
            ..NodeClass::default()
        }
    }

    /// G-002.
    async fn handshake(&self, failures: &mut Shortcomings) {
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

    async fn capabilities(&self, failures: &mut Shortcomings) {
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
    async fn catalog(&self, failures: &mut Shortcomings) -> Option<Vec<InstanceType>> {
        let received = within(self.clock, LIMIT, self.snapshot()).await;
        let (check, problem) = match received {
            Some(Ok(chunks)) => return read_snapshot(&chunks, failures),
            Some(Err(status)) if status.code() == Code::OutOfRange => (
                "catalog_chunks_are_small",
                format!(
                    "a chunk is longer than {LONGEST_MESSAGE_BYTES} bytes: {}",
                    status.message()
                ),
            ),
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

    async fn snapshot(&self) -> Result<Vec<CatalogChunk>, Status> {
        let request = CatalogRequest {
            node_class: Some(self.class()),
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
    async fn strangers(&self, failures: &mut Shortcomings) {
        let request = TerminateRequest {
            provider_id: FOREIGN.to_owned(),
            nodeclaim_uid: "uid-of-a-stranger".to_owned(),
            leader_term: self.term(),
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

    fn term(&self) -> u64 {
        u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0)
    }

    fn request(&self, types: &[InstanceType]) -> LaunchRequest {
        let wanted = Requirement::new(labels::INSTANCE_TYPE, Operator::In, &[&cheapest(types)]);
        let claim = claim(&self.class_ref(), "sanity-wire", &self.options.run, vec![wanted]);
        let requirements = launch::requirements_of(&claim).unwrap_or_default();
        let mut request = launch::request(&claim, self.class(), &requirements, self.term());
        let mut catalog = Catalog::default();
        let chunk = CatalogChunk {
            generation: 1,
            snapshot_complete: true,
            types: types.iter().map(convert::type_message).collect(),
            deltas: Vec::new(),
        };
        drop(catalog.apply(&chunk));
        let well_known: BTreeSet<String> = labels::WELL_KNOWN.iter().map(|key| (*key).to_owned()).collect();
        let suitable = launch::suitable(types, &requirements, &Default::default());
        request.candidates = launch::candidates(&suitable, &catalog, &requirements, &well_known);
        request
    }

    /// G-003, G-007, G-011, G-012 on the wire.
    async fn launches(&self, types: &[InstanceType], failures: &mut Shortcomings) {
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
        let stale = LaunchRequest {
            leader_term: 1,
            ..request.clone()
        };
        let answer = within(self.clock, LIMIT, self.client().launch(stale)).await;
        if code_of(&answer) != Some(Code::FailedPrecondition) {
            failures.push(failure(
                "stale_leaders_are_refused",
                format!(
                    "a launch of leader_term 1 after {}: expected FAILED_PRECONDITION, got {}",
                    request.leader_term,
                    shown(&answer)
                ),
            ));
        }
        self.listed(&first, &request, failures).await;
        self.found_anew(&first, failures).await;
        let request = TerminateRequest {
            provider_id: first.provider_id,
            nodeclaim_name: request.nodeclaim_name,
            nodeclaim_uid: request.nodeclaim_uid,
            leader_term: self.term(),
        };
        drop(within(self.clock, LIMIT, self.client().terminate(request)).await);
    }

    async fn launch(&self, request: &LaunchRequest, failures: &mut Shortcomings) -> Option<Instance> {
        let started = self.clock.now();
        let problem = loop {
            let answer = within(self.clock, LIMIT, self.client().launch(request.clone())).await;
            match answer {
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
            other => {
                failures.push(failure("lists_say_that_they_are_complete", format!("{other:?}")));
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

    async fn list(&self) -> Result<(Vec<Instance>, bool), Status> {
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

fn read_snapshot(chunks: &[CatalogChunk], failures: &mut Shortcomings) -> Option<Vec<InstanceType>> {
    let mut catalog = Catalog::default();
    let mut names = BTreeSet::new();
    for chunk in chunks {
        if chunk.encoded_len() > LONGEST_MESSAGE_BYTES {
            failures.push(failure(
                "catalog_chunks_are_small",
                format!("{} bytes", chunk.encoded_len()),
            ));
        }
        for one in &chunk.types {
            if !names.insert(&one.name) {
                failures.push(failure(
                    "catalog_rows_are_unique",
                    format!("instance type {:?} stands twice in one snapshot", one.name),
                ));
            }
        }
        match catalog.apply(chunk) {
            Ok(problems) => {
                failures.extend(
                    problems
                        .into_iter()
                        .map(|what| failure("catalog_rows_are_whole", what)),
                );
            }
            Err(problem) => {
                failures.push(failure("snapshots_are_completed", problem));
                return None;
            }
        }
    }
    let types = catalog.types().unwrap_or_default();
    if cheapest(&types).is_empty() {
        failures.push(failure(
            "catalog_sells_something",
            "no readable instance type has an available offering",
        ));
        return None;
    }
    Some(types.to_vec())
}

fn code_of<T>(answer: &Option<Result<tonic::Response<T>, Status>>) -> Option<Code> {
    match answer {
        Some(Ok(_)) => Some(Code::Ok),
        Some(Err(status)) => Some(status.code()),
        None => None,
    }
}

fn shown<T: std::fmt::Debug>(answer: &Option<Result<tonic::Response<T>, Status>>) -> String {
    match answer {
        Some(Ok(answer)) => format!("{:?}", answer.get_ref()),
        Some(Err(status)) => format!("{:?}: {}", status.code(), status.message()),
        None => format!("no answer within {} s", LIMIT.as_secs()),
    }
}
