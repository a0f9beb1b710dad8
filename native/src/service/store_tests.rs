//! Tests of the EventStore.

use super::*;

fn head(begin: i64) -> Head {
    Head {
        begin,
        end: i64::MAX,
        pushed: 0,
        marks: 0,
    }
}

fn put(store: &Store, ring: usize, word: u64) -> Option<Token> {
    let mut writer = store.claim(ring)?;
    writer.body().copy(&word.to_le_bytes());
    Some(writer.publish(head(word as i64)))
}

fn word(store: &Store, token: &Token) -> u64 {
    u64::from_le_bytes(store.read(token).bytes.try_into().unwrap())
}

#[test]
fn a_slot_is_reclaimed_only_when_nobody_holds_it() {
    let store = Store::new([(1, 2)]);
    let one = put(&store, 0, 1).unwrap();
    let again = store.retain(&one);
    let two = put(&store, 0, 2).unwrap();
    assert!(put(&store, 0, 3).is_none());
    store.release(one, Fate::Replaced);
    assert!(put(&store, 0, 3).is_none());
    assert_eq!(word(&store, &again), 1);
    store.release(again, Fate::Used);
    let four = put(&store, 0, 4).unwrap();
    assert_eq!((word(&store, &two), word(&store, &four)), (2, 4));
    let book = store.book(0);
    assert_eq!(
        (book.created, book.fates, book.refused, book.held()),
        (3, [1, 0, 0, 0], 2, 2)
    );
    store.release(two, Fate::Shed);
    store.release(four, Fate::Expired);
    assert_eq!(store.book(0).fates, [1, 1, 1, 0]);
}

#[test]
fn a_ring_begins_small_and_grows_only_when_all_is_held() {
    let store = Store::new([(2, 5)]);
    for turn in 0..100 {
        let token = put(&store, 0, turn).unwrap();
        store.release(token, Fate::Used);
    }
    assert_eq!(store.book(0).slots, 2);
    let held: Vec<Token> = (0..4).map(|turn| put(&store, 0, turn).unwrap()).collect();
    assert_eq!(store.book(0).slots, 4);
    held.into_iter().for_each(|token| store.release(token, Fate::Used));
    assert_eq!(store.book(0).held(), 0);
}

#[test]
fn a_writer_that_gives_up_leaves_the_slot_free() {
    let store = Store::new([(1, 1)]);
    drop(store.claim(0).unwrap());
    assert!(put(&store, 0, 1).is_some());
    assert_eq!(store.book(0).created, 1);
}

/// Writers and slow readers on a small ring: no reader ever sees a word that is not its own, and the books balance.
#[test]
fn readers_never_see_another_event() {
    use std::sync::mpsc::sync_channel;
    let store = Store::new([(2, 6)]);
    let refused = std::sync::atomic::AtomicU64::new(0);
    let each = 20_000_u64;
    let (sender, receiver) = sync_channel::<(Token, u64)>(4);
    let receiver = std::sync::Mutex::new(receiver);
    std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (sender, store, refused) = (sender.clone(), &store, &refused);
            scope.spawn(move || {
                for turn in 0..each {
                    let value = writer << 32 | turn;
                    let Some(token) = put(store, 0, value) else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        continue;
                    };
                    sender.send((store.retain(&token), value)).unwrap();
                    store.release(token, Fate::Replaced);
                }
            });
        }
        drop(sender);
        for _ in 0..2 {
            let (receiver, store) = (&receiver, &store);
            scope.spawn(move || {
                loop {
                    let Ok((token, value)) = receiver.lock().unwrap().recv() else {
                        break;
                    };
                    std::thread::yield_now();
                    assert_eq!(word(store, &token), value);
                    assert_eq!(store.read(&token).head.begin, value as i64);
                    store.release(token, Fate::Used);
                }
            });
        }
    });
    let book = store.book(0);
    let refused = refused.into_inner();
    assert_eq!(book.created + refused, 2 * each);
    assert_eq!((book.fates[0], book.held(), book.refused), (book.created, 0, refused));
}
