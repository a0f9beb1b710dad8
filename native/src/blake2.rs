//! BLAKE2b (RFC 7693) with a 128-bit digest and a personalisation: the hash behind the ids of matches.
//!
//! Own, because it is short, and a state that has absorbed the query can be copied for each match.

const IV: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

const SIGMA: [[usize; 16]; 12] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
];

const BLOCK: usize = 128;
/// The length of a digest in bytes.
pub const DIGEST: usize = 16;

/// A hash under way. Copying it and going on with both is cheap.
#[derive(Clone, Debug)]
pub struct Blake2b {
    state: [u64; 8],
    buffer: [u8; BLOCK],
    filled: usize,
    absorbed: u128,
}

impl Blake2b {
    /// A hash of nothing yet, personalised with at most 16 bytes (more are left out).
    pub fn new(person: &[u8]) -> Self {
        let mut padded = [0; 16];
        let used = person.len().min(16);
        padded[..used].copy_from_slice(&person[..used]);
        let mut state = IV;
        state[0] ^= 0x0101_0000 ^ DIGEST as u64;
        state[6] ^= word(&padded[..8]);
        state[7] ^= word(&padded[8..]);
        Blake2b {
            state,
            buffer: [0; BLOCK],
            filled: 0,
            absorbed: 0,
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // A full block waits until more comes, because the last one is compressed differently.
            if self.filled == BLOCK {
                self.absorbed += BLOCK as u128;
                self.compress(false);
                self.filled = 0;
            }
            let taken = bytes.len().min(BLOCK - self.filled);
            self.buffer[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
        }
    }

    /// The digest.
    pub fn finish(mut self) -> [u8; DIGEST] {
        self.absorbed += self.filled as u128;
        self.buffer[self.filled..].fill(0);
        self.compress(true);
        let mut digest = [0; DIGEST];
        digest[..8].copy_from_slice(&self.state[0].to_le_bytes());
        digest[8..].copy_from_slice(&self.state[1].to_le_bytes());
        digest
    }

    fn compress(&mut self, last: bool) {
        let mut block = [0; 16];
        for (target, bytes) in block.iter_mut().zip(self.buffer.chunks_exact(8)) {
            *target = word(bytes);
        }
        let mut v = [0; 16];
        v[..8].copy_from_slice(&self.state);
        v[8..].copy_from_slice(&IV);
        v[12] ^= self.absorbed as u64;
        v[13] ^= (self.absorbed >> 64) as u64;
        if last {
            v[14] = !v[14];
        }
        for s in &SIGMA {
            mix(&mut v, [0, 4, 8, 12], block[s[0]], block[s[1]]);
            mix(&mut v, [1, 5, 9, 13], block[s[2]], block[s[3]]);
            mix(&mut v, [2, 6, 10, 14], block[s[4]], block[s[5]]);
            mix(&mut v, [3, 7, 11, 15], block[s[6]], block[s[7]]);
            mix(&mut v, [0, 5, 10, 15], block[s[8]], block[s[9]]);
            mix(&mut v, [1, 6, 11, 12], block[s[10]], block[s[11]]);
            mix(&mut v, [2, 7, 8, 13], block[s[12]], block[s[13]]);
            mix(&mut v, [3, 4, 9, 14], block[s[14]], block[s[15]]);
        }
        for (i, word) in self.state.iter_mut().enumerate() {
            *word ^= v[i] ^ v[i + 8];
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded.copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}

#[inline(always)]
fn mix(v: &mut [u64; 16], [a, b, c, d]: [usize; 4], x: u64, y: u64) {
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(x);
    v[d] = (v[d] ^ v[a]).rotate_right(32);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(24);
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(y);
    v[d] = (v[d] ^ v[a]).rotate_right(16);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(63);
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
            let mut hash = Blake2b::new(b"cepheid-match-1");
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
