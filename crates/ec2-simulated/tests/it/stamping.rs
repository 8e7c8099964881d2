//! NodeClaims that another version of the hash has stamped, where some of them may not be written: those keep no other from its hash, and no class from its
//! status.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::{EC2NodeClass, NodeClaim, labels};
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::{SharedWrites, Write, WriteError, WriteTarget, Writes};
use spokeshave_provider_aws::class_hash::{HASH_ANNOTATION, HASH_VERSION_ANNOTATION};

use crate::world::{CLUSTER, REHEARSED, World, claim, condition, lead, prompt};

/// A NodeClaim with a hash of another version.
fn stamped_by_karpenter(name: &str) -> NodeClaim {
    let mut claim = claim(name, &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    claim.metadata.uid = None;
    let stamp = [(HASH_ANNOTATION, "1"), (HASH_VERSION_ANNOTATION, "v6")];
    let stamp = stamp.map(|(key, value)| (key.to_owned(), value.to_owned()));
    claim.metadata.annotations = Some(stamp.into());
    claim
}

/// A NodeClaim that an admission policy keeps as it is keeps no other from its hash, and no class from saying how it is.
#[tokio::test(start_paused = true)]
async fn a_011_a_claim_that_may_not_be_stamped_keeps_no_other_and_no_status() {
    let world = World::new(Options::new(CLUSTER)).await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(world.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.client.clone());
    let rule = json!({"apiGroups": ["karpenter.sh"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["nodeclaims"]});
    let policy = json!({"metadata": {"name": "guard"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "object.metadata.name != 'a'"}]}});
    let binding = json!({"metadata": {"name": "guard"}, "spec": {"policyName": "guard", "validationActions": ["Deny"]}});
    let (policy, binding) = (
        serde_json::from_value(policy).unwrap(),
        serde_json::from_value(binding).unwrap(),
    );
    policies.create(&PostParams::default(), &policy).await.unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let _provider = world.provider();
    world.pass(120).await;
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    for name in ["a", "b"] {
        let theirs = stamped_by_karpenter(name);
        claims.create(&PostParams::default(), &theirs).await.unwrap();
    }
    world.pass(5).await;
    let nowhere = json!([{"tags": {"karpenter.sh/discovery": "nowhere"}}]);
    let lost = json!({"spec": {"subnetSelectorTerms": nowhere}});
    world.change::<EC2NodeClass>("default", lost).await;
    world.pass(60).await;
    let class = world.class_now("default").await;
    assert_eq!(condition(&class, "SubnetsReady").1, "SubnetsNotFound");
    let hash = async |name: &str| {
        let claim = claims.get(name).await.unwrap();
        claim.annotation(HASH_ANNOTATION).map(str::to_owned)
    };
    let ours = class.annotation(HASH_ANNOTATION).map(str::to_owned);
    assert_eq!(
        (hash("a").await.as_deref(), hash("b").await),
        (Some("1"), ours.clone())
    );
    bindings.delete("guard", &DeleteParams::default()).await.unwrap();
    world.pass(90).await;
    assert_eq!(hash("a").await, ours);
}

/// Writes while a webhook for NodeClaims does not answer; it counts those that it keeps waiting.
#[derive(Debug)]
struct Hanging(SharedWrites, Arc<AtomicUsize>);

impl Writes for Hanging {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        if write.target != WriteTarget::NodeClaim {
            return self.0.write(write);
        }
        self.1.fetch_add(1, Ordering::Relaxed);
        let wait = tokio::time::sleep(Duration::from_secs(10));
        async move {
            wait.await;
            Err(WriteError::Failed("the webhook does not answer".to_owned()))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_011_a_webhook_that_keeps_claims_waiting_keeps_no_status_waiting() {
    let world = World::new(prompt()).await;
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    for number in 0..20 {
        let theirs = stamped_by_karpenter(&format!("claim-{number}"));
        claims.create(&PostParams::default(), &theirs).await.unwrap();
    }
    let waiting = Arc::new(AtomicUsize::new(0));
    let writes: SharedWrites = Arc::new(Hanging(world.writes(), waiting.clone()));
    lead(&world.unled_provider(), writes);
    world.pass(REHEARSED).await;
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    world.pass(120).await;
    let waiting = waiting.load(Ordering::Relaxed);
    assert!(
        (1..=3).contains(&waiting),
        "one in each look at the class: {waiting}"
    );
}

/// Writes while a rule is against those of NodeClaims, except for the last of them; it counts what it refuses.
#[derive(Debug)]
struct Refusing(SharedWrites, Arc<AtomicUsize>);

impl Writes for Refusing {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        if write.target != WriteTarget::NodeClaim || write.name == "last" {
            return self.0.write(write);
        }
        self.1.fetch_add(1, Ordering::Relaxed);
        let error = WriteError::Refused("a rule is against it".to_owned());
        async move { Err(error) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_011_a_look_repeats_few_of_many_refused_writes_and_the_next_goes_on_after_them() {
    let world = World::new(prompt()).await;
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let names = (0..100).map(|number| format!("claim-{number}"));
    for name in names.chain(["last".to_owned()]) {
        let theirs = stamped_by_karpenter(&name);
        claims.create(&PostParams::default(), &theirs).await.unwrap();
    }
    let refused = Arc::new(AtomicUsize::new(0));
    let writes: SharedWrites = Arc::new(Refusing(world.writes(), refused.clone()));
    lead(&world.unled_provider(), writes);
    world.pass(10 * 60).await;
    let refused = refused.load(Ordering::Relaxed);
    assert!(
        (100..=300).contains(&refused),
        "twenty in each look at the class: {refused}"
    );
    let last = claims.get("last").await.unwrap();
    assert_ne!(last.annotation(HASH_ANNOTATION), Some("1"));
}
