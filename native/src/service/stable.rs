//! A table that grows while others read it: what is in it never moves. For the rings of the EventStore and their slots.

use std::sync::OnceLock;

const BLOCK: usize = 64;

type Block<T> = Box<[OnceLock<T>]>;

/// Things by number, each made when it is first asked for.
#[derive(Debug)]
pub(crate) struct Stable<T> {
    blocks: Box<[OnceLock<Block<T>>]>,
}

fn empty<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

impl<T> Stable<T> {
    /// For numbers below `most`.
    pub(crate) fn new(most: usize) -> Stable<T> {
        Stable {
            blocks: empty(most.div_ceil(BLOCK)),
        }
    }

    /// The thing of a number; it is made if it is not there.
    #[inline]
    pub(crate) fn get_or_make(&self, number: usize, make: impl FnOnce() -> T) -> &T {
        let block = self.blocks[number / BLOCK].get_or_init(|| empty(BLOCK));
        block[number % BLOCK].get_or_init(make)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_where_it_is() {
        let table = Stable::new(1_000);
        let first: *const usize = table.get_or_make(0, || 7);
        for number in 1..1_000 {
            assert_eq!(*table.get_or_make(number, || number), number);
        }
        assert_eq!(std::ptr::from_ref(table.get_or_make(0, || 8)), first);
        assert_eq!(*table.get_or_make(0, || 8), 7);
    }
}
