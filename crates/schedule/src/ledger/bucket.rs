//! Planned NodeClaims with equally many pods, as bits, and where among the words the first and the last of them is.
//!
//! Pods go to the claims with the fewest of them, so that most words of a bucket soon are empty: to look at each of them for every pod would cost the
//! square of the pods.

use crate::bits::Bits;
use std::ops::Range;

/// NodeClaims by position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    bits: Bits,
    /// The words outside of it are empty; unless it is empty itself, its first and its last word are not.
    occupied: Range<usize>,
}

impl Bucket {
    /// Adds a claim. O(1).
    pub(super) fn insert(&mut self, claim: usize) {
        let word = claim / 64;
        self.bits.insert(claim);
        self.occupied = if self.occupied.is_empty() {
            word..word + 1
        } else {
            self.occupied.start.min(word)..self.occupied.end.max(word + 1)
        };
    }

    /// Takes a claim out, if it is there. O(1), but for empty words that are never looked at again until a claim is added before or behind them.
    pub(super) fn remove(&mut self, claim: usize) {
        self.bits.remove(claim);
        let Range { mut start, mut end } = self.occupied;
        while start < end && self.bits.word(start) == 0 {
            start += 1;
        }
        while start < end && self.bits.word(end - 1) == 0 {
            end -= 1;
        }
        self.occupied = start..end;
    }

    /// The words that may not be empty.
    pub(crate) fn words(&self) -> Range<usize> {
        self.occupied.clone()
    }

    /// The word at a position.
    #[inline]
    pub(crate) fn word(&self, position: usize) -> u64 {
        self.bits.word(position)
    }

    /// The claims, in order.
    pub(crate) fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.bits.ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_outside_are_empty_and_those_at_the_ends_are_not() {
        let mut bucket = Bucket::default();
        let mut known = std::collections::BTreeSet::new();
        let mut number = 1_u32;
        for step in 0..5_000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let claim = (number >> 16) as usize % 700;
            // Now it fills, now it empties.
            if (number >> 8) % 10 < if step / 500 % 2 == 0 { 7 } else { 2 } {
                bucket.insert(claim);
                known.insert(claim);
            } else {
                let gone = known.range(claim..).next().copied().unwrap_or(claim);
                bucket.remove(gone);
                known.remove(&gone);
            }
            assert!(bucket.ones().eq(known.iter().copied()));
            match (known.first(), known.last()) {
                (Some(first), Some(last)) => assert_eq!(bucket.words(), first / 64..last / 64 + 1),
                _ => assert!(bucket.words().is_empty()),
            }
        }
    }
}
