//! Arrays of Arrow, built value by value, and handed over by the C Data interface.

use std::ffi::{CString, c_void};

use crate::arrow::{ArrowArray, ArrowSchema};
use crate::value::Value;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ColumnType {
    Bool,
    Int,
    Float,
    Text,
    Timestamp,
    Bytes,
    Floats,
}

/// A column that is being built.
pub struct Builder {
    validity: Vec<u8>,
    nulls: i64,
    length: usize,
    kind: Kind,
}

enum Kind {
    Bits(Vec<u8>),
    Int(Vec<i64>),
    Time(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<i32>, Vec<u8>),
    Bytes(Vec<i32>, Vec<u8>),
    List(Vec<i32>, Box<Builder>),
    Struct(Vec<(String, Builder)>),
}

impl Builder {
    fn with(kind: Kind) -> Self {
        Builder {
            validity: Vec::new(),
            nulls: 0,
            length: 0,
            kind,
        }
    }

    /// A column of values.
    pub fn new(kind: ColumnType) -> Self {
        Builder::with(match kind {
            ColumnType::Bool => Kind::Bits(Vec::new()),
            ColumnType::Int => Kind::Int(Vec::new()),
            ColumnType::Float => Kind::Float(Vec::new()),
            ColumnType::Text => Kind::Text(vec![0], Vec::new()),
            ColumnType::Timestamp => Kind::Time(Vec::new()),
            ColumnType::Bytes => Kind::Bytes(vec![0], Vec::new()),
            ColumnType::Floats => return Builder::list(Builder::new(ColumnType::Float)),
        })
    }

    /// A column of lists of what another holds.
    pub fn list(values: Builder) -> Self {
        Builder::with(Kind::List(vec![0], Box::new(values)))
    }

    /// A column of named parts.
    pub fn of(parts: Vec<(String, Builder)>) -> Self {
        Builder::with(Kind::Struct(parts))
    }

    /// A record batch of columns that are as long as each other.
    pub fn of_rows(parts: Vec<(String, Builder)>) -> Self {
        let length = parts.first().map_or(0, |(_, part)| part.length);
        Builder {
            length,
            ..Builder::with(Kind::Struct(parts))
        }
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many bytes its texts have; offsets end at 2^31.
    pub fn text_bytes(&self) -> usize {
        match &self.kind {
            Kind::Text(_, bytes) | Kind::Bytes(_, bytes) => bytes.len(),
            Kind::List(_, values) => values.text_bytes().max(values.length),
            Kind::Struct(parts) => parts.iter().map(|(_, part)| part.text_bytes()).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn mark(&mut self, valid: bool) {
        set_bit(&mut self.validity, self.length, valid);
        self.nulls += i64::from(!valid);
        self.length += 1;
    }

    /// No value.
    pub fn null(&mut self) {
        match &mut self.kind {
            Kind::Bits(bits) => set_bit(bits, self.length, false),
            Kind::Int(values) | Kind::Time(values) => values.push(0),
            Kind::Float(values) => values.push(0.0),
            Kind::Text(offsets, bytes) | Kind::Bytes(offsets, bytes) => offsets.push(bytes.len() as i32),
            Kind::List(offsets, values) => offsets.push(values.length as i32),
            Kind::Struct(parts) => parts.iter_mut().for_each(|(_, part)| part.null()),
        }
        self.mark(false);
    }

    /// An integer or a time.
    pub fn int(&mut self, value: i64) {
        match &mut self.kind {
            Kind::Int(values) | Kind::Time(values) => values.push(value),
            Kind::Float(values) => values.push(value as f64),
            _ => return self.null(),
        }
        self.mark(true);
    }

    /// Text, in a column of text or bytes.
    pub fn text(&mut self, text: &[u8]) {
        let (Kind::Text(offsets, bytes) | Kind::Bytes(offsets, bytes)) = &mut self.kind else {
            return self.null();
        };
        bytes.extend_from_slice(text);
        offsets.push(bytes.len() as i32);
        self.mark(true);
    }

    /// A value; null where it is of another kind than the column.
    pub fn value(&mut self, value: &Value) {
        match (value, &mut self.kind) {
            (Value::Int(x), _) => self.int(*x),
            (Value::Float(x), Kind::Float(values)) => {
                values.push(*x);
                self.mark(true);
            }
            (Value::Str(x), Kind::Text(..)) => self.text(x.as_bytes()),
            (Value::Bytes(x), Kind::Bytes(..)) => self.text(x),
            (Value::Bool(x), Kind::Bits(bits)) => {
                set_bit(bits, self.length, *x);
                self.mark(true);
            }
            (Value::Floats(x), Kind::List(offsets, values)) => {
                x.iter().for_each(|x| values.value(&Value::Float(*x)));
                offsets.push(values.length as i32);
                self.mark(true);
            }
            _ => self.null(),
        }
    }

    /// A list: what `fill` adds to its values.
    pub fn items(&mut self, fill: impl FnOnce(&mut Builder)) {
        let Kind::List(offsets, values) = &mut self.kind else {
            return self.null();
        };
        fill(values);
        offsets.push(values.length as i32);
        self.mark(true);
    }

    /// The parts of a struct, each of which is to get one value.
    pub fn parts(&mut self, mut fill: impl FnMut(usize, &mut Builder)) {
        if let Kind::Struct(parts) = &mut self.kind {
            parts
                .iter_mut()
                .enumerate()
                .for_each(|(place, (_, part))| fill(place, part));
        }
        self.mark(true);
    }

    /// The array and its type, to be handed over.
    pub fn finish(self, name: &str) -> (ArrowSchema, ArrowArray) {
        let (format, buffers, children): (&str, Vec<Buffer>, Vec<(String, Builder)>) = match self.kind {
            Kind::Bits(bits) => ("b", vec![Buffer::of(bits)], vec![]),
            Kind::Int(values) => ("l", vec![Buffer::of(values)], vec![]),
            Kind::Time(values) => ("tsu:UTC", vec![Buffer::of(values)], vec![]),
            Kind::Float(values) => ("g", vec![Buffer::of(values)], vec![]),
            Kind::Text(offsets, bytes) => ("u", vec![Buffer::of(offsets), Buffer::of(bytes)], vec![]),
            Kind::Bytes(offsets, bytes) => ("z", vec![Buffer::of(offsets), Buffer::of(bytes)], vec![]),
            Kind::List(offsets, values) => ("+l", vec![Buffer::of(offsets)], vec![("element".into(), *values)]),
            Kind::Struct(parts) => ("+s", vec![], parts),
        };
        let mut all = vec![if self.nulls == 0 {
            Buffer::none()
        } else {
            Buffer::of(self.validity)
        }];
        all.extend(buffers);
        let (schemas, arrays) = children.into_iter().map(|(name, part)| part.finish(&name)).unzip();
        let schema = schema_of(format, name, schemas);
        (schema, array_of(self.length as i64, self.nulls, all, arrays))
    }
}

fn set_bit(bits: &mut Vec<u8>, place: usize, set: bool) {
    if place.is_multiple_of(8) {
        bits.push(0);
    }
    if let Some(last) = bits.last_mut() {
        *last |= u8::from(set) << (place % 8);
    }
}

/// Memory that lives as long as an array, whatever its elements are.
struct Buffer {
    data: *const c_void,
    /// What is dropped with it.
    _owner: Box<dyn std::any::Any>,
}

impl Buffer {
    fn of<T: 'static>(values: Vec<T>) -> Buffer {
        Buffer {
            data: values.as_ptr().cast(),
            _owner: Box::new(values),
        }
    }

    fn none() -> Buffer {
        Buffer {
            data: std::ptr::null(),
            _owner: Box::new(()),
        }
    }
}

/// What a schema of ours points to.
struct SchemaParts {
    _format: CString,
    _name: CString,
    children: Vec<*mut ArrowSchema>,
}

fn schema_of(format: &str, name: &str, children: Vec<ArrowSchema>) -> ArrowSchema {
    // A name with a zero in it has no C string; the language lets none have one.
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let (format, name) = (text(format), text(name));
    let children = children
        .into_iter()
        .map(|child| Box::into_raw(Box::new(child)))
        .collect();
    let (format_at, name_at) = (format.as_ptr(), name.as_ptr());
    let mut parts = Box::new(SchemaParts {
        _format: format,
        _name: name,
        children,
    });
    ArrowSchema {
        format: format_at,
        name: name_at,
        metadata: std::ptr::null(),
        flags: 2, // nullable
        n_children: parts.children.len() as i64,
        children: parts.children.as_mut_ptr(),
        dictionary: std::ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: called once with a schema of `schema_of`, whose private data and children are boxes of that function.
    unsafe {
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        for child in &parts.children {
            drop(Box::from_raw(*child));
        }
        (*schema).release = None;
    }
}

/// What an array of ours points to.
struct ArrayParts {
    _buffers: Vec<Buffer>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

fn array_of(length: i64, nulls: i64, buffers: Vec<Buffer>, children: Vec<ArrowArray>) -> ArrowArray {
    let mut parts = Box::new(ArrayParts {
        pointers: buffers.iter().map(|buffer| buffer.data).collect(),
        _buffers: buffers,
        children: children
            .into_iter()
            .map(|child| Box::into_raw(Box::new(child)))
            .collect(),
    });
    ArrowArray {
        length,
        null_count: nulls,
        offset: 0,
        n_buffers: parts.pointers.len() as i64,
        n_children: parts.children.len() as i64,
        buffers: parts.pointers.as_mut_ptr(),
        children: parts.children.as_mut_ptr(),
        dictionary: std::ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: called once with an array of `array_of`, whose private data and children are boxes of that function.
    unsafe {
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        for child in &parts.children {
            drop(Box::from_raw(*child));
        }
        (*array).release = None;
    }
}
