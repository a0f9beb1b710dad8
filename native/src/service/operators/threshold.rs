//! THRESHOLD: whether a value is beyond a limit. With `reset` it stays on until the value is past that (hysteresis).

use crate::json::{Fault, Json, Reading};
use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::value::Val;

/// Compares.
pub struct Threshold {
    payload: usize,
    above: Option<f64>,
    below: Option<f64>,
    reset: Option<f64>,
    on: bool,
}

impl Threshold {
    /// On above or below a limit.
    pub fn new(payload: usize, above: Option<f64>, below: Option<f64>, reset: Option<f64>) -> Threshold {
        Threshold {
            payload,
            above,
            below,
            reset,
            on: false,
        }
    }

    fn see(&mut self, value: f64) -> bool {
        let is_beyond = self.above.is_some_and(|limit| value > limit) || self.below.is_some_and(|limit| value < limit);
        self.on = match self.reset {
            Some(reset) if self.on && self.above.is_some() => value >= reset,
            Some(reset) if self.on => value <= reset,
            _ => is_beyond,
        };
        self.on
    }
}

impl Process for Threshold {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        let value = inputs.get(0).map_or(Val::Null, |record| record.get(self.payload));
        // A null says nothing: what was on stays on.
        let on = value.number().map_or(self.on, |number| self.see(number));
        out.emit(&mut |draft| {
            draft.set(0, &value)?;
            draft.set(1, &Val::Bool(on))
        })
    }

    fn save(&self) -> Json {
        Json::Bool(self.on)
    }

    fn restore(&mut self, saved: &Json) -> Result<(), Fault> {
        self.on = saved.bool()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(mut threshold: Threshold, values: &[f64]) -> Vec<bool> {
        values.iter().map(|value| threshold.see(*value)).collect()
    }

    #[test]
    fn it_turns_on_beyond_the_limit_and_off_past_the_reset() {
        let above = Threshold::new(0, Some(10.0), None, Some(5.0));
        assert_eq!(
            states(above, &[10.0, 11.0, 6.0, 5.0, 4.9, 7.0]),
            [false, true, true, true, false, false]
        );
        let below = Threshold::new(0, None, Some(10.0), Some(15.0));
        assert_eq!(states(below, &[10.0, 9.0, 15.0, 15.1]), [false, true, true, false]);
        let plain = Threshold::new(0, Some(10.0), None, None);
        assert_eq!(states(plain, &[11.0, 10.0, 11.0]), [true, false, true]);
    }
}
