//! The ids of what operators produce. They follow from what an output is made of, so that one that is made again, after a crash
//! or from the same log elsewhere, has the id that it had, and who has it already can tell.
//!
//! Of an operator with one input the first output of a run has the input's id, if that is a number. Else ids are mixed, with
//! the places of their inputs, into a number of 63 bits; as are an output's place among those of its run, from the second on.

use crate::record::IdRef;

/// The finaliser of splitmix64: each bit of what is given changes about half of those that come.
fn mix(state: u64, value: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ value;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Begins as no number does, so that an empty text is not 0.
fn mix_text(state: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mixed = bytes.chunks(8).fold(mix(state, u64::MAX), |state, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(state, u64::from_le_bytes(word))
    });
    mix(mixed, bytes.len() as u64)
}

/// The ids of the outputs of a run.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    first: i64,
    state: u64,
    emitted: u64,
}

impl Identity {
    /// Of a run with these inputs: each by its edge, of so many that the operator has.
    pub fn new<'r>(edges: usize, inputs: impl Iterator<Item = (usize, IdRef<'r>)>) -> Identity {
        let mut only = None;
        let mut state = 0;
        for (edge, id) in inputs {
            state = mix(state, edge as u64);
            state = match id {
                IdRef::Int(id) => {
                    only = (edges == 1).then_some(id);
                    mix(state, id as u64)
                }
                IdRef::Text(id) => mix_text(state, id),
            };
        }
        Identity {
            first: only.unwrap_or_else(|| number(state)),
            state,
            emitted: 0,
        }
    }

    /// The id of the next output.
    pub fn next(&self) -> i64 {
        match self.emitted {
            0 => self.first,
            place => number(mix(self.state, place)),
        }
    }

    /// It was produced.
    pub fn pass(&mut self) {
        self.emitted += 1;
    }
}

/// In the range that every reader of JSON and Python's numpy has: not negative.
fn number(state: u64) -> i64 {
    (state >> 1) as i64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn ids(edges: usize, inputs: &[(usize, IdRef<'_>)], count: usize) -> Vec<i64> {
        let mut identity = Identity::new(edges, inputs.iter().copied());
        let next = |_| {
            let id = identity.next();
            identity.pass();
            id
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn one_input_hands_its_id_on() {
        assert_eq!(ids(1, &[(0, IdRef::Int(-7))], 1), [-7]);
        let some = ids(1, &[(0, IdRef::Int(-7))], 3);
        assert_eq!(some[0], -7);
        assert!(some[1] > 0 && some[2] > 0 && some[1] != some[2]);
    }

    #[test]
    fn other_inputs_other_ids() {
        let mut seen = HashSet::new();
        for a in -50..50 {
            for b in -50..50 {
                assert!(seen.insert(ids(2, &[(0, IdRef::Int(a)), (1, IdRef::Int(b))], 1)[0]));
            }
            // With `fire: any` one of them is there.
            for edge in 0..2 {
                assert!(seen.insert(ids(2, &[(edge, IdRef::Int(a))], 1)[0]));
            }
        }
        for text in ["", "a", "b", "ab", "a\0", "abcdefgh", "abcdefghi", "abcdefgha"] {
            let found = ids(1, &[(0, IdRef::Text(text))], 4);
            assert!(found.iter().all(|id| *id >= 0 && seen.insert(*id)), "{text:?}");
            assert_eq!(found, ids(1, &[(0, IdRef::Text(text))], 4));
        }
    }
}
