//! The Arrow C Data interface: how columns come from, and go to, anything that speaks Arrow, without a copy.
//!
//! The two structures are those of the specification, and live as long as whoever holds them does not release them.

use std::ffi::{CStr, c_char, c_void};

/// A type, and the names of its parts.
#[repr(C)]
#[allow(missing_docs)] // the names of the specification
pub struct ArrowSchema {
    pub format: *const c_char,
    pub name: *const c_char,
    pub metadata: *const c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut ArrowSchema,
    pub dictionary: *mut ArrowSchema,
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    pub private_data: *mut c_void,
}

/// The data of an array of that type.
#[repr(C)]
#[allow(missing_docs)] // the names of the specification
pub struct ArrowArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut ArrowArray,
    pub dictionary: *mut ArrowArray,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    pub private_data: *mut c_void,
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: whoever made the structure says that it is released so, which marks it as released.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as above.
            unsafe { release(self) }
        }
    }
}

/// A record batch of someone else's, which is ours to read until we drop it.
pub struct Batch {
    schema: Box<ArrowSchema>,
    array: Box<ArrowArray>,
}

// SAFETY: the data is only read, and the specification lets any thread release it.
unsafe impl Send for Batch {}
// SAFETY: as above; nothing in it changes while it is read.
unsafe impl Sync for Batch {}

/// What is wrong with a batch.
#[derive(Debug)]
pub struct Unfit(pub String);

impl Batch {
    /// Takes over what the two structures hold, and leaves them released.
    ///
    /// # Safety
    /// Both point to structures that are not released and that keep the promises of the specification: of the types
    /// they name, with as many buffers and children, each as long as it says.
    pub unsafe fn take(schema: *mut ArrowSchema, array: *mut ArrowArray) -> Batch {
        // SAFETY: the caller says that they are valid. They are moved out, and what is left behind is released.
        unsafe {
            let taken = Batch {
                schema: Box::new(std::ptr::read(schema)),
                array: Box::new(std::ptr::read(array)),
            };
            std::ptr::addr_of_mut!((*schema).release).write(None);
            std::ptr::addr_of_mut!((*array).release).write(None);
            taken
        }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        usize::try_from(self.array.length).unwrap_or(0)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A column by its name; None if there is none of that name.
    pub fn column(&self, name: &str) -> Result<Option<Column<'_>>, Unfit> {
        if text_of(self.schema.format) != "+s" {
            return Err(Unfit("expected a record batch, which is a struct of columns".into()));
        }
        for place in 0..usize::try_from(self.schema.n_children).unwrap_or(0) {
            // SAFETY: the structures have so many children.
            let (schema, array) = unsafe { (&**self.schema.children.add(place), &**self.array.children.add(place)) };
            if text_of(schema.name) == name {
                let start = usize::try_from(self.array.offset).unwrap_or(0);
                return Column::of(schema, array, start, self.len())
                    .map(Some)
                    .map_err(|fault| Unfit(format!("column '{name}' {fault}")));
            }
        }
        Ok(None)
    }
}

fn text_of<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: a string of the specification ends with a zero, and lives as long as its structure.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}

/// A column's values, each as long as its rows.
#[derive(Clone, Debug)]
enum Data<'b> {
    Nothing,
    Bits(&'b [u8], usize),
    Int8(&'b [i8]),
    Int16(&'b [i16]),
    Int32(&'b [i32]),
    Int64(&'b [i64]),
    UInt8(&'b [u8]),
    UInt16(&'b [u16]),
    UInt32(&'b [u32]),
    Float32(&'b [f32]),
    Float64(&'b [f64]),
    /// Times: what a unit is multiplied by, and divided by, to be microseconds.
    Time(&'b [i64], i64, i64),
    Text(Offsets<'b>, &'b str),
    Bytes(Offsets<'b>, &'b [u8]),
    Floats(Offsets<'b>, Box<Column<'b>>),
    Dictionary(Box<Column<'b>>, Box<Column<'b>>),
}

/// Where values begin and end in a buffer, of which the part before the first is left out.
#[derive(Clone, Copy, Debug)]
enum Offsets<'b> {
    Small(&'b [i32]),
    Large(&'b [i64]),
}

impl Offsets<'_> {
    #[inline]
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        match self {
            Offsets::Small(offsets) => {
                let first = offsets[0] as usize;
                (offsets[row] as usize).wrapping_sub(first)..(offsets[row + 1] as usize).wrapping_sub(first)
            }
            Offsets::Large(offsets) => {
                let first = offsets[0] as usize;
                (offsets[row] as usize).wrapping_sub(first)..(offsets[row + 1] as usize).wrapping_sub(first)
            }
        }
    }

    /// Where the first value begins, and how many elements there are up to the end of the last.
    fn extent(&self) -> (usize, usize) {
        let (first, last) = match self {
            Offsets::Small(offsets) => (offsets[0] as usize, offsets[offsets.len() - 1] as usize),
            Offsets::Large(offsets) => (offsets[0] as usize, offsets[offsets.len() - 1] as usize),
        };
        (first, last.saturating_sub(first))
    }

    fn len(&self) -> usize {
        match self {
            Offsets::Small(offsets) => offsets.len() - 1,
            Offsets::Large(offsets) => offsets.len() - 1,
        }
    }
}

/// A column of a batch.
#[derive(Clone, Debug)]
pub struct Column<'b> {
    data: Data<'b>,
    /// A bit a row, set where there is a value, from this bit on; None: all have one.
    validity: Option<(&'b [u8], usize)>,
}

/// A value of a column.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Cell<'b> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'b str),
    Bytes(&'b [u8]),
    Floats(&'b [f64]),
}

impl<'b> Column<'b> {
    fn of(schema: &'b ArrowSchema, array: &'b ArrowArray, start: usize, rows: usize) -> Result<Column<'b>, String> {
        let start = start + usize::try_from(array.offset).unwrap_or(0);
        let format = text_of(schema.format);
        let validity = match array.null_count {
            0 => None,
            _ if format == "n" => None,
            _ => buffer::<u8>(array, 0, 0, (start + rows).div_ceil(8)).map(|bits| (bits, start)),
        };
        if !schema.dictionary.is_null() && !array.dictionary.is_null() {
            // SAFETY: both are there, and live as long as what they belong to.
            let (words, values) = unsafe { (&*schema.dictionary, &*array.dictionary) };
            let indices = Column {
                data: Data::plain(format, array, start, rows)?,
                validity: None,
            };
            let length = usize::try_from(values.length).unwrap_or(0);
            let values = Column::of(words, values, 0, length)?;
            let data = Data::Dictionary(Box::new(indices), Box::new(values));
            return Ok(Column { data, validity });
        }
        let data = match format {
            "+l" | "+L" => {
                let offsets = offsets(format == "+L", array, start, rows)?;
                if schema.n_children != 1 || array.n_children != 1 {
                    return Err("is a list without values".into());
                }
                // SAFETY: there is one child.
                let (schema, values) = unsafe { (&**schema.children, &**array.children) };
                let values = Column::of(schema, values, offsets.extent().0, offsets.extent().1)?;
                match values.data {
                    Data::Float64(_) if values.validity.is_none() => Data::Floats(offsets, Box::new(values)),
                    _ => return Err("is a list of something else than float64 values".into()),
                }
            }
            _ => Data::plain(format, array, start, rows)?,
        };
        Ok(Column { data, validity })
    }

    /// The value of a row. The row is less than the number of rows.
    #[inline]
    pub fn cell(&self, row: usize) -> Cell<'b> {
        if let Some((bits, start)) = self.validity
            && bits[(start + row) / 8] >> ((start + row) % 8) & 1 == 0
        {
            return Cell::Null;
        }
        match &self.data {
            Data::Nothing => Cell::Null,
            Data::Float64(values) => Cell::Float(values[row]),
            Data::Int64(values) => Cell::Int(values[row]),
            Data::Text(offsets, text) => text.get(offsets.range(row)).map_or(Cell::Null, Cell::Text),
            Data::Bits(bits, start) => Cell::Bool(bits[(start + row) / 8] >> ((start + row) % 8) & 1 == 1),
            Data::Int8(values) => Cell::Int(values[row].into()),
            Data::Int16(values) => Cell::Int(values[row].into()),
            Data::Int32(values) => Cell::Int(values[row].into()),
            Data::UInt8(values) => Cell::Int(values[row].into()),
            Data::UInt16(values) => Cell::Int(values[row].into()),
            Data::UInt32(values) => Cell::Int(values[row].into()),
            Data::Float32(values) => Cell::Float(values[row].into()),
            Data::Time(values, by, over) => Cell::Int(values[row].saturating_mul(*by).div_euclid(*over)),
            Data::Bytes(offsets, bytes) => bytes.get(offsets.range(row)).map_or(Cell::Null, Cell::Bytes),
            Data::Floats(offsets, values) => match &values.data {
                Data::Float64(values) => values.get(offsets.range(row)).map_or(Cell::Null, Cell::Floats),
                _ => Cell::Null,
            },
            Data::Dictionary(indices, values) => match indices.cell(row) {
                Cell::Int(place) => values.checked_cell(place),
                _ => Cell::Null,
            },
        }
    }

    /// Clears the flags of rows whose text, if the column has text, does not pass or is null; says whether it has.
    pub fn keep_texts(&self, flags: &mut [bool], passes: impl Fn(&[u8]) -> bool) -> bool {
        let Data::Text(offsets, text) = &self.data else {
            return false;
        };
        let bytes = text.as_bytes();
        for (row, flag) in flags.iter_mut().enumerate() {
            *flag &= bytes.get(offsets.range(row)).is_some_and(&passes);
        }
        self.keep_valid(flags);
        true
    }

    /// The same for integers and floats, which are given as they are; None if a float is no number.
    pub fn keep_numbers(
        &self,
        flags: &mut [bool],
        integers: impl Fn(i64) -> bool,
        floats: impl Fn(f64) -> bool,
    ) -> Option<bool> {
        match &self.data {
            Data::Int64(values) => {
                for (flag, value) in flags.iter_mut().zip(*values) {
                    *flag &= integers(*value);
                }
            }
            Data::Float64(values) => {
                let mut finite = true;
                for (flag, value) in flags.iter_mut().zip(*values) {
                    *flag &= floats(*value);
                    finite &= value.is_finite();
                }
                // What a null stands on may be anything.
                if !finite && self.validity.is_none() {
                    return None;
                }
            }
            _ => return Some(false),
        }
        self.keep_valid(flags);
        Some(true)
    }

    /// The least of a column of 64-bit integers or times, if all have a value.
    pub fn least(&self) -> Option<i64> {
        match &self.data {
            Data::Int64(values) if self.validity.is_none() => values.iter().copied().min(),
            Data::Time(values, 1, 1) if self.validity.is_none() => values.iter().copied().min(),
            _ => None,
        }
    }

    fn keep_valid(&self, flags: &mut [bool]) {
        if let Some((bits, start)) = self.validity {
            for (row, flag) in flags.iter_mut().enumerate() {
                *flag &= bits[(start + row) / 8] >> ((start + row) % 8) & 1 == 1;
            }
        }
    }

    /// The value of a row that someone else names.
    fn checked_cell(&self, row: i64) -> Cell<'b> {
        let rows = match &self.data {
            Data::Text(offsets, _) => offsets.len(),
            Data::Int64(values) => values.len(),
            Data::Int32(values) => values.len(),
            Data::Float64(values) => values.len(),
            _ => 0,
        };
        match usize::try_from(row) {
            Ok(row) if row < rows => self.cell(row),
            _ => Cell::Null,
        }
    }
}

impl<'b> Data<'b> {
    fn plain(format: &str, array: &'b ArrowArray, start: usize, rows: usize) -> Result<Data<'b>, String> {
        let missing = || "has no data".to_string();
        Ok(match format {
            "n" => Data::Nothing,
            "b" => {
                let bits = buffer(array, 1, 0, (start + rows).div_ceil(8)).ok_or_else(missing)?;
                Data::Bits(bits, start)
            }
            "c" => Data::Int8(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "s" => Data::Int16(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "i" => Data::Int32(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "l" => Data::Int64(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "C" => Data::UInt8(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "S" => Data::UInt16(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "I" => Data::UInt32(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "f" => Data::Float32(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "g" => Data::Float64(buffer(array, 1, start, rows).ok_or_else(missing)?),
            "u" | "U" => {
                let offsets = offsets(format == "U", array, start, rows)?;
                let (first, length) = offsets.extent();
                let bytes = buffer::<u8>(array, 2, first, length).unwrap_or_default();
                // Once for the whole column; a slice of it then needs no more than to begin and end between characters.
                let text = std::str::from_utf8(bytes).map_err(|_| "has text that is not UTF-8".to_string())?;
                Data::Text(offsets, text)
            }
            "z" | "Z" => {
                let offsets = offsets(format == "Z", array, start, rows)?;
                let (first, length) = offsets.extent();
                Data::Bytes(offsets, buffer(array, 2, first, length).unwrap_or_default())
            }
            time if time.starts_with("ts") => {
                let (by, over) = match time.as_bytes().get(2) {
                    Some(b's') => (1_000_000, 1),
                    Some(b'm') => (1000, 1),
                    Some(b'n') => (1, 1000),
                    _ => (1, 1),
                };
                Data::Time(buffer(array, 1, start, rows).ok_or_else(missing)?, by, over)
            }
            other => {
                return Err(format!(
                    "has the Arrow type '{other}', which is none of bool, int, float, string, timestamp, binary, \
                     list<float64>; cast it"
                ));
            }
        })
    }
}

fn offsets<'b>(large: bool, array: &'b ArrowArray, start: usize, rows: usize) -> Result<Offsets<'b>, String> {
    if rows == 0 {
        return Ok(Offsets::Small(&[0]));
    }
    let found = match large {
        true => buffer(array, 1, start, rows + 1).map(Offsets::Large),
        false => buffer(array, 1, start, rows + 1).map(Offsets::Small),
    };
    found.ok_or_else(|| "has no offsets".into())
}

/// So many elements of a buffer, from one of them on; None if there is no such buffer.
fn buffer<T>(array: &ArrowArray, number: usize, start: usize, length: usize) -> Option<&[T]> {
    if length == 0 {
        return Some(&[]);
    }
    if number >= usize::try_from(array.n_buffers).unwrap_or(0) || array.buffers.is_null() {
        return None;
    }
    // SAFETY: the array has so many buffers. Where one is there, it is aligned and as long as the array's rows ask
    // for, by the specification, and lives as long as the array; only plain numbers are read of it.
    unsafe {
        let data = (*array.buffers.add(number)).cast::<T>();
        (!data.is_null()).then(|| std::slice::from_raw_parts(data.add(start), length))
    }
}
