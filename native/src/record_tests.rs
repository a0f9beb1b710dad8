//! Tests of the record.

use super::*;

fn every_kind() -> Schema {
    Schema::new(3, Kind::ALL)
}

fn values() -> [Val<'static>; 8] {
    [
        Val::Bool(true),
        Val::Int(-7),
        Val::Float(0.1),
        Val::Str("Grüße".into()),
        Val::Int(1_336_381_200_000_000),
        Val::Bytes(b"\xff\x00"),
        Val::Bytes(b""),
        Val::Floats(&[1.5, -0.0, f64::MAX]),
    ]
}

fn encoded(schema: &Schema, id: IdRef<'_>, values: &[Val<'_>]) -> Encoder {
    let mut encoder = Encoder::new();
    encoder.start(schema, 5, id).unwrap();
    for (slot, value) in values.iter().enumerate() {
        encoder.set(schema, slot, value).unwrap();
    }
    encoder.finish();
    encoder
}

fn same(one: &Val<'_>, other: &Val<'_>) -> bool {
    format!("{one:?}") == format!("{other:?}")
}

#[test]
fn what_goes_in_comes_out() {
    let schema = every_kind();
    for id in [IdRef::Int(i64::MIN), IdRef::Text("a-ü"), IdRef::Text("")] {
        let encoder = encoded(&schema, id, &values());
        let record = Record::read(encoder.bytes(), &schema).unwrap();
        assert_eq!((record.time(), record.stream(), record.id()), (5, 3, id));
        assert_eq!(record.bytes().len(), length(encoder.bytes()).unwrap());
        for (slot, value) in values().iter().enumerate() {
            assert!(same(&record.get(slot), value), "{slot}");
            assert!(!record.is_null(slot));
        }
        assert!(record.get(8).is_null());
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let schema = Schema::new(2, [Kind::Int, Kind::String]);
    let encoder = encoded(&schema, IdRef::Int(9), &[Val::Null, Val::Str("ab".into())]);
    let mut expected = Vec::new();
    expected.extend(56_u32.to_le_bytes());
    expected.extend(2_u16.to_le_bytes());
    expected.extend([0, 0]);
    expected.extend(5_i64.to_le_bytes());
    expected.extend(9_i64.to_le_bytes());
    expected.extend(1_u64.to_le_bytes());
    expected.extend(0_u64.to_le_bytes());
    expected.extend(48_u32.to_le_bytes());
    expected.extend(2_u32.to_le_bytes());
    expected.extend(*b"ab\0\0\0\0\0\0");
    assert_eq!(encoder.bytes(), expected);
}

#[test]
fn nulls_of_many_attributes_keep_apart() {
    let schema = Schema::new(0, vec![Kind::Int; 130]);
    let mut encoder = Encoder::new();
    encoder.start(&schema, 0, IdRef::Int(0)).unwrap();
    for slot in (0..130).filter(|slot| slot % 3 == 0) {
        encoder.set(&schema, slot, &Val::Int(slot as i64)).unwrap();
    }
    encoder.finish();
    let record = Record::read(encoder.bytes(), &schema).unwrap();
    for slot in 0..130 {
        let expected = if slot % 3 == 0 {
            Val::Int(slot as i64)
        } else {
            Val::Null
        };
        assert!(same(&record.get(slot), &expected), "{slot}");
    }
}

#[test]
fn marks_change_nothing_else() {
    let schema = every_kind();
    let mut encoder = encoded(&schema, IdRef::Text("x"), &values());
    mark(encoder.bytes_mut(), LATE | 0xf0);
    let record = Record::read(encoder.bytes(), &schema).unwrap();
    assert!(record.is_late() && !record.is_duplicate());
    assert_eq!(record.id(), IdRef::Text("x"));
    mark(encoder.bytes_mut(), 0);
    assert_eq!(encoder.bytes(), encoded(&schema, IdRef::Text("x"), &values()).bytes());
}

#[test]
fn a_record_that_is_given_up_leaves_no_trace() {
    let schema = every_kind();
    let mut encoder = encoded(&schema, IdRef::Int(1), &values());
    let before = encoder.bytes().to_vec();
    encoder.start(&schema, 6, IdRef::Text("half")).unwrap();
    assert_eq!(encoder.set(&schema, 2, &Val::Float(f64::NAN)), Err(Fault::NotFinite(2)));
    assert_eq!(encoder.set(&schema, 0, &Val::Int(1)), Err(Fault::Value(0)));
    assert_eq!(encoder.set(&schema, 4, &Val::Int(i64::MAX)), Err(Fault::Timestamp(4)));
    assert_eq!(encoder.bytes(), before);
    assert_eq!(encoder.start(&schema, i64::MAX, IdRef::Int(0)), Err(Fault::Time));
    encoder.finish();
    assert_eq!(encoder.bytes(), before);
}

/// Changes a little-endian word of a good record, and says what `check` finds then.
fn changed(at: usize, to: u64, id: IdRef<'_>) -> Result<usize, Fault> {
    let schema = every_kind();
    let mut encoder = encoded(&schema, id, &values());
    encoder.bytes_mut()[at..at + 8].copy_from_slice(&to.to_le_bytes());
    check(encoder.bytes(), &schema)
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let schema = every_kind();
    let good = encoded(&schema, IdRef::Int(1), &values());
    let length = good.bytes().len();
    let head = word(good.bytes(), 0);
    let words = schema.words_at();
    let tail = schema.tail_at() as u64;
    let int = IdRef::Int(1);
    assert_eq!(check(good.bytes(), &schema), Ok(length));
    for cut in 0..length {
        assert_eq!(check(&good.bytes()[..cut], &schema), Err(Fault::Length), "{cut}");
    }
    assert_eq!(changed(0, head + 4, int), Err(Fault::Length));
    assert_eq!(changed(0, head + 8, int), Err(Fault::Length));
    assert_eq!(changed(0, head & !0xffff_ffff | 32, int), Err(Fault::Length));
    assert_eq!(changed(0, head ^ 1 << 32, int), Err(Fault::Stream));
    assert_eq!(changed(0, head | 32 << 48, int), Err(Fault::Flags));
    assert_eq!(changed(0, head | 4 << 56, int), Err(Fault::Flags));
    // What was the last of the tail is no instant.
    assert_eq!(changed(0, head | u64::from(ENDS) << 48, int), Err(Fault::End));
    assert_eq!(changed(8, MAX_INSTANT as u64 + 1, int), Err(Fault::Time));
    assert_eq!(changed(16, 1 << 32 | 8, IdRef::Text("x")), Err(Fault::Range(None)));
    assert_eq!(changed(tail as usize, 0xff, IdRef::Text("x")), Err(Fault::Utf8(None)));
    assert_eq!(changed(words, 2, int), Err(Fault::Value(0)));
    assert_eq!(changed(words + 16, f64::NAN.to_bits(), int), Err(Fault::NotFinite(2)));
    assert_eq!(changed(words + 24, u64::MAX, int), Err(Fault::Range(Some(3))));
    assert_eq!(
        changed(words + 24, (length as u64 - tail + 1) << 32 | tail, int),
        Err(Fault::Range(Some(3)))
    );
    assert_eq!(changed(tail as usize, 0xff, int), Err(Fault::Utf8(Some(3))));
    assert_eq!(changed(words + 32, i64::MIN as u64, int), Err(Fault::Timestamp(4)));
    assert_eq!(
        changed(words + 40, 1 << 32 | (tail + 1), int),
        Err(Fault::Range(Some(5)))
    );
    assert_eq!(changed(words + 56, 7 << 32 | tail, int), Err(Fault::Range(Some(7))));
    assert_eq!(
        changed(length - 8, f64::INFINITY.to_bits(), int),
        Err(Fault::NotFinite(7))
    );
}

#[test]
fn the_end_of_validity_is_the_last_of_a_record() {
    let schema = every_kind();
    for id in [IdRef::Int(1), IdRef::Text("name")] {
        let plain = encoded(&schema, id, &values());
        assert_eq!((end(plain.bytes()), marks(plain.bytes())), (None, 0));
        let mut encoder = Encoder::new();
        encoder.start(&schema, 5, id).unwrap();
        for (slot, value) in values().iter().enumerate() {
            encoder.set(&schema, slot, value).unwrap();
        }
        assert_eq!(encoder.limit(Some(i64::MAX), 0), Err(Fault::End));
        encoder.limit(Some(-9), 3).unwrap();
        encoder.finish();
        let bytes = encoder.bytes();
        assert_eq!((end(bytes), marks(bytes)), (Some(-9), 3));
        assert_eq!(bytes.len(), plain.bytes().len() + 8);
        assert_eq!(word(bytes, bytes.len() - 8) as i64, -9);
        let record = Record::read(bytes, &schema).unwrap();
        assert_eq!((record.id(), record.time()), (id, 5));
        for (slot, value) in values().iter().enumerate() {
            assert!(same(&record.get(slot), value), "{slot}");
        }
    }
    // No part may reach into it.
    let text = Schema::new(0, [Kind::String]);
    let mut encoder = Encoder::new();
    encoder.start(&text, 5, IdRef::Int(1)).unwrap();
    encoder.set(&text, 0, &Val::Str("12345678".into())).unwrap();
    encoder.limit(Some(9), 0).unwrap();
    encoder.finish();
    let at = text.words_at() + 4;
    encoder.bytes_mut()[at] = 9;
    assert_eq!(check(encoder.bytes(), &text), Err(Fault::Range(Some(0))));
}

#[test]
fn no_bytes_break_the_reader() {
    let schema = every_kind();
    let good = encoded(&schema, IdRef::Text("name"), &values());
    let mut seed = 7_u64;
    for _ in 0..20_000 {
        let mut words: Vec<u64> = bytemuck::cast_slice(good.bytes()).to_vec();
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let at = (seed >> 33) as usize % bytes.len();
        bytes[at] ^= (seed >> 20) as u8;
        if let Ok(record) = Record::read(bytes, &schema) {
            let _ = record.id();
            for slot in 0..9 {
                let _ = record.get(slot);
            }
        }
    }
}
