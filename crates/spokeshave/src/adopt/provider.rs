//! Which provider would take a cluster over, and what is known of it without asking its cloud.
//!
//! Owns the kinds of NodeClasses and the beginnings of provider IDs of the providers that this program has. It reads no cluster.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use spokeshave_api::{AKSNodeClass, EC2NodeClass, KWOKNodeClass, NodeClassRef};
use spokeshave_model::ClusterState;
use spokeshave_provider_kwok::keys::PROVIDER_ID_PREFIX;

use super::AdoptArgs;
use crate::arguments::{CloudProviderName, Misuse};

/// Providers of this program, with their kind of NodeClass as (group, kind).
const PROVIDERS: [(CloudProviderName, (&str, &str)); 3] = [
    (
        CloudProviderName::Kwok,
        (KWOKNodeClass::GROUP, KWOKNodeClass::KIND),
    ),
    (CloudProviderName::Aws, (EC2NodeClass::GROUP, EC2NodeClass::KIND)),
    (
        CloudProviderName::Azure,
        (AKSNodeClass::GROUP, AKSNodeClass::KIND),
    ),
];

/// A kind of NodeClass, as (group, kind).
type Class = (String, String);

/// By what it is known who takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// It was asked for.
    Asked,
    /// The NodeClasses that NodePools refer to.
    NodePools,
    /// Without NodePools, those that NodeClaims refer to.
    NodeClaims,
    /// Nothing refers to a NodeClass.
    Nothing,
}

impl Ground {
    /// Why it is that one, for a sentence; `None` of one that was asked for.
    pub(super) const fn words(self) -> Option<&'static str> {
        match self {
            Self::Asked => None,
            Self::NodePools => Some("by the NodeClasses of the NodePools"),
            Self::NodeClaims => Some("by the NodeClasses of the NodeClaims, as there are no NodePools"),
            Self::Nothing => Some("as there are neither NodePools nor NodeClaims to say which it is"),
        }
    }
}

/// Who takes over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Provider {
    pub(super) name: CloudProviderName,
    pub(super) ground: Ground,
    /// The kinds of NodeClasses that it supports.
    pub(super) node_classes: Vec<Class>,
}

impl CloudProviderName {
    /// As the command line has it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Kwok => "kwok",
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Grpc => "grpc",
        }
    }

    /// How its provider IDs begin; of a provider in another process nothing is known.
    pub(super) const fn provider_id_prefix(self) -> &'static str {
        match self {
            Self::Kwok => PROVIDER_ID_PREFIX,
            Self::Aws => "aws:///",
            Self::Azure => "azure:///",
            Self::Grpc => "",
        }
    }

    /// The one with this kind of NodeClass: what none of ours has is that of a provider in another process.
    fn of(class: &Class) -> Self {
        let mut all = PROVIDERS.into_iter();
        let found = all.find(|(_, (group, kind))| (class.0.as_str(), class.1.as_str()) == (*group, *kind));
        found.map_or(Self::Grpc, |(name, _)| name)
    }
}

impl Provider {
    /// The one that was asked for, or else the one whose NodeClasses the objects name; without any, the one that needs no cloud.
    ///
    /// # Errors
    /// Nothing was asked for and several could be meant, or NodeClasses are named for a provider that has its own: a [`Misuse`].
    pub(super) fn of(args: &AdoptArgs, state: &ClusterState) -> Result<Self> {
        match args.cloud_provider {
            Some(CloudProviderName::Grpc) => Ok(Self {
                name: CloudProviderName::Grpc,
                ground: Ground::Asked,
                node_classes: args.node_classes.clone(),
            }),
            _ if !args.node_classes.is_empty() => {
                let said = "--node-class is for --cloud-provider grpc: the other providers have a NodeClass of their own";
                Err(Misuse(said.to_owned()).into())
            }
            Some(name) => Ok(Self::known(name, Ground::Asked)),
            None => {
                let (ground, classes) = named(state);
                Self::found(ground, &classes)
            }
        }
    }

    fn known(name: CloudProviderName, ground: Ground) -> Self {
        let classes = PROVIDERS.into_iter().filter(|(known, _)| *known == name);
        let node_classes = classes.map(|(_, (group, kind))| (group.to_owned(), kind.to_owned()));
        Self {
            name,
            ground,
            node_classes: node_classes.collect(),
        }
    }

    fn found(ground: Ground, classes: &BTreeSet<Class>) -> Result<Self> {
        let mut names: Vec<CloudProviderName> = classes.iter().map(CloudProviderName::of).collect();
        names.dedup();
        match names[..] {
            [] => Ok(Self::known(CloudProviderName::Kwok, ground)),
            [CloudProviderName::Grpc] => Ok(Self {
                name: CloudProviderName::Grpc,
                ground,
                node_classes: classes.iter().cloned().collect(),
            }),
            [name] => Ok(Self::known(name, ground)),
            _ => {
                let classes: Vec<String> = classes
                    .iter()
                    .map(|(group, kind)| format!("{group}/{kind}"))
                    .collect();
                let referring = match ground {
                    Ground::NodeClaims => "NodeClaims",
                    _ => "NodePools",
                };
                bail!(
                    "{referring} refer to NodeClasses of several providers ({}), and one of them takes over: name it with --cloud-provider",
                    classes.join(", ")
                )
            }
        }
    }
}

/// The kinds of NodeClasses that NodePools refer to, or, where there are none, NodeClaims; and which of them.
fn named(state: &ClusterState) -> (Ground, BTreeSet<Class>) {
    let class = |class: &NodeClassRef| (class.group.clone(), class.kind.clone());
    let pools = state.node_pools.iter();
    let of_pools: BTreeSet<Class> = pools.map(|pool| class(pool.node_class_ref())).collect();
    if !of_pools.is_empty() {
        return (Ground::NodePools, of_pools);
    }
    let claims = state.node_claims.iter();
    let of_claims: BTreeSet<Class> = claims.map(|claim| class(&claim.spec.node_class_ref)).collect();
    let ground = if of_claims.is_empty() {
        Ground::Nothing
    } else {
        Ground::NodeClaims
    };
    (ground, of_claims)
}

/// `GROUP/KIND` of the command line.
pub(super) fn node_class(text: &str) -> Result<Class, String> {
    match text.split('/').collect::<Vec<_>>()[..] {
        [group, kind] if !group.is_empty() && !kind.is_empty() => Ok((group.to_owned(), kind.to_owned())),
        _ => Err(format!(
            "{text:?}: expected GROUP/KIND, such as karpenter.k8s.aws/EC2NodeClass"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ground: Ground, classes: &[(&str, &str)]) -> Result<Provider> {
        let classes = classes
            .iter()
            .map(|(group, kind)| ((*group).to_owned(), (*kind).to_owned()));
        Provider::found(ground, &classes.collect())
    }

    #[test]
    fn the_provider_is_the_one_of_the_nodeclasses() {
        for (name, class) in PROVIDERS {
            for ground in [Ground::NodePools, Ground::NodeClaims] {
                assert_eq!(
                    found(ground, &[class]).expect("one provider"),
                    Provider::known(name, ground)
                );
            }
        }
        let theirs = [("example.com", "BigNodeClass"), ("example.com", "SmallNodeClass")];
        let provider = found(Ground::NodePools, &theirs).expect("one provider");
        assert_eq!(
            (provider.name, provider.node_classes.len()),
            (CloudProviderName::Grpc, 2)
        );
        assert_eq!(
            found(Ground::Nothing, &[]).expect("no class"),
            Provider::known(CloudProviderName::Kwok, Ground::Nothing)
        );
        for (ground, referring) in [
            (Ground::NodePools, "NodePools"),
            (Ground::NodeClaims, "NodeClaims"),
        ] {
            let several = found(ground, &[PROVIDERS[0].1, PROVIDERS[1].1])
                .expect_err("two providers")
                .to_string();
            assert!(
                several.starts_with(&format!("{referring} refer to ")),
                "{several}"
            );
            assert!(
                several.contains("karpenter.k8s.aws/EC2NodeClass, karpenter.kwok.sh/KWOKNodeClass"),
                "{several}"
            );
        }
    }

    #[test]
    fn a_nodeclass_is_named_by_group_and_kind() {
        let expected = ("example.com".to_owned(), "Big".to_owned());
        assert_eq!(node_class("example.com/Big"), Ok(expected));
        for wrong in ["", "Big", "/Big", "example.com/", "example.com/Big/default"] {
            assert!(node_class(wrong).is_err(), "{wrong}");
        }
    }
}
