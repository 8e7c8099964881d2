//! A long list in pieces, so that what comes into its middle, or goes, moves the rest of a piece and not of the list. It knows nothing of what is in it.

/// Pieces begin with so many, and are halved when they have twice as many.
const PIECE: usize = 512;

#[derive(Clone, Debug)]
pub(super) struct Pieces<T>(Vec<Vec<T>>);

impl<T> FromIterator<T> for Pieces<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut pieces: Vec<Vec<T>> = Vec::new();
        for one in all {
            match pieces.last_mut().filter(|piece| piece.len() < PIECE) {
                Some(piece) => piece.push(one),
                None => {
                    let mut piece = Vec::with_capacity(PIECE);
                    piece.push(one);
                    pieces.push(piece);
                }
            }
        }
        Pieces(pieces)
    }
}

impl<T> Pieces<T> {
    /// The piece of a position, and the position in it; the end of the last piece for the end.
    fn find(&self, at: usize) -> (usize, usize) {
        let mut rest = at;
        for (index, piece) in self.0.iter().enumerate() {
            if rest < piece.len() {
                return (index, rest);
            }
            rest -= piece.len();
        }
        let last = self.0.len().saturating_sub(1);
        (last, self.0.last().map_or(0, Vec::len) + rest)
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        let (piece, at) = self.find(at);
        self.0.get(piece)?.get(at)
    }

    pub(super) fn replace(&mut self, at: usize, value: T) -> Option<T> {
        let (piece, at) = self.find(at);
        let known = self.0.get_mut(piece)?.get_mut(at)?;
        Some(std::mem::replace(known, value))
    }

    pub(super) fn insert(&mut self, at: usize, value: T) {
        if self.0.is_empty() {
            self.0.push(Vec::new());
        }
        let (index, at) = self.find(at);
        let piece = &mut self.0[index];
        piece.insert(at, value);
        if piece.len() >= 2 * PIECE {
            let rest = piece.split_off(PIECE);
            self.0.insert(index + 1, rest);
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        let (index, at) = self.find(at);
        let piece = self.0.get_mut(index).filter(|piece| at < piece.len())?;
        let gone = piece.remove(at);
        if piece.is_empty() {
            self.0.remove(index);
        }
        Some(gone)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }

    /// How many from a position on are the same as others, before the first that is not.
    pub(super) fn same_from<U>(&self, at: usize, others: &[U], is_same: impl Fn(&T, &U) -> bool) -> usize {
        let (first, at) = self.find(at);
        let mut same = 0;
        for (index, piece) in self.0.iter().enumerate().skip(first) {
            let piece = if index == first {
                &piece[at.min(piece.len())..]
            } else {
                piece
            };
            let mut both = piece.iter().zip(&others[same..]);
            match both.position(|(one, other)| !is_same(one, other)) {
                Some(differs) => return same + differs,
                None => same += piece.len().min(others.len() - same),
            }
        }
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against one list. Small pieces come about because much goes.
        #[test]
        fn pieces_are_one_list(length in 0..2_500_usize, steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 0..60)) {
            let mut list: Vec<usize> = (0..length).collect();
            let mut pieces: Pieces<usize> = list.iter().copied().collect();
            for (number, (step, at)) in steps.into_iter().enumerate() {
                let at = at.index(list.len() + 1);
                match step {
                    0 => for _ in 0..300 {
                        list.insert(at, number);
                        pieces.insert(at, number);
                    },
                    1 => for _ in 0..300.min(list.len() - at) {
                        prop_assert_eq!(pieces.remove(at), Some(list.remove(at)));
                    },
                    _ => {
                        let known = list.get(at).copied();
                        prop_assert_eq!(pieces.replace(at, number), known);
                        list.get_mut(at).into_iter().for_each(|value| *value = number);
                    }
                }
                prop_assert_eq!(pieces.0.iter().map(Vec::len).sum::<usize>(), list.len());
                prop_assert_eq!(pieces.get(at), list.get(at));
                let mut other = list[at..].to_vec();
                prop_assert_eq!(pieces.same_from(at, &other, |one, two| one == two), other.len());
                if let Some(middle) = other.len().checked_sub(3) {
                    other[middle] = usize::MAX;
                    prop_assert_eq!(pieces.same_from(at, &other, |one, two| one == two), middle);
                    prop_assert_eq!(pieces.same_from(at, &other[..middle], |one, two| one == two), middle);
                }
            }
            let all: Vec<usize> = pieces.iter_mut().map(|value| *value).collect();
            prop_assert_eq!(all, list);
        }
    }
}
