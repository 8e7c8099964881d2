//! the launch templates that exist.

use jiff::Timestamp;
use serde_json::json;
use spokeshave_provider_aws::templates::{Templates, of_class, of_cluster};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_066_templates_expire_a_minute_after_their_last_use() {
    let mut templates = Templates::default();
    assert!(!templates.find("a", at(0)));
    templates.exists("a", "lt-a", at(0));
    templates.exists("b", "lt-b", at(0));
    assert!(templates.find("a", at(30)), "it is used by asking");
    assert_eq!(templates.next_expiry(), Some(at(60)));
    let of = |name: &str| vec![(name.to_owned(), format!("lt-{name}"))];
    assert_eq!(templates.expire(at(59)), []);
    assert_eq!(templates.expire(at(60)), of("b"));
    assert_eq!(templates.expire(at(60)), [], "each is deleted once");
    assert_eq!(templates.expire(at(90)), of("a"));
    assert_eq!(templates.next_expiry(), None);
}

#[test]
fn a_067_a_template_that_has_vanished_is_made_again() {
    let mut templates = Templates::default();
    templates.exists("a", "lt-a", at(0));
    templates.forget("a");
    assert!(!templates.find("a", at(1)));
}

#[test]
fn a_034_a_066_templates_are_found_by_cluster_and_class() {
    assert_eq!(
        json!(of_cluster("c")),
        json!({"Filter": [{"Name": "tag:eks:eks-cluster-name", "Value": ["c"]}]})
    );
    assert_eq!(
        json!(of_class("c", "class")),
        json!({"Filter": [
            {"Name": "tag:eks:eks-cluster-name", "Value": ["c"]},
            {"Name": "tag:karpenter.k8s.aws/ec2nodeclass", "Value": ["class"]},
        ]})
    );
}
