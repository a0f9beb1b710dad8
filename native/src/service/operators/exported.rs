//! EKF, FFT and AES as C functions, so that a peer in an experiment runs the same operators as the engine.
//!
//! `*_new` makes an operator with the engine's defaults, which lives as long as the program; one thread at a time may use it. Lengths are
//! of the input; an output has as many elements.

use crate::record::Kind;
use crate::service::operators::aes::Encrypt;
use crate::service::operators::ekf::Ekf;
use crate::service::operators::fft::Fft;
use crate::value::Val;

/// The defaults of src/cepheid/plan/operators.py.
const PROCESS_NOISE: f64 = 1e-3;
const MEASUREMENT_NOISE: f64 = 1e-1;

/// An EKF of two sensors of bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cepheid_ekf_new() -> *mut Ekf {
    let filter = Ekf::new(vec![0, 0], Kind::Uint8Array, PROCESS_NOISE, MEASUREMENT_NOISE);
    Box::into_raw(Box::new(filter))
}

/// Fuses `length` bytes of each sensor.
///
/// # Safety
/// `ekf` is of `cepheid_ekf_new`, and used by no other thread; the others point to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cepheid_ekf(ekf: *mut Ekf, one: *const u8, two: *const u8, length: usize, out: *mut u8) {
    // SAFETY: as the caller says.
    let (ekf, one, two, out) = unsafe {
        (
            &mut *ekf,
            std::slice::from_raw_parts(one, length),
            std::slice::from_raw_parts(two, length),
            std::slice::from_raw_parts_mut(out, length),
        )
    };
    ekf.fuse(one, two, out);
}

/// An FFT.
#[unsafe(no_mangle)]
pub extern "C" fn cepheid_fft_new() -> *mut Fft {
    Box::into_raw(Box::new(Fft::new(0)))
}

/// The magnitudes of `length` samples.
///
/// # Safety
/// `fft` is of `cepheid_fft_new`, and used by no other thread; the others point to `length` bytes, and 8 times as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cepheid_fft(fft: *mut Fft, samples: *const u8, length: usize, out: *mut u8) {
    // SAFETY: as the caller says.
    let (fft, samples, out) = unsafe {
        (
            &mut *fft,
            std::slice::from_raw_parts(samples, length),
            std::slice::from_raw_parts_mut(out, 8 * length),
        )
    };
    fft.magnitudes(&Val::Bytes(samples), |found| {
        out.copy_from_slice(bytemuck::cast_slice(found.unwrap_or_default()));
    });
}

/// An AES operator with a key that nobody knows; null if the system gives none.
#[unsafe(no_mangle)]
pub extern "C" fn cepheid_aes_new() -> *mut Encrypt {
    Encrypt::new(0, None).map_or(std::ptr::null_mut(), |cipher| Box::into_raw(Box::new(cipher)))
}

/// Encrypts `length` bytes of an event.
///
/// # Safety
/// `aes` is of `cepheid_aes_new`, not null, and used by no other thread; the others point to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cepheid_aes(
    aes: *mut Encrypt,
    plain: *const u8,
    length: usize,
    time: i64,
    id: i64,
    out: *mut u8,
) {
    // SAFETY: as the caller says.
    let (aes, plain, out) = unsafe {
        (
            &mut *aes,
            std::slice::from_raw_parts(plain, length),
            std::slice::from_raw_parts_mut(out, length),
        )
    };
    out.copy_from_slice(aes.encrypted(&Val::Bytes(plain), time, id).unwrap_or_default());
}
