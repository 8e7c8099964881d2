//! What operators ask the API server for, as rules of RBAC name it. It knows of rules only which resources they narrow: tests
//! compare it with those of the chart.

use std::fmt;

use http::{Method, Uri};

/// A kind of request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Such as `get`, `list` or `patch`.
    pub verb: &'static str,
    /// The API group; empty for that of pods and nodes.
    pub group: String,
    /// The resource, with its subresource if one is meant: `pods/eviction`.
    pub resource: String,
    /// The namespace, where one is asked; only of resources that rules allow by name or in one namespace.
    pub namespace: Option<String>,
    /// The name, where one object is asked for; only of the same resources.
    pub name: Option<String>,
}

/// Resources that rules allow by name or in one namespace. Of all others, each object would be a request of its own.
const NARROWED: [&str; 4] = ["configmaps", "leases", "services", "namespaces"];

impl Asked {
    /// Of a request; `None` when it is about no resource.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match parts.next()? {
            "api" => String::new(),
            "apis" => parts.next()?.to_owned(),
            _ => return None,
        };
        let _version = parts.next()?;
        let mut rest: Vec<&str> = parts.collect();
        let mut namespace = None;
        if rest.len() > 2 && rest[0] == "namespaces" {
            namespace = rest.drain(..2).next_back();
        }
        let resource = match rest[..] {
            [resource] | [resource, _] => resource.to_owned(),
            [resource, _, subresource] => format!("{resource}/{subresource}"),
            _ => return None,
        };
        let is_watch = uri.query().is_some_and(|query| query.contains("watch=true"));
        let verb = match (method.as_str(), rest.len()) {
            ("GET", _) if is_watch => "watch",
            ("GET", 1) => "list",
            ("GET", _) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", 1) => "deletecollection",
            ("DELETE", _) => "delete",
            _ => return None,
        };
        let is_narrowed = NARROWED.contains(&rest[0]);
        let narrowed = |part: Option<&str>| part.filter(|_| is_narrowed).map(str::to_owned);
        Some(Self {
            verb,
            group,
            resource,
            namespace: narrowed(namespace),
            name: narrowed(rest.get(1).copied()),
        })
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked {
            verb,
            group,
            resource,
            namespace,
            name,
        } = self;
        write!(f, "{verb} {group}/{resource}")?;
        if let Some(name) = name {
            write!(f, " {name}")?;
        }
        match namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_named_as_rules_name_it() {
        for (method, path, expected) in [
            ("GET", "/api/v1/nodes/a", "get /nodes"),
            (
                "GET",
                "/api/v1/pods?fieldSelector=spec.nodeName%3Da",
                "list /pods",
            ),
            (
                "GET",
                "/apis/apps/v1/daemonsets?&watch=true&resourceVersion=1",
                "watch apps/daemonsets",
            ),
            (
                "GET",
                "/api/v1/namespaces/kube-system",
                "get /namespaces kube-system",
            ),
            (
                "GET",
                "/api/v1/namespaces/kube-system/services/kube-dns",
                "get /services kube-dns in kube-system",
            ),
            (
                "POST",
                "/apis/coordination.k8s.io/v1/namespaces/default/leases",
                "create coordination.k8s.io/leases in default",
            ),
            ("GET", "/api/v1/services?limit=500", "list /services"),
            (
                "POST",
                "/api/v1/namespaces/shop/pods/a/eviction",
                "create /pods/eviction",
            ),
            ("POST", "/api/v1/namespaces/default/events", "create /events"),
            (
                "PATCH",
                "/apis/karpenter.sh/v1/nodeclaims/a/status",
                "patch karpenter.sh/nodeclaims/status",
            ),
            (
                "DELETE",
                "/apis/karpenter.sh/v1/nodeclaims/a",
                "delete karpenter.sh/nodeclaims",
            ),
        ] {
            let method = method.parse().expect("a method");
            let asked = Asked::of(&method, &path.parse().expect("a path"));
            assert_eq!(
                asked.map(|asked| asked.to_string()).as_deref(),
                Some(expected),
                "{path}"
            );
        }
        for path in ["/version", "/apis", "/apis/karpenter.sh/v1"] {
            assert_eq!(
                Asked::of(&Method::GET, &path.parse().expect("a path")),
                None,
                "{path}"
            );
        }
    }
}
