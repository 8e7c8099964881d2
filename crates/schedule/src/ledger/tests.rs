//! Random changes, some of them undone, leave each ledger as a fresh one is after the changes that remain.

use super::*;
use crate::options::PackOptions;
use spokeshave_example::{Dice, random_world};
use spokeshave_model::snapshot::{ClassId, Snapshot};
use spokeshave_model::{Requirement, labels, lower};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

const SEEDS: u64 = 60;
const STEPS: usize = 120;
const RESERVATION: &str = "example.com/reservation-id";

/// Applies random changes and undoes the youngest of them at random. Now and then, what is left is compared with a fresh ledger to which the changes that
/// remain are applied; in the end all are undone. Returns how many changes were undone.
fn check<L, C, U>(
    dice: &mut Dice,
    fresh: impl Fn() -> L,
    mut choose: impl FnMut(&mut Dice, &L) -> Option<C>,
    apply: impl Fn(&mut L, &C) -> U,
    undo: impl Fn(&mut L, &C, U),
    assert_same: impl Fn(&L, &L),
) -> usize {
    let mut ledger = fresh();
    let mut remaining: Vec<(C, U)> = Vec::new();
    let mut undone = 0;
    for step in 0..STEPS {
        // Now it fills, now it empties.
        let fills = dice.below(10) < if step / 30 % 2 == 0 { 7 } else { 4 };
        if fills {
            if let Some(change) = choose(dice, &ledger) {
                let undoing = apply(&mut ledger, &change);
                remaining.push((change, undoing));
            }
        } else if let Some((change, undoing)) = remaining.pop() {
            undo(&mut ledger, &change, undoing);
            undone += 1;
        }
        if step % 10 == 0 {
            let mut other = fresh();
            for (change, _) in &remaining {
                let _ = apply(&mut other, change);
            }
            assert_same(&ledger, &other);
        }
    }
    while let Some((change, undoing)) = remaining.pop() {
        undo(&mut ledger, &change, undoing);
        undone += 1;
    }
    assert_same(&ledger, &fresh());
    undone
}

fn some_of(dice: &mut Dice, below: usize, most: usize) -> Vec<u32> {
    if below == 0 {
        return Vec::new();
    }
    (0..dice.below(most + 1))
        .map(|_| dice.below(below) as u32)
        .collect()
}

fn some_bits(dice: &mut Dice, of: &Bits) -> Bits {
    Bits::of(0, of.ones().filter(|_| dice.below(3) != 0).collect::<Vec<_>>())
}

/// Worlds with pods, in which the first offering of each second instance type is a reservation, and each fifth pod is leaving.
fn worlds() -> impl Iterator<Item = (u64, Snapshot)> {
    let snapshots = (0..SEEDS).map(|seed| {
        let mut state = random_world(seed);
        for types in state.instance_types.values_mut().flatten() {
            let mut list = types.to_vec();
            for (index, instance_type) in list.iter_mut().step_by(2).enumerate() {
                if let Some(offering) = instance_type.offerings.first_mut() {
                    let id = format!("r-{}", index % 3);
                    offering
                        .requirements
                        .replace(Requirement::is(labels::CAPACITY_TYPE, "reserved"));
                    offering.requirements.replace(Requirement::is(RESERVATION, &id));
                    offering.reservation_id_label = Some(RESERVATION.to_owned());
                    offering.reservation_capacity = 2;
                }
            }
            *types = list.into();
        }
        for pod in state.pods.iter_mut().step_by(5) {
            let meta = &mut Arc::make_mut(pod).metadata;
            meta.deletion_timestamp = meta.creation_timestamp.clone();
            meta.deletion_grace_period_seconds = Some(if seed.is_multiple_of(2) { 7200 } else { 30 });
        }
        (seed, lower(&state))
    });
    snapshots.filter(|(_, snapshot)| !snapshot.pods.is_empty())
}

enum RoomChange {
    Put(NodeId, RequestId, Vec<u32>, Vec<u32>),
    Close(NodeId),
    TooSmall(RequestId, usize),
}

enum RoomUndo {
    Put(Put),
    Close(Option<Closed>),
    TooSmall(Option<TooSmall>),
}

#[test]
fn rooms_are_as_if_what_was_undone_had_never_been() {
    let options = PackOptions::default();
    let (mut undone, mut too_small) = (0, 0);
    for (seed, snapshot) in worlds().filter(|(_, snapshot)| !snapshot.nodes.is_empty()) {
        let tables = Tables::new(&snapshot, &options);
        let (nodes, requests) = (snapshot.nodes.len(), snapshot.requests.len());
        let choose = |dice: &mut Dice, rooms: &Rooms<'_>| {
            let (node, request) = (dice.below(nodes), RequestId::from(dice.below(requests)));
            match dice.below(5) {
                0 => Some(RoomChange::Close(NodeId::from(node))),
                1 | 2 => {
                    let is_unknown = rooms.open_word(request, node / 64) >> (node % 64) & 1 == 1;
                    let needs = &snapshot.requests[request.index()];
                    let first = rooms.first_with_room(needs, node / 64, 1 << (node % 64));
                    let found = is_unknown && first.is_none();
                    too_small += usize::from(found);
                    found.then_some(RoomChange::TooSmall(request, node))
                }
                _ => {
                    let (ports, volumes) = (some_of(dice, 5, 2), some_of(dice, 5, 3));
                    Some(RoomChange::Put(NodeId::from(node), request, ports, volumes))
                }
            }
        };
        undone += check(
            &mut Dice(seed),
            || Rooms::new(&mut tables.clone()),
            choose,
            |rooms, change| match change {
                RoomChange::Put(node, request, ports, volumes) => {
                    RoomUndo::Put(rooms.put(*node, *request, ports, volumes))
                }
                RoomChange::Close(node) => RoomUndo::Close(rooms.close(*node)),
                RoomChange::TooSmall(request, node) => {
                    let (position, nodes) = (*node / 64, 1 << (*node % 64));
                    RoomUndo::TooSmall(rooms.remember_too_small(*request, position, nodes, true))
                }
            },
            |rooms, _, undo| match undo {
                RoomUndo::Put(put) => rooms.undo_put(put),
                RoomUndo::Close(closed) => closed.into_iter().for_each(|closed| rooms.undo_close(closed)),
                RoomUndo::TooSmall(found) => found.into_iter().for_each(|found| rooms.undo_too_small(found)),
            },
            |used, fresh| {
                assert_eq!(used.fingerprint(), fresh.fingerprint(), "seed {seed}");
                used.assert_memory_is_true();
            },
        );
    }
    assert!(
        undone > 1_000 && too_small > 100,
        "{undone} changes undone, {too_small} nodes too small"
    );
}

enum BudgetChange {
    Charge(usize, Bits),
    Exchange(Vec<u32>, Vec<u32>),
    Refund(NodeId),
}

enum BudgetUndo {
    Charge(Charged),
    Exchange,
    Refund(Refunded),
}

#[test]
fn the_budget_is_as_if_what_was_undone_had_never_been() {
    let options = PackOptions::default();
    let (mut undone, mut reserved, mut limited) = (0, 0, 0);
    for (seed, snapshot) in worlds() {
        let tables = Tables::new(&snapshot, &options);
        limited += usize::from(snapshot.pools.iter().any(|pool| !pool.limits.is_empty()));
        let choose = |dice: &mut Dice, budget: &Budget| {
            let (templates, nodes) = (tables.templates.len(), snapshot.nodes.len());
            let reservations = budget.reservations().len();
            match dice.below(3) {
                0 if templates > 0 => {
                    let template = dice.below(templates);
                    let types = some_bits(dice, &tables.templates[template].eligible);
                    Some(BudgetChange::Charge(template, types))
                }
                1 if reservations > 0 => {
                    reserved += 1;
                    let (held, wanted) = (some_of(dice, reservations, 2), some_of(dice, reservations, 2));
                    Some(BudgetChange::Exchange(held, wanted))
                }
                2 if nodes > 0 => Some(BudgetChange::Refund(NodeId::from(dice.below(nodes)))),
                _ => None,
            }
        };
        undone += check(
            &mut Dice(seed),
            || Budget::new(&tables),
            choose,
            |budget, change| match change {
                BudgetChange::Charge(template, types) => {
                    BudgetUndo::Charge(budget.charge(*template, &tables.templates[*template], types))
                }
                BudgetChange::Exchange(held, wanted) => {
                    budget.exchange(held, wanted);
                    BudgetUndo::Exchange
                }
                BudgetChange::Refund(node) => BudgetUndo::Refund(budget.refund(*node, &tables)),
            },
            |budget, change, undo| match (undo, change) {
                (BudgetUndo::Charge(charged), _) => budget.undo_charge(&charged),
                (BudgetUndo::Refund(refunded), _) => budget.undo_refund(refunded, &tables),
                (BudgetUndo::Exchange, BudgetChange::Exchange(held, wanted)) => budget.exchange(wanted, held),
                (BudgetUndo::Exchange, _) => {}
            },
            |used, fresh| assert_eq!(used, fresh, "seed {seed}"),
        );
    }
    assert!(
        undone > 1_000 && reserved > 50 && limited > 5,
        "{undone} changes undone, {reserved} exchanges, {limited} worlds with limits"
    );
}

struct ClaimChange {
    /// Opens a claim on this template; else an existing one grows.
    opens: Option<usize>,
    claim: usize,
    set: SetId,
    request: usize,
    types: Bits,
    ports: Vec<u32>,
    volumes: Vec<u32>,
    reserved: Vec<u32>,
}

enum ClaimUndo {
    Opened(Opened),
    Grown(Grown),
}

#[test]
fn claims_are_as_if_what_was_undone_had_never_been() {
    let options = PackOptions::default();
    let (mut undone, mut grown) = (0, 0);
    for (seed, snapshot) in worlds() {
        let tables = Tables::new(&snapshot, &options);
        if tables.templates.is_empty() {
            continue;
        }
        let width = snapshot.resources.width();
        let choose = |dice: &mut Dice, claims: &Claims| {
            let opens =
                (claims.count() == 0 || dice.below(4) == 0).then(|| dice.below(tables.templates.len()));
            grown += usize::from(opens.is_none());
            let claim = if opens.is_some() {
                claims.count()
            } else {
                dice.below(claims.count())
            };
            let template = opens.unwrap_or_else(|| claims.get(claim).template);
            Some(ClaimChange {
                opens,
                claim,
                set: tables.templates[dice.below(tables.templates.len())].set,
                request: dice.below(snapshot.requests.len()),
                types: some_bits(dice, &tables.templates[template].eligible),
                ports: some_of(dice, 9, 2),
                volumes: some_of(dice, 5, 2),
                reserved: some_of(dice, 9, 2),
            })
        };
        undone += check(
            &mut Dice(seed),
            Claims::default,
            choose,
            |claims, change| {
                let undo = match change.opens {
                    Some(template) => {
                        let relaxed = BTreeMap::from([("zone".to_owned(), change.request as u32)]);
                        ClaimUndo::Opened(claims.open(template, width, relaxed))
                    }
                    None => ClaimUndo::Grown(claims.save(change.claim)),
                };
                let growth = Growth {
                    requests: &snapshot.requests[change.request],
                    set: change.set,
                    types: &change.types,
                    ports: &change.ports,
                    volumes: &change.volumes,
                    reserved: &change.reserved,
                    placements: change.request,
                };
                let template = claims.get(change.claim).template;
                claims.grow(change.claim, &growth, &tables.templates[template]);
                undo
            },
            |claims, change, undo| {
                let held = match undo {
                    ClaimUndo::Opened(opened) => claims.undo_open(opened),
                    ClaimUndo::Grown(grown) => claims.undo_grow(grown).1,
                };
                assert_eq!(held.as_slice(), change.reserved, "what it held is given up");
            },
            |used, fresh| assert_eq!(used.fingerprint(), fresh.fingerprint(), "seed {seed}"),
        );
    }
    assert!(
        undone > 1_000 && grown > 1_000,
        "{undone} changes undone, {grown} claims grown"
    );
}

/// Counts, and what the ledgers around them know.
struct Counted {
    counts: Counts,
    claims: Vec<(usize, SetId)>,
    uncounted: BTreeSet<PodId>,
}

#[derive(Clone)]
enum CountChange {
    Node(ClassId, NodeId),
    /// A claim with these requirements is opened, or becomes one with these.
    Claim(ClassId, usize, (usize, SetId)),
    Uncount(PodId),
    Remove(NodeId),
}

/// What a claim was before, if it was there.
type FormerClaim = Option<(usize, SetId)>;

fn apply_to_counts(counted: &mut Counted, change: &CountChange, tables: &mut Tables<'_>) -> FormerClaim {
    let (shape, algebra, counts) = (&mut tables.topology, &tables.algebra, &mut counted.counts);
    counts.catch_up(shape, algebra);
    match *change {
        CountChange::Node(class, node) => counts.record(class, Host::Node(node), shape, algebra),
        CountChange::Claim(class, index, (template, set)) => {
            let former = counted.claims.get(index).copied();
            match counted.claims.get_mut(index) {
                Some(claim) => *claim = (template, set),
                None => counted.claims.push((template, set)),
            }
            counts.set_claim(index, template, set, shape, algebra);
            let host = Host::Planned { index, template, set };
            counts.record(class, host, shape, algebra);
            return former;
        }
        CountChange::Uncount(pod) => {
            counted.uncounted.insert(pod);
            counts.set_counted(pod, false, shape, algebra);
        }
        CountChange::Remove(node) => counts.set_removed(node, true, shape),
    }
    None
}

fn undo_in_counts(counted: &mut Counted, change: &CountChange, former: FormerClaim, tables: &mut Tables<'_>) {
    let (shape, algebra, counts) = (&mut tables.topology, &tables.algebra, &mut counted.counts);
    match *change {
        CountChange::Node(..) => counts.unrecord(shape, algebra),
        CountChange::Claim(_, index, _) => {
            counts.unrecord(shape, algebra);
            match former {
                Some((template, set)) => {
                    counted.claims[index] = (template, set);
                    counts.set_claim(index, template, set, shape, algebra);
                }
                None => {
                    counted.claims.pop();
                    counts.drop_claim();
                }
            }
        }
        CountChange::Uncount(pod) => {
            counted.uncounted.remove(&pod);
            counts.set_counted(pod, true, shape, algebra);
        }
        CountChange::Remove(node) => counts.set_removed(node, false, shape),
    }
}

fn choose_for_counts(dice: &mut Dice, counted: &Counted, tables: &mut Tables<'_>) -> Option<CountChange> {
    let snapshot = tables.snapshot;
    let pod = PodId::from(dice.below(snapshot.pods.len()));
    let (view, nodes) = (snapshot.pod(pod), snapshot.nodes.len());
    let node = (nodes > 0).then(|| NodeId::from(dice.below(nodes)));
    // It may add groups, which count what is there already.
    let variant = tables.variant(view.class, dice.below(2))?;
    match dice.below(6) {
        0 => Some(CountChange::Remove(
            node.filter(|node| !counted.counts.is_removed(*node))?,
        )),
        1 if view.is_counted() && view.node.is_some() && !counted.uncounted.contains(&pod) => {
            Some(CountChange::Uncount(pod))
        }
        2 | 3 => Some(CountChange::Node(view.class, node?)),
        _ if !tables.templates.is_empty() => {
            let index = dice.below(counted.claims.len() + 1);
            let opened = dice.below(tables.templates.len());
            let (template, base) = match counted.claims.get(index) {
                Some(claim) => *claim,
                None => (opened, tables.templates[opened].set),
            };
            let set = tables.algebra.join(base, tables[variant].all).unwrap_or(base);
            Some(CountChange::Claim(view.class, index, (template, set)))
        }
        _ => None,
    }
}

#[test]
fn counts_are_as_if_what_was_undone_had_never_been() {
    let options = PackOptions::default();
    let mut undone = 0;
    for (seed, snapshot) in worlds() {
        let tables = RefCell::new(Tables::new(&snapshot, &options));
        undone += check(
            &mut Dice(seed),
            || {
                let Tables {
                    topology, algebra, ..
                } = &mut *tables.borrow_mut();
                Counted {
                    counts: Counts::new(topology, algebra),
                    claims: Vec::new(),
                    uncounted: BTreeSet::new(),
                }
            },
            |dice, counted| choose_for_counts(dice, counted, &mut tables.borrow_mut()),
            |counted, change| apply_to_counts(counted, change, &mut tables.borrow_mut()),
            |counted, change, former| undo_in_counts(counted, change, former, &mut tables.borrow_mut()),
            |used, fresh| {
                let (used, fresh) = (used.counts.fingerprint(), fresh.counts.fingerprint());
                for (used, fresh) in used.iter().zip(&fresh) {
                    assert!(fresh.starts_with(used), "seed {seed}: {used:?} is not {fresh:?}");
                }
            },
        );
    }
    assert!(undone > 1_000, "{undone} changes undone");
}

#[derive(Clone)]
enum Change {
    Node(PodId, VariantId, NodeId),
    Claim(PodId, VariantId, usize, SetId, Bits),
    Open(PodId, VariantId, usize, SetId, Bits),
    Remove(NodeId),
    Withhold(NodeId),
    Uncount(PodId),
}

fn apply(ledgers: &mut Ledgers<'_>, change: &Change, tables: &mut Tables<'_>) {
    match change {
        Change::Node(pod, variant, node) => ledgers.put_on_node(*pod, *variant, *node, tables),
        Change::Claim(pod, variant, index, set, types) => {
            let prospect = Prospect {
                set: *set,
                types,
                reserved: &[],
            };
            ledgers.put_on_claim(*pod, *variant, *index, &prospect, tables);
        }
        Change::Open(pod, variant, template, set, types) => {
            let prospect = Prospect {
                set: *set,
                types,
                reserved: &[],
            };
            ledgers.open_claim(*pod, *variant, *template, &prospect, BTreeMap::new(), tables);
        }
        Change::Remove(node) => ledgers.remove_node(*node, tables),
        Change::Withhold(node) => ledgers.withhold(*node),
        Change::Uncount(pod) => ledgers.uncount(&[*pod], tables),
    }
}

fn choose(dice: &mut Dice, ledgers: &Ledgers<'_>, tables: &mut Tables<'_>) -> Option<Change> {
    let (snapshot, claims) = (tables.snapshot, ledgers.claims());
    let (pods, nodes, templates) = (snapshot.pods.len(), snapshot.nodes.len(), tables.templates.len());
    let pod = PodId::from((pods > 0).then(|| dice.below(pods))?);
    let node = (nodes > 0).then(|| NodeId::from(dice.below(nodes)));
    let step = dice.below(2);
    let variant = tables.variant(snapshot.pod(pod).class, step)?;
    match dice.below(8) {
        0 => Some(Change::Remove(node?)),
        1 => Some(Change::Withhold(node?)),
        2 => Some(Change::Uncount(pod)),
        3 | 4 => Some(Change::Node(pod, variant, node?)),
        5 if templates > 0 => {
            let template = dice.below(templates);
            let (base, all) = (tables.templates[template].set, tables[variant].all);
            let set = tables.algebra.join(base, all).unwrap_or(base);
            let types = some_bits(dice, &tables.templates[template].eligible);
            Some(Change::Open(pod, variant, template, set, types))
        }
        _ if claims.count() > 0 => {
            let index = dice.below(claims.count());
            let base = claims.get(index).set?;
            let set = tables.algebra.join(base, tables[variant].all).unwrap_or(base);
            let types = some_bits(dice, &claims.get(index).types);
            Some(Change::Claim(pod, variant, index, set, types))
        }
        _ => None,
    }
}

/// Ledgers inside of a fork.
fn started<'a>(tables: &mut Tables<'a>) -> Ledgers<'a> {
    let mut ledgers = Ledgers::new(tables);
    let _ = ledgers.fork();
    ledgers
}

/// Forks that nest, reverted or committed at random: what is left is what a fresh start has after the changes that were not reverted.
#[test]
fn ledgers_are_as_if_what_was_reverted_had_never_been() {
    let options = PackOptions::default();
    let (mut reverted, mut bound) = (0, 0);
    for (seed, snapshot) in worlds() {
        let mut tables = Tables::new(&snapshot, &options);
        let mut used = started(&mut tables);
        let mut dice = Dice(seed);
        let (mut remaining, mut forks): (Vec<Change>, Vec<(Checkpoint, usize)>) = (Vec::new(), Vec::new());
        for step in 0..STEPS {
            match dice.below(12) {
                0 | 1 => forks.push((used.fork(), remaining.len())),
                2 => {
                    if let Some((checkpoint, before)) = forks.pop() {
                        reverted += remaining.len() - before;
                        used.revert(checkpoint, &mut tables);
                        remaining.truncate(before);
                    }
                }
                3 if forks.pop().is_some() => used.commit(),
                _ => {
                    if let Some(change) = choose(&mut dice, &used, &mut tables) {
                        if let Change::Node(_, variant, _) | Change::Claim(_, variant, ..) = change {
                            bound += usize::from(!tables[variant].is_free);
                        }
                        // Groups are added when much is placed already; the fresh ones have them from the first.
                        used.catch_up(&mut tables);
                        apply(&mut used, &change, &mut tables);
                        remaining.push(change);
                    }
                }
            }
            if step % 10 == 0 {
                used.catch_up(&mut tables);
                let mut fresh = started(&mut tables);
                for change in &remaining {
                    apply(&mut fresh, change, &mut tables);
                }
                assert_eq!(
                    used.fingerprint(),
                    fresh.fingerprint(),
                    "seed {seed}, step {step}"
                );
            }
        }
    }
    assert!(
        reverted > 500 && bound > 100,
        "{reverted} changes reverted, {bound} placements of pods that topology binds"
    );
}
