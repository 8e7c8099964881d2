//! Topology spread and attach limits, and reservations: counted afresh over the finished plan.
//!
//! A spread constraint promises something about the moment of each placement; the finished plan shows it only where every pod that comes and is counted
//! is bound by an equal constraint. Those are checked; others are left alone rather than accused wrongly.

use crate::node::domains_sold;
use crate::pods::untolerated;
use crate::suspects::RESERVATION;
use crate::{Host, Violation};
use spokeshave_model::constraints::{Constraints, Spread};
use spokeshave_model::placement::Placements;
use spokeshave_model::scheduler_profiles::SchedulerProfile;
use spokeshave_model::snapshot::{ClassId, PodId, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// The one domain of a host, if it is certain.
fn domain(host: &Host, number: usize, key: &str) -> Option<String> {
    if key == spokeshave_model::labels::HOSTNAME {
        return Some(format!("host {number}"));
    }
    let values: BTreeSet<&String> = host
        .possible
        .iter()
        .filter_map(|labels| labels.get(key))
        .collect();
    let mut values = values.into_iter();
    match (values.next(), values.next()) {
        (Some(only), None) => Some(only.clone()),
        _ => None,
    }
}

/// No pod bound by a DoNotSchedule constraint ends in a domain that is more than maxSkew above the emptiest one in use by its peers. For
/// hostname the emptiest host is always one that could still be launched, so the count itself is bounded (P-103).
pub(crate) fn check_spread(snapshot: &Snapshot, hosts: &[Host], violations: &mut Vec<Violation>) {
    let placed: Vec<(usize, PodId, bool)> = hosts
        .iter()
        .enumerate()
        .flat_map(|(number, host)| {
            let residents = host
                .residents
                .iter()
                .filter(|pod| snapshot.pod(**pod).active)
                .map(move |pod| (number, *pod, false));
            residents.chain(host.arrivals.iter().map(move |pod| (number, *pod, true)))
        })
        .collect();
    for (number, pod, _) in placed.iter().filter(|(_, _, arrives)| *arrives) {
        for spread in snapshot
            .constraints(*pod)
            .spreads
            .iter()
            .filter(|spread| spread.required)
        {
            let counted: Vec<&(usize, PodId, bool)> = placed
                .iter()
                .filter(|(_, other, _)| counts(snapshot, spread, *pod, *other))
                .collect();
            let all_bound = counted
                .iter()
                .all(|(_, other, _)| snapshot.constraints(*other).spreads.contains(spread));
            let Some(own) = domain(&hosts[*number], *number, &spread.topology_key) else {
                let problem = format!("spread over {} leaves the domain open", spread.topology_key);
                violations.push(violation(snapshot, &hosts[*number], *pod, problem));
                continue;
            };
            if !all_bound || spread.topology_key != spokeshave_model::labels::HOSTNAME {
                continue;
            }
            let count = counted
                .iter()
                .filter(|(other, _, _)| {
                    domain(&hosts[*other], *other, &spread.topology_key).as_ref() == Some(&own)
                })
                .count();
            if i64::try_from(count).is_ok_and(|count| count > i64::from(spread.max_skew)) {
                let problem = format!(
                    "spread over {}: {count} pods in {own}, maxSkew {}",
                    spread.topology_key, spread.max_skew
                );
                violations.push(violation(snapshot, &hosts[*number], *pod, problem));
            }
        }
    }
    check_zones(snapshot, hosts, &placed, violations);
}

fn counts(snapshot: &Snapshot, spread: &Spread, owner: PodId, other: PodId) -> bool {
    let (left, right) = (
        &snapshot.pod(owner).object.metadata,
        &snapshot.pod(other).object.metadata,
    );
    snapshot.sees(owner, other)
        && left.namespace == right.namespace
        && spread.selector.matches(&right.labels.clone().unwrap_or_default())
}

/// No pod that comes ends in a domain that is more than maxSkew above the emptiest. Counts only grow while a plan is made, so what held when the last pod came
/// to a domain holds at the end. Judged is where counting is certain: all pods that are counted have a place, and those that come ask for nothing else that
/// tells domains apart.
fn check_zones(
    snapshot: &Snapshot,
    hosts: &[Host],
    placed: &[(usize, PodId, bool)],
    violations: &mut Vec<Violation>,
) {
    let has_place: BTreeSet<PodId> = placed.iter().map(|(_, pod, _)| *pod).collect();
    let mut sold = Sold::new();
    let mut seen: Vec<(&Spread, Option<&String>, bool)> = Vec::new();
    for (_, owner, _) in placed.iter().filter(|(_, _, arrives)| *arrives) {
        let constraints = snapshot.constraints(*owner);
        let namespace = snapshot.pod(*owner).object.metadata.namespace.as_ref();
        for spread in constraints
            .spreads
            .iter()
            .filter(|spread| spread.required && spread.topology_key != spokeshave_model::labels::HOSTNAME)
        {
            let which = (spread, namespace, constraints.is_virtual);
            if seen.contains(&which) {
                continue;
            }
            seen.push(which);
            let is_left_out = |pod: &PodId| {
                !has_place.contains(pod)
                    && snapshot.pod(*pod).active
                    && counts(snapshot, spread, *owner, *pod)
            };
            let counted: Vec<(usize, PodId, bool)> = placed
                .iter()
                .filter(|(_, other, _)| counts(snapshot, spread, *owner, *other))
                .copied()
                .collect();
            let mut all = counted.iter();
            let is_certain = all.all(|(host, pod, arrives)| {
                if *arrives {
                    asks_only(snapshot, spread, constraints, *pod)
                } else {
                    is_counted_for_sure(snapshot, spread, *host)
                }
            });
            if is_certain && !snapshot.pod_ids().any(|pod| is_left_out(&pod)) {
                violations.extend(unevenness(snapshot, hosts, spread, &counted, &mut sold));
            }
        }
    }
}

/// Whether a pod that comes is bound by a constraint, counts the same as another that is, and may be in every domain that there is.
fn asks_only(snapshot: &Snapshot, spread: &Spread, owner: &Constraints, pod: PodId) -> bool {
    let constraints = snapshot.constraints(pod);
    let profile = snapshot.scheduler_profiles.of(&snapshot.pod(pod).object);
    constraints.spreads.contains(spread)
        && constraints.is_virtual == owner.is_virtual
        && (!spread.honor_taints || constraints.tolerations == owner.tolerations)
        && constraints.node_selector.is_empty()
        && constraints.required_terms.is_empty()
        && constraints.preferred_terms.is_empty()
        && constraints.volume_terms.is_empty()
        && profile.and_then(SchedulerProfile::required_affinity).is_none()
}

/// Whether a constraint counts what is on a host, whatever its taints: one that is going may count no more.
fn is_counted_for_sure(snapshot: &Snapshot, spread: &Spread, host: usize) -> bool {
    let node = snapshot.nodes.get(host);
    !spread.honor_taints && node.is_some_and(|node| !node.marked_for_deletion)
}

/// Domains in which NodePools, by their numbers, sell something, by topology key.
type Sold = BTreeMap<(usize, String), BTreeSet<String>>;

/// What is wrong with the fullest domain that one of the counted pods comes to.
fn unevenness(
    snapshot: &Snapshot,
    hosts: &[Host],
    spread: &Spread,
    counted: &[(usize, PodId, bool)],
    sold: &mut Sold,
) -> Option<Violation> {
    let (key, max_skew) = (&spread.topology_key, i64::from(spread.max_skew));
    let mut numbers: BTreeMap<String, i64> = BTreeMap::new();
    for (host, _, _) in counted {
        if let Some(domain) = domain(&hosts[*host], *host, key) {
            *numbers.entry(domain).or_insert(0) += 1;
        }
    }
    let comes_to = |(host, pod, arrives): &(usize, PodId, bool)| {
        let domain = domain(&hosts[*host], *host, key).filter(|_| *arrives)?;
        Some((*numbers.get(&domain)?, *host, *pod))
    };
    let (most, host, pod) = counted
        .iter()
        .filter_map(comes_to)
        .max_by_key(|(count, _, _)| *count)?;
    // No domain has less than nothing.
    if most <= max_skew {
        return None;
    }
    let arrivals = counted.iter().filter(|(_, _, arrives)| *arrives);
    let offered = offered(snapshot, key, arrivals.map(|(_, pod, _)| *pod), sold);
    let is_empty = offered.iter().any(|domain| !numbers.contains_key(domain));
    let least = if is_empty {
        0
    } else {
        numbers.values().min().copied()?
    };
    (most - least > max_skew).then(|| {
        let problem =
            format!("spread over {key}: between {least} and {most} pods per domain, maxSkew {max_skew}");
        violation(snapshot, &hosts[host], pod, problem)
    })
}

/// Domains in which some NodePool sells something to all of these pods, so that they count although nothing is there. Those in doubt are left out: too many would
/// accuse plans that are right.
fn offered(
    snapshot: &Snapshot,
    key: &str,
    pods: impl Iterator<Item = PodId>,
    sold: &mut Sold,
) -> BTreeSet<String> {
    // Pods of a class tolerate the same.
    let classes: BTreeMap<ClassId, PodId> = pods.map(|pod| (snapshot.pod(pod).class, pod)).collect();
    let mut found = BTreeSet::new();
    for (number, pool) in snapshot.pools.iter().enumerate() {
        let mut pods = classes.values();
        let takes_all = pods.all(|pod| untolerated(&snapshot.pod(*pod).object, &pool.taints).is_none());
        if takes_all && pool.is_provisionable() && !pool.requirements.has_min_values() {
            let domains = sold
                .entry((number, key.to_owned()))
                .or_insert_with(|| domains_sold(snapshot, pool, key));
            found.extend(domains.iter().cloned());
        }
    }
    found
}

fn violation(snapshot: &Snapshot, host: &Host, pod: PodId, problem: String) -> Violation {
    Violation {
        place: host.place.clone(),
        pod: Some(snapshot.pod(pod).key()),
        problem,
    }
}

/// No existing node gets more volumes of a driver than it can attach (P-117). As for kube-scheduler, one that has too many already takes pods that bring none.
pub(crate) fn check_attachments(snapshot: &Snapshot, hosts: &[Host], violations: &mut Vec<Violation>) {
    for (host, node) in hosts
        .iter()
        .zip(&snapshot.nodes)
        .filter(|(host, _)| !host.arrivals.is_empty())
    {
        let volumes = |pods: &[PodId]| -> BTreeSet<&(String, String)> {
            pods.iter()
                .flat_map(|pod| snapshot.pod(*pod).attachments())
                .collect()
        };
        let (attached, coming) = (volumes(&host.residents), volumes(&host.arrivals));
        for (driver, limit) in &node.attach_limits {
            let of_driver = |volume: &&&(String, String)| volume.0 == *driver;
            let new = coming.difference(&attached).filter(of_driver).count();
            if new == 0 {
                continue;
            }
            let count = new + attached.iter().filter(of_driver).count();
            if i64::try_from(count).is_ok_and(|count| count > *limit) {
                let problem = format!("{count} volumes of {driver}, limit {limit}");
                violations.push(Violation {
                    place: host.place.clone(),
                    pod: None,
                    problem,
                });
            }
        }
    }
}

/// No more NodeClaims are pinned to a reservation than it has instances (P-119).
pub(crate) fn check_reservations(
    snapshot: &Snapshot,
    placements: &Placements,
    violations: &mut Vec<Violation>,
) {
    let mut left: BTreeMap<(String, String), i64> = BTreeMap::new();
    for offering in snapshot
        .pools
        .iter()
        .flat_map(|pool| pool.instance_types.iter())
        .flat_map(|instance_type| &instance_type.offerings)
    {
        if let Some((label, id)) = offering
            .reservation_id_label
            .as_ref()
            .zip(offering.reservation_id())
        {
            let entry = left
                .entry((label.clone(), id.to_owned()))
                .or_insert(offering.reservation_capacity);
            *entry = (*entry).min(offering.reservation_capacity);
        }
    }
    for claim in placements
        .claims
        .iter()
        .filter(|claim| claim.capacity_types.iter().eq(["reserved"]))
    {
        for ((label, id), capacity) in &mut left {
            // Pessimistic: a claim that may use several reservations takes one of each.
            if claim
                .requirements
                .find(label)
                .is_some_and(|requirement| requirement.values().contains(id))
            {
                *capacity -= 1;
            }
        }
    }
    for ((_, id), capacity) in left.into_iter().filter(|(_, capacity)| *capacity < 0) {
        violations.push(Violation {
            place: format!("{RESERVATION}{id}"),
            pod: None,
            problem: format!(
                "is promised to {} NodeClaims more than it has instances",
                -capacity
            ),
        });
    }
}
