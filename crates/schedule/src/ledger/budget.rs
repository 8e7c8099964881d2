//! What may still be launched: room under NodePools' limits, and instances left of each reservation (P-093, P §6.12).
//!
//! Each change returns what undoes it; changes are undone in reverse order. It does not choose what is launched.

use super::initial;
use crate::bits::Bits;
use crate::tables::Tables;
use crate::template::{Template, UNLIMITED};
use smallvec::SmallVec;
use spokeshave_model::ResourceName;
use spokeshave_model::snapshot::NodeId;

/// What a NodePool may still grow by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// By resource; `UNLIMITED` without a limit.
    pub(crate) resources: Vec<i64>,
    pub(crate) nodes: i64,
}

impl Remaining {
    /// Whether nothing limits it.
    fn is_unlimited(&self) -> bool {
        self.nodes == UNLIMITED && self.resources.iter().all(|left| *left == UNLIMITED)
    }
}

/// What may still be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// By template.
    remaining: Vec<Remaining>,
    /// Instances left, by number of the reservation.
    reservations: Vec<i64>,
}

/// A claim was charged against the limits of its NodePool.
#[derive(Clone, Debug)]
#[must_use = "without it the change cannot be undone"]
pub(super) struct Charged {
    template: u32,
    /// What was left before, nodes last; empty without limits.
    before: SmallVec<[i64; 7]>,
}

/// A node no longer counts against the limits of its NodePool.
#[derive(Clone, Copy, Debug)]
#[must_use = "without it the change cannot be undone"]
pub(super) struct Refunded {
    node: NodeId,
}

/// The limits before they were lifted.
#[must_use = "without it the limits stay lifted"]
pub(crate) struct Lifted {
    remaining: Vec<Remaining>,
}

impl Budget {
    pub(super) fn new(tables: &Tables<'_>) -> Self {
        let templates = tables.templates.iter();
        Budget {
            remaining: templates
                .map(|template| initial::remaining(tables.snapshot, template.pool))
                .collect(),
            reservations: initial::reservations(tables.snapshot, &tables.numbers),
        }
    }

    /// What a template's NodePool may still grow by.
    #[inline]
    pub(crate) fn remaining(&self, template: usize) -> &Remaining {
        &self.remaining[template]
    }

    /// Instances left, by number of the reservation.
    #[inline]
    pub(crate) fn reservations(&self) -> &[i64] {
        &self.reservations
    }

    /// P-093: charges a new claim against its NodePool's limits, with the largest capacity that any of its types has.
    pub(super) fn charge(&mut self, index: usize, template: &Template, types: &Bits) -> Charged {
        let remaining = &mut self.remaining[index];
        let mut charged = Charged {
            template: index as u32,
            before: SmallVec::new(),
        };
        if remaining.is_unlimited() {
            return charged;
        }
        charged.before.extend_from_slice(&remaining.resources);
        charged.before.push(remaining.nodes);
        if remaining.nodes != UNLIMITED {
            remaining.nodes -= 1;
        }
        for (resource, left) in remaining.resources.iter_mut().enumerate() {
            if *left != UNLIMITED {
                *left = left.saturating_sub(template.largest_capacity(types, resource));
            }
        }
        charged
    }

    pub(super) fn undo_charge(&mut self, Charged { template, before }: &Charged) {
        if let Some((nodes, resources)) = before.split_last() {
            let left = &mut self.remaining[*template as usize];
            left.nodes = *nodes;
            left.resources.clear();
            left.resources.extend_from_slice(resources);
        }
    }

    /// A claim gives up the reservations it held and holds others. Its undoing is the same with both exchanged.
    #[inline]
    pub(super) fn exchange(&mut self, held: &[u32], wanted: &[u32]) {
        for id in held {
            self.reservations[*id as usize] += 1;
        }
        for id in wanted {
            self.reservations[*id as usize] -= 1;
        }
    }

    /// A node's capacity no longer counts against its NodePool's limits (D-078).
    pub(super) fn refund(&mut self, node: NodeId, tables: &Tables<'_>) -> Refunded {
        self.change_node(node, tables, i64::wrapping_add);
        Refunded { node }
    }

    pub(super) fn undo_refund(&mut self, Refunded { node }: Refunded, tables: &Tables<'_>) {
        self.change_node(node, tables, i64::wrapping_sub);
    }

    fn change_node(&mut self, node: NodeId, tables: &Tables<'_>, change: fn(i64, i64) -> i64) {
        // Where there are no limits, the node is not looked at: it is far away in memory.
        if self.remaining.iter().all(Remaining::is_unlimited) {
            return;
        }
        let view = tables.snapshot.node(node);
        if view.marked_for_deletion {
            return;
        }
        let resources = &tables.snapshot.resources;
        debug_assert!(resources.index(ResourceName::NODES).is_none());
        for (template, remaining) in tables.templates.iter().zip(&mut self.remaining) {
            if view.pool != Some(template.pool) {
                continue;
            }
            for (index, left) in remaining.resources.iter_mut().enumerate() {
                if *left != UNLIMITED {
                    *left = change(*left, view.capacity.get(resources.name(index)));
                }
            }
            if remaining.nodes != UNLIMITED {
                remaining.nodes = change(remaining.nodes, 1);
            }
        }
    }

    /// Lifts all limits until `restore`, to ask whether they are in the way.
    pub(super) fn lift_limits(&mut self) -> Lifted {
        let lifted = Lifted {
            remaining: self.remaining.clone(),
        };
        for remaining in &mut self.remaining {
            remaining.nodes = UNLIMITED;
            remaining.resources.fill(UNLIMITED);
        }
        lifted
    }

    pub(super) fn restore(&mut self, Lifted { remaining }: Lifted) {
        self.remaining = remaining;
    }
}
