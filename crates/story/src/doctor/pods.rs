//! Pods and nodes that are protected indefinitely, and pods without requests.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_api::labels::DO_NOT_DISRUPT;
use spokeshave_model::pod::{self, DoNotDisrupt};
use spokeshave_model::resources::ResourceName;
use spokeshave_model::snapshot::{NodeId, PodId, PodView, Snapshot};

use super::{Finding, Level};
use spokeshave_plan::report::count;

/// Findings about pods and their nodes.
pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = protected_pods(snapshot);
    findings.extend(protected_nodes(snapshot));
    findings.extend(without_requests(snapshot));
    findings
}

/// `ReplicaSet shop/web-5d4f`, or the pod itself.
fn owner(pod: &PodView) -> String {
    let meta = &pod.object.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let mut owners = meta.owner_references.iter().flatten();
    match owners.find(|owner| owner.controller == Some(true)) {
        Some(owner) => format!("{} {namespace}/{}", owner.kind, owner.name),
        None => format!("Pod {}", pod.key()),
    }
}

pub(super) fn by_owner(
    snapshot: &Snapshot,
    wanted: impl Fn(&PodView) -> bool,
) -> BTreeMap<String, Vec<PodId>> {
    let mut groups: BTreeMap<String, Vec<PodId>> = BTreeMap::new();
    for id in snapshot.pod_ids() {
        let pod = snapshot.pod(id);
        if pod.active && !pod.mirror && !pod.is_virtual && wanted(pod) {
            groups.entry(owner(pod)).or_default().push(id);
        }
    }
    groups
}

/// D-011: `"true"` has no end; pods of a Job end on their own.
pub(super) fn is_protected_for_ever(pod: &PodView) -> bool {
    let is_always = *pod.do_not_disrupt() == DoNotDisrupt::Always && annotation(pod) == Some("true");
    is_always && pod.active && !pod.mirror && !pod.is_virtual && !is_of_job(pod)
}

/// Whether a Job has made it.
pub(super) fn is_of_job(pod: &PodView) -> bool {
    owner(pod).starts_with("Job ")
}

/// By what has made them.
fn protected_pods(snapshot: &Snapshot) -> Vec<Finding> {
    let groups = by_owner(snapshot, is_protected_for_ever);
    groups
        .into_iter()
        .map(|(owner, pods)| {
            Finding::new(
                Level::Warning,
                "do-not-disrupt-for-ever",
                owner,
                format!(
                    "{} annotated do-not-disrupt without an end: {} can be consolidated or drifted while they run",
                    if pods.len() == 1 { "1 pod is".to_owned() } else { format!("{} pods are", pods.len()) },
                    "no node of theirs"
                ),
                format!("{DO_NOT_DISRUPT}: \"true\" on {}", count(pods.len(), "active pod")),
            )
            .field(format!("metadata.annotations.{DO_NOT_DISRUPT}"))
            .suggest(format!(
                "{DO_NOT_DISRUPT}: \"4h\", which protects each pod for that long after its start; or a PodDisruptionBudget"
            ))
            .keeps(snapshot, &pods)
        })
        .collect()
}

fn annotation(pod: &PodView) -> Option<&str> {
    let annotations = pod.object.metadata.annotations.as_ref()?;
    annotations.get(DO_NOT_DISRUPT).map(String::as_str)
}

/// D-009, by the NodePool that the nodes are of.
fn protected_nodes(snapshot: &Snapshot) -> Vec<Finding> {
    let mut pools: BTreeMap<String, BTreeSet<NodeId>> = BTreeMap::new();
    for id in snapshot.node_ids() {
        let node = snapshot.node(id);
        let protected = node
            .annotations
            .get(DO_NOT_DISRUPT)
            .is_some_and(|value| value == "true");
        if node.is_managed() && protected {
            let pool = node.pool_name.clone().unwrap_or_default();
            pools.entry(pool).or_default().insert(id);
        }
    }
    let finding = |(pool, nodes): (String, BTreeSet<NodeId>)| {
        let by_template = snapshot
            .find_pool(&pool)
            .and_then(|id| {
                snapshot
                    .pool(id)
                    .object
                    .spec
                    .template
                    .metadata
                    .annotations
                    .get(DO_NOT_DISRUPT)
                    .cloned()
            })
            .is_some();
        let (field, suggestion) = if by_template {
            (
                format!("spec.template.metadata.annotations.{DO_NOT_DISRUPT}"),
                "take it out of the template, and off the nodes that have it: kubectl annotate node NAME karpenter.sh/do-not-disrupt-".to_owned(),
            )
        } else {
            (
                format!("metadata.annotations.{DO_NOT_DISRUPT}"),
                "kubectl annotate node NAME karpenter.sh/do-not-disrupt-".to_owned(),
            )
        };
        let mut finding = Finding::new(
            Level::Warning,
            "node-do-not-disrupt",
            format!("NodePool {pool}"),
            format!(
                "{} annotated do-not-disrupt: never consolidated nor drifted, whatever is on them",
                if nodes.len() == 1 {
                    "1 node is".to_owned()
                } else {
                    format!("{} nodes are", nodes.len())
                }
            ),
            format!("{DO_NOT_DISRUPT}: \"true\" on {}", count(nodes.len(), "node")),
        )
        .field(field)
        .suggest(suggestion);
        finding.keep_nodes(snapshot, &nodes);
        finding
    };
    pools.into_iter().map(finding).collect()
}

/// Pods without requests are packed as if they used nothing.
fn without_requests(snapshot: &Snapshot) -> Vec<Finding> {
    let missing = |pod: &PodView| {
        let requests = pod::requests(&pod.object);
        let missing: Vec<&str> = [ResourceName::CPU, ResourceName::MEMORY]
            .into_iter()
            .filter(|name| requests.get(name) == 0)
            .collect();
        missing
    };
    by_owner(snapshot, |pod| !missing(pod).is_empty())
        .into_iter()
        .map(|(owner, pods)| {
            let names = pods
                .first()
                .map(|id| missing(snapshot.pod(*id)))
                .unwrap_or_default();
            let names = names.join(" or ");
            Finding::new(
                Level::Note,
                "missing-requests",
                owner,
                format!("its pods request no {names}: nodes are packed as if they needed none"),
                format!(
                    "the requests of {} have no {names}",
                    count(pods.len(), "active pod")
                ),
            )
            .field("spec.containers[].resources.requests")
            .suggest("requests of what it uses: {cpu: 100m, memory: 128Mi}, for example")
        })
        .collect()
}
