//! The values of attributes and expressions, and how they compare (rule E6).
//!
//! Timestamps and durations are integers of microseconds here: the checker has seen to it that they are not mixed.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arcstr::ArcStr;

/// A value that is kept: two words, so that an event is small. Text and arrays are shared.
#[derive(Clone, Debug)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer, a timestamp or a duration.
    Int(i64),
    /// A finite float.
    Float(f64),
    /// Text.
    Str(ArcStr),
    /// Bytes, and array<uint8>.
    Bytes(Arc<Box<[u8]>>),
    /// array<float>.
    Floats(Arc<Box<[f64]>>),
}

/// A value that is looked at: text and arrays are borrowed where they can be.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer, a timestamp or a duration.
    Int(i64),
    /// A finite float.
    Float(f64),
    /// Text.
    Str(Cow<'a, str>),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Floats.
    Floats(&'a [f64]),
}

impl Value {
    /// Looks at it.
    #[inline]
    pub fn view(&self) -> Val<'_> {
        match self {
            Value::Null => Val::Null,
            Value::Bool(x) => Val::Bool(*x),
            Value::Int(x) => Val::Int(*x),
            Value::Float(x) => Val::Float(*x),
            Value::Str(x) => Val::Str(Cow::Borrowed(x)),
            Value::Bytes(x) => Val::Bytes(x),
            Value::Floats(x) => Val::Floats(x),
        }
    }

    /// Whether there is none.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Hashes it as a part of a partition's key; a text by where it is, if equal ones are there once.
    #[inline]
    pub fn hash_part(&self, once: bool, state: &mut impl Hasher) {
        match self {
            Value::Str(text) if once => state.write_usize(text.as_ptr() as usize),
            other => other.view().hash_key(state),
        }
    }

    /// Whether two are the same as parts of a partition's key.
    #[inline]
    pub fn is_part(&self, once: bool, other: &Value) -> bool {
        match (self, other) {
            (Value::Str(one), Value::Str(other)) if once => ArcStr::ptr_eq(one, other),
            (one, other) => one.view().order_key(&other.view()).is_eq(),
        }
    }

    /// An integer as a float; anything else as it is.
    pub fn into_float(self) -> Value {
        match self {
            Value::Int(x) => Value::Float(x as f64),
            other => other,
        }
    }
}

impl Val<'_> {
    /// Keeps it.
    pub fn into_value(self) -> Value {
        match self {
            Val::Null => Value::Null,
            Val::Bool(x) => Value::Bool(x),
            Val::Int(x) => Value::Int(x),
            Val::Float(x) => Value::Float(x),
            Val::Str(x) => Value::Str(x.into()),
            Val::Bytes(x) => Value::Bytes(Arc::new(x.into())),
            Val::Floats(x) => Value::Floats(Arc::new(x.into())),
        }
    }

    /// Whether there is none.
    pub fn is_null(&self) -> bool {
        matches!(self, Val::Null)
    }

    /// The truth value; None is unknown.
    #[inline]
    pub fn truth(&self) -> Option<bool> {
        match self {
            Val::Bool(x) => Some(*x),
            _ => None,
        }
    }

    /// A number as a float.
    pub fn number(&self) -> Option<f64> {
        match self {
            Val::Int(x) => Some(*x as f64),
            Val::Float(x) => Some(*x),
            _ => None,
        }
    }
}

/// How two values compare; None if one is null, or they are of different kinds. Int and float compare as floats.
#[inline]
pub fn compare(one: &Val<'_>, other: &Val<'_>) -> Option<Ordering> {
    match (one, other) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::Float(a), Val::Float(b)) => a.partial_cmp(b),
        (Val::Int(a), Val::Float(b)) => (*a as f64).partial_cmp(b),
        (Val::Float(a), Val::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Val::Str(a), Val::Str(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
        (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
        (Val::Floats(a), Val::Floats(b)) => a.partial_cmp(b),
        _ => None,
    }
}

/// A value as a key of partitions and groups: null equals null, and -0.0 equals 0.0.
#[derive(Clone, Debug)]
pub struct Key(pub Value);

impl Val<'_> {
    fn rank(&self) -> u8 {
        match self {
            Val::Null => 0,
            Val::Bool(_) => 1,
            Val::Int(_) => 2,
            Val::Float(_) => 3,
            Val::Str(_) => 4,
            Val::Bytes(_) => 5,
            Val::Floats(_) => 6,
        }
    }

    /// Hashes it as a key.
    #[inline]
    pub fn hash_key(&self, state: &mut impl Hasher) {
        state.write_u8(self.rank());
        match self {
            Val::Null => {}
            Val::Bool(x) => state.write_u8(u8::from(*x)),
            Val::Int(x) => state.write_i64(*x),
            Val::Float(x) => state.write_u64((x + 0.0).to_bits()),
            Val::Str(x) => x.hash(state),
            Val::Bytes(x) => x.hash(state),
            Val::Floats(x) => x.iter().for_each(|x| state.write_u64((x + 0.0).to_bits())),
        }
    }

    /// Compares two as keys: the order of group values, null first (rule O2).
    #[inline]
    pub fn order_key(&self, other: &Val<'_>) -> Ordering {
        let float = |a: f64, b: f64| (a + 0.0).total_cmp(&(b + 0.0));
        match (self, other) {
            (Val::Str(a), Val::Str(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Val::Int(a), Val::Int(b)) => a.cmp(b),
            (Val::Float(a), Val::Float(b)) => float(*a, *b),
            (Val::Floats(a), Val::Floats(b)) => {
                let unequal = a.iter().zip(b.iter()).map(|(x, y)| float(*x, *y)).find(|o| o.is_ne());
                unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Val::Bool(a), Val::Bool(b)) => a.cmp(b),
            (Val::Bytes(a), Val::Bytes(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// An integer as a float; anything else as it is.
    #[inline]
    pub fn into_float(self) -> Self {
        match self {
            Val::Int(x) => Val::Float(x as f64),
            other => other,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.view().order_key(&other.0.view())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.view().hash_key(state);
    }
}
