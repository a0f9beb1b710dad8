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

/// Fuses.
pub struct Ekf {
    payload: Vec<usize>,
    kind: Kind,
    process_noise: f64,
    measurement_noise: f64,
    state: Option<State>,
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

    fn update(state: &mut State, reading: f64, noise: f64, saturates: bool) {
        let (expected, slope) = if saturates && !(0.0..=255.0).contains(&state.value) {
            let edge = state.value.clamp(0.0, 255.0);
            // In range the sensor would read otherwise, so then its reading pulls the state back.
            (edge, if reading == edge { 0.0 } else { 1.0 })
        } else {
            (state.value, 1.0)
        };
        let [a, b, c] = state.covariance;
        let spread = slope * slope * a + noise;
        let (gain_value, gain_rate) = (slope * a / spread, slope * b / spread);
        let surprise = reading - expected;
        state.value += gain_value * surprise;
        state.rate += gain_rate * surprise;
        let kept = 1.0 - gain_value * slope;
        state.covariance = [kept * a, kept * b, c - gain_rate * slope * b];
    }

    /// One sample, from the readings of the sensors that have it.
    fn step(&mut self, readings: impl Iterator<Item = f64> + Clone) -> f64 {
        let saturates = self.kind == Kind::Uint8Array;
        let noise = self.measurement_noise;
        let mut state = self.predict(readings.clone().next().unwrap_or(0.0));
        for reading in readings {
            Ekf::update(&mut state, reading, noise, saturates);
        }
        let value = state.value;
        // Readings near the limits of floats can overflow; then it begins anew.
        let sound = value.is_finite() && state.rate.is_finite() && state.covariance.iter().all(|x| x.is_finite());
        self.state = sound.then_some(state);
        if value.is_finite() { value } else { 0.0 }
    }

    /// Fuses the bytes of two sensors, for whoever calls it from elsewhere.
    #[cfg(feature = "exported")]
    pub(super) fn fuse(&mut self, one: &[u8], two: &[u8], out: &mut [u8]) {
        for ((one, two), out) in one.iter().zip(two).zip(out) {
            let fused = self.step([*one, *two].into_iter().map(f64::from));
            *out = fused.round().clamp(0.0, 255.0) as u8;
        }
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
        self.bytes.clear();
        self.floats.clear();
        for sample in readings.chunks_exact(sensors.max(1)) {
            let fused = self.step(sample.iter().copied().filter(|x| !x.is_nan()));
            match self.kind {
                Kind::FloatArray => self.floats.push(fused),
                _ => self.bytes.push(fused.round().clamp(0.0, 255.0) as u8),
            }
        }
        self.readings = readings;
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
            .map(|i| filter.step(sensors.iter().map(move |s| s[i])))
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
        assert!((filter.step([255.0].into_iter()) - 300.0).abs() < 1e-9);
        assert!(filter.step([100.0].into_iter()) < 200.0);
    }

    #[test]
    fn what_overflows_begins_anew() {
        let mut filter = Ekf::new(vec![0], Kind::FloatArray, 1e-3, 0.1);
        for _ in 0..4 {
            filter.step([f64::MAX].into_iter());
            filter.step([-f64::MAX].into_iter());
        }
        let found = fused(&mut filter, &[&[5.0; 64]]);
        assert!((found[63] - 5.0).abs() < 1e-3, "{}", found[63]);
    }
}
