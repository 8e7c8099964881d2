//! Why a pod found no place: values first, text in one place, in upstream's wording (P §6.3–6.6, §6.8).

use crate::constraints::{HostPort, PodProblem};
use crate::requirements::{Incompatibility, Requirements};
use crate::resources::Resources;
use std::collections::BTreeMap;
use std::fmt;

/// Which of the three facts about instance types failed (P §6.6). The order is that of the decision table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterFailure {
    /// minValues unmet: the counts reached per failing key.
    MinValues(BTreeMap<String, u32>),
    /// No type meets anything.
    Nothing,
    /// Neither requirements nor resources are met by any type.
    RequirementsOrResources,
    /// Neither requirements nor offerings are met by any type.
    RequirementsOrOffering,
    /// Neither resources nor offerings are met by any type.
    ResourcesOrOffering,
    /// No type meets the requirements.
    Requirements,
    /// No type is big enough. With a request of a million cores or more, milli and mega were probably confused.
    Resources {
        /// Whether to hint at `m` against `M`.
        cpu_typo: bool,
    },
    /// No type has the offering.
    Offering,
    /// Some type meets all but the offering.
    OnlyOfferingMissing,
    /// Some type meets all but the requirements.
    OnlyRequirementsMissing,
    /// Some type meets all but the resources.
    OnlyResourcesMissing,
    /// Each fact is met by some type, no two by the same.
    NoTuple,
}

impl fmt::Display for FilterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FilterFailure::MinValues(reached) => {
                let keys: Vec<&str> = reached.keys().map(String::as_str).collect();
                return write!(f, "minValues requirement is not met for label(s) (label(s)=[{}])", keys.join(" "));
            }
            FilterFailure::Nothing => "no instance type met the scheduling requirements or had enough resources or had a required offering",
            FilterFailure::RequirementsOrResources => "no instance type met the scheduling requirements or had enough resources",
            FilterFailure::RequirementsOrOffering => "no instance type met the scheduling requirements or had a required offering",
            FilterFailure::ResourcesOrOffering => "no instance type had enough resources or had a required offering",
            FilterFailure::Requirements => "no instance type met all requirements",
            FilterFailure::Resources { .. } => "no instance type has enough resources",
            FilterFailure::Offering => "no instance type has the required offering",
            FilterFailure::OnlyOfferingMissing => "no instance type which met the scheduling requirements and had enough resources, had a required offering",
            FilterFailure::OnlyRequirementsMissing => "no instance type which had enough resources and the required offering met the scheduling requirements",
            FilterFailure::OnlyResourcesMissing => "no instance type which met the scheduling requirements and the required offering had the required resources",
            FilterFailure::NoTuple => "no instance type met the requirements/resources/offering tuple",
        })
    }
}

/// Which rule of topology was in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopologyKind {
    /// A topology spread constraint.
    Spread,
    /// Pod affinity.
    Affinity,
    /// Pod anti-affinity, one's own or another pod's.
    AntiAffinity,
}

impl fmt::Display for TopologyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TopologyKind::Spread => "topology spread",
            TopologyKind::Affinity => "pod affinity",
            TopologyKind::AntiAffinity => "pod anti-affinity",
        })
    }
}

/// One thing in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// A taint that the pod does not tolerate, as `key[=value]:effect`.
    Taint(String),
    /// Labels.
    Incompatible(Incompatibility),
    /// Labels that the pod's volumes ask for.
    Volume(Incompatibility),
    /// A limit on volumes of one driver.
    VolumeLimit {
        /// The CSI driver.
        driver: String,
        /// Volumes there would be.
        count: i64,
        /// Volumes allowed.
        limit: i64,
    },
    /// A host port in use.
    HostPort(HostPort),
    /// An existing node has too little left.
    NodeResources,
    /// `limits.nodes` is used up.
    NodeLimit,
    /// Every type would exceed a limit.
    Limits,
    /// No instance type passes.
    InstanceTypes {
        /// Which facts failed.
        failure: FilterFailure,
        /// What was required.
        requirements: Requirements,
        /// The least that was requested over the groups of types with equal daemon overhead.
        min: Resources,
        /// The most.
        max: Resources,
    },
    /// Compatible reserved offerings exist, but none is left in this pass (P-119).
    ReservedOfferings,
    /// A topology rule has no domain left.
    Topology {
        /// Which rule.
        kind: TopologyKind,
        /// The label key of its domains.
        key: String,
        /// Pods counted per domain; at most 25 domains.
        counts: Vec<(String, u32)>,
        /// The domains the pod allows, as text of a requirement.
        pod_domains: String,
        /// The domains the node allows.
        node_domains: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Taint(taint) => write!(f, "did not tolerate taint (taint={taint})"),
            Obstacle::Incompatible(why) => write!(f, "incompatible requirements, {why}"),
            Obstacle::Volume(why) => write!(f, "incompatible volume requirements, {why}"),
            Obstacle::VolumeLimit { driver, count, limit } => write!(
                f,
                "checking volume usage, would exceed volume limit (provisioner={driver}, volume-count={count}, volume-limit={limit})"
            ),
            Obstacle::HostPort(port) => {
                write!(
                    f,
                    "checking host port usage, pod hostport conflicts with existing hostport configuration ({port})"
                )
            }
            Obstacle::NodeResources => f.write_str("exceeds node resources"),
            Obstacle::NodeLimit => f.write_str("node limits have been exhausted for nodepool"),
            Obstacle::ReservedOfferings => {
                write!(f, "{}", Reason::ReservedOfferings { would_remove: false })
            }
            Obstacle::Limits => f.write_str("all available instance types exceed limits for nodepool"),
            Obstacle::InstanceTypes {
                failure,
                requirements,
                min,
                max,
            } => {
                write!(f, "{failure}, requirements={requirements}, ")?;
                if min == max {
                    write!(f, "resources={}", max.to_json_text())?;
                } else {
                    write!(
                        f,
                        "resources=min={}, max={}",
                        min.to_json_text(),
                        max.to_json_text()
                    )?;
                }
                if matches!(failure, FilterFailure::Resources { cpu_typo: true }) {
                    f.write_str(" (CPU request >= 1 Million, m vs M typo?)")?;
                }
                Ok(())
            }
            Obstacle::Topology {
                kind,
                key,
                counts,
                pod_domains,
                node_domains,
            } => {
                let counts: Vec<String> = counts
                    .iter()
                    .map(|(domain, count)| format!("{domain}: {count}"))
                    .collect();
                write!(
                    f,
                    "unsatisfiable topology constraint for {kind}, key={key} (counts = {}, podDomains = {pod_domains}, nodeDomains = {node_domains})",
                    counts.join(", ")
                )
            }
        }
    }
}

/// What one NodePool said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolRefusal {
    /// The NodePool.
    pub pool: String,
    /// What was in the way.
    pub obstacle: Obstacle,
}

impl fmt::Display for PoolRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (NodePool={})", self.obstacle, self.pool)
    }
}

/// Why a pod has no place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It is not considered until changed (P-057).
    Problem(PodProblem),
    /// It needs Dynamic Resource Allocation (P-122).
    DynamicResources,
    /// There is no dynamic, ready NodePool (P-059).
    NoNodePools,
    /// NodePools there are, but their own requirements leave no instance type.
    NoTemplates,
    /// No NodePool could take it; each says why.
    Pools(Vec<PoolRefusal>),
    /// The NodeClaim it was on lost its minValues when truncated (P-064).
    TruncatedMinValues {
        /// The NodePool.
        pool: String,
        /// The keys and counts reached.
        failure: FilterFailure,
    },
    /// Reserved offerings exist but none could be reserved in this pass (P-119). Not reported to the user.
    ReservedOfferings {
        /// Whether the pod would take away those the NodeClaim already has.
        would_remove: bool,
    },
    /// It would land on a node that is still starting (P §6.18).
    Uninitialized {
        /// The NodeClaim's name.
        node_claim: String,
        /// The Node's name.
        node: String,
    },
    /// A rule that is not supported yet; the pod is refused rather than misplaced.
    Unsupported(&'static str),
}

impl Reason {
    /// Whether the user is told by an event. Pods that opted out are passed over in silence.
    pub fn is_reported(&self) -> bool {
        !matches!(
            self,
            Reason::Problem(PodProblem::OptedOut) | Reason::ReservedOfferings { .. }
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Problem(problem) => write!(f, "{problem}"),
            Reason::DynamicResources => f.write_str(
                "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter",
            ),
            Reason::NoNodePools => f.write_str("no dynamic nodepools found"),
            Reason::NoTemplates => f.write_str("nodepool requirements filtered out all available instance types"),
            Reason::Pools(refusals) => {
                let texts: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("; "))
            }
            Reason::TruncatedMinValues { pool, failure } => write!(
                f,
                "pod didn’t schedule because NodePool couldn’t meet minValues requirements, validating minValues, {failure} (NodePool={pool})"
            ),
            Reason::ReservedOfferings { would_remove: false } => f.write_str(
                "one or more instance types with compatible reserved offerings are available, but could not be reserved",
            ),
            Reason::ReservedOfferings { would_remove: true } => f.write_str(
                "satisfying updated nodeclaim constraints would remove all compatible reserved offering options",
            ),
            Reason::Uninitialized { node_claim, node } => {
                write!(f, "would schedule against uninitialized nodeclaim/{node_claim}, node/{node}")
            }
            Reason::Unsupported(what) => write!(f, "{what} is not supported yet"),
        }
    }
}
