//! The format, byte for byte.

use super::*;

#[test]
fn header_lines_and_heads_are_fixed() {
    let mut slots = fresh();
    // Two chunks with room, one of a wide class, and a slot with granules of its own.
    let made: Vec<SlotId> = (0..9).map(|_| slots.allocate(8_000).unwrap()).collect();
    slots.free(made[4]);
    slots.free(made[6]);
    let wide = slots.allocate(33_000).unwrap();
    let large = slots.allocate(150_000).unwrap();
    slots.set_root(wide);
    let header: [u8; 624] = slots.space.read(0);
    let mut expected = [0; 624];
    expected[..16].copy_from_slice(&[b'C', b'P', b'S', b'L', 4, 0, 0, 0, 1, 16, 0, 0, 1, 16, 0, 0]);
    // 8 KiB is class 19; 33,000 bytes are class 28; the last line counts granules.
    let line = |words: [u32; 4]| words.map(u32::to_le_bytes).concat();
    expected[64 + 16 * 19..][..16].copy_from_slice(&line([6, 5, 7, 2]));
    expected[64 + 16 * 28..][..16].copy_from_slice(&line([9, 9, 1, 1]));
    expected[64 + 16 * 34..].copy_from_slice(&line([0, 0, 1, 3]));
    assert_eq!(header, expected);
    let lines = [4, 5, 8, 12].map(|granule| slots.arena.line(granule));
    assert_eq!(lines[0], [19, 0, 6, 0, 7, 0, 8, 0, 6, 0, 0, 0, 0, 0, 0, 0], "two are free, and it is the last");
    assert_eq!(lines[1], [19, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0], "it is the first");
    assert_eq!(lines[2], [28, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(lines[3], [34, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let head = |slot: SlotId| -> [u8; 8] { slots.arena.payload().read((u64::from(slot) - 1) * UNIT) };
    assert_eq!((made[4], made[6], made[8], wide, large), (2_305, 2_433, 2_561, 4_097, 6_145));
    assert_eq!(head(made[6]), [19, FREE, 0, 0, 5, 0, 0, 0]);
    assert_eq!(head(made[4]), [19, FREE, 0, 0, 0, 0, 0, 0]);
    assert_eq!([made[0], wide, large].map(|slot| head(slot)[..2].to_vec()), [[19, USED], [28, USED], [34, USED]]);
}

#[test]
fn unknown_header_is_refused() {
    let refused = |break_it: fn(&Slots<Twin>), with: &str| {
        let mut slots = fresh();
        slots.allocate(10).unwrap();
        break_it(&slots);
        drop(slots);
        testing::forget();
        let opened = Slots::open(testing::space(testing::SLOTS), testing::arena(), RECORDS);
        assert!(opened.is_err_and(|why| why.to_string().contains(with)), "{with}");
    };
    refused(|slots| slots.space.write(4, &[9]), "version 9");
    refused(|slots| slots.space.write(8, &[4]), "damaged in stable memory");
    refused(|slots| slots.space.write(64 + 12, &[2]), "chunks of 2 granules, of which the arena counts 1");
    refused(|slots| slots.space.write(64 + 9, &[3]), "769 slots in 1 chunks of slots of 128 bytes");
    refused(|slots| assert!(slots.arena.take_granules(RECORDS, 3).is_ok()), "of which the arena counts 4");
}
