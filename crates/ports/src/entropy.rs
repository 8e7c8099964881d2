//! Chance: a tree of seeded generators.
//!
//! Owns the derivation of every random stream from one seed and a path of names. A stream depends on nothing else: not on
//! the order in which streams are asked for, nor on how much of another stream was read. It never reads the system's
//! random source; the binary passes a seed in.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Letters of generated names: Kubernetes' own alphabet, without vowels and look-alikes, so that no word appears.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A node of the tree of seeded generators. Cheap to clone; clones give the same streams.
#[derive(Clone, Debug)]
pub struct Entropy {
    key: [u8; 32],
}

impl Entropy {
    /// The root of the tree that `seed` names.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            key: ChaCha8Rng::seed_from_u64(seed).fill_array(),
        }
    }

    /// The subtree called `name`; give one to each component.
    #[must_use]
    pub fn child(&self, name: &str) -> Entropy {
        Self {
            key: absorb(self.key, b'c', name),
        }
    }

    /// The generator called `name` in this subtree. Asking twice gives the same stream from its beginning, so whoever
    /// needs fresh values keeps the generator.
    #[must_use]
    pub fn rng(&self, name: &str) -> ChaCha8Rng {
        ChaCha8Rng::from_seed(absorb(self.key, b'r', name))
    }

    /// One number that depends only on the seed and `name`.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        self.rng(name).next_u64()
    }

    /// A suffix for the name of a Kubernetes object, of `length` letters, that depends only on the seed and `name`.
    #[must_use]
    pub fn suffix(&self, name: &str, length: usize) -> String {
        name_suffix(&mut self.rng(name), length)
    }
}

/// Draws a suffix of `length` letters from Kubernetes' alphabet for generated names.
pub fn name_suffix(rng: &mut ChaCha8Rng, length: usize) -> String {
    (0..length)
        .map(|_| {
            // 27 does not divide 2^32; the bias is below one in a hundred million and harms no name.
            let index = rng.next_u32() % 27;
            char::from(NAME_ALPHABET[index as usize])
        })
        .collect()
}

/// Mixes a name into a key, block by block; length and purpose go in first, so that no two paths collide by cutting.
fn absorb(key: [u8; 32], purpose: u8, name: &str) -> [u8; 32] {
    let mut header = [0_u8; 32];
    header[0] = purpose;
    header[8..16].copy_from_slice(&(name.len() as u64).to_le_bytes());
    let mut state = mix(key, &header);
    for block in name.as_bytes().chunks(32) {
        state = mix(state, block);
    }
    state
}

fn mix(mut key: [u8; 32], block: &[u8]) -> [u8; 32] {
    for (byte, input) in key.iter_mut().zip(block) {
        *byte ^= input;
    }
    ChaCha8Rng::from_seed(key).fill_array()
}

trait FillArray {
    fn fill_array(self) -> [u8; 32];
}

impl FillArray for ChaCha8Rng {
    fn fill_array(mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.fill_bytes(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_only_on_seed_and_path() {
        let first = Entropy::new(7);
        let mut elsewhere = first.rng("other");
        elsewhere.next_u64();
        let again = Entropy::new(7);
        assert_eq!(first.child("a").number("x"), again.child("a").number("x"));
        assert_ne!(
            first.child("a").number("x"),
            Entropy::new(8).child("a").number("x")
        );
    }

    #[test]
    fn different_paths_give_different_streams() {
        let root = Entropy::new(1);
        let numbers = [
            root.number("ab"),
            root.number("a"),
            root.number(""),
            root.child("a").number("b"),
            root.child("ab").number(""),
            root.child("").number("ab"),
            root.number("a name that is longer than one block of thirty-two bytes"),
            root.number("a name that is longer than one block of thirty-two bytez"),
        ];
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "path {index} collides");
        }
    }

    #[test]
    fn the_streams_never_change_between_releases() {
        // A recorded seed must replay for ever: these values are part of the interface.
        assert_eq!(Entropy::new(42).child("kwok").suffix("node", 5), "nr5rv");
    }

    #[test]
    fn suffixes_are_valid_in_names() {
        let suffix = Entropy::new(3).suffix("pod", 40);
        assert_eq!(suffix.len(), 40);
        assert!(suffix.bytes().all(|b| NAME_ALPHABET.contains(&b)));
    }
}
