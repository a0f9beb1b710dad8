//! FFT: the magnitude of each of an array's n frequencies, as `abs(fft(x))` of numpy.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustfft::num_complex::Complex;
use rustfft::{Fft as Transform, FftPlanner};

use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::value::Val;

/// Transforms are planned once a length and shared by all operators, as they don't change; their memory is not small.
static PLANNER: LazyLock<Mutex<FftPlanner<f64>>> = LazyLock::new(|| Mutex::new(FftPlanner::new()));

fn planned(length: usize) -> Arc<dyn Transform<f64>> {
    let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
    planner.plan_fft_forward(length)
}

/// The absolute value. `hypot` takes five times as long, and is needed only where squares leave the range of floats.
#[inline]
fn magnitude(x: &Complex<f64>) -> f64 {
    let square = x.norm_sqr();
    if (1e-290..1e290).contains(&square) {
        square.sqrt()
    } else {
        x.re.hypot(x.im)
    }
}

/// What a transform needs room for.
#[derive(Default)]
struct Room {
    samples: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    magnitudes: Vec<f64>,
}

thread_local! {
    /// A thread runs one operator at a time, and there are more operators than threads.
    static ROOM: RefCell<Room> = RefCell::default();
}

/// Transforms.
pub struct Fft {
    payload: usize,
    /// The transform of the length that came last.
    transform: Option<Arc<dyn Transform<f64>>>,
}

impl Fft {
    /// Of this attribute of its input.
    pub fn new(payload: usize) -> Fft {
        Fft {
            payload,
            transform: None,
        }
    }

    fn transform(&mut self, room: &mut Room) {
        let length = room.samples.len();
        room.magnitudes.clear();
        if length == 0 {
            return;
        }
        let known = self.transform.take().filter(|transform| transform.len() == length);
        let transform = known.unwrap_or_else(|| planned(length));
        let needed = transform.get_inplace_scratch_len();
        if room.scratch.len() < needed {
            room.scratch.resize(needed, Complex::default());
        }
        transform.process_with_scratch(&mut room.samples, &mut room.scratch[..needed]);
        self.transform = Some(transform);
        room.magnitudes.extend(room.samples.iter().map(magnitude));
    }

    /// Hands the magnitudes of an array to `take`; None for what is no array.
    pub(super) fn magnitudes<T>(&mut self, value: &Val<'_>, take: impl FnOnce(Option<&[f64]>) -> T) -> T {
        ROOM.with_borrow_mut(|room| {
            room.samples.clear();
            match value {
                Val::Bytes(x) => room.samples.extend(x.iter().map(|x| Complex::from(f64::from(*x)))),
                Val::Floats(x) => room.samples.extend(x.iter().map(|x| Complex::from(*x))),
                _ => return take(None),
            }
            self.transform(room);
            take(Some(&room.magnitudes))
        })
    }
}

impl Process for Fft {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        let value = inputs.get(0).map_or(Val::Null, |record| record.get(self.payload));
        self.magnitudes(&value, |found| {
            out.emit(&mut |draft| found.map_or(Ok(()), |found| draft.set(0, &Val::Floats(found))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_magnitude_is_right_where_squares_are_not() {
        for (re, im, expected) in [
            (0.0, 0.0, 0.0),
            (3.0, -4.0, 5.0),
            (3e200, 4e200, 5e200),
            (-3e-200, 4e-200, 5e-200),
            (f64::MAX, 0.0, f64::MAX),
            (0.0, -f64::MIN_POSITIVE, f64::MIN_POSITIVE),
        ] {
            let found = magnitude(&Complex::new(re, im));
            assert!((found - expected).abs() <= expected * 1e-15, "{re} {im}: {found}");
        }
    }
}
