//! A-031, A-033, A-034, A-036: instance profiles.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::profiles::{
    ANNOTATION, Profile, ProfileError, ProfileNeed, Step, Unused, Users, class_path, is_made_for,
    legacy_name, of_class, plan, steps,
};

use crate::launches::{Scenario, requests_of};
use crate::oracle;

fn class(spec: serde_json::Value) -> EC2NodeClass {
    let mut class = EC2NodeClass::new("class", serde_json::from_value(spec).unwrap());
    class.metadata.uid = Some("uid".into());
    class
}

fn profile(name: &str, path: &str, role: Option<&str>) -> Profile {
    Profile {
        name: name.into(),
        path: path.into(),
        role: role.map(str::to_owned),
    }
}

#[test]
fn a_017_a_031_a_role_gets_the_profile_that_upstream_makes() {
    let scenario = Scenario::read("everything");
    let mut class = scenario.objects::<EC2NodeClass>("EC2NodeClass").remove(0);
    class.metadata.uid = Some("00000000-0000-0000-0000-000000000001".into());
    let ProfileNeed::Ensure(ensure) = plan(&class, None, "us-west-2", "oracle", false).unwrap() else {
        panic!("a role needs a profile");
    };
    let found = &oracle::list(&scenario.expected, "node_classes")[0];
    let expected = &requests_of(found, "CreateInstanceProfile")[0];
    assert_eq!(json!(ensure.path), expected["Path"]);
    assert_eq!(json!(ensure.tags), expected["Tags"]);
    assert!(ensure.name.starts_with("oracle_"), "{}", ensure.name);
    let added = &requests_of(found, "AddRoleToInstanceProfile")[0];
    assert_eq!(json!(ensure.role), added["RoleName"]);
    assert_eq!(steps(&ensure, None), [Step::Create, Step::AddRole]);
}

#[test]
fn a_031_a_profile_is_kept_while_its_role_is_the_same_and_another_role_is_another_profile() {
    let class_of = |role: &str| class(json!({"role": role}));
    let ensure =
        |role: &str, current: Option<&Profile>| plan(&class_of(role), current, "r", "c", false).unwrap();
    let ProfileNeed::Ensure(first) = ensure("one", None) else {
        panic!();
    };
    assert_eq!(
        ensure("one", None),
        ProfileNeed::Ensure(first.clone()),
        "a restart asks for the same"
    );
    let made = profile(&first.name, &first.path, Some("one"));
    assert_eq!(
        ensure("one", Some(&made)),
        ProfileNeed::Keep {
            name: first.name.clone()
        }
    );
    let theirs = profile("c_123", "/karpenter/r/c/uid/", Some("one"));
    assert_eq!(
        ensure("one", Some(&theirs)),
        ProfileNeed::Keep { name: "c_123".into() },
        "one that upstream has made"
    );
    let ProfileNeed::Ensure(second) = ensure("two", Some(&made)) else {
        panic!();
    };
    assert_ne!(second.name, first.name);
    assert_eq!(steps(&first, Some(&made)), []);
    assert_eq!(
        steps(&first, Some(&profile(&first.name, &first.path, None))),
        [Step::AddRole],
        "a crash between the two calls"
    );
    assert_eq!(
        steps(&first, Some(&profile(&first.name, &first.path, Some("odd")))),
        [Step::RemoveRole, Step::AddRole]
    );
}

#[test]
fn a_031_a_roles_path_is_no_part_of_its_name() {
    let class = class(json!({"role": "team/nodes/KarpenterNodeRole"}));
    let ProfileNeed::Ensure(wanted) = plan(&class, None, "r", "c", false).unwrap() else {
        panic!();
    };
    assert_eq!(wanted.role, "KarpenterNodeRole");
    let made = profile(&wanted.name, &wanted.path, Some("KarpenterNodeRole"));
    let kept = ProfileNeed::Keep {
        name: wanted.name.clone(),
    };
    assert_eq!(plan(&class, Some(&made), "r", "c", false), Ok(kept));
}

#[test]
fn a_031_a_036_named_profiles_are_taken_as_they_are_and_iam_is_not_called_in_isolation() {
    let named = class(json!({"instanceProfile": "mine"}));
    for isolated in [false, true] {
        let name = "mine".to_owned();
        assert_eq!(
            plan(&named, None, "r", "c", isolated),
            Ok(ProfileNeed::Keep { name })
        );
    }
    let error = plan(&class(json!({"role": "r"})), None, "r", "c", true).unwrap_err();
    assert!(error.to_string().contains("spec.instanceProfile"), "{error}");
    let tags = json!({"role": "r", "tags": {"eks:eks-cluster-name": "x"}});
    let error = plan(&class(tags), None, "r", "c", false).unwrap_err();
    assert_eq!(error.reason(), "TagValidationFailed");
}

#[test]
fn a_031_a_missing_role_and_a_denied_call_are_named() {
    let missing = ProfileError::of(
        "AddRoleToInstanceProfile",
        "node",
        &ApiError::new("NoSuchEntity", "x"),
    );
    assert_eq!(missing, ProfileError::RoleNotFound("node".into()));
    assert!(missing.to_string().contains("\"node\""), "{missing}");
    let denied = ProfileError::of(
        "CreateInstanceProfile",
        "node",
        &ApiError::new("AccessDenied", "no policy allows it"),
    );
    assert_eq!(
        denied.to_string(),
        "Controller isn't authorized to call iam:CreateInstanceProfile: no policy allows it; allow iam:CreateInstanceProfile in the policy of the operator's role (deploy/aws/controller-policy.json has all that it needs)"
    );
    let busy = ProfileError::of(
        "GetInstanceProfile",
        "node",
        &ApiError::new("Throttling", "slow down"),
    );
    assert_eq!(
        busy,
        ProfileError::Call("iam:GetInstanceProfile, Throttling: slow down".into())
    );
}

/// The number is upstream's for a class `default` in us-west-2, computed apart from this code.
#[test]
fn a_034_what_karpenter_before_1_7_made_for_a_class_is_known_by_name_and_tags() {
    assert_eq!(
        legacy_name("us-west-2", "my-cluster", "default"),
        "my-cluster_4067990795380418201"
    );
    let tags = |change: &[(&str, &str)]| {
        let mut tags: BTreeMap<String, String> = [
            ("kubernetes.io/cluster/c", "owned"),
            ("karpenter.k8s.aws/ec2nodeclass", "default"),
            ("topology.kubernetes.io/region", "r"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        for (key, value) in change {
            match *value {
                "" => drop(tags.remove(*key)),
                value => drop(tags.insert((*key).to_owned(), value.to_owned())),
            }
        }
        is_made_for(&tags, "default", "r", "c")
    };
    assert!(tags(&[]));
    for strange in [
        ("kubernetes.io/cluster/c", ""),
        ("kubernetes.io/cluster/c", "shared"),
        ("karpenter.k8s.aws/ec2nodeclass", "other"),
        ("karpenter.k8s.aws/ec2nodeclass", ""),
        ("topology.kubernetes.io/region", "q"),
        ("topology.kubernetes.io/region", ""),
    ] {
        assert!(!tags(&[strange]), "{strange:?}");
    }
}

#[test]
fn a_033_a_034_only_profiles_of_ours_that_nobody_needs_are_deleted() {
    let found = [
        profile("in-status", &class_path("r", "c", "1"), None),
        profile("in-claim", &class_path("r", "c", "1"), None),
        profile("just-replaced", &class_path("r", "c", "1"), None),
        profile("of-no-class", &class_path("r", "c", "2"), None),
        profile("unclear", &class_path("r", "c", "3"), None),
        profile("other-cluster", &class_path("r", "cc", "1"), None),
        profile("other-region", &class_path("q", "c", "1"), None),
        profile("strangers", "/", None),
    ];
    let names = |profiles: Vec<&Profile>| -> Vec<String> {
        profiles.iter().map(|profile| profile.name.clone()).collect()
    };
    let class_of = |name: &str, uid: &str, current: &str| {
        let mut class = EC2NodeClass::new(name, serde_json::from_value(json!({"role": "node"})).unwrap());
        class.metadata.uid = Some(uid.into());
        class.status = Some(serde_json::from_value(json!({"instanceProfile": current})).unwrap());
        class
    };
    let classes = [
        class_of("first", "1", "in-status"),
        class_of("third", "3", "current"),
    ];
    let claim_of = |class: &str, annotations: serde_json::Value| -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": class, "annotations": annotations},
            "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class}},
        }))
        .unwrap()
    };
    let mut claims = vec![
        claim_of("first", json!({ANNOTATION: "in-claim"})),
        claim_of("third", json!({})),
    ];
    let users = |claims: &[NodeClaim]| Users::of(&classes, claims, "r", "c");
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let at = |minutes: i64| start.saturating_add(SignedDuration::from_mins(minutes)).unwrap();
    let mut unused = Unused::default();
    let with_claims = users(&claims);
    let mut deleted =
        |minutes: i64, users: &Users| names(unused.to_delete(&found, "r", "c", users, at(minutes)));
    assert_eq!(deleted(0, &with_claims), ["of-no-class"], "its class is gone");
    assert_eq!(
        deleted(59, &with_claims),
        ["of-no-class"],
        "a launch may still name it"
    );
    assert_eq!(deleted(60, &with_claims), ["just-replaced", "of-no-class"]);
    claims.clear();
    let without = users(&claims);
    assert_eq!(
        deleted(61, &without),
        ["just-replaced", "of-no-class"],
        "an hour begins when nobody needs it any more"
    );
    assert_eq!(
        deleted(121, &without),
        ["in-claim", "just-replaced", "of-no-class", "unclear"]
    );
    assert_eq!(
        names(of_class(&found, "r", "c", "1")),
        ["in-status", "in-claim", "just-replaced"],
        "a class that is deleted takes its own along"
    );
}
