//! Topology spread and attach limits, and reservations: counted afresh over the finished plan.
//!
//! A spread constraint promises something about the moment of each placement; the finished plan shows it only where every pod that is counted
//! is bound by an equal constraint. Those are checked; others are left alone rather than accused wrongly.

use crate::suspects::RESERVATION;
use crate::{Host, Violation};
use spokeshave_model::constraints::Spread;
use spokeshave_model::placement::Placements;
use spokeshave_model::snapshot::{PodId, Snapshot};
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

/// Where every counted pod is new and bound by the same constraint and nothing else restricts it, the finished counts must be even.
fn check_zones(
    snapshot: &Snapshot,
    hosts: &[Host],
    placed: &[(usize, PodId, bool)],
    violations: &mut Vec<Violation>,
) {
    let mut seen: Vec<&Spread> = Vec::new();
    for (number, pod, _) in placed.iter().filter(|(_, _, arrives)| *arrives) {
        let constraints = snapshot.constraints(*pod);
        for spread in constraints
            .spreads
            .iter()
            .filter(|spread| spread.required && spread.min_domains.is_none())
        {
            if seen.contains(&spread) || spread.topology_key == spokeshave_model::labels::HOSTNAME {
                continue;
            }
            seen.push(spread);
            let counted: Vec<&(usize, PodId, bool)> = placed
                .iter()
                .filter(|(_, other, _)| counts(snapshot, spread, *pod, *other))
                .collect();
            let uniform = counted.iter().all(|(_, other, arrives)| {
                let peer = snapshot.constraints(*other);
                *arrives
                    && peer.spreads == [spread.clone()]
                    && peer.node_selector.is_empty()
                    && peer.required_terms.is_empty()
            });
            if !uniform {
                continue;
            }
            let mut numbers: BTreeMap<String, i64> = BTreeMap::new();
            for (host, _, _) in counted {
                if let Some(domain) = domain(&hosts[*host], *host, &spread.topology_key) {
                    *numbers.entry(domain).or_insert(0) += 1;
                }
            }
            let (least, most) = (
                numbers.values().min().copied().unwrap_or(0),
                numbers.values().max().copied().unwrap_or(0),
            );
            // The emptiest domain of all may be one without pods, so this bound is necessary, not sufficient.
            if most - least > i64::from(spread.max_skew) {
                let problem = format!(
                    "spread over {}: between {least} and {most} pods per domain, maxSkew {}",
                    spread.topology_key, spread.max_skew
                );
                violations.push(violation(snapshot, &hosts[*number], *pod, problem));
            }
        }
    }
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
