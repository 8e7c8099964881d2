//! The conformance suite itself: it passes a cloud that keeps its promises and finds every way of breaking one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::DynamicObject;
use serde_json::json;
use spokeshave_api::{NodeClaim, NodeClaimSpec, NodePool, NodePoolSpec, labels};
use spokeshave_example as example;
use spokeshave_model::{InstanceType, Price};
use spokeshave_ports::conformance::{Harness, check_all};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Entropy, NodeClassKind, RepairPolicy, SharedClock, TokioClock,
};

/// What the class names.
const IMAGE: &str = "image-1";

/// Ways of breaking a promise, and the check that must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    Neighbours,
    NoName,
    UnsortedTypes,
    TypesByChance,
    TypesCopied,
    OfferingsStay,
    OfferingsNeverReturn,
    TypeWithoutArchitecture,
    OfferingWithoutZone,
    AllocatableExceedsCapacity,
    CreateWithoutLabels,
    CreateWithoutCapacity,
    TwoInstances,
    HiddenTwin,
    ForgetsLaunches,
    SharedInstance,
    ListForgets,
    ListWithoutAge,
    NeverGone,
    GetInventsInstances,
    DeleteForgivesStrangers,
    WrongCapacityError,
    AlwaysDrifted,
    DriftByItsOwnCopy,
    DriftWithoutAClass,
}

#[derive(Debug)]
struct Cloud {
    flaw: Flaw,
    clock: SharedClock,
    kinds: Vec<NodeClassKind>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Instance and, once it terminates, for how many more questions it lasts.
    instances: BTreeMap<String, (NodeClaim, Option<u32>)>,
    calls: u64,
    /// Until when the first offering is taken for unavailable.
    withheld: Option<jiff::Timestamp>,
    /// The types as they were last given.
    given: Option<Arc<[InstanceType]>>,
}

impl State {
    /// One more instance like this one, for the NodeClaim of this UID.
    fn add(&mut self, like: &NodeClaim, uid: Option<&str>) {
        let id = format!("test://more-{}", self.calls);
        let mut more = NodeClaim::new(&id, NodeClaimSpec::default());
        more.metadata.uid = uid.map(str::to_owned);
        more.metadata.creation_timestamp = like.metadata.creation_timestamp.clone();
        more.status.get_or_insert_default().provider_id = Some(id.clone());
        self.instances.insert(id, (more, None));
    }
}

/// How long an offering that ran out is taken for unavailable.
const UNAVAILABLE: Duration = Duration::from_secs(180);
/// How long one that forgets its launches remembers them.
const REMEMBERED: Duration = Duration::from_secs(30);

impl Cloud {
    fn new(flaw: Flaw, clock: SharedClock) -> Self {
        let kind = NodeClassKind {
            group: "test.sh".into(),
            version: "v1".into(),
            kind: "TestClass".into(),
            plural: "testclasses".into(),
        };
        Self {
            flaw,
            clock,
            kinds: vec![kind],
            state: Mutex::default(),
        }
    }

    fn types(&self) -> Vec<InstanceType> {
        let mut types = vec![
            example::instance_type("large", 8, 32, &["a", "b"]),
            example::instance_type("small", 2, 8, &["a", "b"]),
        ];
        let first = &mut types[0];
        match self.flaw {
            Flaw::TypeWithoutArchitecture => first.requirements.remove(labels::ARCH),
            Flaw::OfferingWithoutZone => first.offerings[0].requirements.remove(labels::ZONE),
            Flaw::AllocatableExceedsCapacity => first.overhead.kube_reserved.set("cpu", -1),
            Flaw::UnsortedTypes => types.reverse(),
            Flaw::TypesByChance => {
                let mut state = self.state.lock().unwrap();
                state.calls += 1;
                first.offerings[0].price =
                    Price(Entropy::new(state.calls).number("price").cast_signed() >> 8 & 0xffff);
            }
            _ => {}
        }
        let withheld = self.state.lock().unwrap().withheld;
        let returned = |until| self.clock.now() >= until && self.flaw != Flaw::OfferingsNeverReturn;
        if withheld.is_some_and(|until| !returned(until)) {
            types[0].offerings[0].available = false;
        }
        types
    }

    /// The same allocation while nothing has changed.
    fn given(&self) -> Arc<[InstanceType]> {
        let types = self.types();
        let mut state = self.state.lock().unwrap();
        match &state.given {
            Some(given) if **given == *types && self.flaw != Flaw::TypesCopied => given.clone(),
            _ => state.given.insert(types.into()).clone(),
        }
    }

    fn launch(&self, claim: &NodeClaim) -> Result<NodeClaim, CloudError> {
        if claim.name().contains("impossible") {
            return Err(match self.flaw {
                Flaw::WrongCapacityError => CloudError::Other("no luck".into()),
                _ => CloudError::InsufficientCapacity("no offering is left".into()),
            });
        }
        if claim.name().contains("exhausted") {
            if self.flaw != Flaw::OfferingsStay {
                let until = self.clock.now() + jiff::SignedDuration::try_from(UNAVAILABLE).unwrap();
                self.state.lock().unwrap().withheld = Some(until);
            }
            return Err(CloudError::InsufficientCapacity("the last one is sold".into()));
        }
        let types = self.types();
        let chosen = types.iter().find(|it| it.name == "small").expect("is there");
        let offering = &chosen.offerings[0];
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let id = match self.flaw {
            Flaw::TwoInstances => format!("test://{}-{}", claim.uid(), state.calls),
            Flaw::SharedInstance => "test://the-one".to_owned(),
            Flaw::ForgetsLaunches => self.remembered(&state, claim),
            _ => format!("test://{}", claim.uid()),
        };
        let mut created = claim.clone();
        if self.flaw != Flaw::CreateWithoutLabels {
            let values = [
                (labels::INSTANCE_TYPE, chosen.name.as_str()),
                (labels::ZONE, offering.zone().unwrap_or_default()),
                (
                    labels::CAPACITY_TYPE,
                    offering.capacity_type().map_or("", |it| it.as_str()),
                ),
                (labels::ARCH, "amd64"),
                (labels::OS, "linux"),
            ];
            let values = values.map(|(key, value)| (key.to_owned(), value.to_owned()));
            created.metadata.labels.get_or_insert_default().extend(values);
        }
        let status = created.status.get_or_insert_default();
        status.provider_id = Some(id.clone());
        status.allocatable = chosen.allocatable().to_quantities();
        if self.flaw != Flaw::CreateWithoutCapacity {
            status.capacity = chosen.capacity.to_quantities();
        }
        created.metadata.creation_timestamp = Some(Time(self.clock.now()));
        match self.flaw {
            // Launched as well, and listed as clouds do that know of no UID.
            Flaw::HiddenTwin if state.instances.contains_key(&id) => state.add(&created, None),
            // No flaw: another operator launches beside.
            Flaw::Neighbours => state.add(&created, Some("of-another")),
            _ => {}
        }
        Ok(state.instances.entry(id).or_insert((created, None)).0.clone())
    }

    /// The instance that is launched for a NodeClaim: another one when the first is forgotten.
    fn remembered(&self, state: &State, claim: &NodeClaim) -> String {
        let id = format!("test://{}", claim.uid());
        let first = state.instances.get(&id).map(|(first, _)| &first.metadata);
        let made = first.and_then(|first| first.creation_timestamp.as_ref());
        match made {
            Some(Time(made)) if self.clock.since(*made) > REMEMBERED => format!("{id}-again"),
            _ => id,
        }
    }

    fn terminate(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let id = claim.provider_id().unwrap_or_default();
        let mut state = self.state.lock().unwrap();
        let Some((_, left)) = state.instances.get_mut(id) else {
            return match self.flaw {
                Flaw::DeleteForgivesStrangers if id.ends_with("never-was") => Ok(()),
                _ => Err(CloudError::NodeClaimNotFound(id.to_owned())),
            };
        };
        match left {
            _ if self.flaw == Flaw::NeverGone => {}
            None => *left = Some(3),
            Some(0) => drop(state.instances.remove(id)),
            Some(left) => *left -= 1,
        }
        Ok(())
    }

    fn find(&self, id: &str) -> Result<NodeClaim, CloudError> {
        let state = self.state.lock().unwrap();
        match state.instances.get(id) {
            Some((claim, _)) => Ok(claim.clone()),
            None if self.flaw == Flaw::GetInventsInstances => {
                Ok(NodeClaim::new("x", NodeClaimSpec::default()))
            }
            None => Err(CloudError::NodeClaimNotFound(id.to_owned())),
        }
    }

    fn all(&self) -> Vec<NodeClaim> {
        let state = self.state.lock().unwrap();
        let mut all: Vec<NodeClaim> = state.instances.values().map(|(claim, _)| claim.clone()).collect();
        match self.flaw {
            Flaw::ListForgets => all.clear(),
            Flaw::ListWithoutAge => all
                .iter_mut()
                .for_each(|claim| claim.metadata.creation_timestamp = None),
            _ => {}
        }
        all
    }
}

impl CloudProvider for Cloud {
    fn name(&self) -> &str {
        if self.flaw == Flaw::NoName { "" } else { "test" }
    }
    fn supported_node_classes(&self) -> &[NodeClassKind] {
        &self.kinds
    }
    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        async move {
            self.clock.sleep(Duration::from_secs(2)).await;
            self.launch(claim)
        }
        .boxed()
    }
    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        async move { self.terminate(claim) }.boxed()
    }
    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        async move { self.find(provider_id) }.boxed()
    }
    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        async move { Ok(self.all()) }.boxed()
    }
    fn instance_types<'a>(&'a self, _pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        async move { Ok(self.given()) }.boxed()
    }
    fn is_drifted<'a>(
        &'a self,
        _claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        let has_changed = class.is_some_and(|class| class.data["spec"]["image"] != IMAGE);
        let drifted = match self.flaw {
            Flaw::AlwaysDrifted => true,
            // It knows of no change.
            Flaw::DriftByItsOwnCopy => false,
            Flaw::DriftWithoutAClass => has_changed || class.is_none(),
            _ => has_changed,
        };
        async move { Ok(drifted.then(|| "Drifted".to_owned())) }.boxed()
    }
    fn repair_policies(&self) -> &[RepairPolicy] {
        &[]
    }
}

struct TestHarness {
    cloud: Cloud,
    clock: SharedClock,
    is_time_virtual: bool,
}

impl Harness for TestHarness {
    fn provider(&self) -> &dyn CloudProvider {
        &self.cloud
    }
    fn clock(&self) -> SharedClock {
        self.clock.clone()
    }
    fn is_time_virtual(&self) -> bool {
        self.is_time_virtual
    }
    fn node_pool(&self) -> NodePool {
        NodePool::new("default", NodePoolSpec::default())
    }
    fn node_claim(&self, name: &str) -> NodeClaim {
        let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
        claim.metadata.uid = Some(format!("uid-of-{name}"));
        claim
    }
    fn impossible_node_claim(&self, name: &str) -> NodeClaim {
        self.node_claim(name)
    }
    fn node_claim_without_class(&self, _name: &str) -> Option<NodeClaim> {
        None
    }
    fn exhausted_node_claim(&self, name: &str) -> Option<(NodeClaim, Duration)> {
        Some((self.node_claim(name), UNAVAILABLE))
    }
    fn node_class(&self) -> BoxFuture<'_, Option<DynamicObject>> {
        let class = json!({"metadata": {"name": "default"}, "spec": {"image": IMAGE}});
        std::future::ready(serde_json::from_value(class).ok()).boxed()
    }
    fn change_node_class(&self, class: &mut DynamicObject) {
        class.data["spec"]["image"] = json!("image-2");
    }
}

async fn verdict(flaw: Flaw) -> Vec<&'static str> {
    verdict_on(flaw, true).await
}

/// Of a harness that says whether its time is virtual.
async fn verdict_on(flaw: Flaw, is_time_virtual: bool) -> Vec<&'static str> {
    let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
    let harness = TestHarness {
        cloud: Cloud::new(flaw, clock.clone()),
        clock,
        is_time_virtual,
    };
    match check_all(&harness).await {
        Ok(()) => Vec::new(),
        Err(failures) => failures.0.iter().map(|failure| failure.check).collect(),
    }
}

/// P §14.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_keeps_its_promises_passes() {
    assert_eq!(verdict(Flaw::None).await, Vec::<&str>::new());
    assert_eq!(verdict(Flaw::Neighbours).await, Vec::<&str>::new());
}

/// They would be minutes of whoever waits.
#[tokio::test(start_paused = true)]
async fn where_time_is_genuine_no_launch_is_repeated_minutes_later() {
    let later = ["create_is_idempotent_minutes_later"];
    assert_eq!(verdict_on(Flaw::ForgetsLaunches, true).await, later);
    let untroubled = verdict_on(Flaw::ForgetsLaunches, false).await;
    assert_eq!(untroubled, Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn every_broken_promise_is_found() {
    let cases = [
        (Flaw::NoName, "identity_is_complete"),
        (Flaw::UnsortedTypes, "instance_types_are_complete"),
        (Flaw::TypesByChance, "instance_types_are_stable"),
        (Flaw::TypesCopied, "instance_types_are_stable"),
        (Flaw::OfferingsStay, "offerings_that_change_make_another_answer"),
        (
            Flaw::OfferingsNeverReturn,
            "offerings_that_change_make_another_answer",
        ),
        (Flaw::TypeWithoutArchitecture, "instance_types_are_complete"),
        (Flaw::OfferingWithoutZone, "instance_types_are_complete"),
        (Flaw::AllocatableExceedsCapacity, "instance_types_are_complete"),
        (Flaw::CreateWithoutLabels, "create_describes_the_node"),
        (Flaw::CreateWithoutCapacity, "create_describes_the_node"),
        (Flaw::TwoInstances, "create_is_idempotent"),
        (Flaw::TwoInstances, "concurrent_creates_make_one_instance"),
        (Flaw::HiddenTwin, "create_is_idempotent"),
        (Flaw::HiddenTwin, "create_is_idempotent_minutes_later"),
        (Flaw::HiddenTwin, "concurrent_creates_make_one_instance"),
        (Flaw::ForgetsLaunches, "create_is_idempotent_minutes_later"),
        (Flaw::SharedInstance, "claims_do_not_share_instances"),
        (Flaw::ListForgets, "create_get_list_delete"),
        (Flaw::ListWithoutAge, "create_get_list_delete"),
        (Flaw::NeverGone, "create_get_list_delete"),
        (Flaw::GetInventsInstances, "unknown_instances_are_not_found"),
        (Flaw::DeleteForgivesStrangers, "unknown_instances_are_not_found"),
        (Flaw::WrongCapacityError, "impossible_claims_lack_capacity"),
        (Flaw::AlwaysDrifted, "fresh_instances_have_not_drifted"),
        (Flaw::DriftByItsOwnCopy, "drift_goes_by_the_class_that_is_shown"),
        (Flaw::DriftWithoutAClass, "drift_goes_by_the_class_that_is_shown"),
    ];
    for (flaw, check) in cases {
        let found = verdict(flaw).await;
        assert!(
            found.contains(&check),
            "{flaw:?}: expected {check} to fail, failed were {found:?}"
        );
    }
}
