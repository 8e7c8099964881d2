//! A provider in another process, as a provider (G-001).
//!
//! Owns the calls: their time limits, and what an answer must hold. Nothing stalls on a provider that hangs, and nothing is believed that contradicts itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use kube::api::DynamicObject;
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{NodeClaim, NodeClassRef, NodePool};
use spokeshave_mirror::Messages;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_model::volumes::Unsupported;
use spokeshave_model::{InstanceType, PriceFeed, Resources};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Interruption, Interruptions, NodeClassKind, RegistrationHook,
    RepairPolicy, SharedClock, SharedWrites, WatchFailures, Writes,
};
use tonic::Code;

use crate::class_hash::{self, Stamp, Stamps};
use crate::classes::{self, NodeClasses, Place};
use crate::errors::{ConnectError, answered, answered_about, launch_error, no_answer, termination};
use crate::events::Events;
use crate::feed::{self, Feed, Source};
use crate::gate::Gate;
use crate::identity::{Identity, StatusAuthor};
use crate::instance_list;
use crate::link::{self, Client, Link, Task, within};
use crate::nodes::KubeNodes;
use crate::opening::Opening;
use crate::transport::Connector;
use crate::wire::launch_reply::Outcome;
use crate::wire::{
    Capability, DriftRequest, Instance, InstanceRef, InstanceState, LaunchRequest, LeadRequest,
    TerminateRequest,
};
use crate::{convert, launch};

const LAUNCH_LIMIT: Duration = Duration::from_secs(120);
/// How long a launch that is under way is asked for again within one call.
const PENDING_LIMIT: Duration = Duration::from_secs(45);
const GET_LIMIT: Duration = Duration::from_secs(10);
const LIST_LIMIT: Duration = Duration::from_secs(60);
const TERMINATE_LIMIT: Duration = Duration::from_secs(30);
const DRIFT_LIMIT: Duration = Duration::from_secs(30);
/// Time for which a provider may be away before the operator is not ready any more (G-019).
const AWAY_LIMIT: Duration = Duration::from_secs(120);

/// What a connection to a provider needs.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Where the provider is.
    pub connector: Arc<dyn Connector>,
    /// Name of the cluster, for tags.
    pub cluster_name: String,
    /// UID of the namespace `kube-system`; a provider serves one cluster.
    pub cluster_uid: String,
    /// Version of Kubernetes.
    pub kubernetes_version: String,
    /// Where NodeClasses are; without it the provider must know them itself.
    pub node_classes: Option<Arc<dyn NodeClasses>>,
    /// Where Nodes are; without it rules about their conditions have no effect.
    pub nodes: Option<KubeNodes>,
}

/// A provider in another process. Clones are the same.
#[derive(Clone, Debug)]
pub struct GrpcProvider(Arc<Inner>);

/// By group, kind and name of the NodeClass.
type Feeds = BTreeMap<(String, String, String), Arc<Feed>>;

#[derive(Debug)]
struct Inner {
    clock: SharedClock,
    /// What the provider said of itself at the start; what may change since is the link's.
    identity: Arc<Identity>,
    link: Arc<Link>,
    node_classes: Option<Arc<dyn NodeClasses>>,
    feeds: Mutex<Feeds>,
    events: Events,
    stamps: Stamps,
    nodes: Option<KubeNodes>,
    /// What Nodes have told, by the provider's rules, and instances that have failed.
    told: Messages,
    hooks: Vec<Arc<dyn RegistrationHook>>,
    well_known: BTreeSet<String>,
    _keeper: Task,
}

impl GrpcProvider {
    /// Connects and shakes hands. The connection comes back by itself from then on.
    ///
    /// # Errors
    /// Nobody answers, or who answers cannot be used.
    pub async fn connect(options: ClientOptions, clock: SharedClock) -> Result<Self, ConnectError> {
        let hello = link::hello(
            &options.cluster_name,
            &options.cluster_uid,
            &options.kubernetes_version,
        );
        let shaken = link::connect(&*options.connector, &clock, &hello).await?;
        let (link, keeper) = Link::keep(options.connector, clock.clone(), hello, shaken);
        let identity = link.identity();
        let gate = Gate {
            link: link.clone(),
            clock: clock.clone(),
            name: identity.name.clone(),
        };
        let hooks: Vec<Arc<dyn RegistrationHook>> = vec![Arc::new(gate)];
        let well_known = identity.well_known();
        Ok(Self(Arc::new(Inner {
            clock,
            link,
            node_classes: options.node_classes,
            nodes: options.nodes,
            told: Messages::default(),
            feeds: Mutex::default(),
            events: Events::default(),
            stamps: Stamps::default(),
            hooks,
            well_known,
            identity,
            _keeper: keeper,
        })))
    }

    /// What the provider adds to the rules about labels.
    #[must_use]
    pub fn label_rules(&self) -> LabelRules {
        LabelRules {
            restricted_domains: self.0.identity.restricted_domains.clone(),
            well_known: self.0.identity.well_known_labels.clone(),
            unsupported: Vec::new(),
        }
    }

    /// Rules of the provider's last handshake that are left out because they cannot be followed: each by name, with what was expected.
    #[must_use]
    pub fn rejected_rules(&self) -> Vec<String> {
        self.0.link.identity().problems.clone()
    }

    /// Whether the provider is there, or has been within the last two minutes (G-019).
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.link.away_for().is_none_or(|away| away <= AWAY_LIMIT)
    }

    /// Whether the provider is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.link.away_for().is_none()
    }
}

impl Inner {
    fn feeds(&self) -> MutexGuard<'_, Feeds> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kind_of(&self, reference: &NodeClassRef) -> Result<(usize, NodeClassKind), CloudError> {
        let kinds = &self.identity.kinds;
        let place = kinds
            .iter()
            .position(|kind| kind.group == reference.group && kind.kind == reference.kind);
        let place = place.ok_or_else(|| CloudError::Create {
            reason: "UnsupportedNodeClass".to_owned(),
            message: format!(
                "nodeClassRef names {}.{}; the provider {} serves {}",
                reference.kind, reference.group, self.identity.name, kinds[0]
            ),
        })?;
        Ok((place, kinds[place].clone()))
    }

    fn feed(&self, reference: &NodeClassRef) -> Result<Arc<Feed>, CloudError> {
        let (_, kind) = self.kind_of(reference)?;
        let mut feeds = self.feeds();
        let key = (kind.group.clone(), kind.kind.clone(), reference.name.clone());
        let feed = feeds.entry(key).or_insert_with(|| {
            Arc::new(Feed::start(Source {
                link: self.link.clone(),
                clock: self.clock.clone(),
                node_classes: self.node_classes.clone(),
                kind,
                name: reference.name.clone(),
            }))
        });
        let feed = feed.clone();
        feed.note_use();
        Ok(feed)
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        corrected: Option<&[InstanceType]>,
    ) -> Result<NodeClaim, CloudError> {
        if claim.uid().is_empty() {
            return Err(CloudError::Other(
                "launch needs a NodeClaim with metadata.uid".to_owned(),
            ));
        }
        let client = self.link.client()?;
        let reference = &claim.spec.node_class_ref;
        let feed = self.feed(reference)?;
        let requirements = launch::requirements_of(claim)?;
        let requests = Resources::from_quantities(&claim.spec.resources.requests).map_err(|error| {
            CloudError::Create {
                reason: "InvalidResources".to_owned(),
                message: format!("spec.resources.requests of NodeClaim {}: {error}", claim.name()),
            }
        })?;
        let types = feed.types().await?;
        let class = feed.source.class().await?;
        let mut request = launch::request(claim, class, &requirements, self.link.term());
        let candidates = launch::candidates(
            corrected.unwrap_or(&types),
            &feed.catalog(),
            &requirements,
            &requests,
            &self.well_known,
        );
        launch::name_candidates(&mut request, candidates, corrected);
        let stamp = self.stamp(claim, &request);
        let instance = self.launched(client, &feed, request).await?;
        let now = self.clock.now();
        let mut answer = launch::hydrated(claim, instance, &feed.catalog(), now)?;
        if let Some(stamp) = stamp {
            stamp.put_on(&mut answer);
        }
        Ok(answer)
    }

    /// Of the class as the provider is told of it.
    fn stamp(&self, claim: &NodeClaim, request: &LaunchRequest) -> Option<Stamp> {
        let (place, _) = self.kind_of(&claim.spec.node_class_ref).ok()?;
        let class = request.node_class.as_ref()?;
        let object = serde_json::from_slice(&class.object_json).ok()?;
        Some(Stamp::of(&object, &self.link.identity().dynamic_fields[place]))
    }

    /// Asks until there is an instance or a failure.
    async fn launched(
        &self,
        mut client: Client,
        feed: &Feed,
        request: LaunchRequest,
    ) -> Result<Instance, CloudError> {
        let started = self.clock.now();
        loop {
            if let Some(failure) = self.events.failure(&request.nodeclaim_uid) {
                return Err(failure);
            }
            let answer = within(&self.clock, LAUNCH_LIMIT, client.launch(request.clone())).await;
            if let Some(Err(status)) = &answer
                && status.code() == Code::AlreadyExists
            {
                return Err(CloudError::Create {
                    reason: "LaunchConflict".to_owned(),
                    message: format!("Launch: {}", status.message()),
                });
            }
            let reply = answered("Launch", LAUNCH_LIMIT, answer)?;
            feed::observe(feed, &reply.observed);
            let pending = match reply.outcome {
                Some(Outcome::Instance(instance)) => {
                    let uid = &request.nodeclaim_uid;
                    if self.events.note_launch(uid, &instance.provider_id) || convert::is_lost(&instance) {
                        return Err(CloudError::InsufficientCapacity(format!(
                            "the provider says that instance {} has failed or is ending",
                            instance.provider_id
                        )));
                    }
                    return Ok(instance);
                }
                Some(Outcome::Failure(failure)) => return Err(launch_error(failure)),
                Some(Outcome::Pending(pending)) => pending,
                None => {
                    return Err(CloudError::Other(
                        "Launch: the provider answered with neither instance, failure nor pending".to_owned(),
                    ));
                }
            };
            if self.clock.since(started) > PENDING_LIMIT {
                return Err(CloudError::Timeout(format!(
                    "the launch for NodeClaim {} is still under way; it is asked for again",
                    request.nodeclaim_name
                )));
            }
            let after = convert::duration_of(pending.ask_again_after).unwrap_or_default();
            let (least, most) = (Duration::from_secs(1), Duration::from_secs(15));
            self.clock.sleep(after.clamp(least, most)).await;
        }
    }

    /// What will never run counts as ended by itself (G-008): core deletes its NodeClaim, and with it the instance, which is listed until then.
    fn tell_failure(&self, instance: &Instance) {
        self.told.tell(Interruption {
            id: format!("failed/{}", instance.provider_id),
            provider_id: instance.provider_id.clone(),
            kind: Ok(InterruptionKind::InstanceTerminated),
            sent_at: None,
            ends_at: None,
        });
    }

    /// An instance as a NodeClaim, with what any catalog knows of it.
    fn as_claim(&self, instance: Instance) -> Result<NodeClaim, String> {
        let has_failed =
            instance.state() == InstanceState::Failed || self.events.has_failed(&instance.nodeclaim_uid);
        if has_failed && !instance.provider_id.is_empty() {
            self.tell_failure(&instance);
        }
        let knows = |feed: &&Arc<Feed>| feed.catalog().find(&instance.r#type, "").is_some();
        let found = self.feeds().values().find(knows).cloned();
        let now = self.clock.now();
        match found {
            Some(feed) => launch::as_claim(instance, &feed.catalog(), now),
            None => convert::claim_of(instance, None, now),
        }
    }

    async fn get(&self, provider_id: &str) -> Result<NodeClaim, CloudError> {
        let mut client = self.link.client()?;
        let request = InstanceRef {
            provider_id: provider_id.to_owned(),
        };
        let answer = within(&self.clock, GET_LIMIT, client.get_instance(request)).await;
        let instance = answered_about(provider_id, "GetInstance", GET_LIMIT, answer)?;
        if instance.state() == InstanceState::Gone {
            return Err(CloudError::NodeClaimNotFound(format!(
                "instance {provider_id} is gone"
            )));
        }
        if instance.provider_id != provider_id {
            return Err(CloudError::Other(format!(
                "GetInstance: the provider was asked for {provider_id} and answered with {:?}",
                instance.provider_id
            )));
        }
        self.as_claim(instance)
            .map_err(|problem| CloudError::Other(format!("GetInstance: {problem}")))
    }

    /// Everything or an error (G-011): what is collected as leaked follows from it.
    async fn list(&self) -> Result<Vec<NodeClaim>, CloudError> {
        self.feeds().retain(|_, feed| feed.is_used());
        let client = self.link.client()?;
        let received = within(&self.clock, LIST_LIMIT, instance_list::receive(client)).await;
        let instances = received.unwrap_or_else(|| Err(no_answer("ListInstances", LIST_LIMIT)))?;
        let mut claims = Vec::with_capacity(instances.len());
        for instance in instances {
            // A launch under way may be listed before it has an ID: there is nothing yet that could be taken for leaked.
            let is_unnamed = instance.provider_id.is_empty() && instance.state() == InstanceState::Pending;
            if is_unnamed || instance.state() == InstanceState::Gone {
                continue;
            }
            let claim = self.as_claim(instance);
            claims.push(claim.map_err(|problem| CloudError::Other(format!("ListInstances: {problem}")))?);
        }
        claims.sort_by(|a, b| a.provider_id().cmp(&b.provider_id()));
        let twice = claims
            .windows(2)
            .find(|pair| pair[0].provider_id() == pair[1].provider_id());
        match twice {
            Some(pair) => Err(CloudError::Other(format!(
                "ListInstances: the provider lists {} twice",
                pair[0].provider_id().unwrap_or_default()
            ))),
            None => Ok(claims),
        }
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let mut client = self.link.client()?;
        let request = TerminateRequest {
            provider_id: claim.provider_id().unwrap_or_default().to_owned(),
            nodeclaim_name: claim.name().to_owned(),
            nodeclaim_uid: claim.uid().to_owned(),
            leader_term: self.link.term(),
        };
        let provider_id = claim.provider_id().unwrap_or_default();
        let answer = within(&self.clock, TERMINATE_LIMIT, client.terminate(request)).await;
        let reply = answered_about(provider_id, "Terminate", TERMINATE_LIMIT, answer)?;
        termination(reply, provider_id)
    }

    /// Whoever announces `DRIFT` decides alone (G-015): of its own class it knows which changes matter. Otherwise the hash of the spec does.
    async fn is_drifted(
        &self,
        claim: &NodeClaim,
        class: Option<&DynamicObject>,
    ) -> Result<Option<String>, CloudError> {
        let (place, kind) = self.kind_of(&claim.spec.node_class_ref)?;
        let Some(class) = class else {
            return Ok(None);
        };
        let identity = self.link.identity();
        if !identity.can(Capability::Drift) {
            let judged = class_hash::judge(claim, class, &identity.dynamic_fields[place]);
            if let Some(stamp) = judged.stamp {
                self.stamps.note(claim, stamp);
            }
            return Ok(judged.has_drifted.then(|| "NodeClassDrift".to_owned()));
        }
        let mut client = self.link.client()?;
        let request = DriftRequest {
            node_class: Some(classes::message(&kind, class)),
            instance: Some(convert::instance_message(claim)),
            nodeclaim_json: serde_json::to_vec(claim).unwrap_or_default(),
        };
        let answer = within(&self.clock, DRIFT_LIMIT, client.check_drift(request)).await;
        let reason = answered("CheckDrift", DRIFT_LIMIT, answer)?.reason;
        Ok(Some(reason).filter(|reason| !reason.is_empty()))
    }

    async fn lead(&self, writes: &dyn Writes) {
        let in_term = async {
            let term = self.link.begin_term(writes.leader_term()).await;
            futures::join!(self.work(term, false), self.keep_classes(writes, term));
        };
        futures::join!(in_term, self.hear_nodes(), self.stamps.keep(writes, &self.clock));
    }

    /// Keeps the status of NodeClasses true, as long as that is the operator's to do.
    async fn keep_classes(&self, writes: &dyn Writes, term: u64) {
        let Some(source) = self.node_classes.as_deref() else {
            return std::future::pending().await;
        };
        let (kinds, clock) = (&self.identity.kinds, &self.clock);
        let place = Place {
            source,
            writes,
            clock,
        };
        loop {
            let author = self.link.identity().status_author();
            let keeping = async {
                match author {
                    StatusAuthor::OperatorByVerdict => {
                        classes::reconcile(place, kinds, || self.link.client().ok(), term).await;
                    }
                    StatusAuthor::Provider => classes::release(place, kinds).await,
                    StatusAuthor::Operator => classes::approve(place, kinds).await,
                }
            };
            let another = |link: &Link| (link.identity().status_author() != author).then_some(());
            tokio::select! {
                biased;
                () = self.link.until(another) => {}
                () = keeping => {}
            }
        }
    }

    /// From the first rule that a handshake has, by the rules of the last one.
    async fn hear_nodes(&self) {
        let Some(nodes) = &self.nodes else {
            return std::future::pending().await;
        };
        nodes.hear(&self.link, &self.clock, &self.told).await;
    }

    /// Lets the provider do work of its own for as long as this is awaited.
    async fn work(&self, leader_term: u64, reads_only: bool) {
        let request = LeadRequest {
            leader_term,
            reads_only,
        };
        let mut opening = Opening::new("Lead", &self.clock);
        loop {
            let mut client = self.link.up_with(Capability::Lead).await;
            opening.begin();
            let ended = match client.lead(request).await {
                Ok(stream) => {
                    let mut stream = stream.into_inner();
                    loop {
                        match stream.message().await {
                            Ok(Some(_)) => opening.works(),
                            Ok(None) => break None,
                            Err(status) => break Some(status),
                        }
                    }
                }
                Err(status) => Some(status),
            };
            opening.pause_after(ended.as_ref()).await;
        }
    }
}

impl CloudProvider for GrpcProvider {
    fn name(&self) -> &str {
        &self.0.identity.name
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        &self.0.identity.kinds
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        self.0.create(claim, None).boxed()
    }

    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        self.0.create(claim, Some(types)).boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.0.delete(claim).boxed()
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        self.0.get(provider_id).boxed()
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        self.0.list().boxed()
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        async move {
            let feed = self.0.feed(pool.node_class_ref())?;
            feed.types().await
        }
        .boxed()
    }

    fn is_drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        self.0.is_drifted(claim, class).boxed()
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        &self.0.identity.repair_policies
    }

    fn interruptions(&self) -> Option<Interruptions<'_>> {
        let Inner { link, clock, .. } = &*self.0;
        // Capability and rules may come with a later handshake.
        let events = self.0.events.listen(link, clock);
        let told = self.0.told.stream(clock.clone());
        Some(futures::stream::select(events, told).boxed())
    }

    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        let Inner {
            events,
            told,
            link,
            clock,
            ..
        } = &*self.0;
        if told.holds(&message.id) {
            told.acknowledge(&message.id);
            return std::future::ready(Ok(())).boxed();
        }
        events.acknowledge(link, clock, &message.id).boxed()
    }

    fn lead(&self, writes: SharedWrites) -> BoxFuture<'_, ()> {
        async move { self.0.lead(&*writes).await }.boxed()
    }

    fn follow(&self) -> BoxFuture<'_, ()> {
        self.0.work(0, true).boxed()
    }

    fn registration_hooks(&self) -> &[Arc<dyn RegistrationHook>] {
        &self.0.hooks
    }

    fn unsupported_volumes(&self) -> Unsupported {
        self.0.link.identity().unsupported.clone()
    }

    fn watch_failures(&self) -> Option<&WatchFailures> {
        self.0.nodes.as_ref().map(KubeNodes::watch_failures)
    }

    /// The provider's, not a NodeClass's: a catalog that nobody sends any more makes no price older than it is.
    fn price_feed(&self) -> PriceFeed {
        let feeds = self.0.feeds();
        let read_at = feeds.values().filter_map(|feed| feed.catalog().prices_read_at());
        read_at.max().map_or(PriceFeed::Fixed, PriceFeed::Since)
    }
}
