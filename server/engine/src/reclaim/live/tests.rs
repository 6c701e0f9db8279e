use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Insert(u32),
    Union(Vec<u32>),
    UnionFull,
}

fn steps() -> impl Strategy<Value = (u32, Vec<Step>)> {
    (0u32..200).prop_flat_map(|chunks| {
        let step = prop_oneof![
            6 => (0..chunks + 3).prop_map(Step::Insert),
            2 => proptest::collection::vec(0..chunks + 1, 0..80).prop_map(Step::Union),
            1 => Just(Step::UnionFull),
        ];
        (Just(chunks), proptest::collection::vec(step, 0..60))
    })
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
    fn a_set_of_slots_behaves_like_a_set((chunks, steps) in steps()) {
        let mut slots = SlotSet::new(chunks);
        let mut model = HashSet::new();
        for step in steps {
            match step {
                Step::Insert(number) => {
                    let new = number < chunks && model.insert(number);
                    prop_assert_eq!(slots.insert(number), new);
                }
                Step::Union(numbers) => {
                    slots.union(&set(chunks, &numbers));
                    model.extend(numbers.into_iter().filter(|number| *number < chunks));
                }
                Step::UnionFull => {
                    slots.union(&SlotSet::full(chunks));
                    model.extend(0..chunks);
                }
            }
            let mut expected: Vec<u32> = model.iter().copied().collect();
            expected.sort_unstable();
            prop_assert_eq!(slots.iter().collect::<Vec<_>>(), expected);
            prop_assert_eq!(slots.live() as usize, model.len());
            prop_assert_eq!(slots.is_full(), model.len() == chunks as usize);
            prop_assert_eq!(slots.is_empty(), model.is_empty());
            prop_assert!((0..chunks + 70).all(|number| slots.contains(number) == model.contains(&number)));
            // Equal sets are equal however they came about, and none and all take no memory.
            prop_assert_eq!(&slots, &set(chunks, &slots.iter().collect::<Vec<_>>()));
            prop_assert_eq!(slots.heap_bytes() == 0, model.is_empty() || slots.is_full());
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
