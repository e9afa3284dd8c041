//! Arithmetic of free slots and wanted slots. A class has available what is free in it, and what larger free slots split into.

use super::class::{ByClass, Class};

/// Wanted slots by class.
pub type Demand = [u64; Class::COUNT];

/// Returns the number of new slots of the class `top` that are needed to serve `wanted`, of this and smaller classes, from `free`.
///
/// Serving the classes in any order, each allocation from the smallest class that has a free slot, needs no more: such an allocation lowers
/// the number of available slots of a larger class only if the smaller classes have none free, and then the larger class has one to spare.
pub fn missing(free: &ByClass, wanted: &Demand, top: Class) -> u64 {
    let (mut slots, mut spare) = (0, 0);
    for class in Class::all().rev().skip(Class::LARGEST.index() - top.index()) {
        let have = 2 * spare + u64::from(free[class.index()]);
        let want = wanted[class.index()];
        let in_top = top.index() - class.index();
        let new = want.saturating_sub(have).div_ceil(1 << in_top);
        slots += new;
        spare = have + (new << in_top) - want;
    }
    slots
}

/// Returns the slots of `class` that are available in `free` after `wanted` is served; negative if they do not suffice.
pub fn left(free: &ByClass, wanted: &Demand, class: Class) -> i64 {
    // Smaller classes that have too few free slots split slots of this class.
    let split = (0..class.index())
        .fold(0, |short: u64, at| (wanted[at] + short).saturating_sub(u64::from(free[at])).div_ceil(2));
    let slots = |at: usize| (i64::from(free[at]) - wanted[at] as i64) << (at - class.index());
    (class.index()..Class::COUNT).map(slots).sum::<i64>() - split as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn missing_blocks(free: &ByClass, wanted: &Demand) -> u64 {
        missing(free, wanted, Class::LARGEST)
    }

    /// Allocates one slot of a class from the smallest class that has one, splitting it.
    fn allocate(free: &mut ByClass, class: usize) -> bool {
        let Some(from) = (class..Class::COUNT).find(|&from| free[from] > 0) else { return false };
        free[from] -= 1;
        (class..from).for_each(|piece| free[piece] += 1);
        true
    }

    #[test]
    fn larger_slots_count_as_what_they_split_into() {
        let free = [1, 0, 0, 0, 0, 0, 1];
        let wanted = |class: usize, count| {
            let mut wanted = [0; Class::COUNT];
            wanted[class] = count;
            wanted
        };
        let blocks = |class, count| missing_blocks(&free, &wanted(class, count));
        assert_eq!(
            [blocks(0, 65), blocks(0, 66), blocks(5, 2), blocks(5, 3), blocks(6, 1), blocks(6, 3)],
            [0, 1, 0, 1, 0, 2]
        );
        let mebibyte = Class::of_size(1 << 20).unwrap();
        assert_eq!(left(&free, &wanted(0, 1), mebibyte), 4);
        assert_eq!(left(&free, &wanted(0, 2), mebibyte), 3);
        assert_eq!(left(&free, &wanted(6, 2), mebibyte), -4);
    }

    proptest! {
        /// The computed number of blocks suffices for the demand in a random order, and one fewer does not.
        #[test]
        fn missing_blocks_is_exact(
            free in prop::array::uniform7(0u32..4), wanted in prop::array::uniform7(0u64..5), seed in any::<u64>()
        ) {
            let blocks = missing_blocks(&free, &wanted);
            let mut order: Vec<usize> = (0..7).flat_map(|class| std::iter::repeat_n(class, wanted[class] as usize)).collect();
            let mut random = seed | 1;
            for at in (1..order.len()).rev() {
                random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                order.swap(at, (random >> 33) as usize % (at + 1));
            }
            let serve = |blocks: u64| {
                let mut free = free;
                free[6] += blocks as u32;
                order.iter().all(|&class| allocate(&mut free, class))
            };
            prop_assert!(serve(blocks));
            prop_assert!(blocks == 0 || !serve(blocks - 1));
        }

        /// As many slots of a class are left as can still be allocated after the demand, smallest class first.
        #[test]
        fn left_is_what_remains(free in prop::array::uniform7(0u32..6), wanted in prop::array::uniform7(0u64..3), class in 0usize..7) {
            let of = Class::from_index(class as u8).unwrap();
            let expected = left(&free, &wanted, of);
            prop_assume!(missing_blocks(&free, &wanted) == 0);
            let mut free = free;
            for (class, count) in wanted.iter().enumerate() {
                (0..*count).for_each(|_| assert!(allocate(&mut free, class)));
            }
            let mut count = 0;
            while allocate(&mut free, class) {
                count += 1;
            }
            prop_assert_eq!(count, expected);
        }
    }
}
