use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn numbers() -> impl Strategy<Value = (u32, Vec<u32>)> {
    prop_oneof![0u32..8, 0u32..200]
        .prop_flat_map(|chunks| (Just(chunks), proptest::collection::vec(0..chunks + 3, 0..240)))
}

fn set(chunks: u32, numbers: &[u32]) -> SlotSet {
    let mut set = SlotSet::new(chunks);
    for number in numbers {
        set.insert(*number);
    }
    set
}

proptest! {
    #[test]
    fn a_set_of_slots_behaves_like_a_set((chunks, numbers) in numbers()) {
        let mut slots = SlotSet::new(chunks);
        let mut model = HashSet::new();
        for number in numbers {
            let new = number < chunks && model.insert(number);
            prop_assert_eq!(slots.insert(number), new);
            let mut expected: Vec<u32> = model.iter().copied().collect();
            expected.sort_unstable();
            prop_assert_eq!(slots.iter().collect::<Vec<_>>(), expected);
            prop_assert_eq!(slots.live() as usize, model.len());
            prop_assert_eq!(slots.is_full(), model.len() == chunks as usize);
            prop_assert_eq!(slots.is_empty(), model.is_empty());
            prop_assert!((0..chunks + 70).all(|number| slots.contains(number) == model.contains(&number)));
            // Equal sets are equal however they came about, and none and all take no memory.
            prop_assert_eq!(&slots, &set(chunks, &slots.iter().collect::<Vec<_>>()));
            prop_assert_eq!(slots.words.is_empty(), model.is_empty() || slots.is_full());
        }
    }

    #[test]
    fn words_beyond_the_last_chunk_do_not_count(chunks in 0u32..200, words in proptest::collection::vec(any::<u64>(), 0..6)) {
        let bit = |number: u32| words.get((number / 64) as usize).is_some_and(|word| word >> (number % 64) & 1 == 1);
        let expected: Vec<u32> = (0..chunks).filter(|number| bit(*number)).collect();
        let slots = SlotSet::from_words(chunks, words.iter().copied().chain(std::iter::repeat(0)));
        prop_assert_eq!(slots.iter().collect::<Vec<_>>(), expected);
    }
}
