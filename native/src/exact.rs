//! Sums of floats without error, so that neither order nor adding and removing changes a result.
//!
//! A fixed-point number wide enough for every finite float. Rounded once, at the end: what Python's math.fsum gives.

/// Digits of 32 bits; the lowest bit of the first weighs 2^-1074. The last ones leave room for carries.
const DIGITS: usize = 68;
/// After so many additions carries are passed on, long before a digit (64 bits, signed) could overflow.
const CARRY_AFTER: u32 = 1 << 30;

/// An exact sum.
#[derive(Clone, Debug)]
pub struct ExactSum {
    digits: [i64; DIGITS],
    additions: u32,
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum {
            digits: [0; DIGITS],
            additions: 0,
        }
    }
}

impl ExactSum {
    /// Adds a finite float.
    pub fn add(&mut self, x: f64) {
        self.change(x, x.is_sign_negative());
    }

    /// Takes back what was added before.
    pub fn remove(&mut self, x: f64) {
        self.change(x, !x.is_sign_negative());
    }

    fn change(&mut self, x: f64, negative: bool) {
        let bits = x.to_bits();
        let exponent = (bits >> 52) & 0x7ff;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, shift) = if exponent == 0 {
            (fraction, 0)
        } else {
            (fraction | 1 << 52, exponent as usize - 1)
        };
        let wide = u128::from(mantissa) << (shift % 32);
        let place = shift / 32;
        for i in 0..3 {
            let digit = ((wide >> (32 * i)) & 0xffff_ffff) as i64;
            if let Some(target) = self.digits.get_mut(place + i) {
                *target += if negative { -digit } else { digit };
            }
        }
        self.additions += 1;
        if self.additions == CARRY_AFTER {
            self.carry();
            self.additions = 0;
        }
    }

    /// Makes every digit but the last lie in [0, 2^32).
    fn carry(&mut self) {
        let mut carry = 0;
        for digit in &mut self.digits[..DIGITS - 1] {
            let sum = *digit + carry;
            *digit = sum & 0xffff_ffff;
            carry = sum >> 32;
        }
        self.digits[DIGITS - 1] += carry;
    }

    /// The nearest float, ties to even; None if that is beyond the greatest.
    pub fn value(&self) -> Option<f64> {
        let mut sum = self.clone();
        sum.carry();
        let negative = sum.digits[DIGITS - 1] < 0;
        if negative {
            for digit in &mut sum.digits {
                *digit = -*digit;
            }
            sum.carry();
        }
        let Some(top) = sum.digits.iter().rposition(|&digit| digit != 0) else {
            return Some(0.0);
        };
        let highest = top * 32 + 63 - (sum.digits[top] as u64).leading_zeros() as usize;
        let magnitude = sum.round(highest)?;
        Some(if negative { -magnitude } else { magnitude })
    }

    fn bit(&self, place: usize) -> bool {
        self.digits[place / 32] >> (place % 32) & 1 == 1
    }

    fn round(&self, highest: usize) -> Option<f64> {
        let lowest = highest.saturating_sub(52);
        let mut mantissa = (lowest..=highest)
            .rev()
            .fold(0u64, |bits, place| bits << 1 | u64::from(self.bit(place)));
        if lowest == 0 {
            // Exact: these are also the bits of the float, subnormal or of the least exponent.
            return Some(f64::from_bits(mantissa));
        }
        let half = self.bit(lowest - 1);
        let more = half && (0..lowest - 1).any(|place| self.bit(place));
        mantissa += u64::from(half && (more || mantissa & 1 == 1));
        // A carry out of the mantissa moves into the exponent by itself.
        let bits = ((lowest as u64) << 52) + mantissa;
        (bits < 0x7ff << 52).then(|| f64::from_bits(bits))
    }
}

/// The exact sum of these, rounded once.
pub fn sum(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sum = ExactSum::default();
    for value in values {
        sum.add(value);
    }
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        assert_eq!(sum([0.1; 10]), Some(1.0));
        assert_eq!(sum([1e100, 1.0, -1e100]), Some(1.0));
        assert_eq!(sum([1e16, 1.0, 1e-16]), Some(10000000000000002.0));
        assert_eq!(sum([f64::MAX, f64::MAX, -f64::MAX]), Some(f64::MAX));
        assert_eq!(sum([f64::MAX, f64::MAX]), None);
        assert_eq!(sum([-f64::MAX, -f64::MAX]), None);
        assert_eq!(sum([5e-324, 5e-324]), Some(1e-323));
        assert_eq!(sum([5e-324, -1.0]), Some(-1.0));
        assert_eq!(sum([f64::MIN_POSITIVE, -5e-324]), Some(2.225073858507201e-308));
        assert_eq!(sum([]), Some(0.0));
        assert_eq!(sum([-1.5]), Some(-1.5));
    }

    #[test]
    fn one_value_is_itself() {
        for bits in (0..0x7ff0_0000_0000_0000u64).step_by(0x0001_2345_6789_abcd) {
            let x = f64::from_bits(bits);
            assert_eq!(sum([x]), Some(x));
            assert_eq!(sum([-x]), Some(-x));
        }
    }

    #[test]
    fn removing_undoes_adding() {
        let mut running = ExactSum::default();
        for x in [1e300, 3.5, -2e-300, 0.1] {
            running.add(x);
        }
        running.remove(1e300);
        running.remove(-2e-300);
        assert_eq!(running.value(), sum([3.5, 0.1]));
    }
}
