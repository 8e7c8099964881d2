//! Sets of small numbers as words, with the few operations that packing needs, none of which allocates once a set has its size.
//!
//! Sets of different length combine: what a set does not reach is not in it.

use std::ops::Range;

const WORD: usize = 64;

/// A set of small numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// An empty set with room for numbers below `length`.
    pub(crate) fn new(length: usize) -> Self {
        Bits {
            words: vec![0; length.div_ceil(WORD)],
        }
    }

    /// With the given members.
    pub(crate) fn of(length: usize, members: impl IntoIterator<Item = usize>) -> Self {
        let mut bits = Bits::new(length);
        members.into_iter().for_each(|member| bits.insert(member));
        bits
    }

    /// All numbers below `length`.
    pub(crate) fn full(length: usize) -> Self {
        let mut bits = Bits::new(length);
        bits.fill(length);
        bits
    }

    /// Becomes all numbers below `length`.
    pub(crate) fn fill(&mut self, length: usize) {
        self.words.clear();
        self.words.resize(length.div_ceil(WORD), u64::MAX);
        if let Some(last) = self.words.last_mut()
            && !length.is_multiple_of(WORD)
        {
            *last = (1 << (length % WORD)) - 1;
        }
    }

    /// Becomes the empty set with room for numbers below `length`.
    pub(crate) fn reset(&mut self, length: usize) {
        self.words.clear();
        self.words.resize(length.div_ceil(WORD), 0);
    }

    /// Becomes equal to another set.
    pub(crate) fn copy_from(&mut self, other: &Bits) {
        self.words.clear();
        self.words.extend_from_slice(&other.words);
    }

    /// Adds a number, growing as needed.
    pub(crate) fn insert(&mut self, member: usize) {
        let word = member / WORD;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (member % WORD);
    }

    /// Removes a number.
    pub(crate) fn remove(&mut self, member: usize) {
        if let Some(word) = self.words.get_mut(member / WORD) {
            *word &= !(1 << (member % WORD));
        }
    }

    /// Whether a number is in the set.
    pub(crate) fn contains(&self, member: usize) -> bool {
        self.word(member / WORD) >> (member % WORD) & 1 == 1
    }

    /// The word at a position; zero beyond the end.
    #[inline]
    pub(crate) fn word(&self, position: usize) -> u64 {
        self.words.get(position).copied().unwrap_or(0)
    }

    /// Adds members to the word at a position, growing as needed.
    pub(crate) fn union_word(&mut self, position: usize, members: u64) {
        if position >= self.words.len() {
            self.words.resize(position + 1, 0);
        }
        self.words[position] |= members;
    }

    /// Removes members from the word at a position.
    pub(crate) fn subtract_word(&mut self, position: usize, members: u64) {
        if let Some(word) = self.words.get_mut(position) {
            *word &= !members;
        }
    }

    /// How many words there are.
    pub(crate) fn word_count(&self) -> usize {
        self.words.len()
    }

    /// Removes every number, keeping the room.
    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(crate) fn is_clear(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Keeps what is in both.
    pub(crate) fn intersect(&mut self, other: &Bits) {
        if self.words.len() > other.words.len() {
            self.words[other.words.len()..].fill(0);
        }
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Adds what is in the other.
    pub(crate) fn union(&mut self, other: &Bits) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Removes what is in the other.
    pub(crate) fn subtract(&mut self, other: &Bits) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    /// Some words become those of both sets; the set must be as long.
    pub(crate) fn copy_common_words(&mut self, left: &Bits, right: &Bits, words: Range<usize>) {
        let (start, end) = (words.start, words.end.min(self.words.len()));
        for position in start..end {
            self.words[position] = left.word(position) & right.word(position);
        }
    }

    /// Empties some words.
    pub(crate) fn clear_words(&mut self, words: Range<usize>) {
        let end = words.end.min(self.words.len());
        self.words[words.start.min(end)..end].fill(0);
    }

    /// `intersect` for some words.
    pub(crate) fn intersect_words(&mut self, other: &Bits, words: Range<usize>) {
        self.clear_words(words.start.max(other.words.len())..words.end);
        for (word, other) in self.pairs(other, words) {
            *word &= other;
        }
    }

    /// `subtract` for some words.
    pub(crate) fn subtract_words(&mut self, other: &Bits, words: Range<usize>) {
        for (word, other) in self.pairs(other, words) {
            *word &= !other;
        }
    }

    /// `union` for some words that the set has.
    pub(crate) fn union_words(&mut self, other: &Bits, words: Range<usize>) {
        for (word, other) in self.pairs(other, words) {
            *word |= other;
        }
    }

    /// The words at the same positions, where both sets have them.
    fn pairs<'a>(
        &'a mut self,
        other: &'a Bits,
        words: Range<usize>,
    ) -> impl Iterator<Item = (&'a mut u64, &'a u64)> {
        let end = words.end.min(self.words.len()).min(other.words.len());
        let range = words.start.min(end)..end;
        self.words[range.clone()].iter_mut().zip(&other.words[range])
    }

    pub(crate) fn is_disjoint(&self, other: &Bits) -> bool {
        self.words
            .iter()
            .zip(&other.words)
            .all(|(word, other)| word & other == 0)
    }

    /// The members, in order.
    pub(crate) fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(position, word)| ones_of(*word).map(move |bit| position * WORD + bit))
    }

    /// The members of both, in order.
    pub(crate) fn common<'a>(&'a self, other: &'a Bits) -> impl Iterator<Item = usize> + 'a {
        let words = self.words.iter().zip(&other.words).enumerate();
        words
            .flat_map(|(position, (word, other))| ones_of(word & other).map(move |bit| position * WORD + bit))
    }
}

/// The set bits of a word, lowest first.
pub(crate) fn ones_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn behaves_like_a_set_whatever_the_lengths() {
        let left: BTreeSet<usize> = [0, 1, 63, 64, 130, 200].into();
        let right: BTreeSet<usize> = [1, 64, 65, 199].into();
        let bits = |set: &BTreeSet<usize>| Bits::of(0, set.iter().copied());
        let members = |bits: &Bits| bits.ones().collect::<BTreeSet<usize>>();
        for (a, b) in [(&left, &right), (&right, &left), (&left, &BTreeSet::new())] {
            let mut joined = bits(a);
            joined.union(&bits(b));
            assert_eq!(members(&joined), a | b);
            let mut both = bits(a);
            both.intersect(&bits(b));
            assert_eq!(members(&both), a & b);
            assert_eq!(bits(a).common(&bits(b)).collect::<BTreeSet<_>>(), a & b);
            assert_eq!(bits(a).is_disjoint(&bits(b)), a.is_disjoint(b));
            let mut rest = bits(a);
            rest.subtract(&bits(b));
            assert_eq!(members(&rest), a - b);
            assert_eq!(bits(a).count(), a.len());
        }
        for words in [0..1, 1..2, 1..4, 2..9, 3..3] {
            let within = |member: &usize| words.contains(&(member / WORD));
            let expected = |inside: BTreeSet<usize>| -> BTreeSet<usize> {
                let outside = left.iter().copied().filter(|member| !within(member));
                inside.into_iter().filter(within).chain(outside).collect()
            };
            let after = |change: &dyn Fn(&mut Bits, &Bits)| {
                let mut changed = bits(&left);
                change(&mut changed, &bits(&right));
                members(&changed)
            };
            let both = &left & &right;
            let range = || words.clone();
            assert_eq!(after(&|a, b| a.intersect_words(b, range())), expected(both));
            assert_eq!(
                after(&|a, b| a.subtract_words(b, range())),
                expected(&left - &right)
            );
            assert_eq!(after(&|a, b| a.union_words(b, range())), expected(&left | &right));
            assert_eq!(after(&|a, _| a.clear_words(range())), expected(BTreeSet::new()));
            let ours = bits(&left);
            assert_eq!(
                after(&|a, b| a.copy_common_words(b, &ours, range())),
                expected(&left & &right)
            );
        }
        let mut words = bits(&left);
        words.union_word(4, 0b101);
        words.subtract_word(0, 0b10);
        words.subtract_word(9, 1);
        assert_eq!(members(&words), [0, 63, 64, 130, 200, 256, 258].into());
        assert_eq!(members(&Bits::full(70)), (0..70).collect());
        let mut one = Bits::full(64);
        one.remove(5);
        assert!(!one.contains(5) && one.contains(6) && !one.contains(640));
    }
}
