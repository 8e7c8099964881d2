//! tags.

use std::collections::BTreeMap;

use serde_json::json;
use spokeshave_api::EC2NodeClass;
use spokeshave_provider_aws::tags::{launch, missing_after_registration};

fn class(tags: serde_json::Value) -> EC2NodeClass {
    EC2NodeClass::new("class", serde_json::from_value(json!({"tags": tags})).unwrap())
}

#[test]
fn a_017_ours_are_added_and_theirs_are_kept() {
    let tags = launch(&class(json!({"team": "a", "Name": "mine"})), "pool", "c").unwrap();
    assert_eq!(
        json!(tags.0),
        json!({
            "Name": "mine", "team": "a", "eks:eks-cluster-name": "c", "karpenter.k8s.aws/ec2nodeclass": "class",
            "karpenter.sh/nodepool": "pool", "kubernetes.io/cluster/c": "owned",
        })
    );
    for key in [
        "eks:eks-cluster-name",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
        "kubernetes.io/cluster/other",
    ] {
        let error = launch(&class(json!({key: "x"})), "pool", "c").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("tags failed validation requirements (tags={key:?})")
        );
    }
}

#[test]
fn a_095_only_missing_tags_are_added_after_registration() {
    let missing = |present: &[(&str, &str)]| {
        let present: BTreeMap<String, String> = present
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        json!(missing_after_registration(&present, "claim", "node", "c").0)
    };
    assert_eq!(
        missing(&[]),
        json!({"Name": "node", "eks:eks-cluster-name": "c", "karpenter.sh/nodeclaim": "claim"})
    );
    assert_eq!(
        missing(&[("Name", "users"), ("eks:eks-cluster-name", "c")]),
        json!({"karpenter.sh/nodeclaim": "claim"})
    );
}
