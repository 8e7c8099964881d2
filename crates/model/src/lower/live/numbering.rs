//! Dense numbers for distinct values, in order of first occurrence along a sequence that changes.
//!
//! Owns the numbers: after [`Numbering::renumber`] they are those that a fresh pass over the sequence would give, whatever happened before.
//! It owns neither the sequence nor the values. A change that keeps the order of first occurrences, as nearly every change does, costs a few
//! look-ups; any other makes the next `renumber` pass over the sequence once.

use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::Hash;

/// Not a number any more.
const GONE: u32 = u32::MAX;

/// Numbers by value, and of each number how often and where first it occurs.
#[derive(Clone, Debug)]
pub(super) struct Numbering<K> {
    ids: FxHashMap<K, u32>,
    counts: Vec<u32>,
    /// Ascending, unless disordered.
    first: Vec<u32>,
    /// First occurrences have changed places, come in between or vanished; `first` is not kept until the next `renumber`.
    disordered: bool,
}

/// Whether positions behind the changed one move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    /// An element comes or goes.
    Moves,
    /// An element is exchanged.
    Stays,
}

impl<K: Hash + Eq> Numbering<K> {
    /// Of a sequence of numbers in order of first occurrence, and the value of each number.
    pub(super) fn new(values: impl IntoIterator<Item = K>, sequence: impl Iterator<Item = u32>) -> Self {
        let mut ids = FxHashMap::with_hasher(FxBuildHasher);
        for (id, value) in (0..).zip(values) {
            ids.insert(value, id);
        }
        let mut counts = vec![0; ids.len()];
        let mut first = vec![GONE; ids.len()];
        for (position, id) in (0..).zip(sequence) {
            let id = id as usize;
            counts[id] += 1;
            first[id] = first[id].min(position);
        }
        Numbering {
            ids,
            counts,
            first,
            disordered: false,
        }
    }

    /// An element is there now at a position. Returns its number, and whether the value is new: then the number is the next free one.
    pub(super) fn insert(&mut self, position: usize, value: K, shift: Shift) -> (u32, bool) {
        let position = position as u32;
        if shift == Shift::Moves && !self.disordered {
            let behind = self.first.partition_point(|first| *first < position);
            self.first[behind..].iter_mut().for_each(|first| *first += 1);
        }
        if let Some(id) = self.ids.get(&value).copied() {
            let index = id as usize;
            self.counts[index] += 1;
            if !self.disordered && position < self.first[index] {
                self.first[index] = position;
                self.disordered = index > 0 && self.first[index - 1] > position;
            }
            return (id, false);
        }
        let id = self.counts.len() as u32;
        self.disordered |= self.first.last().is_some_and(|last| *last > position);
        self.ids.insert(value, id);
        self.counts.push(1);
        self.first.push(position);
        (id, true)
    }

    /// The element with this number is not there any more. `next` finds where the number occurs next, from the position after this one up to a
    /// limit, by positions before the change.
    pub(super) fn remove(
        &mut self,
        position: usize,
        id: u32,
        shift: Shift,
        next: impl FnOnce(std::ops::Range<usize>) -> Option<usize>,
    ) {
        let index = id as usize;
        self.counts[index] -= 1;
        if self.disordered {
            return;
        }
        if self.counts[index] == 0 {
            self.disordered = true;
            return;
        }
        if self.first[index] as usize == position {
            let limit = self
                .first
                .get(index + 1)
                .map_or(usize::MAX, |next| *next as usize);
            match next(position + 1..limit) {
                Some(next) => self.first[index] = next as u32,
                None => {
                    self.disordered = true;
                    return;
                }
            }
        }
        if shift == Shift::Moves {
            let behind = self.first.partition_point(|first| *first as usize <= position);
            self.first[behind..].iter_mut().for_each(|first| *first -= 1);
        }
    }

    /// Puts the numbers right: the new number of each old one, `None` for those that do not occur any more; no list when all are right.
    pub(super) fn renumber(&mut self, sequence: impl Iterator<Item = u32>) -> Option<Vec<Option<u32>>> {
        if !self.disordered {
            return None;
        }
        self.disordered = false;
        let left = self.counts.iter().filter(|count| **count > 0).count();
        let mut new: Vec<Option<u32>> = vec![None; self.counts.len()];
        self.first.clear();
        for (position, id) in (0..).zip(sequence) {
            if self.first.len() == left {
                break;
            }
            let slot = &mut new[id as usize];
            if slot.is_none() {
                *slot = Some(self.first.len() as u32);
                self.first.push(position);
            }
        }
        self.ids.retain(|_, id| match new[*id as usize] {
            Some(number) => {
                *id = number;
                true
            }
            None => false,
        });
        let mut counts = vec![0; left];
        for (count, number) in self.counts.iter().zip(&new) {
            if let Some(number) = number {
                counts[*number as usize] = *count;
            }
        }
        self.counts = counts;
        let unchanged = new.iter().zip(0..).all(|(number, id)| *number == Some(id));
        (!unchanged).then_some(new)
    }
}

/// Values in the order of their new numbers.
pub(super) fn permuted<T>(values: Vec<T>, new: &[Option<u32>]) -> Vec<T> {
    let mut numbered: Vec<(u32, T)> = new
        .iter()
        .zip(values)
        .filter_map(|(number, value)| Some(((*number)?, value)))
        .collect();
    numbered.sort_unstable_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values along a sequence that changes in every way have the numbers that a fresh pass gives.
    #[test]
    fn numbers_are_those_of_a_fresh_pass() {
        let mut random: u64 = 7;
        let mut roll = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % limit
        };
        for _ in 0..200 {
            let mut values: Vec<u32> = Vec::new();
            let mut ids: Vec<u32> = Vec::new();
            let mut numbering: Numbering<u32> = Numbering::new([], std::iter::empty());
            for _ in 0..40 {
                let next = |ids: &[u32], at: usize, range: std::ops::Range<usize>| {
                    let mut range = range.start..range.end.min(ids.len());
                    range.find(|index| ids[*index] == ids[at])
                };
                match roll(3) {
                    0 if !ids.is_empty() => {
                        let at = roll(ids.len());
                        numbering.remove(at, ids[at], Shift::Moves, |range| next(&ids, at, range));
                        values.remove(at);
                        ids.remove(at);
                    }
                    1 if !ids.is_empty() => {
                        let (at, value) = (roll(ids.len()), roll(6) as u32);
                        numbering.remove(at, ids[at], Shift::Stays, |range| next(&ids, at, range));
                        ids[at] = numbering.insert(at, value, Shift::Stays).0;
                        values[at] = value;
                    }
                    _ => {
                        let (at, value) = (roll(ids.len() + 1), roll(6) as u32);
                        let (id, _) = numbering.insert(at, value, Shift::Moves);
                        values.insert(at, value);
                        ids.insert(at, id);
                    }
                }
                if roll(2) == 0 {
                    if let Some(new) = numbering.renumber(ids.iter().copied()) {
                        ids.iter_mut()
                            .for_each(|id| *id = new[*id as usize].unwrap_or(GONE));
                    }
                    let mut seen: Vec<u32> = Vec::new();
                    for (value, id) in values.iter().zip(&ids) {
                        if !seen.contains(value) {
                            seen.push(*value);
                        }
                        assert_eq!(seen.iter().position(|one| one == value), Some(*id as usize));
                    }
                    assert_eq!(numbering.ids.len(), seen.len());
                }
            }
        }
    }
}
