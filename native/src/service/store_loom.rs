//! The protocol of the EventStore's slots, through every interleaving (atomics.rs says how).

use super::*;
use loom::cell::UnsafeCell as Watched;
use loom::sync::Arc;
use loom::thread;

/// A ring of one slot, beside which a cell is written and read as the slot is: loom says if both happen at once.
#[test]
fn loom_no_slot_is_written_while_it_is_read() {
    loom::model(|| {
        let shared = Arc::new((Store::new([(1, 1)]), Watched::new(0_u64)));
        let write = |shared: &(Store, Watched<u64>), word: u64| {
            let mut writer = shared.0.claim(0)?;
            // SAFETY: what is being tested: a claimed slot is the writer's alone.
            shared.1.with_mut(|cell| unsafe { *cell = word });
            writer.body().copy(&word.to_le_bytes());
            let head = Head {
                begin: 0,
                end: 0,
                pushed: 0,
                marks: 0,
            };
            Some(writer.publish(head))
        };
        let token = write(&shared, 1).unwrap();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (shared, token) = (shared.clone(), shared.0.retain(&token));
                thread::spawn(move || {
                    // SAFETY: what is being tested: nobody writes while there is a token.
                    assert_eq!(shared.1.with(|cell| unsafe { *cell }), 1);
                    shared.0.release(token, Fate::Used);
                })
            })
            .collect();
        shared.0.release(token, Fate::Replaced);
        let second = write(&shared, 2);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        if let Some(second) = second {
            shared.0.release(second, Fate::Used);
        }
        let book = shared.0.book(0);
        assert_eq!((book.held(), book.fates[0]), (0, book.created));
    });
}
