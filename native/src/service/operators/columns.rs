//! EKF, FFT and AES over columns of Arrow: each row by itself, with what the operator gives of its first event.
//!
//! A batch has its arrays in columns named "0", "1" and so on: binary, or lists of doubles. As in a record (rule E3) no float
//! is NaN or infinite: of a row with one the result is null.

use crate::arrow::{Batch, Cell, Column, Unfit};
use crate::arrow_build::{Builder, ColumnType};
use crate::json::Fault;
use crate::record::Kind;
use crate::service::operators::aes::Encrypt;
use crate::service::operators::ekf::Ekf;
use crate::service::operators::fft::Fft;
use crate::value::{Val, Value};

/// The offsets of Arrow's plain lists and binaries end here.
const MOST: usize = i32::MAX as usize;

/// The batch of one column, "value", that a function gives.
fn column(values: Builder) -> Result<Builder, Unfit> {
    if values.text_bytes() > MOST {
        return Err(Unfit("the results of one batch are more than 2 GiB".into()));
    }
    Ok(Builder::of_rows(vec![("value".into(), values)]))
}

fn named<'b>(batch: &'b Batch, name: &str) -> Result<Column<'b>, Unfit> {
    batch
        .column(name)?
        .ok_or_else(|| Unfit(format!("there is no column '{name}'")))
}

/// The array in a row; None of what is no number.
fn array<'b>(column: &Column<'b>, row: usize) -> Result<Option<Val<'b>>, Unfit> {
    match column.cell(row) {
        Cell::Null => Ok(Some(Val::Null)),
        Cell::Bytes(x) => Ok(Some(Val::Bytes(x))),
        Cell::Floats(x) => Ok(x.iter().all(|x| x.is_finite()).then_some(Val::Floats(x))),
        _ => Err(Unfit("expected binary or array<double>, found another type".into())),
    }
}

fn floats(values: &mut Builder, found: &[f64]) {
    values.items(|items| found.iter().for_each(|x| items.value(&Value::Float(*x))));
}

/// The samples of several sensors as one array: of floats, or of bytes, which saturate.
pub fn ekf(batch: &Batch, sensors: usize, kind: Kind, process: f64, measurement: f64) -> Result<Builder, Unfit> {
    let mut filter = Ekf::new(Vec::new(), kind, process, measurement);
    let columns = (0..sensors).map(|sensor| named(batch, &sensor.to_string()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let is_of_floats = kind == Kind::FloatArray;
    let mut values = Builder::new(if is_of_floats {
        ColumnType::Floats
    } else {
        ColumnType::Bytes
    });
    for row in 0..batch.len() {
        let arrays = columns.iter().map(|column| array(column, row));
        let Some(arrays) = arrays.collect::<Result<Option<Vec<_>>, _>>()? else {
            values.null();
            continue;
        };
        let fits = |array: &Val<'_>| match array {
            Val::Floats(_) => is_of_floats,
            Val::Bytes(_) => !is_of_floats,
            _ => true,
        };
        if let Some(sensor) = arrays.iter().position(|array| !fits(array)) {
            let (expected, found, other) = match is_of_floats {
                true => ("array<double>", "binary", "array<uint8>"),
                false => ("binary", "array<double>", "array<float>"),
            };
            return Err(Unfit(format!(
                "ekf: column {} is {found}, expected {expected}; write ekf(..., type=\"{other}\")",
                sensor + 1
            )));
        }
        match filter.fused_alone(sensors, |sensor| arrays[sensor].clone()) {
            Val::Floats(found) => floats(&mut values, found),
            Val::Bytes(found) => values.text(found),
            _ => values.null(),
        }
    }
    column(values)
}

/// The spectrum of an array.
pub fn fft(batch: &Batch) -> Result<Builder, Unfit> {
    let (mut transform, samples) = (Fft::new(0), named(batch, "0")?);
    let mut values = Builder::new(ColumnType::Floats);
    for row in 0..batch.len() {
        let array = array(&samples, row)?.unwrap_or(Val::Null);
        transform.magnitudes(&array, |found| match found {
            Some(found) => floats(&mut values, found),
            None => values.null(),
        });
    }
    column(values)
}

/// An array or bytes encrypted, by the times and ids in the columns "time" and "id".
pub fn aes(batch: &Batch, key: &str) -> Result<Builder, Unfit> {
    let mut cipher = Encrypt::new(0, Some(key)).map_err(|Fault(text)| Unfit(text))?;
    let (plain, times, ids) = (named(batch, "0")?, named(batch, "time")?, named(batch, "id")?);
    let mut values = Builder::new(ColumnType::Bytes);
    for row in 0..batch.len() {
        let array = array(&plain, row)?.unwrap_or(Val::Null);
        let found = match (times.cell(row), ids.cell(row)) {
            (Cell::Int(time), Cell::Int(id)) => cipher.encrypted(&array, time, id),
            (Cell::Null, _) | (_, Cell::Null) => None,
            _ => {
                return Err(Unfit(
                    "aes: expected a timestamp or bigint as time, and a bigint as id".into(),
                ));
            }
        };
        match found {
            Some(found) => values.text(found),
            None => values.null(),
        }
    }
    column(values)
}
