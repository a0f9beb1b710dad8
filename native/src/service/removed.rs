//! The books of parts that were removed: their counters are added up by name, so that all books together still balance.

use serde_json::{Map, Value, json};

use crate::json::Json;

/// Of how many names of a kind the counters are kept apart; those of others are summed under OTHERS.
const NAMES: usize = 256;
/// No part has such a name.
const OTHERS: &str = "(others)";

/// The sums, by kind and name.
#[derive(Clone, Debug, Default)]
pub(super) struct Removed(Map<String, Json>);

/// Adds what is a number to what is there; of the rest the newer stays.
fn add(to: &mut Json, more: &Json) {
    match (to, more) {
        (Value::Object(to), Value::Object(more)) => {
            for (name, more) in more {
                match to.get_mut(name) {
                    Some(to) => add(to, more),
                    None => {
                        to.insert(name.clone(), more.clone());
                    }
                }
            }
        }
        (to, more) => match (to.as_u64(), more.as_u64()) {
            (Some(one), Some(two)) => *to = (one + two).into(),
            _ => *to = more.clone(),
        },
    }
}

impl Removed {
    /// Adds the books of a part.
    pub(super) fn add(&mut self, kind: &str, name: &str, books: Map<String, Json>) {
        let names = self.0.entry(kind).or_insert_with(|| json!({}));
        let Value::Object(names) = names else { return };
        let is_known = names.contains_key(name) || names.len() < NAMES;
        let sum = names
            .entry(if is_known { name } else { OTHERS })
            .or_insert_with(|| json!({}));
        add(sum, &books.into());
    }

    /// All of them, as JSON.
    pub(super) fn into_json(self) -> Json {
        let mut found = self.0;
        for kind in ["streams", "operators", "consumers"] {
            found.entry(kind).or_insert_with(|| json!({}));
        }
        found.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books(came: u64) -> Map<String, Json> {
        let Value::Object(found) = json!({"level": "high", "queue": {"came": came}}) else {
            panic!("no object")
        };
        found
    }

    #[test]
    fn counters_add_up_by_name_and_beyond_the_bound_together() {
        let mut removed = Removed::default();
        for turn in 0..NAMES as u64 + 10 {
            removed.add("streams", &format!("s{turn}"), books(turn));
        }
        removed.add("streams", "s3", books(4));
        let found = removed.into_json();
        assert_eq!(found["streams"]["s3"], json!({"level": "high", "queue": {"came": 7}}));
        let all = found["streams"].as_object().unwrap();
        assert_eq!(all.len(), NAMES + 1);
        let total: u64 = all.values().filter_map(|books| books["queue"]["came"].as_u64()).sum();
        assert_eq!(total, (0..NAMES as u64 + 10).sum::<u64>() + 4);
    }
}
