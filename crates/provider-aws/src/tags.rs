//! Tags of what is made at AWS, by which it is found again and told from others' (A1.7).

use std::collections::BTreeMap;

use spokeshave_api::{EC2NodeClass, labels as api};

use crate::requests::Tags;

/// The cluster's name, as EKS writes it.
pub const CLUSTER_NAME: &str = "eks:eks-cluster-name";
/// The NodePool.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
/// The NodeClaim.
pub const NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
/// The EC2NodeClass.
pub const NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
/// The name that AWS's console shows.
pub const NAME: &str = "Name";
/// Region of an instance profile.
pub const REGION: &str = api::REGION;

/// The tag of everything that belongs to a cluster; its value is `owned`.
#[must_use]
pub fn cluster(cluster: &str) -> String {
    format!("kubernetes.io/cluster/{cluster}")
}

/// Tags that the class must not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tags failed validation requirements (tags={})", quoted(.0))]
pub struct ReservedTags(pub Vec<String>);

fn quoted(keys: &[String]) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
    quoted.join(", ")
}

fn is_reserved(key: &str) -> bool {
    [CLUSTER_NAME, NODE_POOL, NODE_CLAIM, NODE_CLASS].contains(&key)
        || key.starts_with("kubernetes.io/cluster/")
}

/// Tags of what a launch makes: the class's, and whose it is. `node_pool` is empty for what belongs to no NodePool.
///
/// # Errors
/// When the class sets tags that say whose something is.
pub fn launch(class: &EC2NodeClass, node_pool: &str, cluster_name: &str) -> Result<Tags, ReservedTags> {
    let reserved: Vec<String> = class
        .spec
        .tags
        .keys()
        .filter(|key| is_reserved(key))
        .cloned()
        .collect();
    if !reserved.is_empty() {
        return Err(ReservedTags(reserved));
    }
    let mut tags = class.spec.tags.clone();
    tags.insert(NODE_POOL.to_owned(), node_pool.to_owned());
    tags.extend(owner(class.name(), cluster_name));
    Ok(Tags(tags))
}

/// Tags of an instance profile: the class's, whose it is, and the region (A2.3).
///
/// # Errors
/// When the class sets tags that say whose something is.
pub fn instance_profile(
    class: &EC2NodeClass,
    cluster_name: &str,
    region: &str,
) -> Result<Tags, ReservedTags> {
    let mut tags = launch(class, "", cluster_name)?;
    tags.0.remove(NODE_POOL);
    tags.0.insert(REGION.to_owned(), region.to_owned());
    Ok(tags)
}

fn owner(class: &str, cluster_name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (cluster(cluster_name), "owned".to_owned()),
        (CLUSTER_NAME.to_owned(), cluster_name.to_owned()),
        (NODE_CLASS.to_owned(), class.to_owned()),
    ])
}

/// Tags that an instance lacks once its Node is known: its NodeClaim, its cluster, and a name unless it has one (A6, A-095).
#[must_use]
pub fn missing_after_registration(
    present: &BTreeMap<String, String>,
    node_claim: &str,
    node_name: &str,
    cluster_name: &str,
) -> Tags {
    [
        (NAME, node_name),
        (NODE_CLAIM, node_claim),
        (CLUSTER_NAME, cluster_name),
    ]
    .into_iter()
    .filter(|(key, _)| !present.contains_key(*key))
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}
