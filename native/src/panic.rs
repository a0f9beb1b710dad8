//! Catching panics: a bug in the core becomes an error value, with its place in the source and nothing on stderr.
//!
//! What cannot be caught, as anywhere in Rust: a panic while another one unwinds, and a stack overflow.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

/// A panic that was caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// What `panic!` was given.
    pub message: String,
    /// `file:line` in the Rust source, where it is known.
    pub location: Option<String>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = self.location.as_deref().unwrap_or("unknown place");
        write!(f, "panic in the native core: {} (at {location})", self.message)
    }
}

impl std::error::Error for Panic {}

thread_local! {
    /// How many `catch` calls this thread is inside of.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Where the panic that is now unwinding through this thread began.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `f`; a panic in it comes back as an error. Calls nest: the innermost one catches.
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
    install_hook();
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    // After a panic the caller sees only the error, never half-changed values of `f`, unless it shares them
    // with `f` by reference; what is shared across calls must therefore be valid at every step.
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    DEPTH.set(depth);
    result.map_err(|payload| Panic {
        message: message_of(payload.as_ref()),
        location: LOCATION.take(),
    })
}

/// The hook is the process's: it is wrapped once, and panics outside `catch` still reach the one before it.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if DEPTH.get() > 0 {
                remember(info);
            } else {
                before(info);
            }
        }));
    });
}

fn remember(info: &PanicHookInfo<'_>) {
    LOCATION.set(
        info.location()
            .map(|place| format!("{}:{}", place.file(), place.line())),
    );
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_passes_through() {
        assert_eq!(catch(|| 7), Ok(7));
    }

    #[test]
    fn a_panic_has_message_and_place() {
        let line = line!() + 1;
        let caught = catch(|| panic!("no {}", "luck")).unwrap_err();
        assert_eq!(caught.message, "no luck");
        assert_eq!(caught.location, Some(format!("{}:{line}", file!())));
        assert_eq!(
            caught.to_string(),
            format!("panic in the native core: no luck (at {}:{line})", file!())
        );
    }

    #[test]
    fn a_payload_that_is_no_text_is_said_so() {
        let caught = catch(|| panic::panic_any(7_u8)).unwrap_err();
        assert_eq!(caught.message, "a panic without a message");
    }

    #[test]
    fn the_innermost_catches_and_the_outer_goes_on() {
        let outer = catch(|| {
            let inner = catch(|| panic!("inner"));
            (inner.unwrap_err().message, "still here")
        });
        assert_eq!(outer, Ok(("inner".to_owned(), "still here")));
        assert_eq!(catch(|| panic!("second")).unwrap_err().message, "second");
    }

    #[test]
    fn a_resumed_panic_has_no_stale_place() {
        let _ = catch(|| panic!("first"));
        let caught = catch(|| panic::resume_unwind(Box::new("resumed"))).unwrap_err();
        assert_eq!(
            caught,
            Panic {
                message: "resumed".to_owned(),
                location: None
            }
        );
    }

    #[test]
    fn threads_do_not_see_each_other() {
        let threads: Vec<_> = (0..8)
            .map(|n| std::thread::spawn(move || catch(move || panic!("thread {n}")).unwrap_err().message))
            .collect();
        for (n, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), format!("thread {n}"));
        }
    }
}
