//! What operators ask the API server for, and what the chart allows them: what it does not allow is denied in every cluster with RBAC.
//!
//! The roles are those of `e2e/charts/expected`, which `just chart-check` compares with the chart. `just chart-real` installs it on a genuine control plane with the kwok cloud,
//! and also finds permissions that nothing uses.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spokeshave_sim::lab::Asked;

/// The chart as it is rendered with a file of `e2e/charts/values`.
fn rendered(values: &str) -> String {
    let path = format!(
        "{}/../../e2e/charts/expected/{values}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The roles of the operator in a rendered chart; those for people are left out.
fn read(rendered: &str) -> Vec<Value> {
    let is_role = |document: &&str| {
        let mut lines = document.lines();
        lines.any(|line| ["kind: Role", "kind: ClusterRole"].contains(&line))
            && !document.contains("/aggregate-to-")
    };
    let documents = rendered.split("\n---\n").filter(is_role);
    let role = |document: &str| {
        serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{document}: {error}"))
    };
    documents.map(role).collect()
}

/// The roles of an operator that is installed with a file of `e2e/charts/values`.
pub(crate) fn roles(values: &str) -> Vec<Value> {
    read(&rendered(values))
}

/// The roles of an operator of which everything is used. Its users also let it read the object that the roll-outs of seeds look at.
pub(crate) fn roles_of_seeds() -> Vec<Value> {
    let of_users = json!({"rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]});
    let mut found = roles("everything-on");
    found.push(of_users);
    found
}

/// The roles of an operator whose provider, that for Azure, is a process of its own; and those that the provider has of its own in place of core's.
pub(crate) fn roles_of_azure_behind_the_protocol() -> Vec<Value> {
    let with_class = rendered("provider")
        .replace("process.example", "karpenter.azure.com")
        .replace("processnodeclasses", "aksnodeclasses");
    let mut found = roles("azure");
    found.retain(|role| role["metadata"]["name"] != "spokeshave-core");
    found.extend(read(&with_class));
    found
}

/// Where the Leases of operators are in the laboratory.
const LEASES_OF_OPERATORS: &str = "kube-system";
/// Where the chart is installed.
const RELEASE: &str = "spokeshave";

/// Whether a role is for the place of a request: a Role is for one namespace.
fn is_for(role: &Value, asked: &Asked) -> bool {
    let Some(own) = role["metadata"]["namespace"].as_str() else {
        return true;
    };
    match asked.namespace.as_deref() {
        Some(LEASES_OF_OPERATORS) if asked.resource == "leases" => own == RELEASE,
        namespace => namespace == Some(own),
    }
}

fn allows(role: &Value, asked: &Asked) -> bool {
    let has = |rule: &Value, field: &str, wanted: &str| {
        let mut values = rule[field].as_array().into_iter().flatten();
        values.any(|value| value == wanted)
    };
    let names = |rule: &Value| {
        let name = asked.name.as_deref();
        rule.get("resourceNames").is_none() || name.is_some_and(|name| has(rule, "resourceNames", name))
    };
    let mut rules = role["rules"].as_array().into_iter().flatten();
    is_for(role, asked)
        && rules.any(|rule| {
            has(rule, "apiGroups", &asked.group)
                && has(rule, "resources", &asked.resource)
                && has(rule, "verbs", asked.verb)
                && names(rule)
        })
}

/// What none of the roles allows.
fn denied(asked: &BTreeSet<Asked>, roles: &[Value]) -> Vec<String> {
    let denied = asked
        .iter()
        .filter(|asked| !roles.iter().any(|role| allows(role, asked)));
    denied.map(ToString::to_string).collect()
}

/// Fails when operators have asked for something that no role allows.
pub(crate) fn assert_allowed(asked: &BTreeSet<Asked>, roles: &[Value]) {
    assert!(asked.len() > 20, "they do more than this: {asked:?}");
    let denied = denied(asked, roles);
    assert!(denied.is_empty(), "the chart does not allow {denied:?}");
}

/// A look at a node by its name.
pub(crate) fn a_node_by_name() -> Asked {
    Asked {
        verb: "get",
        group: String::new(),
        resource: "nodes".to_owned(),
        namespace: None,
        name: None,
    }
}

/// A Role elsewhere than the Lease allows nothing, so that no replica would ever lead.
#[test]
fn the_role_for_the_lease_and_its_binding_are_where_the_lease_is() {
    for (values, place) in [("defaults", RELEASE), ("lease-elsewhere", "kube-system")] {
        let rendered = rendered(values);
        let kinds = ["\nkind: Role\n", "\nkind: RoleBinding\n"];
        let documents = rendered
            .split("\n---\n")
            .filter(|document| kinds.iter().any(|kind| document.contains(kind)));
        let documents = documents.map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
        let of_lease: Vec<Value> = documents
            .filter(|document| document["metadata"]["name"] == RELEASE)
            .collect();
        let places = of_lease.iter().map(|document| &document["metadata"]["namespace"]);
        assert_eq!(places.collect::<Vec<_>>(), [place; 2], "{values}");
        let subjects = of_lease.iter().find_map(|document| document.get("subjects"));
        let account = &subjects.expect("a binding")[0];
        assert_eq!(account["namespace"], RELEASE, "the account is the release's");
    }
}

#[test]
fn what_no_role_allows_is_named() {
    let secrets = Asked {
        resource: "secrets".to_owned(),
        ..a_node_by_name()
    };
    let asked = BTreeSet::from([a_node_by_name(), secrets]);
    for values in ["defaults", "aws", "azure", "provider", "everything-on"] {
        assert_eq!(denied(&asked, &roles(values)), ["get /secrets"], "{values}");
    }
    assert_eq!(denied(&asked, &[]), ["get /nodes", "get /secrets"]);
}

/// Few runs lose the very answer after which these are asked for.
#[test]
fn what_is_asked_after_an_answer_that_was_lost_is_allowed() {
    let of = |verb: &'static str, group: &str, resource: &str| Asked {
        verb,
        group: group.to_owned(),
        resource: resource.to_owned(),
        ..a_node_by_name()
    };
    let asked = BTreeSet::from([
        of("get", "spokeshave.dev", "disruptions"),
        of("get", "karpenter.sh", "nodeclaims"),
        of("list", "karpenter.sh", "nodeclaims"),
    ]);
    for values in ["defaults", "aws", "azure", "provider", "everything-on"] {
        assert_eq!(denied(&asked, &roles(values)), [""; 0], "{values}");
    }
}

#[test]
fn a_role_allows_only_the_object_that_it_names_and_only_in_its_namespace() {
    let map = |namespace: &str, name: &str| Asked {
        resource: "configmaps".to_owned(),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..a_node_by_name()
    };
    let window = "upcoming-maintenance-window";
    let asked = BTreeSet::from([
        map("kube-system", window),
        map("kube-system", "another"),
        map("default", window),
    ]);
    let expected = [
        "get /configmaps upcoming-maintenance-window in default",
        "get /configmaps another in kube-system",
    ];
    assert_eq!(denied(&asked, &roles("azure")), expected);
    let lease = |verb: &'static str, name: Option<&str>| Asked {
        verb,
        group: "coordination.k8s.io".to_owned(),
        resource: "leases".to_owned(),
        namespace: Some(LEASES_OF_OPERATORS.to_owned()),
        name: name.map(str::to_owned),
    };
    let asked = BTreeSet::from([
        lease("create", None),
        lease("update", Some("karpenter-leader-election")),
        lease("update", Some("another")),
    ]);
    let expected = ["update coordination.k8s.io/leases another in kube-system"];
    assert_eq!(denied(&asked, &roles("azure")), expected);
}
