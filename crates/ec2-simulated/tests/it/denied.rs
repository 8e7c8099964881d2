//! Every action of the shipped policy, denied by itself: users are told which one it is, what does not happen, and where it is to be allowed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::{EC2NodeClass, NodeClaim, labels};
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_aws::errors::ApiError;

use crate::world::{CLUSTER, World, claim, condition};

/// Actions that no call is named after: AWS asks for them within other calls, and its message names them. Then the call, and the action.
const WITHIN: [(&str, &str); 3] = [
    ("CreateFleet", "iam:PassRole"),
    ("CreateLaunchTemplate", "ec2:CreateTags"),
    ("CreateInstanceProfile", "iam:TagInstanceProfile"),
];

fn actions_of_the_policy() -> BTreeSet<String> {
    let policy = include_str!("../../../../deploy/aws/controller-policy.json");
    let policy: Value = serde_json::from_str(policy).unwrap();
    let statements = policy["Statement"].as_array().unwrap().iter();
    let actions = statements.flat_map(|statement| match &statement["Action"] {
        Value::Array(actions) => actions.clone(),
        action => vec![action.clone()],
    });
    actions
        .map(|action| action.as_str().unwrap().to_owned())
        .collect()
}

/// Texts of notices about one class, as they come.
fn listen(provider: &Arc<AwsProvider>, class: &'static str) -> Arc<Mutex<Vec<String>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (provider, texts) = (provider.clone(), told.clone());
    tokio::spawn(async move {
        let mut notices = provider.notices().unwrap();
        while let Some(notice) = notices.next().await {
            if notice.name == class {
                texts.lock().unwrap().push(notice.message);
            }
        }
    });
    told
}

/// A world in which one call is refused as often as it is made, and what is told about its class `default`.
struct Refusing {
    world: World,
    provider: Arc<AwsProvider>,
    notices: Arc<Mutex<Vec<String>>>,
    claims: Api<NodeClaim>,
    classes: Api<EC2NodeClass>,
}

impl Refusing {
    async fn new(call: &str, error: &ApiError) -> Self {
        let world = World::new(Options::new(CLUSTER)).await;
        let claims = Api::all(world.client.clone());
        let classes: Api<EC2NodeClass> = Api::all(world.client.clone());
        let reserved = json!({"spec": {"capacityReservationSelectorTerms": [{"tags": {"team": "a"}}]}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&reserved));
        classes.patch("default", &parameters, &patch).await.unwrap();
        world.cloud.fail(call, error, 3_000);
        let provider = world.provider_set(|options| options.zonal_shift = true);
        let notices = listen(&provider, "default");
        let listener = provider.clone();
        tokio::spawn(async move {
            let mut messages = listener.interruptions().unwrap();
            while let Some(message) = messages.next().await {
                drop(listener.acknowledge(&message).await);
            }
        });
        Refusing {
            world,
            provider,
            notices,
            claims,
            classes,
        }
    }

    /// What notices and conditions have said.
    async fn said(&self) -> String {
        let mut said = self.notices.lock().unwrap().clone();
        if let Some(class) = self.classes.get_opt("default").await.unwrap() {
            let conditions = class.status.into_iter().flat_map(|status| status.conditions);
            said.extend(conditions.map(|condition| condition.message));
        }
        said.join("\n")
    }

    /// Whether it is said within these seconds.
    async fn says(&self, text: &str, seconds: u64) -> bool {
        for _ in 0..seconds.div_ceil(5) {
            self.world.pass(5).await;
            if self.said().await.contains(text) {
                return true;
            }
        }
        false
    }

    /// A node is launched, tagged, spoken of in the queue, listed and ended. What is refused is passed over.
    async fn use_it(&self) {
        let wanted = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
        let Ok(launched) = self.provider.create(&wanted).await else {
            return;
        };
        let mut written = claim("one", &[]);
        written.metadata.uid = None;
        self.claims
            .create(&PostParams::default(), &written)
            .await
            .unwrap();
        let joined = json!({"status": {"providerID": launched.provider_id(), "nodeName": "node-one"}});
        let joined = self
            .claims
            .patch_status("one", &PatchParams::default(), &Patch::Merge(&joined))
            .await;
        joined.unwrap();
        self.world.pass(10).await;
        let id = launched
            .provider_id()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned();
        self.world.cloud.recommend_rebalance(&id);
        self.world.pass(5).await;
        drop(self.provider.list().await);
        drop(self.provider.delete(&launched).await);
        self.claims.delete("one", &DeleteParams::default()).await.unwrap();
    }

    /// Everything happens to the class that can, until this is said: it is looked at, used, left alone until prices are read again, and deleted.
    async fn until(&self, text: &str) -> Result<(), String> {
        if self.says(text, 90).await {
            return Ok(());
        }
        self.use_it().await;
        if self.says(text, 330).await {
            return Ok(());
        }
        self.classes
            .delete("default", &DeleteParams::default())
            .await
            .unwrap();
        if self.says(text, 30).await {
            return Ok(());
        }
        Err(self.said().await)
    }
}

#[tokio::test(start_paused = true)]
async fn a_035_a_122_every_denied_call_is_told_with_its_action_and_the_policy_to_be_changed() {
    let mut left = actions_of_the_policy();
    let within = WITHIN.map(|(_, action)| action);
    for action in actions_of_the_policy() {
        if within.contains(&action.as_str()) && action != "ec2:CreateTags" {
            continue;
        }
        let (_, call) = action.split_once(':').unwrap();
        let denied = ApiError::new(
            "UnauthorizedOperation",
            "You are not authorized to perform this operation.",
        );
        let advice =
            format!("allow {action} in the policy of the operator's role (deploy/aws/controller-policy.json");
        let told = Refusing::new(call, &denied).await.until(&advice).await;
        assert_eq!(told, Ok(()), "{action}");
        left.remove(&action);
    }
    for (call, action) in WITHIN {
        let text = format!(
            "You are not authorized to perform this operation. User: arn:aws:sts::1:assumed-role/x/y is not authorized to perform: {action} on resource: * because no identity-based policy allows the {action} action. Encoded authorization failure message: 4kd9-xY_z"
        );
        let world = Refusing::new(call, &ApiError::new("UnauthorizedOperation", &text)).await;
        let told = world.until(&format!("allow {action} in the policy")).await;
        assert_eq!(told, Ok(()), "{action} within {call}");
        let said = world.said().await;
        assert!(!said.contains("4kd9"), "what differs with each attempt: {said}");
        left.remove(action);
    }
    assert_eq!(left, BTreeSet::new(), "allowed, and never needed");
}

/// Who names a profile often does so because the operator has no rights in IAM, or no way to it.
#[tokio::test(start_paused = true)]
async fn a_031_a_class_that_names_its_profile_needs_nothing_of_iam() {
    let world = World::new(Options::new(CLUSTER)).await;
    let named = json!({"spec": {"role": null, "instanceProfile": "mine"}});
    world.change::<EC2NodeClass>("default", named).await;
    world.cloud.fit(&world.class_now("default").await);
    let denied = ApiError::new("AccessDenied", "no identity-based policy allows it");
    for call in [
        "GetInstanceProfile",
        "CreateInstanceProfile",
        "ListInstanceProfiles",
    ] {
        world.cloud.fail(call, &denied, 1_000);
    }
    let provider = world.provider();
    let told = listen(&provider, "default");
    world.pass(60).await;
    let class = world.class_now("default").await;
    assert_eq!(condition(&class, "Ready").0, "True");
    assert_eq!(class.status.unwrap().instance_profile.as_deref(), Some("mine"));
    let wanted = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    provider.create(&wanted).await.unwrap();
    world.pass(65 * 60).await;
    assert_eq!(*told.lock().unwrap(), [""; 0], "nothing is missing");
    let classes: Api<EC2NodeClass> = Api::all(world.client.clone());
    classes.delete("default", &DeleteParams::default()).await.unwrap();
    world.pass(30).await;
    assert!(classes.get_opt("default").await.unwrap().is_none());
    let calls = world.cloud.calls();
    assert!(!calls.contains_key("GetInstanceProfile"), "{calls:?}");
}

/// EC2 says so when a launch is rehearsed. Somebody may make the profile at any time.
#[tokio::test(start_paused = true)]
async fn a_031_a_035_a_profile_that_a_class_names_and_ec2_does_not_know_is_named_until_it_does() {
    let world = World::new(Options::new(CLUSTER)).await;
    world
        .class("named", json!({"role": null, "instanceProfile": "missing"}))
        .await;
    let _provider = world.provider();
    world.pass(60).await;
    let class = world.class_now("named").await;
    assert_eq!(condition(&class, "InstanceProfileReady").0, "True");
    let (status, reason, message) = condition(&class, "ValidationSucceeded");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "InstanceProfileNotFound")
    );
    assert!(
        message.contains("\"missing\"") && message.contains("create it"),
        "{message}"
    );
    assert_eq!(condition(&class, "Ready").0, "False");
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    world.cloud.fit(&class);
    world.pass(120).await;
    assert_eq!(condition(&world.class_now("named").await, "Ready").0, "True");
}

/// A call that is denied for one purpose stops nothing else, is told once an hour and not with each attempt, and again after that.
#[tokio::test(start_paused = true)]
async fn a_122_what_is_denied_for_hours_is_told_once_an_hour_and_launches_go_on() {
    let world = World::new(Options::new(CLUSTER)).await;
    world.class("second", json!({})).await;
    let denied = ApiError::new("AccessDeniedException", "User: x is not authorized (request 1-2)");
    world.cloud.fail("GetProducts", &denied, 1_000);
    world.cloud.fail("DescribeSpotPriceHistory", &denied, 1_000);
    let provider = world.provider();
    let told = listen(&provider, "second");
    let mut spot = claim("one", &[(labels::CAPACITY_TYPE, &["spot"])]);
    spot.spec.node_class_ref.name = "second".to_owned();
    world.pass(60).await;
    provider.create(&spot).await.unwrap();
    world.pass(150 * 60).await;
    let texts = told.lock().unwrap().clone();
    for action in ["pricing:GetProducts", "ec2:DescribeSpotPriceHistory"] {
        let about = texts.iter().filter(|text| text.contains(action));
        assert_eq!(
            about.count(),
            3,
            "at once, after an hour and after two: {texts:?}"
        );
    }
    assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), 2, "{texts:?}");
}
