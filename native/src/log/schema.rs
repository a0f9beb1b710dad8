//! The streams of a log as its segments and the wire describe them: names, attributes and types, in JSON.

use serde::{Deserialize, Serialize};

use crate::record::{Kind, Schema};

/// A stream: its name and its attributes in order, by name and type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSchema {
    /// The stream's name. Its number is its place among the others.
    pub name: String,
    /// Name and type of each attribute.
    pub attributes: Vec<(String, String)>,
}

impl StreamSchema {
    /// The layout of its records; the error names a type that there is not.
    pub fn layout(&self, stream: u16) -> Result<Schema, String> {
        let kinds: Result<Vec<Kind>, String> = self
            .attributes
            .iter()
            .map(|(name, kind)| {
                Kind::parse(kind).ok_or_else(|| format!("stream '{}': '{name}' has no type '{kind}'", self.name))
            })
            .collect();
        Ok(Schema::new(stream, kinds?))
    }
}

/// The layouts of all streams, each under its number.
pub fn layouts(streams: &[StreamSchema]) -> Result<Vec<Schema>, String> {
    if streams.len() > usize::from(u16::MAX) {
        return Err("there are more streams than numbers for them".to_owned());
    }
    streams
        .iter()
        .zip(0..)
        .map(|(stream, number)| stream.layout(number))
        .collect()
}

/// What tells whether two sides mean the same by a stream: 16 hex digits over its name, attributes and types.
pub fn fingerprint(stream: &StreamSchema) -> String {
    let mut state = blake2b_simd::Params::new().hash_length(8).to_state();
    let mut part = |text: &str| {
        state.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    };
    part(&stream.name);
    for (name, kind) in &stream.attributes {
        part(name);
        part(kind);
    }
    state.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(attributes: &[(&str, &str)]) -> StreamSchema {
        let attributes = attributes
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect();
        StreamSchema {
            name: "s".to_owned(),
            attributes,
        }
    }

    #[test]
    fn layouts_have_the_numbers_of_their_places() {
        let streams = [stream(&[("a", "int")]), stream(&[("b", "array<float>")])];
        let found = layouts(&streams).unwrap();
        assert_eq!(found[1], Schema::new(1, [Kind::FloatArray]));
        assert!(layouts(&[stream(&[("a", "flaot")])]).unwrap_err().contains("flaot"));
    }

    #[test]
    fn fingerprints_tell_apart() {
        let all = [
            stream(&[]),
            stream(&[("a", "int")]),
            stream(&[("a", "float")]),
            stream(&[("b", "int")]),
            stream(&[("a", "int"), ("b", "int")]),
            stream(&[("b", "int"), ("a", "int")]),
        ];
        for (i, one) in all.iter().enumerate() {
            for (j, other) in all.iter().enumerate() {
                assert_eq!(fingerprint(one) == fingerprint(other), i == j);
            }
        }
    }
}
