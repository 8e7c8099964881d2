//! The twelve checks that make a node a candidate, in order; the first that fails is the reason (D §1.4).

use jiff::Timestamp;
use spokeshave_model::snapshot::{NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::{Event, EventType, ObjectKind, ObjectRef, Price, state_node};

/// How strictly pods that must not be disturbed are taken (D §0.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisruptionClass {
    /// Blocking pods always block: all consolidation methods.
    Graceful,
    /// Blocking pods are tolerated when the NodeClaim has a terminationGracePeriod: drift (D-029).
    Eventual,
}

/// The first check that a node failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ineligible {
    /// Check 1: part of a command in the queue.
    AlreadyDisrupting,
    /// Check 2: no NodeClaim.
    NotManaged,
    /// Check 3: no Node.
    NoNode,
    /// Check 4.
    NotInitialized,
    /// Check 5.
    Deleting,
    /// Check 6.
    Nominated,
    /// Check 7: the Node annotation.
    NodeDoNotDisrupt,
    /// Check 8.
    NoPoolLabel,
    /// Check 9: the pool is unknown or has no instance types.
    PoolNotFound(String),
    /// Check 10: a pod's annotation, by `namespace/name`.
    PodDoNotDisrupt(String),
    /// Check 11: a PodDisruptionBudget, by `namespace/name`.
    PodDisruptionBudget(String),
    /// Check 12: several PodDisruptionBudgets over one pod.
    MultiplePodDisruptionBudgets(Vec<String>),
}

impl std::fmt::Display for Ineligible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ineligible::AlreadyDisrupting => f.write_str("candidate is already being disrupted"),
            Ineligible::NotManaged => f.write_str("node isn't managed by karpenter"),
            Ineligible::NoNode => f.write_str("nodeclaim does not have an associated node"),
            Ineligible::NotInitialized => f.write_str("node isn't initialized"),
            Ineligible::Deleting => f.write_str("node is deleting or marked for deletion"),
            Ineligible::Nominated => f.write_str("node is nominated for a pending pod"),
            Ineligible::NodeDoNotDisrupt => {
                f.write_str("disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation")
            }
            Ineligible::NoPoolLabel => {
                f.write_str("node doesn't have required label (label=karpenter.sh/nodepool)")
            }
            Ineligible::PoolNotFound(pool) => write!(f, "NodePool not found (NodePool={pool})"),
            Ineligible::PodDoNotDisrupt(pod) => write!(
                f,
                "pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod={pod})"
            ),
            Ineligible::PodDisruptionBudget(budget) => {
                write!(f, "pdb prevents pod evictions (PodDisruptionBudget=[{budget}])")
            }
            Ineligible::MultiplePodDisruptionBudgets(budgets) => {
                write!(
                    f,
                    "eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])",
                    budgets.join(" ")
                )
            }
        }
    }
}

impl Ineligible {
    /// Whether checks 10–12 made it, which a terminationGracePeriod waives for the eventual class.
    pub fn is_about_pods(&self) -> bool {
        matches!(
            self,
            Ineligible::PodDoNotDisrupt(_)
                | Ineligible::PodDisruptionBudget(_)
                | Ineligible::MultiplePodDisruptionBudgets(_)
        )
    }
}

/// A node that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Its pool.
    pub pool: PoolId,
    /// What it costs; zero when unknown (D-032).
    pub price: Price,
    /// Reschedule disruption cost in units of 2^-27 (D-052).
    pub disruption_cost: i64,
    /// Its reschedulable pods.
    pub pods: Vec<PodId>,
}

/// All candidates of a class, in node order, and for each other node the first blocker.
pub fn candidates(
    snapshot: &Snapshot,
    class: DisruptionClass,
    now: Timestamp,
) -> (Vec<Candidate>, Vec<(NodeId, Ineligible)>) {
    let mut passed = Vec::new();
    let mut blocked = Vec::new();
    for node in snapshot.node_ids() {
        match candidate(snapshot, node, class, now) {
            Ok(candidate) => passed.push(candidate),
            Err(blocker) => blocked.push((node, blocker)),
        }
    }
    (passed, blocked)
}

/// D-022: runs the checks for one node.
pub fn candidate(
    snapshot: &Snapshot,
    node: NodeId,
    class: DisruptionClass,
    now: Timestamp,
) -> Result<Candidate, Ineligible> {
    let view = snapshot.node(node);
    if view.in_command {
        return Err(Ineligible::AlreadyDisrupting);
    }
    let claim = view.claim.as_ref().ok_or(Ineligible::NotManaged)?;
    if view.node.is_none() {
        return Err(Ineligible::NoNode);
    }
    if !view.initialized {
        return Err(Ineligible::NotInitialized);
    }
    if view.marked_for_deletion {
        return Err(Ineligible::Deleting);
    }
    if view.is_nominated(now) {
        return Err(Ineligible::Nominated);
    }
    if state_node::is_protected(view) {
        return Err(Ineligible::NodeDoNotDisrupt);
    }
    let pool_name = view.pool_name.as_ref().ok_or(Ineligible::NoPoolLabel)?;
    let known = view.pool.filter(|pool| {
        let pool = snapshot.pool(*pool);
        pool.supported && !pool.instance_types.is_empty()
    });
    let pool = known.ok_or_else(|| Ineligible::PoolNotFound(pool_name.clone()))?;
    let waived = class == DisruptionClass::Eventual && claim.spec.termination_grace_period.is_some();
    if !waived {
        check_pods(snapshot, &view.pods, now)?;
    }
    Ok(Candidate {
        node,
        pool,
        price: view.price,
        disruption_cost: snapshot.disruption_cost(node),
        pods: view
            .pods
            .iter()
            .copied()
            .filter(|pod| snapshot.pod(*pod).reschedulable)
            .collect(),
    })
}

/// Checks 10 to 12 (D-014, D-017…D-021).
fn check_pods(snapshot: &Snapshot, pods: &[PodId], now: Timestamp) -> Result<(), Ineligible> {
    let protected = pods
        .iter()
        .map(|pod| snapshot.pod(*pod))
        .find(|pod| pod.active && pod.do_not_disrupt.is_active(now));
    if let Some(pod) = protected {
        return Err(Ineligible::PodDoNotDisrupt(pod.key()));
    }
    let mut several = None;
    for pod in pods {
        let budgets = snapshot.blocking_budgets(*pod, now);
        let name = |index: usize| {
            let budget = &snapshot.budgets[budgets[index].index()];
            format!("{}/{}", budget.namespace, budget.name)
        };
        match budgets.len() {
            0 => {}
            1 => return Err(Ineligible::PodDisruptionBudget(name(0))),
            count => {
                several.get_or_insert_with(|| (0..count).map(name).collect::<Vec<_>>());
            }
        }
    }
    several.map_or(Ok(()), |budgets| {
        Err(Ineligible::MultiplePodDisruptionBudgets(budgets))
    })
}

/// Capitalises the first letter, as events do.
pub(crate) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}

/// The Node and the NodeClaim of a node, as far as they exist.
pub(crate) fn objects(snapshot: &Snapshot, node: NodeId) -> Vec<ObjectRef> {
    let view = snapshot.node(node);
    let node = view.node.as_ref().map(|node| (ObjectKind::Node, &node.metadata));
    let claim = view
        .claim
        .as_ref()
        .map(|claim| (ObjectKind::NodeClaim, &claim.metadata));
    let reference = |(kind, meta): (
        ObjectKind,
        &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    )| {
        ObjectRef::cluster(
            kind,
            meta.name.as_deref().unwrap_or(""),
            meta.uid.as_deref().unwrap_or(""),
        )
    };
    node.into_iter().chain(claim).map(reference).collect()
}

/// The `DisruptionBlocked` events of a blocked node: none for checks 1 and 2, the NodeClaim only for check 3 (D §1.4).
pub fn blocked_events(snapshot: &Snapshot, node: NodeId, blocker: &Ineligible) -> Vec<Event> {
    if matches!(blocker, Ineligible::AlreadyDisrupting | Ineligible::NotManaged) {
        return Vec::new();
    }
    let message = capitalised(&blocker.to_string());
    let event = |object| Event::new(object, EventType::Normal, "DisruptionBlocked", message.clone());
    objects(snapshot, node).into_iter().map(event).collect()
}
