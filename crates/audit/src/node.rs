//! The nodes that a plan leads to, spelled out: labels, taints, room, and what DaemonSets will take of it.

use crate::pods;
use spokeshave_model::constraints::HostPort;
use spokeshave_model::placement::{Launch, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PodId, PoolView, Snapshot};
use spokeshave_model::taint::Taint;
use spokeshave_model::{CapacityType, InstanceType, Offering, Requirement, Requirements, Resources, labels};
use std::collections::{BTreeMap, BTreeSet};

/// A node as the scheduler of Kubernetes would see it.
pub(crate) struct ConcreteNode {
    pub(crate) name: String,
    /// The label sets it may have: one for an existing node, one per offering for a planned one.
    pub(crate) possible_labels: Vec<BTreeMap<String, String>>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) allocatable: Resources,
    /// What residents and DaemonSets take.
    pub(crate) used: Resources,
    pub(crate) ports: Vec<HostPort>,
}

pub(crate) fn existing_node(snapshot: &Snapshot, node: NodeId, residents: &[PodId]) -> ConcreteNode {
    let view = snapshot.node(node);
    let mut used = Resources::new();
    let mut ports = Vec::new();
    for pod in residents {
        used.add(&snapshot.scheduler_profiles.requests(&snapshot.pod(*pod).object));
        ports.extend(snapshot.constraints(*pod).host_ports.iter().cloned());
    }
    let mut labels = view.labels.clone();
    labels.insert(labels::HOSTNAME.to_owned(), view.hostname.clone());
    // Affinity may ask for its name, as if that were a label.
    let name = view.node_name().map(labels::node_name_key);
    labels.extend(name.map(|name| (name, "true".to_owned())));
    ConcreteNode {
        name: view.name.clone(),
        possible_labels: vec![labels],
        taints: view.taints.clone(),
        allocatable: view.allocatable_resources.clone(),
        used,
        ports,
    }
}

/// One node per instance type the claim names; an error where a type cannot be launched at all.
pub(crate) fn claim_nodes(snapshot: &Snapshot, claim: &PlannedClaim) -> Vec<Result<ConcreteNode, String>> {
    claim
        .launches
        .iter()
        .map(|launch| claim_node(snapshot, claim, launch))
        .collect()
}

fn claim_node(snapshot: &Snapshot, claim: &PlannedClaim, launch: &Launch) -> Result<ConcreteNode, String> {
    let pool = snapshot.pool(claim.pool);
    let instance_type = &pool.instance_types[launch.instance_type];
    // A type fits if one of its allocatable groups does: check the largest available one.
    let mut found: Option<ConcreteNode> = None;
    for group in instance_type.allocatable_groups() {
        let offerings = group
            .offerings
            .iter()
            .map(|index| &instance_type.offerings[*index]);
        let usable: Vec<&Offering> = offerings
            .filter(|offering| can_buy(&claim.requirements, instance_type, offering))
            .collect();
        if usable.is_empty() {
            continue;
        }
        let possible: Vec<BTreeMap<String, String>> = usable
            .iter()
            .map(|offering| node_labels(snapshot, claim, instance_type, offering))
            .collect();
        let mut used = Resources::new();
        let mut ports = Vec::new();
        for daemon in &snapshot.daemons {
            let wanted = &daemon.constraints;
            let tolerated = pool
                .taints
                .iter()
                .filter(|taint| taint.effect != "PreferNoSchedule")
                .all(|taint| pods::tolerated(&wanted.tolerations, taint));
            let selected = possible
                .iter()
                .any(|labels| pods::constraints_match(wanted, labels));
            if tolerated && selected && !wanted.uses_resource_claims {
                used.add(&snapshot.resources.resources(&daemon.requests));
                ports.extend(wanted.host_ports.iter().cloned());
            }
        }
        let node = ConcreteNode {
            name: instance_type.name.clone(),
            possible_labels: possible,
            taints: pool.taints.clone(),
            allocatable: group.allocatable.clone(),
            used,
            ports,
        };
        let needed: Resources = claim.pods.iter().fold(node.used.clone(), |mut sum, pod| {
            sum.add(&snapshot.scheduler_profiles.requests(&snapshot.pod(*pod).object));
            sum
        });
        if found.is_none() || needed.fits(&node.allocatable) {
            found = Some(node);
        }
    }
    found.ok_or_else(|| {
        format!(
            "instance type {} has no available offering that the claim allows",
            instance_type.name
        )
    })
}

fn can_buy(wanted: &Requirements, instance_type: &InstanceType, offering: &Offering) -> bool {
    let allows = |declared: &Requirement| {
        wanted.find(declared.key()).is_none_or(|wanted| {
            (declared.is_satisfied_by_absence() && wanted.is_satisfied_by_absence())
                || wanted.has_intersection(declared)
        })
    };
    offering.available
        && offering.requirements.iter().all(allows)
        && instance_type
            .requirements
            .iter()
            .filter(|declared| !offering.requirements.contains(declared.key()))
            .all(allows)
}

/// The domains in which there is something to be had now of what a NodePool may launch.
pub(crate) fn domains_sold(snapshot: &Snapshot, pool: &PoolView, key: &str) -> BTreeSet<String> {
    let wanted = &pool.requirements;
    let mut found = BTreeSet::new();
    for instance_type in pool.instance_types.iter() {
        for group in instance_type.allocatable_groups() {
            if group.allocatable.iter().any(|(_, amount)| amount < 0) {
                continue;
            }
            for offering in group
                .offerings
                .iter()
                .map(|index| &instance_type.offerings[*index])
            {
                // A reservation that cannot be told from others is not used.
                let is_reserved = offering.capacity_type() == Some(CapacityType::Reserved);
                let is_sold = can_buy(wanted, instance_type, offering)
                    && (!is_reserved || offering.reservation_id().is_some())
                    && wanted
                        .compatible(&offering.requirements, &snapshot.well_known)
                        .is_ok();
                let of_type = instance_type.requirements.find(key);
                let declared = offering.requirements.find(key).or(of_type);
                if let Some(value) = declared.and_then(Requirement::single_value).filter(|_| is_sold)
                    && [of_type, wanted.find(key)]
                        .into_iter()
                        .flatten()
                        .all(|other| other.has(value))
                {
                    found.insert(value.to_owned());
                }
            }
        }
    }
    found
}

/// The labels that the node would carry: the offering's, the type's, the pool's, and the claim's.
fn node_labels(
    snapshot: &Snapshot,
    claim: &PlannedClaim,
    instance_type: &InstanceType,
    offering: &Offering,
) -> BTreeMap<String, String> {
    let pool = snapshot.pool(claim.pool);
    let mut labels: BTreeMap<String, String> = pool.object.spec.template.metadata.labels.clone();
    labels.insert(labels::NODE_POOL.to_owned(), pool.name.clone());
    labels.extend(claim.requirements.custom_labels(&snapshot.well_known));
    let declared = instance_type
        .requirements
        .iter()
        .chain(offering.requirements.iter());
    for requirement in declared {
        let narrowed = match claim.requirements.find(requirement.key()) {
            Some(wanted) => requirement.intersection(wanted),
            None => requirement.clone(),
        };
        // A type with several possible values (say, operating systems) is launched with one of those the claim allows.
        if let Some(value) = narrowed.values().first().filter(|_| !narrowed.is_complement()) {
            labels.insert(requirement.key().to_owned(), value.clone());
        }
    }
    labels
}
