//! A-031, A-033, A-034, A-036: instance profiles.

use std::collections::BTreeSet;

use serde_json::json;
use spokeshave_api::EC2NodeClass;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::profiles::{
    Profile, ProfileError, ProfileNeed, Step, class_path, of_class, plan, steps, to_delete,
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
fn a_031_a_036_named_profiles_are_checked_and_iam_is_not_called_in_isolation() {
    let named = class(json!({"instanceProfile": "mine"}));
    let name = "mine".to_owned();
    assert_eq!(
        plan(&named, None, "r", "c", false),
        Ok(ProfileNeed::Check { name: name.clone() })
    );
    assert_eq!(plan(&named, None, "r", "c", true), Ok(ProfileNeed::Keep { name }));
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
        "Controller isn't authorized to call iam:CreateInstanceProfile: no policy allows it"
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

#[test]
fn a_033_a_034_only_profiles_of_ours_that_nobody_needs_are_deleted() {
    let found = [
        profile("in-status", &class_path("r", "c", "1"), None),
        profile("in-claim", &class_path("r", "c", "1"), None),
        profile("just-made", &class_path("r", "c", "2"), None),
        profile("old", &class_path("r", "c", "2"), None),
        profile("other-cluster", &class_path("r", "cc", "1"), None),
        profile("other-region", &class_path("q", "c", "1"), None),
        profile("strangers", "/", None),
    ];
    let names = |profiles: Vec<&Profile>| -> Vec<String> {
        profiles.iter().map(|profile| profile.name.clone()).collect()
    };
    let in_use = BTreeSet::from(["in-status", "in-claim"]);
    let protected = BTreeSet::from(["just-made"]);
    assert_eq!(names(to_delete(&found, "r", "c", &in_use, &protected)), ["old"]);
    assert_eq!(
        names(of_class(&found, "r", "c", "1")),
        ["in-status", "in-claim"],
        "a class that is deleted takes its own along"
    );
}
