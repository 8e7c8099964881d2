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
/// The AKSNodeClass.
pub const NODE_CLASS: &str = "karpenter.azure.com_aksnodeclass";
/// When the launch was begun.
pub const CREATED_AT: &str = "spokeshave.dev_created-at";
/// How AKS counts the machine.
pub const BILLING: &str = "compute.aks.billing";

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

/// Tags of a launch: those of the settings and of the class, and whose it is (Z-056).
///
/// # Errors
/// When the class sets tags that say whose something is, or there are too many.
pub fn launch(
    class: &AKSNodeClass,
    additional: &BTreeMap<String, String>,
    own: &[(&str, &str)],
) -> Result<BTreeMap<String, String>, TagError> {
    let mut tags: BTreeMap<String, String> = additional
        .iter()
        .chain(&class.spec.tags)
        .map(|(name, value)| (key(name), value.clone()))
        .collect();
    // Tag names are compared without regard to case at Azure.
    let reserved = [
        CLUSTER,
        NODE_POOL,
        NODE_CLAIM,
        NODE_CLAIM_UID,
        NODE_CLASS,
        CREATED_AT,
        AKS_MACHINE,
        IMAGE,
    ];
    if let Some(name) = tags
        .keys()
        .find(|name| reserved.iter().any(|it| it.eq_ignore_ascii_case(name)))
    {
        return Err(TagError::Reserved(name.clone()));
    }
    tags.insert(BILLING.to_owned(), "linux".to_owned());
    tags.extend(
        own.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    if tags.len() > MOST {
        return Err(TagError::TooMany(tags.len()));
    }
    Ok(tags)
}
