//! Ways of breaking the protocol's promises, each around a provider that keeps them.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use spokeshave_ports::SharedClock;
use spokeshave_provider_grpc::Server;
use spokeshave_provider_grpc::wire::launch_reply::Outcome;
use spokeshave_provider_grpc::wire::provider_server::Provider;
use spokeshave_provider_grpc::wire::{self, FailureKind, InstanceState};
use tonic::{Code, Request, Response, Status};

use crate::endless::{endless, grown_catalog, grown_list};

macro_rules! flaws {
    ($($name:ident),* $(,)?) => {
        /// What is broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Flaw {
            $($name),*
        }

        impl Flaw {
            pub(crate) const ALL: &[Flaw] = &[$(Flaw::$name),*];
        }
    };
}

flaws! {
    None,
    NoName,
    NoKinds,
    StrangeVersion,
    AnyVersion,
    AnyCluster,
    AnyLeader,
    HugeChunk,
    HundredMebibytes,
    EndlessCatalog,
    EndlessList,
    UnknownState,
    NeverComplete,
    EndsBeforeComplete,
    GenerationZero,
    BadQuantity,
    UnknownOperator,
    TypeTwice,
    OfferingWithoutZone,
    TypeWithoutArchitecture,
    NothingForSale,
    NoLaunch,
    NoTerminate,
    TerminateHangs,
    TwoInstances,
    SharedInstance,
    NoProviderId,
    NotACandidate,
    UntypedCapacityError,
    ListForgets,
    ListFromNodes,
    ListWithoutTrailer,
    ListWithoutUid,
    ListWithoutAge,
    ListTwice,
    ForgivesStrangers,
    InventsInstances,
    NeverGone,
    AlwaysDrifted,
    NeverDrifted,
    DriftedForGood,
    EverythingDynamic,
    EventsMissing,
    Hangs,
    LaunchHangs,
    PendingTwice,
    Plain,
    FailsLater,
    Judges,
    NoTerm,
    UnreadableRule,
    DemandsClass,
    ForgetsInstances,
    ForgetsLaunches,
    TypeNameWithBlank,
    LabelWithBlank,
    ListWithoutName,
    ListsPending,
    LaunchEnding,
    TwoGroups,
    LateCatalog,
    StuckCatalog,
    ErrsOnce,
    ErrsAlways,
}

/// A provider with a flaw.
#[derive(Clone)]
pub(crate) struct Flawed {
    pub(crate) inner: Server,
    pub(crate) flaw: Flaw,
    pub(crate) clock: SharedClock,
    pub(crate) calls: std::sync::Arc<std::sync::atomic::AtomicU64>,
    /// How often it was started.
    pub(crate) start: u64,
    /// The first reason for drift that it has given.
    pub(crate) drifted: Arc<Mutex<String>>,
    /// Images that exist: of a provider that judges NodeClasses.
    pub(crate) images: Arc<Mutex<Vec<String>>>,
    /// Names of the NodeClasses that it was asked to judge. About one whose name ends with `stuck` it never answers.
    pub(crate) judged: Arc<Mutex<Vec<String>>>,
    /// Capabilities that it announces, if others than its flaw's.
    pub(crate) capabilities: Arc<Mutex<Option<Vec<i32>>>>,
    /// Dynamic fields of its NodeClasses.
    pub(crate) dynamic_fields: Arc<Mutex<Vec<String>>>,
    /// The launches that it was asked for.
    pub(crate) asked: Arc<Mutex<Vec<wire::LaunchRequest>>>,
}

impl Flawed {
    pub(crate) fn new(inner: Server, flaw: Flaw, clock: SharedClock) -> Self {
        Self {
            inner,
            flaw,
            clock,
            calls: Default::default(),
            start: 1,
            drifted: Default::default(),
            images: Default::default(),
            judged: Default::default(),
            capabilities: Default::default(),
            dynamic_fields: Default::default(),
            asked: Default::default(),
        }
    }

    /// Of a NodeClass in which this says no image: that it is not ready.
    fn lacks_image(&self, class: Option<&wire::NodeClass>) -> bool {
        let json = class.map_or(&[][..], |class| &class.object_json);
        let object: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
        self.flaw == Flaw::DemandsClass && object["spec"]["image"] != "a"
    }

    /// A NodeClass is ready when its image exists.
    fn judge(&self, request: &wire::NodeClassRequest) -> Result<wire::NodeClassVerdict, Status> {
        let class = request.node_class.as_ref().expect("a class");
        let object: serde_json::Value = serde_json::from_slice(&class.object_json).expect("JSON");
        let image = object["spec"]["image"].as_str().unwrap_or_default();
        let exists = self
            .images
            .lock()
            .expect("no panic")
            .iter()
            .any(|one| one == image);
        let condition = wire::Condition {
            r#type: "ImageReady".into(),
            status: if exists { "True" } else { "False" }.into(),
            reason: String::new(),
            message: format!("image {image:?} exists: {exists}"),
        };
        Ok(wire::NodeClassVerdict {
            status_json: serde_json::json!({"image": image, "term": request.leader_term})
                .to_string()
                .into_bytes(),
            conditions: vec![condition],
            requeue_after: prost_types::Duration::try_from(Duration::from_secs(60)).ok(),
        })
    }

    fn call(&self) -> u64 {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    fn spoil_types(&self, chunk: &mut wire::CatalogChunk) {
        let Some(first) = chunk.types.first_mut() else {
            return;
        };
        match self.flaw {
            Flaw::HugeChunk => first.name = "x".repeat(2 << 20),
            Flaw::HundredMebibytes => first.name = "x".repeat(100 << 20),
            Flaw::TypeNameWithBlank => first.name = "8 cores/32GB".into(),
            Flaw::BadQuantity => drop(first.capacity.insert("cpu".into(), "many".into())),
            Flaw::UnknownOperator => first.requirements[0].operator = 99,
            Flaw::OfferingWithoutZone => first.offerings[0].requirements.clear(),
            Flaw::TypeWithoutArchitecture => {
                first.requirements.retain(|one| one.key != "kubernetes.io/arch");
            }
            Flaw::TypeTwice => {
                let twin = first.clone();
                chunk.types.push(twin);
            }
            Flaw::NothingForSale => {
                let offerings = chunk.types.iter_mut().flat_map(|one| &mut one.offerings);
                offerings.for_each(|offering| offering.price_nano_per_hour = None);
            }
            _ => {}
        }
        match self.flaw {
            Flaw::NeverComplete | Flaw::EndsBeforeComplete => chunk.snapshot_complete = false,
            Flaw::GenerationZero => chunk.generation = 0,
            _ => {}
        }
    }
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Provider for Flawed {
    async fn handshake(
        &self,
        mut request: Request<wire::HandshakeRequest>,
    ) -> Result<Response<wire::HandshakeResponse>, Status> {
        if self.flaw == Flaw::Hangs && self.call() > 0 {
            return std::future::pending().await;
        }
        let is_busy = match self.flaw {
            Flaw::ErrsOnce => self.call() == 2,
            Flaw::ErrsAlways => self.call() > 0,
            _ => false,
        };
        if is_busy {
            return Err(Status::unavailable("overloaded"));
        }
        if self.flaw == Flaw::AnyVersion {
            request.get_mut().supported_versions = vec!["v1alpha1".into()];
        }
        if self.flaw == Flaw::AnyCluster {
            request.get_mut().cluster_uid = "any".into();
        }
        let mut answer = self.inner.handshake(request).await?;
        for kind in &mut answer.get_mut().node_classes {
            kind.dynamic_fields = self.dynamic_fields.lock().expect("no panic").clone();
        }
        match self.flaw {
            Flaw::NoName => answer.get_mut().provider_name.clear(),
            Flaw::NoKinds => answer.get_mut().node_classes.clear(),
            Flaw::StrangeVersion => answer.get_mut().chosen_version = "v7".into(),
            // No flaw: the operator writes the status of its classes by its verdicts.
            Flaw::Judges => answer.get_mut().capabilities = vec![wire::Capability::NodeClassStatus.into()],
            // No flaw: it can only do what every provider must.
            Flaw::Plain => answer.get_mut().capabilities.clear(),
            Flaw::EverythingDynamic => {
                answer.get_mut().capabilities.clear();
                answer.get_mut().node_classes[0].dynamic_fields = vec!["/image".into()];
            }
            // No flaw: two kinds of one name.
            Flaw::TwoGroups => {
                let mut barn = answer.get_ref().node_classes[0].clone();
                barn.group = "barn.example".into();
                answer.get_mut().node_classes.push(barn);
            }
            Flaw::NoTerm => answer.get_mut().leader_term = 0,
            Flaw::UnreadableRule => {
                let rule = wire::ConditionRule {
                    condition: "Ending".into(),
                    status: "Perhaps".into(),
                    ..wire::ConditionRule::default()
                };
                answer.get_mut().interruption_conditions.push(rule);
            }
            _ => {}
        }
        if let Some(others) = self.capabilities.lock().expect("no panic").clone() {
            answer.get_mut().capabilities = others;
        }
        Ok(answer)
    }

    type WatchCatalogStream = Streamed<wire::CatalogChunk>;

    async fn watch_catalog(
        &self,
        request: Request<wire::CatalogRequest>,
    ) -> Result<Response<Self::WatchCatalogStream>, Status> {
        if self.lacks_image(request.get_ref().node_class.as_ref()) {
            return Err(Status::failed_precondition("spec.image is empty"));
        }
        // No flaw: many servers send nothing of a stream before its first message.
        if self.flaw == Flaw::LateCatalog {
            self.clock.sleep(Duration::from_secs(60)).await;
        }
        if self.flaw == Flaw::StuckCatalog && self.call() == 0 {
            return std::future::pending().await;
        }
        let class = request.get_ref().node_class.as_ref();
        let is_of_barn = class.is_some_and(|class| class.group == "barn.example");
        let stream = self.inner.watch_catalog(request).await?.into_inner();
        let flawed = self.clone();
        let stream = stream.map_ok(move |mut chunk| {
            flawed.spoil_types(&mut chunk);
            if is_of_barn {
                chunk.types.truncate(1);
            }
            chunk
        });
        if self.flaw == Flaw::EndsBeforeComplete {
            return Ok(Response::new(stream.take(1).boxed()));
        }
        if self.flaw == Flaw::EndlessCatalog {
            return Ok(Response::new(
                stream
                    .take(1)
                    .flat_map(|first| endless(first, grown_catalog))
                    .boxed(),
            ));
        }
        Ok(Response::new(stream.boxed()))
    }

    async fn launch(
        &self,
        mut request: Request<wire::LaunchRequest>,
    ) -> Result<Response<wire::LaunchReply>, Status> {
        let call = self.call();
        if self.lacks_image(request.get_ref().node_class.as_ref()) {
            return Err(Status::failed_precondition("spec.image is empty"));
        }
        let asked = request.get_mut();
        self.asked.lock().expect("no panic").push(asked.clone());
        let set_uid = |asked: &mut wire::LaunchRequest, uid: &str| {
            let mut claim: serde_json::Value = serde_json::from_slice(&asked.nodeclaim_json).expect("JSON");
            claim["metadata"]["uid"] = uid.into();
            asked.nodeclaim_json = claim.to_string().into_bytes();
        };
        let uid = asked.nodeclaim_uid.clone();
        let is_pending = match self.flaw {
            Flaw::PendingTwice => call < 2,
            // No flaw: its launch ends with an event.
            Flaw::FailsLater => asked.nodeclaim_name == "pending",
            _ => false,
        };
        if is_pending {
            let ask_again_after = prost_types::Duration::try_from(Duration::from_secs(3)).ok();
            return Ok(Response::new(wire::LaunchReply {
                outcome: Some(Outcome::Pending(wire::LaunchPending { ask_again_after })),
                observed: Vec::new(),
            }));
        }
        match self.flaw {
            Flaw::AnyLeader => asked.leader_term = u64::MAX,
            Flaw::TwoInstances => set_uid(asked, &format!("{uid}-{call}")),
            Flaw::ForgetsLaunches => set_uid(asked, &format!("{uid}-{}", self.start)),
            Flaw::SharedInstance => set_uid(asked, "one"),
            Flaw::ErrsOnce => self.clock.sleep(Duration::from_secs(60)).await,
            Flaw::LaunchHangs => return std::future::pending().await,
            Flaw::NoLaunch => return Err(Status::unimplemented("Method not implemented!")),
            _ => {}
        }
        let mut answer = self.inner.launch(request).await?;
        match &mut answer.get_mut().outcome {
            Some(Outcome::Instance(instance)) => {
                if matches!(
                    self.flaw,
                    Flaw::TwoInstances | Flaw::SharedInstance | Flaw::ForgetsLaunches
                ) {
                    instance.nodeclaim_uid = uid;
                }
                match self.flaw {
                    Flaw::NoProviderId => instance.provider_id.clear(),
                    Flaw::NotACandidate => instance.r#type = "large".into(),
                    Flaw::LabelWithBlank => {
                        instance
                            .labels
                            .insert("shed.example/size".into(), "8 cores".into());
                    }
                    // No flaw: somebody ends the machine of the launch.
                    Flaw::LaunchEnding => instance.state = InstanceState::Terminating.into(),
                    // No flaw: its launch takes longer than its machine.
                    Flaw::ListWithoutName => self.clock.sleep(Duration::from_secs(60)).await,
                    _ => {}
                }
            }
            Some(Outcome::Failure(failure)) if self.flaw == Flaw::UntypedCapacityError => {
                failure.kind = FailureKind::Unspecified.into();
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn get_instance(
        &self,
        request: Request<wire::InstanceRef>,
    ) -> Result<Response<wire::Instance>, Status> {
        let id = request.get_ref().provider_id.clone();
        match self.inner.get_instance(request).await {
            Err(_) if self.flaw == Flaw::InventsInstances => Ok(Response::new(wire::Instance {
                provider_id: id,
                ..wire::Instance::default()
            })),
            other => other,
        }
    }

    type ListInstancesStream = Streamed<wire::InstanceChunk>;

    async fn list_instances(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListInstancesStream>, Status> {
        let stream = self.inner.list_instances(request).await?.into_inner();
        let (flaw, now) = (self.flaw, self.clock.now().as_second());
        let stream = stream.map_ok(move |mut chunk| {
            match flaw {
                Flaw::ListForgets => chunk.instances.clear(),
                Flaw::ListFromNodes => chunk
                    .instances
                    .retain(|one| one.created_at.is_some_and(|at| now - at.seconds > 60)),
                // No flaw: what is being made has no ID yet.
                Flaw::ListsPending => chunk.instances.push(wire::Instance {
                    nodeclaim_uid: "uid-of-two".into(),
                    state: InstanceState::Pending.into(),
                    ..wire::Instance::default()
                }),
                Flaw::ListWithoutTrailer => chunk.complete = false,
                Flaw::ListTwice => {
                    let again = chunk.instances.clone();
                    chunk.instances.extend(again);
                }
                _ => {}
            }
            for one in &mut chunk.instances {
                match flaw {
                    Flaw::ListWithoutName => one.nodeclaim_name.clear(),
                    Flaw::ListWithoutUid => one.nodeclaim_uid.clear(),
                    Flaw::ListWithoutAge => one.created_at = None,
                    Flaw::UnknownState => one.state = 99,
                    Flaw::FailsLater if one.nodeclaim_name == "broken" => {
                        one.state = InstanceState::Failed.into();
                    }
                    Flaw::ForgetsLaunches => {
                        let (uid, _) = one.nodeclaim_uid.rsplit_once('-').unwrap_or_default();
                        one.nodeclaim_uid = uid.to_owned();
                    }
                    _ => {}
                }
            }
            chunk
        });
        if self.flaw == Flaw::EndlessList {
            return Ok(Response::new(
                stream
                    .take(1)
                    .flat_map(|first| endless(first, grown_list))
                    .boxed(),
            ));
        }
        Ok(Response::new(stream.boxed()))
    }

    async fn terminate(
        &self,
        mut request: Request<wire::TerminateRequest>,
    ) -> Result<Response<wire::TerminateReply>, Status> {
        let ending = || {
            Response::new(wire::TerminateReply {
                state: InstanceState::Terminating.into(),
                postponed: None,
            })
        };
        if self.flaw == Flaw::NeverGone {
            return Ok(ending());
        }
        if self.flaw == Flaw::TerminateHangs {
            return std::future::pending().await;
        }
        if self.flaw == Flaw::NoTerminate {
            return Err(Status::unimplemented("Method not implemented!"));
        }
        if self.flaw == Flaw::AnyLeader {
            request.get_mut().leader_term = u64::MAX;
        }
        match self.inner.terminate(request).await {
            Err(status) if status.code() == Code::NotFound && self.flaw == Flaw::ForgivesStrangers => {
                Ok(ending())
            }
            other => other,
        }
    }

    async fn check_drift(
        &self,
        request: Request<wire::DriftRequest>,
    ) -> Result<Response<wire::DriftReply>, Status> {
        let mut answer = self.inner.check_drift(request).await?;
        let reason = &mut answer.get_mut().reason;
        match self.flaw {
            Flaw::AlwaysDrifted => *reason = "Always".into(),
            Flaw::NeverDrifted => reason.clear(),
            Flaw::DriftedForGood => {
                let mut first = self.drifted.lock().expect("no panic");
                if first.is_empty() {
                    first.clone_from(reason);
                } else {
                    reason.clone_from(&first);
                }
            }
            _ => {}
        }
        Ok(answer)
    }

    type WatchEventsStream = Streamed<wire::ProviderEvent>;

    async fn watch_events(
        &self,
        request: Request<wire::EventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        if self.flaw == Flaw::ErrsAlways {
            return Err(Status::unavailable("overloaded"));
        }
        if self.flaw == Flaw::EventsMissing {
            return Err(Status::unimplemented("not yet"));
        }
        if self.flaw == Flaw::FailsLater {
            let failed = |uid: &str, provider_id: &str| {
                let failed = wire::LaunchFailed {
                    nodeclaim_uid: uid.into(),
                    provider_id: provider_id.into(),
                    failure: Some(wire::LaunchFailure {
                        kind: FailureKind::InsufficientCapacity.into(),
                        reason: String::new(),
                        message: "sold out".into(),
                    }),
                };
                let event = Some(wire::provider_event::Event::LaunchFailed(failed));
                Ok(wire::ProviderEvent {
                    id: format!("failed-{uid}"),
                    event,
                })
            };
            let events = [
                failed("uid-of-pending", ""),
                failed("uid-of-started", "shed://uid-of-started"),
            ];
            let clock = self.clock.clone();
            let late = futures::stream::once(async move {
                clock.sleep(Duration::from_secs(30)).await;
                failed("uid-of-late", "")
            });
            let events = futures::stream::iter(events).chain(late);
            return Ok(Response::new(events.chain(futures::stream::pending()).boxed()));
        }
        self.inner.watch_events(request).await
    }

    async fn acknowledge_events(
        &self,
        request: Request<wire::AcknowledgeRequest>,
    ) -> Result<Response<wire::AcknowledgeReply>, Status> {
        self.inner.acknowledge_events(request).await
    }

    async fn reconcile_node_class(
        &self,
        request: Request<wire::NodeClassRequest>,
    ) -> Result<Response<wire::NodeClassVerdict>, Status> {
        if self.flaw == Flaw::Judges {
            let class = request.get_ref().node_class.clone().expect("a class");
            self.judged.lock().expect("no panic").push(class.name.clone());
            if class.name.ends_with("stuck") {
                return std::future::pending().await;
            }
            return self.judge(request.get_ref()).map(Response::new);
        }
        self.inner.reconcile_node_class(request).await
    }

    async fn finalize_node_class(
        &self,
        request: Request<wire::NodeClassRequest>,
    ) -> Result<Response<wire::FinalizeVerdict>, Status> {
        if self.flaw == Flaw::Judges {
            let left = self.images.lock().expect("no panic").pop();
            return Ok(Response::new(wire::FinalizeVerdict {
                done: left.is_none(),
                waiting_for: left.map(|image| format!("image {image}")).unwrap_or_default(),
                requeue_after: None,
            }));
        }
        self.inner.finalize_node_class(request).await
    }

    async fn register_gate(
        &self,
        request: Request<wire::GateRequest>,
    ) -> Result<Response<wire::GateReply>, Status> {
        self.inner.register_gate(request).await
    }

    type LeadStream = Streamed<wire::LeadBeat>;

    async fn lead(&self, request: Request<wire::LeadRequest>) -> Result<Response<Self::LeadStream>, Status> {
        self.inner.lead(request).await
    }
}
