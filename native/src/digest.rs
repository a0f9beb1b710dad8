//! The digests of match ids and plans: BLAKE2b of 128 bits, as in src/cepheid/model/matches.py.

use blake2b_simd::{Params, State};

/// The length of a digest in bytes.
pub const DIGEST: usize = 16;

/// A hash under way. Copying it and going on with both is cheap.
#[derive(Clone, Debug)]
pub struct Hash(State);

impl Hash {
    /// A hash of nothing yet, personalised with at most 16 bytes.
    pub fn new(person: &[u8]) -> Self {
        Hash(Params::new().hash_length(DIGEST).personal(person).to_state())
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all that was added.
    pub fn finish(self) -> [u8; DIGEST] {
        let mut digest = [0; DIGEST];
        digest.copy_from_slice(self.0.finalize().as_bytes());
        digest
    }
}

/// A digest as hex text.
pub fn hex(digest: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(digest.len() * 2);
    for byte in digest {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests are Python's: hashlib.blake2b(data, digest_size=16, person=b"cepheid-match-1").
    #[test]
    fn equals_pythons() {
        let of = |data: &[u8]| {
            let mut hash = Hash::new(b"cepheid-match-1");
            for chunk in data.chunks(7) {
                hash.update(chunk);
            }
            hex(&hash.finish())
        };
        assert_eq!(of(b""), "a4af75ec60972db708ec0e165e273bcd");
        assert_eq!(of(b"abc"), "d917bf8f3237b618da10ae14856fb0f5");
        assert_eq!(of(&[7; 128]), "7a53b1089a5e85ea90368b35ceb63cc3");
        assert_eq!(of(&[9; 1000]), "b8455c71dd6791c786cfc49c0086b734");
    }
}
