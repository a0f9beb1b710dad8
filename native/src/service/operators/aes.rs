//! AES: encrypts in counter mode, so that the output is as long as the input.
//!
//! The counter block of an event is its time (8 bytes), the low half of its id (4) and the number of the block (4), all
//! big-endian; time and id are in the output's record, so that who has the key can decrypt it. Two outputs of an operator have
//! the same time and id only if one is the other, made again after a crash (identity.rs).

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256, Block};

use crate::json::{Fault, fault};
use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::value::Val;

enum Cipher {
    Short(Aes128),
    Middle(Aes192),
    Long(Aes256),
}

/// Encrypts.
pub struct Encrypt {
    payload: usize,
    cipher: Cipher,
    blocks: Vec<Block>,
    output: Vec<u8>,
}

/// A key that nobody knows.
fn random_key() -> Result<[u8; 16], Fault> {
    let mut key = [0_u8; 16];
    // SAFETY: the kernel writes at most the length given into the array that we own.
    let found = unsafe { libc::getrandom(key.as_mut_ptr().cast(), key.len(), 0) };
    if found == 16 {
        Ok(key)
    } else {
        fault("the kernel gave no random key")
    }
}

fn unhex(text: &str) -> Result<Vec<u8>, Fault> {
    let digits = (0..text.len()).step_by(2);
    let bytes = digits.map(|i| text.get(i..i + 2).and_then(|two| u8::from_str_radix(two, 16).ok()));
    bytes
        .collect::<Option<Vec<u8>>>()
        .map_or_else(|| fault("an AES key is not hex"), Ok)
}

impl Encrypt {
    /// With a key of 16, 24 or 32 bytes in hex, or a random one.
    pub fn new(payload: usize, key: Option<&str>) -> Result<Encrypt, Fault> {
        let key = match key {
            Some(text) => unhex(text)?,
            None => random_key()?.to_vec(),
        };
        let wrong = |_| Fault("an AES key is 16, 24 or 32 bytes".to_owned());
        let cipher = match key.len() {
            24 => Cipher::Middle(Aes192::new_from_slice(&key).map_err(wrong)?),
            32 => Cipher::Long(Aes256::new_from_slice(&key).map_err(wrong)?),
            _ => Cipher::Short(Aes128::new_from_slice(&key).map_err(wrong)?),
        };
        Ok(Encrypt {
            payload,
            cipher,
            blocks: Vec::new(),
            output: Vec::new(),
        })
    }

    /// An array or bytes, encrypted as those of the event with that time and id; None of anything else.
    pub(super) fn encrypted(&mut self, plain: &Val<'_>, time: i64, id: i64) -> Option<&[u8]> {
        match plain {
            Val::Bytes(x) => self.encrypt(x, time, id),
            Val::Floats(x) => self.encrypt(bytemuck::cast_slice(x), time, id),
            _ => return None,
        }
        Some(&self.output)
    }

    fn encrypt(&mut self, plain: &[u8], time: i64, id: i64) {
        self.blocks.clear();
        for number in 0..plain.len().div_ceil(16) {
            let mut block = Block::default();
            block[..8].copy_from_slice(&time.to_be_bytes());
            block[8..12].copy_from_slice(&(id as u32).to_be_bytes());
            block[12..].copy_from_slice(&(number as u32).to_be_bytes());
            self.blocks.push(block);
        }
        match &self.cipher {
            Cipher::Short(cipher) => cipher.encrypt_blocks(&mut self.blocks),
            Cipher::Middle(cipher) => cipher.encrypt_blocks(&mut self.blocks),
            Cipher::Long(cipher) => cipher.encrypt_blocks(&mut self.blocks),
        }
        self.output.clear();
        for (part, block) in plain.chunks(16).zip(&self.blocks) {
            self.output.extend(part.iter().zip(block.iter()).map(|(a, b)| a ^ b));
        }
    }
}

impl Process for Encrypt {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        let value = inputs.get(0).map_or(Val::Null, |record| record.get(self.payload));
        out.emit(&mut |draft| {
            let found = self.encrypted(&value, draft.time, draft.id);
            found.map_or(Ok(()), |found| draft.set(0, &Val::Bytes(found)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST SP 800-38A, F.5.1 and F.5.5: CTR-AES128 and CTR-AES256, first block; our counter block is theirs here.
    #[test]
    fn it_is_counter_mode_of_the_standard() {
        let counter: [u8; 16] = core::array::from_fn(|i| 0xf0 + i as u8);
        let time = i64::from_be_bytes(counter[..8].try_into().unwrap());
        let id = i64::from(u32::from_be_bytes(counter[8..12].try_into().unwrap()));
        let plain = unhex("6bc1bee22e409f96e93d7e117393172a").unwrap();
        // The standard counts on from fcfdfeff, we begin with 0: so encrypt that one block by hand.
        for (key, expected) in [
            ("2b7e151628aed2a6abf7158809cf4f3c", "874d6191b620e3261bef6864990db6ce"),
            (
                "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
                "601ec313775789a5b7a7f504bbf3d228",
            ),
        ] {
            let mut cipher = Encrypt::new(0, Some(key)).unwrap();
            let mut block = Block::from(counter);
            match &cipher.cipher {
                Cipher::Short(cipher) => cipher.encrypt_block(&mut block),
                Cipher::Middle(cipher) => cipher.encrypt_block(&mut block),
                Cipher::Long(cipher) => cipher.encrypt_block(&mut block),
            }
            let found: Vec<u8> = plain.iter().zip(block.iter()).map(|(a, b)| a ^ b).collect();
            assert_eq!(found, unhex(expected).unwrap());
            cipher.encrypt(&plain, time, id);
            assert_eq!(cipher.output.len(), 16);
            let once = cipher.output.clone();
            cipher.encrypt(&once, time, id);
            assert_eq!(cipher.output, plain);
        }
    }

    #[test]
    fn lengths_stay_and_blocks_differ() {
        let mut cipher = Encrypt::new(0, None).unwrap();
        for length in [0, 1, 15, 16, 17, 512] {
            cipher.encrypt(&vec![0; length], 1, 1);
            assert_eq!(cipher.output.len(), length);
        }
        assert_ne!(cipher.output[..16], cipher.output[16..32]);
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        assert!(Encrypt::new(0, Some("zz")).is_err());
        assert!(Encrypt::new(0, Some("2b7e")).is_err());
    }
}
