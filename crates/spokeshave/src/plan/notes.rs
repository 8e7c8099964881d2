//! What is said of a dump before anything is decided: what was skipped, what cannot be read, and which kinds are missing beside those that are there.
//!
//! It only counts and names: what is assumed instead is the business of `world` and `workloads`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::labels;
use spokeshave_plan::report::some_of;

use super::dump::Dump;
use super::world::Origin;
use crate::text::count;

/// Sentences about any dump.
pub(super) fn notes(dump: &Dump, origin: Origin) -> Vec<String> {
    let mut notes = Vec::new();
    for unreadable in &dump.unreadable {
        notes.push(unreadable.note("planned as if it were absent"));
    }
    // Not read here, but reported by `explain`.
    let told = ["VolumeAttachment", "Disruption", "Event"];
    let skipped = dump
        .skipped
        .iter()
        .filter(|((kind, _), _)| !told.contains(&kind.as_str()));
    for ((kind, version), number) in skipped {
        let objects = count(*number, "object");
        notes.push(format!(
            "skipped {objects} of kind {kind} ({version}), which no decision reads"
        ));
    }
    for ((kind, version), names) in &dump.outdated {
        let objects = count(names.len(), "object");
        notes.push(format!(
            "skipped {objects} of kind {kind} ({version}): `spokeshave convert -f FILE` makes them the version that is read"
        ));
    }
    let waiting: Vec<&str> = dump
        .node_claims
        .iter()
        .filter(|claim| claim.provider_id().is_none() && !claim.is_deleting())
        .map(|claim| claim.name())
        .collect();
    if !waiting.is_empty() {
        let (have, them) = if waiting.len() == 1 {
            ("has", "it")
        } else {
            ("have", "them")
        };
        notes.push(format!(
            "{} {have} no instance yet ({}): pods that wait for {them} are planned again",
            count(waiting.len(), "NodeClaim"),
            some_of(&waiting, 3)
        ));
    }
    notes.extend(orphans(dump, origin));
    notes
}

/// Kinds that the files of a dump lack and whose absence changes what is said of its nodes.
pub(super) fn gaps(dump: &Dump) -> Vec<String> {
    let mut notes = Vec::new();
    let claimed: BTreeSet<&str> = dump
        .node_claims
        .iter()
        .filter_map(|claim| claim.provider_id())
        .collect();
    let is_unclaimed = |node: &Node| {
        label(node, labels::NODE_POOL).is_some() && provider_id(node).is_some_and(|id| !claimed.contains(id))
    };
    let unclaimed = dump.nodes.iter().filter(|node| is_unclaimed(node)).count();
    if unclaimed > 0 {
        let have = if unclaimed == 1 { "has" } else { "have" };
        notes.push(format!(
            "{} {have} a NodePool's label and no NodeClaim that can be read: taken as not managed; `kubectl get nodeclaims -o yaml` has what is missing",
            count(unclaimed, "node")
        ));
    }
    // A node that has only just joined may well be empty, and one that is managed counts for nothing before it has a provider ID.
    let has_joined = |node: &Node| {
        label(node, labels::NODE_POOL).is_none()
            || (label(node, labels::INITIALIZED) == Some("true") && provider_id(node).is_some())
    };
    if dump.pods.is_empty() && dump.nodes.iter().any(|node| has_joined(node)) {
        notes.push(
            "no Pod that can be read is in the file: every node counts as empty; `kubectl get pods -A -o yaml` has what is missing"
                .to_owned(),
        );
    }
    notes
}

/// Nodes whose NodePool is not there, without those that go, as they do when it was deleted.
fn orphans(dump: &Dump, origin: Origin) -> Vec<String> {
    let pools: BTreeSet<&str> = dump.node_pools.iter().map(|pool| pool.name()).collect();
    let going: BTreeSet<&str> = dump
        .node_claims
        .iter()
        .filter(|claim| claim.is_deleting())
        .filter_map(|claim| claim.provider_id())
        .collect();
    let goes = |node: &Node| {
        node.metadata.deletion_timestamp.is_some() || provider_id(node).is_some_and(|id| going.contains(id))
    };
    let mut orphans: BTreeMap<&str, usize> = BTreeMap::new();
    for node in dump.nodes.iter().filter(|node| !goes(node)) {
        let pool = label(node, labels::NODE_POOL);
        if let Some(pool) = pool.filter(|pool| !pools.contains(pool)) {
            *orphans.entry(pool).or_default() += 1;
        }
    }
    let note = |(pool, number): (&str, usize)| {
        let (belong, they_are) = if number == 1 {
            ("belongs", "it is")
        } else {
            ("belong", "they are")
        };
        let (missing, price) = match origin {
            Origin::Files { .. } | Origin::Scenario { .. } => (
                "which is not in the file",
                ", with no price but what a NodeClaim says",
            ),
            Origin::Cluster => ("which does not exist", ""),
        };
        format!(
            "{} {belong} to NodePool {pool}, {missing}: {they_are} in no consolidation or drift{price}",
            count(number, "node")
        )
    };
    orphans.into_iter().map(note).collect()
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    let labels = node.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

fn provider_id(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref();
    id.filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::dump::read;

    /// What is deleted with its NodePool does not stay, and what stays may yet expire.
    #[test]
    fn nodes_that_go_with_their_nodepool_are_not_said_to_stay() {
        let node = |name: &str| {
            format!(
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{karpenter.sh/nodepool: gone}}}}\nspec: {{providerID: 'kwok://{name}'}}\n"
            )
        };
        let claim = |name: &str, deleted: &str| {
            format!(
                "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: {name}{deleted}}}\n\
                 spec: {{requirements: [], nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}\n\
                 status: {{providerID: 'kwok://{name}'}}\n"
            )
        };
        let since = ", deletionTimestamp: '2026-01-01T00:00:00Z'";
        let said = |text: String| {
            let dump = read("test", text.as_bytes()).expect("a dump");
            notes(&dump, Origin::Cluster)
        };
        let both = [node("a"), node("b"), claim("a", since)].concat();
        assert_eq!(
            said(both + &claim("b", "")),
            ["1 node belongs to NodePool gone, which does not exist: it is in no consolidation or drift"]
        );
        assert!(said(node("a") + &claim("a", since)).is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_not_called_absent_and_a_node_that_counts_for_nothing_not_unmanaged() {
        let said = |text: String| gaps(&read("test", text.as_bytes()).expect("a dump"));
        let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: a, labels: {karpenter.sh/nodepool: p, karpenter.sh/initialized: 'true'}}\n";
        let beside = "---\napiVersion: karpenter.sh/v1beta1\nkind: NodeClaim\nmetadata: {name: a}\n\
                      ---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: 7}\n";
        assert!(said(node.to_owned() + beside).is_empty());
        let notes = said(node.to_owned() + "spec: {providerID: 'kwok://a'}\n" + beside);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("no NodeClaim that can be read"), "{notes:?}");
        assert!(notes[1].contains("no Pod that can be read"), "{notes:?}");
    }
}
