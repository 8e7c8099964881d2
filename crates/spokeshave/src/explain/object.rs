//! Which object is meant: `node NAME`, `node/NAME`, `NAME` alone, pods with or without namespace, and what to say when there is none.

use anyhow::{Result, bail};
use spokeshave_model::ClusterState;
use spokeshave_model::pod::key;
use spokeshave_story::explain::near_matches;

use crate::arguments::Misuse;

/// The kinds that have a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Node,
    NodeClaim,
    NodePool,
    Pod,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Node, Kind::NodeClaim, Kind::NodePool, Kind::Pod];

    /// As kubectl knows them, short names included; a group after a dot is passed over.
    fn parse(text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        match text.split('.').next().unwrap_or_default() {
            "node" | "nodes" | "no" => Some(Kind::Node),
            "nodeclaim" | "nodeclaims" | "nc" => Some(Kind::NodeClaim),
            "nodepool" | "nodepools" | "np" => Some(Kind::NodePool),
            "pod" | "pods" | "po" => Some(Kind::Pod),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Kind::Node => "Node",
            Kind::NodeClaim => "NodeClaim",
            Kind::NodePool => "NodePool",
            Kind::Pod => "Pod",
        }
    }

    /// The names of all objects of the kind; pods as `namespace/name`.
    fn names(self, state: &ClusterState) -> Vec<String> {
        match self {
            Kind::Node => {
                let nodes = state.nodes.iter();
                nodes.filter_map(|node| node.metadata.name.clone()).collect()
            }
            Kind::NodeClaim => state
                .node_claims
                .iter()
                .map(|claim| claim.name().to_owned())
                .collect(),
            Kind::NodePool => state
                .node_pools
                .iter()
                .map(|pool| pool.name().to_owned())
                .collect(),
            Kind::Pod => state.pods.iter().map(|pod| key(pod)).collect(),
        }
    }
}

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    kind: Option<Kind>,
    name: String,
    namespace: Option<String>,
}

impl Wanted {
    /// Reads one or two words.
    ///
    /// # Errors
    /// The kind is none that has a story, or there is no name: a [`Misuse`].
    pub(crate) fn parse(words: &[String], namespace: Option<&str>) -> Result<Self> {
        let namespace = namespace.map(str::to_owned);
        let (kind, name) = match words {
            [kind, name] => {
                let Some(kind) = Kind::parse(kind) else {
                    return misuse(format!(
                        "there is no story about kind {kind:?}; expected node, nodeclaim, nodepool or pod"
                    ));
                };
                (Some(kind), name.clone())
            }
            // A node may well be called `node.example.com`.
            [word] if !word.contains('.') && Kind::parse(word).is_some() => {
                return misuse(format!("expected a name after {word}, such as `{word} NAME`"));
            }
            [word] => match word.split_once('/').map(|(kind, name)| (Kind::parse(kind), name)) {
                Some((Some(kind), name)) => (Some(kind), name.to_owned()),
                // `shop/web-1` can only be a pod.
                Some((None, _)) => (Some(Kind::Pod), word.clone()),
                None => (None, word.clone()),
            },
            _ => return misuse("expected a kind and a name, such as `node NAME` or `pod/NAME`"),
        };
        let name = match (kind, name.split_once('/')) {
            // `node node/NAME`, as it comes out of `kubectl get -o name`.
            (Some(kind), Some((prefix, rest))) if Kind::parse(prefix) == Some(kind) => rest.to_owned(),
            _ => name,
        };
        if name.is_empty() {
            return misuse("expected a name after the kind");
        }
        if let (Some(Kind::Pod), Some((own, _)), Some(asked)) = (kind, name.split_once('/'), &namespace)
            && own != asked
        {
            return misuse(format!(
                "{name} is in namespace {own}, and --namespace says {asked}: give one of them"
            ));
        }
        Ok(Wanted {
            kind,
            name,
            namespace,
        })
    }

    /// The object that is meant: its kind and name, pods as `namespace/name`.
    ///
    /// # Errors
    /// There is none or more than one; near matches are named.
    pub(crate) fn find(&self, state: &ClusterState) -> Result<(Kind, String)> {
        let kinds: Vec<Kind> = match self.kind {
            Some(kind) => vec![kind],
            None => Kind::ALL.to_vec(),
        };
        let mut found: Vec<(Kind, String)> = Vec::new();
        for kind in &kinds {
            let names = kind.names(state);
            found.extend(
                names
                    .into_iter()
                    .filter(|name| self.is_named(*kind, name))
                    .map(|name| (*kind, name)),
            );
        }
        // In doubt the namespace `default` is meant, as with kubectl.
        if found.len() > 1 && self.namespace.is_none() {
            let default = format!("default/{}", self.name);
            if let Some(position) = found.iter().position(|(_, name)| *name == default) {
                return Ok(found.swap_remove(position));
            }
        }
        match found.len() {
            0 => bail!("{}", self.not_found(&kinds, state)),
            1 => Ok(found.remove(0)),
            _ => {
                let names: Vec<String> = found
                    .iter()
                    .map(|(kind, name)| format!("{}/{name}", kind.as_str().to_lowercase()))
                    .collect();
                bail!(
                    "{:?} is several things: {}; say which",
                    self.name,
                    names.join(", ")
                )
            }
        }
    }

    /// The name, where a NodeClaim is meant or may be.
    pub(crate) fn node_claim(&self) -> Option<&str> {
        self.kind
            .is_none_or(|kind| kind == Kind::NodeClaim)
            .then_some(&*self.name)
    }

    fn is_named(&self, kind: Kind, name: &str) -> bool {
        if kind != Kind::Pod || self.name.contains('/') {
            return name == self.name;
        }
        match (name.split_once('/'), &self.namespace) {
            (Some((namespace, name)), Some(wanted)) => namespace == wanted && name == self.name,
            (Some((_, name)), None) => name == self.name,
            (None, _) => false,
        }
    }

    fn not_found(&self, kinds: &[Kind], state: &ClusterState) -> String {
        let what = match kinds {
            [kind] => kind.as_str().to_owned(),
            _ => "Node, NodeClaim, NodePool or Pod".to_owned(),
        };
        let place = match (&self.namespace, kinds.contains(&Kind::Pod)) {
            (Some(namespace), true) => format!(" in namespace {namespace}"),
            _ => String::new(),
        };
        let names: Vec<String> = kinds.iter().flat_map(|kind| kind.names(state)).collect();
        let near = near_matches(&self.name, names.iter().map(String::as_str));
        let hint = match (near.is_empty(), names.len()) {
            (false, _) => format!("; did you mean {}?", near.join(", ")),
            (true, 0) => "; there is none at all".to_owned(),
            (true, 1..=5) => format!("; there are: {}", names.join(", ")),
            (true, number) => format!("; there are {number}, none of them with a similar name"),
        };
        format!("there is no {what} {:?}{place}{hint}", self.name)
    }
}

fn misuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Misuse(message.into()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use spokeshave_model::Pod;
    use std::sync::Arc;

    fn state() -> ClusterState {
        let meta = |namespace: Option<&str>, name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            ..ObjectMeta::default()
        };
        let pod = |namespace, name| {
            Arc::new(Pod {
                metadata: meta(Some(namespace), name),
                ..Pod::default()
            })
        };
        let node = |name| {
            Arc::new(Node {
                metadata: meta(None, name),
                ..Node::default()
            })
        };
        ClusterState {
            nodes: vec![node("kwok-default-1"), node("kwok-default-2")],
            pods: vec![
                pod("shop", "web-1"),
                pod("default", "api-1"),
                pod("shop", "api-1"),
            ],
            ..ClusterState::default()
        }
    }

    fn find(words: &[&str], namespace: Option<&str>) -> Result<(Kind, String), String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let wanted = Wanted::parse(&words, namespace).map_err(|error| error.to_string())?;
        wanted.find(&state()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_read_as_kubectl_writes_them() {
        let node = Ok((Kind::Node, "kwok-default-1".to_owned()));
        for words in [
            &["node", "kwok-default-1"][..],
            &["node/kwok-default-1"],
            &["nodes", "node/kwok-default-1"],
            &["no", "kwok-default-1"],
            &["kwok-default-1"],
        ] {
            assert_eq!(find(words, None), node, "{words:?}");
        }
        let pod = Ok((Kind::Pod, "shop/web-1".to_owned()));
        for words in [
            &["pod", "web-1"][..],
            &["shop/web-1"],
            &["pod/shop/web-1"],
            &["po", "shop/web-1"],
            &["web-1"],
        ] {
            assert_eq!(find(words, None), pod, "{words:?}");
        }
        assert_eq!(
            find(&["pod", "api-1"], None),
            Ok((Kind::Pod, "default/api-1".to_owned()))
        );
        for words in [&["pod", "api-1"][..], &["pod", "shop/api-1"], &["shop/api-1"]] {
            let found = find(words, Some("shop"));
            assert_eq!(found, Ok((Kind::Pod, "shop/api-1".to_owned())), "{words:?}");
        }
    }

    /// Not silently one of two namespaces.
    #[test]
    fn a_pod_of_another_namespace_than_the_one_that_is_asked_for_is_refused() {
        for words in [
            &["pod", "default/api-1"][..],
            &["pod/default/api-1"],
            &["default/api-1"],
        ] {
            let said = find(words, Some("shop")).expect_err("two namespaces");
            assert_eq!(
                said,
                "default/api-1 is in namespace default, and --namespace says shop: give one of them"
            );
        }
    }

    #[test]
    fn a_kind_alone_asks_for_a_name() {
        for word in ["node", "pods", "np"] {
            let expected = format!("expected a name after {word}, such as `{word} NAME`");
            assert_eq!(find(&[word], None), Err(expected));
        }
        let said = find(&["node.example.com"], None).expect_err("there is none");
        assert!(said.starts_with("there is no "), "{said}");
    }

    #[test]
    fn an_unknown_name_gives_near_matches() {
        let error = |words: &[&str], namespace| find(words, namespace).unwrap_err();
        assert_eq!(
            error(&["node", "kwok-defualt-1"], None),
            "there is no Node \"kwok-defualt-1\"; did you mean kwok-default-1, kwok-default-2?"
        );
        assert_eq!(
            error(&["node", "default-2"], None),
            "there is no Node \"default-2\"; did you mean kwok-default-2?"
        );
        assert_eq!(
            error(&["nodepool", "x"], None),
            "there is no NodePool \"x\"; there is none at all"
        );
        assert_eq!(
            error(&["pod", "web-1"], Some("default")),
            "there is no Pod \"web-1\" in namespace default; did you mean shop/web-1?"
        );
        assert!(error(&["deployment", "web"], None).contains("expected node, nodeclaim, nodepool or pod"));
        assert!(error(&["node/"], None).contains("expected a name"));
    }
}
