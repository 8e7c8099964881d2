//! What-ifs: objects assumed away, and the decisions made again, on a copy.
//!
//! A what-if changes the objects as a person would change them, and asks the same functions as ever; so its answer is the answer of `plan` to a dump in which
//! they were really changed. Blockers that no change of an object removes (prices, unavailable types) cannot be assumed away.

use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use spokeshave_api::conditions::{CONSOLIDATABLE, Conditioned as _, Status};
use spokeshave_api::{Budget, ConsolidationPolicy, NillableDuration, NodeClaim, NodePool, labels};
use spokeshave_model::{ClusterState, Pod};
use spokeshave_plan::Policy;
use spokeshave_plan::consolidatable::with_condition;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Most things in one what-if: the pods of a full node, all of which may keep it.
pub const MOST_SUPPOSED: usize = 256;

/// Objects and blockers that are assumed away together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supposition {
    lifted: Vec<Lifted>,
    gone: Vec<Gone>,
}

/// A blocker that is assumed away, as `PodDoNotDisrupt:Pod/shop/web-1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lifted {
    code: Code,
    object: String,
}

/// Something that is gone, as `Node/x` or `Zone/a`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gone {
    Node(String),
    Zone(String),
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident: $kind:literal,)*) => {
        /// What can be assumed away, by the code of its blocker.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            fn parse(text: &str) -> Option<Self> {
                match text {
                    $(stringify!($name) => Some(Code::$name),)*
                    _ => None,
                }
            }

            fn as_str(self) -> &'static str {
                match self {
                    $(Code::$name => stringify!($name),)*
                }
            }

            /// The kind of its object.
            fn kind(self) -> &'static str {
                match self {
                    $(Code::$name => $kind,)*
                }
            }
        }
    };
}

codes! {
    /// The annotation is not there.
    PodDoNotDisrupt: "Pod",
    /// The pod is not there.
    Pod: "Pod",
    /// The PodDisruptionBudget is not there.
    PodDisruptionBudget: "PodDisruptionBudget",
    /// The annotation is not there.
    NodeDoNotDisrupt: "Node",
    /// It is `0s`, and has passed.
    ConsolidationDisabled: "NodePool",
    /// It is WhenEmptyOrUnderutilized.
    ConsolidationPolicy: "NodePool",
    /// The same.
    Score: "NodePool",
    /// It has passed.
    ConsolidateAfter: "Node",
    /// It has passed on every node that has one.
    Neighbours: "Node",
    /// All nodes at once.
    Budget: "NodePool",
    /// There is none.
    DisruptionPolicy: "NodePool",
    /// There are none.
    Limits: "NodePool",
    /// There are none.
    MinValues: "NodePool",
    /// It is on.
    SpotToSpotDisabled: "Node",
}

/// A what-if that cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuppositionError {
    /// The text is none.
    #[error("{0:?} cannot be assumed away: expected CODE:KIND/NAME, such as PodDoNotDisrupt:Pod/shop/web-1")]
    Without(String),
    /// The text is none.
    #[error("{0:?} cannot be gone: expected Node/NAME or Zone/NAME")]
    Gone(String),
    /// The object is not there.
    #[error("{0} is not in the cluster (any more)")]
    Absent(String),
    /// Too many.
    #[error("{0} things at once; {MOST_SUPPOSED} are enough")]
    TooMany(usize),
}

impl FromStr for Lifted {
    type Err = SuppositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || SuppositionError::Without(text.to_owned());
        let (code, object) = text.split_once(':').ok_or_else(fail)?;
        let code = Code::parse(code).ok_or_else(fail)?;
        let name = object
            .strip_prefix(code.kind())
            .and_then(|rest| rest.strip_prefix('/'))
            .filter(|name| !name.is_empty())
            .ok_or_else(fail)?;
        Ok(Self {
            code,
            object: name.to_owned(),
        })
    }
}

impl fmt::Display for Lifted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.code.as_str(), self.code.kind(), self.object)
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gone::Node(name) => write!(f, "Node/{name}"),
            Gone::Zone(name) => write!(f, "Zone/{name}"),
        }
    }
}

/// The name of a toggle for a blocker; none if it cannot be assumed away.
pub(crate) fn key(code: &str, object: &str) -> Option<String> {
    let code = Code::parse(code)?;
    let (kind, name) = object.split_once(' ')?;
    (kind == code.kind()).then(|| format!("{}:{kind}/{name}", code.as_str()))
}

/// Other NodePools that the policies select which a toggle lifts, by name.
pub(crate) fn pools_beside(state: &ClusterState, key: &str) -> Vec<String> {
    let lifted = key.parse::<Lifted>().ok();
    let Some(lifted) = lifted.filter(|lifted| lifted.code == Code::DisruptionPolicy) else {
        return Vec::new();
    };
    let Some(pool) = state.node_pools.iter().find(|pool| pool.name() == lifted.object) else {
        return Vec::new();
    };
    let policies = state.disruption_policies.iter();
    let policies: Vec<_> = policies.filter(|policy| policy.selects_pool(pool)).collect();
    let others = state.node_pools.iter().filter(|other| {
        other.name() != pool.name() && policies.iter().any(|policy| policy.selects_pool(other))
    });
    let names: BTreeSet<String> = others.map(|other| other.name().to_owned()).collect();
    names.into_iter().collect()
}

impl Supposition {
    /// Reads the values of `without=` and `gone=`.
    ///
    /// # Errors
    /// A value cannot be assumed away, or there are too many.
    pub fn parse<'a>(
        without: impl IntoIterator<Item = &'a str>,
        gone: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, SuppositionError> {
        let lifted: BTreeSet<Lifted> = without.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        let gone: BTreeSet<Gone> = gone
            .into_iter()
            .map(|text| match text.split_once('/') {
                Some(("Node", name)) if !name.is_empty() => Ok(Gone::Node(name.to_owned())),
                Some(("Zone", name)) if !name.is_empty() => Ok(Gone::Zone(name.to_owned())),
                _ => Err(SuppositionError::Gone(text.to_owned())),
            })
            .collect::<Result<_, _>>()?;
        if lifted.len() + gone.len() > MOST_SUPPOSED {
            return Err(SuppositionError::TooMany(lifted.len() + gone.len()));
        }
        Ok(Self {
            lifted: lifted.into_iter().collect(),
            gone: gone.into_iter().collect(),
        })
    }

    /// Nothing is assumed away.
    pub fn is_empty(&self) -> bool {
        self.lifted.is_empty() && self.gone.is_empty()
    }

    /// How many things are.
    pub fn len(&self) -> usize {
        self.lifted.len() + self.gone.len()
    }

    /// The same as values of `without=`.
    pub fn without(&self) -> Vec<String> {
        self.lifted.iter().map(ToString::to_string).collect()
    }

    /// The same as values of `gone=`.
    pub fn gone(&self) -> Vec<String> {
        self.gone.iter().map(ToString::to_string).collect()
    }

    /// The world as it would be, and what could not be assumed away because it is not there, as values of `without=` and `gone=`. What is not there any more
    /// only because something else of it is assumed away (a policy that selects two NodePools, the last machine of a zone) is there.
    ///
    /// # Errors
    /// None of it is there.
    pub fn apply(
        &self,
        before: &World,
        settings: &Policy,
    ) -> Result<(World, Policy, Vec<String>), SuppositionError> {
        let (mut world, mut policy) = (before.clone(), settings.clone());
        let now = before.now;
        // The value of each, and what it names.
        let mut absent: Vec<(String, String)> = Vec::new();
        for one in &self.lifted {
            let is_there = lift(one, &mut world.state, &mut policy, now)
                || lift(one, &mut before.state.clone(), &mut settings.clone(), now);
            if !is_there {
                absent.push((one.to_string(), format!("{} {}", one.code.kind(), one.object)));
            }
        }
        for one in &self.gone {
            let is_there = take(one, &mut world.state, now) || take(one, &mut before.state.clone(), now);
            match one {
                Gone::Node(_) if is_there => {}
                // Also where all of its machines have gone by themselves already.
                Gone::Zone(zone) if is_there => close(zone, &mut world.state),
                Gone::Node(name) => absent.push((one.to_string(), format!("Node {name}"))),
                Gone::Zone(name) => absent.push((one.to_string(), format!("zone {name} with a node"))),
            }
        }
        if absent.len() == self.len()
            && let Some((_, first)) = absent.first()
        {
            return Err(SuppositionError::Absent(first.clone()));
        }
        let absent = absent.into_iter().map(|(value, _)| value);
        Ok((world, policy, absent.collect()))
    }
}

fn lift(one: &Lifted, state: &mut ClusterState, policy: &mut Policy, now: Timestamp) -> bool {
    let name = one.object.as_str();
    match one.code {
        Code::PodDoNotDisrupt => edit(
            &mut state.pods,
            |pod| is_pod(pod, name),
            |pod| {
                unprotect(&mut pod.metadata);
            },
        ),
        Code::Pod => remove(&mut state.pods, |pod| is_pod(pod, name)),
        Code::PodDisruptionBudget => remove(&mut state.pod_disruption_budgets, |budget| {
            is_named(&budget.metadata, name)
        }),
        Code::NodeDoNotDisrupt => {
            let id = provider_id(state, name);
            edit(
                &mut state.node_claims,
                |claim| id.as_deref().is_some_and(|id| claim.provider_id() == Some(id)),
                |claim| unprotect(&mut claim.metadata),
            );
            edit(
                &mut state.nodes,
                |node| node.metadata.name.as_deref() == Some(name),
                |node| unprotect(&mut node.metadata),
            )
        }
        Code::ConsolidationDisabled => {
            settle(state, now, |claim| claim.node_pool() == Some(name));
            pool(state, name, |pool| {
                pool.spec.disruption.consolidate_after = NillableDuration::zero();
            })
        }
        Code::ConsolidationPolicy | Code::Score => pool(state, name, |pool| {
            pool.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
        }),
        Code::ConsolidateAfter => {
            let id = provider_id(state, name);
            settle(state, now, |claim| {
                id.as_deref().is_some_and(|id| claim.provider_id() == Some(id))
            })
        }
        Code::Neighbours => {
            let pools = &state.node_pools;
            edit(&mut state.node_claims, |_| true, |claim| rest(claim, pools, now))
        }
        Code::Budget => pool(state, name, |pool| {
            pool.spec.disruption.budgets = Some(vec![Budget::always("100%")]);
        }),
        Code::DisruptionPolicy => lift_policies(state, name),
        Code::Limits => pool(state, name, |pool| pool.spec.limits = None),
        Code::MinValues => pool(state, name, |pool| {
            for requirement in &mut pool.spec.template.spec.requirements {
                requirement.min_values = None;
            }
        }),
        Code::SpotToSpotDisabled => {
            policy.disrupt.spot_to_spot = true;
            true
        }
    }
}

/// Policies that select a NodePool are gone, for all that they select: which of them is in the way the blocker does not say.
fn lift_policies(state: &mut ClusterState, pool: &str) -> bool {
    let Some(pool) = state.node_pools.iter().find(|one| one.name() == pool) else {
        return false;
    };
    let policies = &mut state.disruption_policies;
    remove(policies, |policy| policy.selects_pool(pool))
}

/// Takes machines away; false when there is none of them.
fn take(one: &Gone, state: &mut ClusterState, now: Timestamp) -> bool {
    let machines = machines(state, one);
    let is_one = |id: Option<&str>| id.is_some_and(|id| machines.contains(id));
    let is_going = |node: &Arc<Node>| is_meant(&node.metadata, one) || is_one(id_of(node));
    let nodes = std::mem::take(&mut state.nodes).into_iter();
    let (going, staying): (Vec<_>, Vec<_>) = nodes.partition(is_going);
    state.nodes = staying;
    let before = state.node_claims.len();
    state.node_claims.retain(|claim| !is_one(claim.provider_id()));
    if going.is_empty() && state.node_claims.len() == before {
        return false;
    }
    let names = going.iter().filter_map(|node| node.metadata.name.as_deref());
    let names: BTreeSet<&str> = names.collect();
    // Pods that wait for a machine which has not joined are on its stand-in.
    let on_it = |pod: &Arc<Pod>| {
        let node = spokeshave_model::pod::node_name(pod);
        node.is_some_and(|node| names.contains(node) || machines.contains(node))
    };
    // Those of DaemonSets and of the node itself go with it, and so do those that have finished or are being deleted; the others come back and wait.
    state.pods.retain(|pod| {
        let comes_back = spokeshave_model::pod::is_active(pod)
            && !spokeshave_model::pod::is_daemon(pod)
            && !spokeshave_model::pod::is_mirror(pod);
        !on_it(pod) || comes_back
    });
    edit(&mut state.pods, on_it, |pod| unbind(pod, now));
    true
}

/// Nothing can be launched in a zone.
fn close(zone: &str, state: &mut ClusterState) {
    for types in state.instance_types.values_mut().flatten() {
        *types = types
            .iter()
            .cloned()
            .map(|mut one| {
                for offering in &mut one.offerings {
                    let there = offering.requirements.find(labels::ZONE);
                    offering.available &= !there.is_some_and(|there| there.has(zone));
                }
                one
            })
            .collect();
    }
}

/// The provider IDs of the machines that are meant: of Nodes, and of NodeClaims, whose names machines bear until they have joined.
fn machines(state: &ClusterState, one: &Gone) -> BTreeSet<String> {
    let nodes = state.nodes.iter().filter(|node| is_meant(&node.metadata, one));
    let claims = state
        .node_claims
        .iter()
        .filter(|claim| is_meant(&claim.metadata, one));
    let ids = nodes.filter_map(|node| id_of(node));
    let ids = ids.chain(claims.filter_map(|claim| claim.provider_id()));
    ids.map(str::to_owned).collect()
}

fn is_meant(meta: &ObjectMeta, one: &Gone) -> bool {
    let label = |key: &str| meta.labels.as_ref()?.get(key);
    match one {
        Gone::Node(name) => meta.name.as_ref() == Some(name),
        Gone::Zone(zone) => label(labels::ZONE) == Some(zone),
    }
}

fn id_of(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref();
    id.filter(|id| !id.is_empty())
}

/// As if the scheduler had just found no place for it.
fn unbind(pod: &mut Pod, now: Timestamp) {
    pod.node_name = None;
    let status = pod.status.get_or_insert_default();
    status.phase = Some("Pending".to_owned());
    status.nominated_node_name = None;
    status.conditions = Some(vec![PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        last_transition_time: Some(Time(now)),
        ..PodCondition::default()
    }]);
}

/// Changes those that are meant; false when there is none.
fn edit<K: Clone>(
    objects: &mut [Arc<K>],
    is_meant: impl Fn(&Arc<K>) -> bool,
    change: impl Fn(&mut K),
) -> bool {
    let mut found = false;
    for object in objects.iter_mut().filter(|object| is_meant(object)) {
        change(Arc::make_mut(object));
        found = true;
    }
    found
}

fn remove<K>(objects: &mut Vec<Arc<K>>, is_meant: impl Fn(&K) -> bool) -> bool {
    let before = objects.len();
    objects.retain(|object| !is_meant(object));
    objects.len() != before
}

fn pool(state: &mut ClusterState, name: &str, change: impl Fn(&mut NodePool)) -> bool {
    edit(&mut state.node_pools, |pool| pool.name() == name, change)
}

/// consolidateAfter has passed, also on nodes that have none (`Never`, not initialised): what the controller writes once it has.
fn settle(state: &mut ClusterState, now: Timestamp, is_meant: impl Fn(&NodeClaim) -> bool) -> bool {
    let pools = &state.node_pools;
    edit(
        &mut state.node_claims,
        |claim| is_meant(claim),
        |claim| {
            rest(claim, pools, now);
            claim.set(CONSOLIDATABLE, Status::True, CONSOLIDATABLE, "", now);
        },
    )
}

/// A node that is inside its consolidateAfter has just come out of it: pods came and went last so long ago that it takes those of consolidated nodes
/// (D-040, D-044), and the controller has written that it may go itself (D-041). Nodes that have no consolidateAfter stay as they are.
fn rest(claim: &mut NodeClaim, pools: &[Arc<NodePool>], now: Timestamp) {
    let pool = pools.iter().find(|pool| claim.node_pool() == Some(pool.name()));
    let Some(pool) = pool.map(|pool| &**pool) else {
        return;
    };
    let (_, left) = with_condition(claim, Some(pool), now);
    let window = pool.spec.disruption.consolidate_after.duration();
    // One that is out already has rested for longer: that is not taken from it, because moves that save little wait for it (W-61).
    if let Some(window) = window.filter(|_| left.is_some()) {
        let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
        let last = now.saturating_sub(window).unwrap_or(Timestamp::MIN);
        claim.status.get_or_insert_default().last_pod_event_time = Some(Time(last));
    }
    // What the controller has yet to take away, it takes away in any case.
    let (written, _) = with_condition(claim, Some(pool), now);
    if let Some(written) = written.filter(|written| written.is_true(CONSOLIDATABLE)) {
        *claim = written;
    }
}

fn unprotect(meta: &mut ObjectMeta) {
    if let Some(annotations) = meta.annotations.as_mut() {
        annotations.remove(labels::DO_NOT_DISRUPT);
    }
}

fn is_pod(pod: &Pod, name: &str) -> bool {
    spokeshave_model::pod::key(pod) == name
}

fn is_named(meta: &ObjectMeta, key: &str) -> bool {
    key.split_once('/').is_some_and(|(namespace, name)| {
        meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(name)
    })
}

fn provider_id(state: &ClusterState, node: &str) -> Option<String> {
    let node = state
        .nodes
        .iter()
        .find(|object| object.metadata.name.as_deref() == Some(node))?;
    node.spec.as_ref()?.provider_id.clone()
}
