//! EKF: an extended Kalman filter that fuses the samples of several sensors of one quantity.
//!
//! The state is the quantity and its change a sample; it goes on from event to event. A sensor of bytes saturates: it reads
//! 0 or 255 where the quantity is beyond, which is what makes its measurement non-linear. Its derivative is 1 in range and 0
//! outside, where a reading that is saturated too says nothing.

use serde_json::json;

use crate::json::{Fault, Json, Reading};
use crate::record::Kind;
use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::value::Val;

/// What is known of the quantity: its value, its change a sample, and their covariance.
#[derive(Clone, Copy, Debug)]
struct State {
    value: f64,
    rate: f64,
    covariance: [f64; 3],
}

/// What the last sample made of a covariance, where all its readings counted: gains and covariance follow from the covariance
/// before them alone, not from what was read. That settles within some hundred samples, and from then on all is known.
#[derive(Debug, Default)]
struct Settled {
    before: [f64; 3],
    /// Of the value and of the rate, by reading.
    gains: Vec<(f64, f64)>,
    after: [f64; 3],
}

impl Settled {
    /// Whether it says what so many readings make of a covariance.
    fn knows(&self, covariance: &[f64; 3], readings: usize) -> bool {
        let same = self
            .before
            .iter()
            .zip(covariance)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        same && self.gains.len() == readings
    }
}

/// What a sensor would read, and whether that it reads something tells of the quantity.
#[inline]
fn expected(value: f64, reading: f64, saturates: bool) -> (f64, bool) {
    if saturates && !(0.0..=255.0).contains(&value) {
        let edge = value.clamp(0.0, 255.0);
        // In range the sensor would read otherwise, so then its reading pulls the state back.
        (edge, reading != edge)
    } else {
        (value, true)
    }
}

/// The nearest byte; a half goes up.
#[inline]
fn byte(value: f64) -> u8 {
    let value = value.clamp(0.0, 255.0);
    let whole = value as u8;
    // Exact, and quicker than `round` where that is a call.
    whole + u8::from(value - f64::from(whole) >= 0.5)
}

/// Fuses.
pub struct Ekf {
    payload: Vec<usize>,
    kind: Kind,
    process_noise: f64,
    measurement_noise: f64,
    state: Option<State>,
    settled: Settled,
    /// What the sensors read, sample by sample; not a number where one has none.
    readings: Vec<f64>,
    bytes: Vec<u8>,
    floats: Vec<f64>,
}

impl Ekf {
    /// Of these attributes of its inputs, into one of that kind.
    pub fn new(payload: Vec<usize>, kind: Kind, process_noise: f64, measurement_noise: f64) -> Ekf {
        Ekf {
            payload,
            kind,
            process_noise,
            measurement_noise,
            state: None,
            settled: Settled::default(),
            readings: Vec::new(),
            bytes: Vec::new(),
            floats: Vec::new(),
        }
    }

    fn predict(&mut self, first: f64) -> State {
        let q = self.process_noise;
        let Some(state) = self.state else {
            // Nothing is known but the first reading, and that roughly.
            return State {
                value: first,
                rate: 0.0,
                covariance: [1e3, 0.0, 1.0],
            };
        };
        let [a, b, c] = state.covariance;
        State {
            value: state.value + state.rate,
            rate: state.rate,
            covariance: [a + 2.0 * b + c + q, b + c, c + q],
        }
    }

    /// Takes a reading in; its gains, and whether it counted.
    fn update(&self, state: &mut State, reading: f64) -> ((f64, f64), bool) {
        let (expected, counts) = expected(state.value, reading, self.kind == Kind::Uint8Array);
        let slope = if counts { 1.0 } else { 0.0 };
        let [a, b, c] = state.covariance;
        let spread = slope * slope * a + self.measurement_noise;
        let (gain_value, gain_rate) = (slope * a / spread, slope * b / spread);
        let surprise = reading - expected;
        state.value += gain_value * surprise;
        state.rate += gain_rate * surprise;
        let kept = 1.0 - gain_value * slope;
        state.covariance = [kept * a, kept * b, c - gain_rate * slope * b];
        ((gain_value, gain_rate), counts)
    }

    /// Each sample, from the readings of the sensors that have it: those of a sample lie together, not a number where one has
    /// none.
    fn fuse_all(&mut self, readings: &mut [f64], sensors: usize, put: &mut impl FnMut(f64)) {
        let mut at = 0;
        while at < readings.len() {
            let rest = &readings[at..];
            let done = match sensors {
                1 => self.follow::<1>(rest, put),
                2 => self.follow::<2>(rest, put),
                3 => self.follow::<3>(rest, put),
                4 => self.follow::<4>(rest, put),
                _ => 0,
            };
            at += done * sensors;
            if let Some(sample) = readings.get_mut(at..at + sensors) {
                let mut there = 0;
                for place in 0..sensors {
                    sample[there] = sample[place];
                    there += usize::from(!sample[there].is_nan());
                }
                put(self.step(&sample[..there]));
            }
            at += sensors;
        }
    }

    /// Samples as long as the covariance stays, and each reading is there and counts; how many. To the bit what `step` gives.
    fn follow<const N: usize>(&mut self, readings: &[f64], put: &mut impl FnMut(f64)) -> usize {
        let (Some(state), Ok(gains)) = (&mut self.state, <[(f64, f64); N]>::try_from(&self.settled.gains[..])) else {
            return 0;
        };
        if !self.settled.knows(&state.covariance, N) || !self.settled.knows(&self.settled.after, N) {
            return 0;
        }
        let saturates = self.kind == Kind::Uint8Array;
        let mut done = 0;
        for sample in readings.as_chunks::<N>().0 {
            let (mut value, mut rate) = (state.value + state.rate, state.rate);
            let mut all_count = true;
            for (reading, (gain_value, gain_rate)) in sample.iter().zip(&gains) {
                let (expected, counts) = expected(value, *reading, saturates);
                all_count &= counts;
                let surprise = reading - expected;
                value += gain_value * surprise;
                rate += gain_rate * surprise;
            }
            // What is not a number makes these none.
            if !(all_count && value.is_finite() && rate.is_finite()) {
                break;
            }
            (state.value, state.rate) = (value, rate);
            put(value);
            done += 1;
        }
        done
    }

    /// One sample.
    fn step(&mut self, readings: &[f64]) -> f64 {
        let before = self.state.map(|state| state.covariance);
        let mut state = self.predict(readings.first().copied().unwrap_or(0.0));
        let mut gains = std::mem::take(&mut self.settled.gains);
        gains.clear();
        let mut all_count = true;
        for reading in readings {
            let (gain, counts) = self.update(&mut state, *reading);
            gains.push(gain);
            all_count &= counts;
        }
        let value = state.value;
        // Readings near the limits of floats can overflow; then it begins anew.
        let sound = value.is_finite() && state.rate.is_finite() && state.covariance.iter().all(|x| x.is_finite());
        self.state = sound.then_some(state);
        // What is not a number is never found again.
        self.settled = Settled {
            before: before.filter(|_| sound && all_count).unwrap_or([f64::NAN; 3]),
            gains,
            after: state.covariance,
        };
        if value.is_finite() { value } else { 0.0 }
    }

    /// Fuses the bytes of two sensors, for whoever calls it from elsewhere.
    #[cfg(feature = "exported")]
    pub(super) fn fuse(&mut self, one: &[u8], two: &[u8], out: &mut [u8]) {
        let mut readings = std::mem::take(&mut self.readings);
        readings.clear();
        readings.extend(one.iter().zip(two).flat_map(|(one, two)| [*one, *two].map(f64::from)));
        let mut out = out.iter_mut();
        self.fuse_all(&mut readings, 2, &mut |fused| {
            if let Some(out) = out.next() {
                *out = byte(fused);
            }
        });
        self.readings = readings;
    }
}

impl Ekf {
    /// The arrays of so many sensors as one.
    fn fused<'v>(&mut self, sensors: usize, values: impl Fn(usize) -> Val<'v>) -> Val<'_> {
        let lengths = (0..sensors).map(|sensor| match values(sensor) {
            Val::Bytes(x) => x.len(),
            Val::Floats(x) => x.len(),
            _ => 0,
        });
        let length = lengths.max().unwrap_or(0);
        let mut readings = std::mem::take(&mut self.readings);
        readings.clear();
        readings.resize(length * sensors, f64::NAN);
        for sensor in 0..sensors {
            let places = readings.iter_mut().skip(sensor).step_by(sensors);
            match values(sensor) {
                Val::Bytes(x) => places.zip(x).for_each(|(place, x)| *place = f64::from(*x)),
                Val::Floats(x) => places.zip(x).for_each(|(place, x)| *place = *x),
                _ => {}
            }
        }
        let (mut bytes, mut floats) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.floats));
        bytes.clear();
        floats.clear();
        match self.kind {
            Kind::FloatArray => self.fuse_all(&mut readings, sensors, &mut |fused| floats.push(fused)),
            _ => self.fuse_all(&mut readings, sensors, &mut |fused| bytes.push(byte(fused))),
        }
        (self.readings, self.bytes, self.floats) = (readings, bytes, floats);
        match self.kind {
            Kind::FloatArray => Val::Floats(&self.floats),
            _ => Val::Bytes(&self.bytes),
        }
    }

    /// The same as if nothing had come before.
    pub(super) fn fused_alone<'v>(&mut self, sensors: usize, values: impl Fn(usize) -> Val<'v>) -> Val<'_> {
        self.state = None;
        self.fused(sensors, values)
    }
}

impl Process for Ekf {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        let payload = std::mem::take(&mut self.payload);
        let fused = self.fused(inputs.len(), |input| {
            inputs.get(input).map_or(Val::Null, |record| record.get(payload[input]))
        });
        let done = out.emit(&mut |draft| draft.set(0, &fused));
        self.payload = payload;
        done
    }

    fn save(&self) -> Json {
        self.state.map_or(Json::Null, |state| {
            let [a, b, c] = state.covariance;
            json!([state.value, state.rate, a, b, c])
        })
    }

    fn restore(&mut self, saved: &Json) -> Result<(), Fault> {
        self.state = saved.optional(|saved| {
            let number = |place| saved.at(place)?.float();
            Ok(State {
                value: number(0)?,
                rate: number(1)?,
                covariance: [number(2)?, number(3)?, number(4)?],
            })
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fused(filter: &mut Ekf, sensors: &[&[f64]]) -> Vec<f64> {
        let length = sensors[0].len();
        (0..length)
            .map(|i| filter.step(&sensors.iter().map(|s| s[i]).collect::<Vec<_>>()))
            .collect()
    }

    #[test]
    fn two_noisy_sensors_are_better_than_one() {
        let mut noise = 7_u64;
        let mut noisy = |x: f64| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            x + ((noise >> 33) as f64 / f64::from(1_u32 << 31) - 0.5) * 8.0
        };
        let truth: Vec<f64> = (0..512).map(|i| 100.0 + 40.0 * (f64::from(i) / 80.0).sin()).collect();
        let one: Vec<f64> = truth.iter().map(|x| noisy(*x)).collect();
        let two: Vec<f64> = truth.iter().map(|x| noisy(*x)).collect();
        let mut filter = Ekf::new(vec![0, 0], Kind::FloatArray, 1e-3, 5.0);
        let found = fused(&mut filter, &[&one, &two]);
        let error = |x: &[f64]| {
            x[32..]
                .iter()
                .zip(&truth[32..])
                .map(|(a, b)| (a - b).powi(2))
                .sum::<f64>()
        };
        assert!(error(&found) < error(&one) / 3.0, "{} {}", error(&found), error(&one));
    }

    #[test]
    fn a_saturated_sensor_says_nothing_beyond_its_range() {
        let mut filter = Ekf::new(vec![0], Kind::Uint8Array, 1e-3, 0.1);
        filter.state = Some(State {
            value: 300.0,
            rate: 0.0,
            covariance: [1.0, 0.0, 0.0],
        });
        assert!((filter.step(&[255.0]) - 300.0).abs() < 1e-9);
        assert!(filter.step(&[100.0]) < 200.0);
    }

    #[test]
    fn what_overflows_begins_anew() {
        let mut filter = Ekf::new(vec![0], Kind::FloatArray, 1e-3, 0.1);
        for _ in 0..4 {
            filter.step(&[f64::MAX]);
            filter.step(&[-f64::MAX]);
        }
        let found = fused(&mut filter, &[&[5.0; 64]]);
        assert!((found[63] - 5.0).abs() < 1e-3, "{}", found[63]);
    }

    /// Readings of all sorts: in range, at its edges so that some do not count, and of a sensor less at times.
    #[test]
    fn what_is_known_of_the_covariance_changes_no_bit() {
        let mut noise = 11_u64;
        let mut below = |limit: u64| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 33) % limit
        };
        let mut quick = Ekf::new(vec![0, 0], Kind::Uint8Array, 1e-3, 0.1);
        let mut plain = Ekf::new(vec![0, 0], Kind::Uint8Array, 1e-3, 0.1);
        let mut readings: Vec<f64> = Vec::new();
        for place in 0..20_000 {
            let edge = if place / 200 % 2 == 0 { 255.0 } else { 0.0 };
            let one = if place / 1_000 % 3 == 0 {
                edge
            } else {
                below(256) as f64
            };
            let two = if below(500) == 0 { f64::NAN } else { below(256) as f64 };
            readings.extend([one, two]);
        }
        let expected: Vec<u64> = readings
            .chunks(2)
            .map(|sample| {
                let there: Vec<f64> = sample.iter().copied().filter(|x| !x.is_nan()).collect();
                plain.step(&there).to_bits()
            })
            .collect();
        let mut found = Vec::new();
        quick.fuse_all(&mut readings.clone(), 2, &mut |fused| found.push(fused.to_bits()));
        assert_eq!(found, expected);
        let mut settled = 0;
        let mut rest = &readings[readings.len() - 2_000..];
        while !rest.is_empty() {
            let done = quick.follow::<2>(rest, &mut |_| ());
            settled += done;
            rest = &rest[2 * done..];
            if let Some((sample, behind)) = rest.split_at_checked(2) {
                quick.step(&sample[..if sample[1].is_nan() { 1 } else { 2 }]);
                rest = behind;
            }
        }
        assert!(settled > 500, "{settled}");
    }

    #[test]
    fn a_byte_is_the_nearest_one() {
        for tenths in -20..2_600 {
            let value = f64::from(tenths) / 10.0;
            assert_eq!(byte(value), value.round().clamp(0.0, 255.0) as u8, "{value}");
        }
        for value in [0.5_f64.next_down(), 254.5, 254.5_f64.next_down(), f64::MAX, -f64::MAX] {
            assert_eq!(byte(value), value.round().clamp(0.0, 255.0) as u8, "{value}");
        }
    }
}
