//! Tags of what is made at Azure, by which it is found again and told from others' (Z6.3).

use std::collections::BTreeMap;

use spokeshave_api::AKSNodeClass;

/// The cluster.
pub const CLUSTER: &str = "karpenter.azure.com_cluster";
/// The NodePool.
pub const NODE_POOL: &str = "karpenter.sh_nodepool";
/// The NodeClaim.
pub const NODE_CLAIM: &str = "karpenter.sh_nodeclaim";
/// The NodeClaim's UID, by which a machine of the same name is told from this claim's.
pub const NODE_CLAIM_UID: &str = "karpenter.sh_nodeclaim-uid";
/// The NodeClaim of a machine that AKS makes; AKS copies it to the virtual machine, which is told from others by it.
pub const AKS_MACHINE: &str = "karpenter.azure.com_aksmachine_nodeclaim";
/// Version of the node image that AKS was asked for.
pub const IMAGE: &str = "spokeshave.dev_image";
/// Version of Kubernetes that the machine was asked to run. Its image may bring a kubelet of another patch version, and so does that of a replacement: drift
/// by what the kubelet says would never end.
pub const KUBERNETES_VERSION: &str = "spokeshave.dev_kubernetes-version";
/// The AKSNodeClass.
pub const NODE_CLASS: &str = "karpenter.azure.com_aksnodeclass";
/// When the launch was begun.
pub const CREATED_AT: &str = "spokeshave.dev_created-at";
/// How AKS counts the machine.
pub const BILLING: &str = "compute.aks.billing";

/// Annotation of a NodeClaim with the tags that its machine has from settings and class, in JSON: what has changed since is known by it.
pub const APPLIED_ANNOTATION: &str = "spokeshave.dev/azure-tags";

/// Most tags of a resource.
pub const MOST: usize = 50;

/// Why a launch cannot be tagged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// More than ARM takes.
    #[error(
        "spec.tags and the settings make {0} tags with those of the provider; Azure takes {MOST} at most"
    )]
    TooMany(usize),
    /// Tags that the class must not set.
    #[error("spec.tags sets {0}, which says whose a machine is; take it away")]
    Reserved(String),
}

/// A key as ARM takes it: `/` is not allowed in one.
#[must_use]
pub fn key(key: &str) -> String {
    key.replace('/', "_")
}

/// Tags that say whose something is, and what else the provider writes down.
const RESERVED: [&str; 9] = [
    CLUSTER,
    NODE_POOL,
    NODE_CLAIM,
    NODE_CLAIM_UID,
    NODE_CLASS,
    CREATED_AT,
    AKS_MACHINE,
    IMAGE,
    KUBERNETES_VERSION,
];

fn is_billing(name: &str) -> bool {
    name.eq_ignore_ascii_case(BILLING)
}

/// Tags that the settings and the class ask for: what may change while a machine runs. Azure compares names without regard to case: of two spellings the
/// class's counts. How AKS counts the machine is not theirs to say.
///
/// # Errors
/// When the class sets tags that say whose something is.
pub fn of_user(
    class: &AKSNodeClass,
    additional: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, TagError> {
    let mut tags: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in additional.iter().chain(&class.spec.tags) {
        let name = key(name);
        tags.retain(|known, _| !known.eq_ignore_ascii_case(&name));
        if !is_billing(&name) {
            tags.insert(name, value.clone());
        }
    }
    let is_reserved = |name: &&String| RESERVED.iter().any(|it| it.eq_ignore_ascii_case(name));
    match tags.keys().find(is_reserved) {
        Some(name) => Err(TagError::Reserved(name.clone())),
        None => Ok(tags),
    }
}

fn counted(tags: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, TagError> {
    if tags.len() > MOST {
        return Err(TagError::TooMany(tags.len()));
    }
    Ok(tags)
}

/// Tags of a launch: those of the settings and of the class, and whose it is (Z-056).
///
/// # Errors
/// When the class sets tags that say whose something is, or there are too many.
pub fn launch(
    class: &AKSNodeClass,
    additional: &BTreeMap<String, String>,
    own: &[(&str, &str)],
) -> Result<BTreeMap<String, String>, TagError> {
    let mut tags = of_user(class, additional)?;
    tags.insert(BILLING.to_owned(), "linux".to_owned());
    tags.extend(
        own.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    counted(tags)
}

/// What the tags of something that runs become: those that are wanted now in the place of those that were wanted before; all others, which the provider or
/// somebody else has set, stay. `None` when nothing is to be changed.
///
/// # Errors
/// When there are too many.
pub fn changed(
    current: &BTreeMap<String, String>,
    before: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
) -> Result<Option<BTreeMap<String, String>>, TagError> {
    let names =
        |tags: &BTreeMap<String, String>, name: &String| tags.keys().any(|it| it.eq_ignore_ascii_case(name));
    let mut tags = current.clone();
    tags.retain(|name, _| is_billing(name) || (!names(wanted, name) && !names(before, name)));
    tags.extend(wanted.iter().map(|(name, value)| (name.clone(), value.clone())));
    if tags == *current {
        return Ok(None);
    }
    counted(tags).map(Some)
}
