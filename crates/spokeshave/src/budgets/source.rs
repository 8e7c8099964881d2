//! Where NodePools and their node counts come from: files, or the cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde_json::Value;
use spokeshave_api::{DisruptionPolicy, DisruptionReason, NodeClaim, NodePool, NodePoolSpec};
use spokeshave_model::{ClusterState, lower};
use spokeshave_plan::budget_lint::NodeCounts;
use spokeshave_plan::disrupt::BudgetMapping;
use spokeshave_plan::disruption_policy::forecast::PoolNodes;

use crate::cluster::Cluster;
use crate::connection::ClusterArgs;
use crate::lines::Lines;
use crate::plan::dump::Dump;
use crate::plan::schema::{self, Refused};
use crate::plan::world::is_outdated;
use crate::plan::{Written, files, live, twice};
use crate::text::{count as counted, say};

/// What is listed beside NodePools, and whether a cluster may lack it: one of upstream's knows no policies.
const BESIDE: [(&str, bool); 3] = [
    ("/api/v1/nodes", false),
    ("/apis/karpenter.sh/v1/nodeclaims", false),
    ("/apis/spokeshave.dev/v1alpha1/disruptionpolicies", true),
];

/// What was found.
pub(crate) struct Found {
    /// NodePools, by name.
    pub(crate) pools: Vec<Pool>,
    /// DisruptionPolicies, by name.
    pub(crate) policies: Vec<Arc<DisruptionPolicy>>,
    /// DisruptionPolicies of files that an API server would refuse: no cluster ever has them.
    pub(crate) refused: Vec<Refused>,
}

/// One NodePool as written.
pub(crate) struct Pool {
    /// Its name.
    pub(crate) name: String,
    /// The whole object.
    pub(crate) object: Value,
    /// Its nodes; absent when a file says nothing about nodes.
    pub(crate) counts: Option<NodeCounts>,
    /// Nodes that percentages of policies are taken of: those that join, too. Absent as `counts` is.
    pub(crate) managed: Option<usize>,
    /// The file it is from, with the lines of its fields.
    pub(crate) origin: Option<Origin>,
}

/// Where a NodePool is written.
pub(crate) struct Origin {
    /// The file's name, as given.
    pub(crate) file: String,
    /// The lines of its fields.
    pub(crate) lines: Lines,
}

/// Reads NodePools, and Nodes and NodeClaims where there are any. A NodePool is read as it was written, because one that cannot be typed needs
/// the linter most; another object that cannot be read is named on standard error, with what it counts as.
///
/// # Errors
/// Names the file and what is wrong with it; there is no NodePool of karpenter.sh/v1.
pub(crate) fn from_files(paths: &[PathBuf], now: Timestamp) -> Result<Found> {
    let mut dump = files::read(paths)?;
    name_unreadable(&dump);
    let mut refused = schema::refused(&dump.written);
    refused.retain(|one| one.kind == DisruptionPolicy::KIND);
    let is_refused = |policy: &DisruptionPolicy| refused.iter().any(|one| one.name == policy.name());
    dump.disruption_policies.retain(|policy| !is_refused(policy));
    if let Some(note) = twice::keep_last_written(&mut dump) {
        say(&format!("note: {note}"));
    }
    let outdated = outdated(&dump.written);
    let mut pools: Vec<Pool> = Vec::new();
    for written in dump.written.into_iter().filter(Written::is_node_pool) {
        let name = written.name().to_owned();
        // Of two objects with one name the later one counts, as after an apply.
        pools.retain(|known| known.name != name);
        pools.push(Pool {
            name,
            object: written.object,
            counts: None,
            managed: None,
            origin: Some(Origin {
                file: written.file,
                lines: written.lines,
            }),
        });
    }
    match (pools.is_empty(), outdated) {
        (true, Some(outdated)) => {
            bail!(
                "there is no NodePool of karpenter.sh/v1, but {outdated}: `spokeshave convert -f FILE` makes them karpenter.sh/v1"
            )
        }
        (true, None) => bail!("there is no NodePool"),
        (false, Some(outdated)) => say(&format!(
            "note: {outdated} left out: `spokeshave convert -f FILE` makes them karpenter.sh/v1"
        )),
        (false, None) => {}
    }
    if !dump.nodes.is_empty() || !dump.node_claims.is_empty() {
        count(&mut pools, dump.nodes, dump.node_claims, now);
    }
    pools.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(Found {
        pools,
        policies: by_name(dump.disruption_policies),
        refused,
    })
}

/// Names objects that cannot be read on standard error, with what they count as. NodePools are not among them: they are read as they were written.
fn name_unreadable(dump: &Dump) {
    for unreadable in dump.unreadable.iter().filter(|one| one.kind != "NodePool") {
        say(&format!(
            "note: {}",
            unreadable.note("counted as if it were absent")
        ));
    }
}

/// `2 NodePools of karpenter.sh/v1beta1`, of versions that are no longer served.
fn outdated(written: &[Written]) -> Option<String> {
    let mut found: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for one in written.iter().filter(|one| is_outdated(&one.api_version)) {
        *found.entry((&one.api_version, &one.kind)).or_default() += 1;
    }
    let texts = found
        .into_iter()
        .map(|((version, kind), number)| format!("{} of {version}", counted(number, kind)));
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(" and "))
}

/// Lists NodePools, Nodes and NodeClaims; with the instant that counts, by default the cluster's.
///
/// # Errors
/// The cluster cannot be reached, or it refuses.
pub(crate) async fn from_cluster(
    cluster: &ClusterArgs,
    now: Option<Timestamp>,
) -> Result<(Found, Timestamp)> {
    let cluster = Cluster::reach(cluster).await?;
    let now = now.unwrap_or(cluster.now);
    Ok((listed(&cluster.client, now).await?, now))
}

/// The lists of a cluster. An object that cannot be read is named on standard error, and does not count.
pub(super) async fn listed(client: &Client, now: Timestamp) -> Result<Found> {
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(NodePool::GROUP, NodePool::VERSION, NodePool::KIND),
        NodePool::PLURAL,
    );
    // As written, so that a pool accepted by an older schema is checked too.
    let written: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let mut pools = Vec::new();
    for object in written
        .list(&ListParams::default())
        .await
        .context("cannot list NodePools")?
    {
        pools.push(Pool {
            name: object.metadata.name.clone().unwrap_or_default(),
            object: serde_json::to_value(&object)?,
            counts: None,
            managed: None,
            origin: None,
        });
    }
    let mut beside = Dump::default();
    for (path, optional) in BESIDE {
        live::add(&mut beside, client, path, optional).await?;
    }
    name_unreadable(&beside);
    count(&mut pools, beside.nodes, beside.node_claims, now);
    pools.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(Found {
        pools,
        policies: by_name(beside.disruption_policies),
        refused: Vec::new(),
    })
}

/// Of two objects with one name the later one counts, as after an apply.
fn by_name(policies: Vec<Arc<DisruptionPolicy>>) -> Vec<Arc<DisruptionPolicy>> {
    let named = policies
        .into_iter()
        .map(|policy| (policy.name().to_owned(), policy));
    named.collect::<BTreeMap<_, _>>().into_values().collect()
}

/// Fills in how many nodes each pool has, as the controllers count them (D-199, D-200).
fn count(pools: &mut [Pool], nodes: Vec<Arc<Node>>, claims: Vec<Arc<NodeClaim>>, now: Timestamp) {
    // Counting needs the pools' names only; what cannot be typed must not lose its count.
    let node_pools = pools
        .iter()
        .map(|pool| Arc::new(NodePool::new(&pool.name, NodePoolSpec::default())));
    let snapshot = lower(&ClusterState {
        node_pools: node_pools.collect(),
        nodes,
        node_claims: claims,
        ..ClusterState::default()
    });
    let mapping = BudgetMapping::build(&snapshot, &DisruptionReason::Empty, now);
    let counts: BTreeMap<&str, NodeCounts> = mapping
        .pools
        .iter()
        .map(|(id, budget)| {
            let counts = NodeCounts {
                nodes: budget.nodes,
                disrupting: budget.disrupting,
            };
            (snapshot.pool(*id).name.as_str(), counts)
        })
        .collect();
    let managed = PoolNodes::counted(&snapshot).into_iter();
    let managed: BTreeMap<String, usize> = managed.map(|pool| (pool.name, pool.nodes)).collect();
    for pool in pools {
        let name = pool.name.as_str();
        pool.counts = Some(counts.get(name).copied().unwrap_or_default());
        pool.managed = Some(managed.get(name).copied().unwrap_or_default());
    }
}
