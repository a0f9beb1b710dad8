//! Base64 as Python's `b64decode(validate=True)` reads it: padded, nothing else in it, spare bits ignored.

fn digit(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// The bytes that a text means; None if it is not base64.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let last = text.len().saturating_sub(4);
    for (at, group) in text.chunks_exact(4).enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && at * 4 != last) {
            return None;
        }
        let mut word = 0;
        for byte in &group[..4 - padding] {
            word = word << 6 | digit(*byte)?;
        }
        word <<= 6 * padding;
        bytes.extend_from_slice(&word.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

/// Appends what the bytes are in base64, padded.
pub fn encode(bytes: &[u8], text: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            text.push(if digit <= group.len() {
                DIGITS[(word >> (18 - 6 * digit) & 63) as usize]
            } else {
                b'='
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn what_is_written_is_read() {
        for length in 0..20 {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 37 + 200) as u8).collect();
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            assert_eq!(decode(&text), Some(bytes));
        }
        let mut text = Vec::new();
        encode(b"Ma", &mut text);
        assert_eq!(text, b"TWE=");
    }

    #[test]
    fn what_is_base64_and_what_is_not() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("TWFu", b"Man"),
            ("TWE=", b"Ma"),
            ("TQ==", b"M"),
            ("TR==", b"M"),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        for text in ["TWE", "T===", "TQ==TQ==", "TW E", "=TWE", "TW=E", "TWE-", "TWFu\n"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
