//! HyperLogLogs against plain arrays of registers. What the bytes are is recorded from Redis in the dialogues.

use proptest::prelude::*;

use super::super::hyperloglog::{
    self as hll, DENSE_BYTES, Encoding, HEADER_BYTES, N_REGISTERS, Observation, Registers, SPARE_BYTES, Set,
};

/// Mostly in a few neighbouring registers with a few low values, so that runs are cut and joined.
fn observation() -> impl Strategy<Value = Observation> {
    let register =
        prop_oneof![4 => 100..140_u16, 2 => 0..N_REGISTERS as u16, 1 => Just(N_REGISTERS as u16 - 1)];
    let run = prop_oneof![30 => 1..4_u8, 1 => 1..=32_u8];
    (register, run).prop_map(|(register, run)| Observation { register, run })
}

/// Cuts the string of a sparse HyperLogLog out of a buffer, with room for one change behind it.
fn grown(sparse: &[u8]) -> Vec<u8> {
    [sparse, &[0; SPARE_BYTES]].concat()
}

fn registers_of(bytes: &[u8], encoding: Encoding) -> Registers {
    let mut registers = [0; N_REGISTERS];
    hll::merge(&mut registers, bytes, encoding).expect("runs cover the registers");
    registers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_encodings_are_the_plain_registers(
        seen in prop::collection::vec(observation(), 0..400),
        max_bytes in prop_oneof![Just(3000_usize), 16..200_usize],
    ) {
        let (mut plain, mut sparse) = ([0; N_REGISTERS], hll::empty().to_vec());
        let mut dense = hll::densify(&sparse).expect("an empty one is valid");
        for seen in seen {
            let (before, mut buffer, mut len) = (sparse.len(), grown(&sparse), sparse.len());
            let set = hll::set_sparse(&mut buffer, &mut len, max_bytes, seen).expect("valid runs");
            let is_higher = plain[usize::from(seen.register)] < seen.run;
            if set == Set::TooBig {
                prop_assert!(before + SPARE_BYTES > max_bytes, "refused at {} of {}", before, max_bytes);
                prop_assert_eq!(&buffer[..len], &sparse[..]);
                continue;
            }
            prop_assert_eq!(set == Set::Changed, is_higher);
            prop_assert_eq!(hll::set_dense(&mut dense, seen), is_higher);
            plain[usize::from(seen.register)] = plain[usize::from(seen.register)].max(seen.run);
            sparse = buffer[..len].to_vec();
            prop_assert!(len <= max_bytes.max(before));
            prop_assert_eq!(hll::encoding_of(&sparse), Some(Encoding::Sparse));
        }
        prop_assert!(registers_of(&sparse, Encoding::Sparse) == plain);
        prop_assert!(registers_of(&dense, Encoding::Dense) == plain);
        prop_assert_eq!(hll::dense_register(&dense, 120), plain[120]);
        let expected = hll::cardinality_of_registers(&plain);
        prop_assert_eq!(hll::cardinality(&sparse, Encoding::Sparse), Ok(expected));
        prop_assert_eq!(hll::cardinality(&dense, Encoding::Dense), Ok(expected));
        let made_dense = hll::densify(&sparse).expect("valid runs");
        prop_assert_eq!(&made_dense[HEADER_BYTES..], &dense[HEADER_BYTES..]);
        let mut filled = vec![0; DENSE_BYTES];
        hll::fill_dense(&mut filled, &plain);
        prop_assert_eq!(&filled[HEADER_BYTES..], &dense[HEADER_BYTES..]);
    }

    #[test]
    fn a_merge_is_the_highest_of_each_register(seen in prop::collection::vec((0..3_usize, observation()), 0..300)) {
        let mut all = [const { [0_u8; N_REGISTERS] }; 3];
        let mut dense: Vec<Vec<u8>> =
            vec![hll::densify(&hll::empty()).expect("an empty one is valid"); 3];
        for (nth, seen) in seen {
            let register = &mut all[nth][usize::from(seen.register)];
            *register = seen.run.max(*register);
            hll::set_dense(&mut dense[nth], seen);
        }
        let mut merged = [0; N_REGISTERS];
        dense.iter().for_each(|dense| hll::merge(&mut merged, dense, Encoding::Dense).expect("dense"));
        let highest: Vec<u8> =
            (0..N_REGISTERS).map(|at| all.iter().map(|one| one[at]).max().unwrap_or(0)).collect();
        prop_assert!(merged[..] == highest[..]);
    }

    /// Vectors and words agree on any registers, those of a client's own making too.
    #[test]
    fn dense_twins(seed: u64, is_narrow: bool) {
        let mut random = super::bits_from(seed);
        let mut next = || if is_narrow { 7 + random() as u8 % 23 } else { random() as u8 % 64 };
        let mut registers: Registers = std::array::from_fn(|_| next());
        prop_assert_eq!(hll::histogram(&registers), hll::histogram_plain(&registers));
        let mut dense = hll::densify(&hll::empty()).expect("an empty one is valid");
        hll::fill_dense(&mut dense, &registers);
        let mut plain = vec![0; DENSE_BYTES - HEADER_BYTES];
        hll::pack_plain(&mut plain, &registers);
        prop_assert_eq!(&dense[HEADER_BYTES..], &plain[..]);
        let other: Registers = std::array::from_fn(|_| next());
        let mut merged = other;
        hll::merge(&mut merged, &dense, Encoding::Dense).expect("dense");
        let mut merged_plain = other;
        hll::merge_dense_plain(&mut merged_plain, &dense[HEADER_BYTES..]);
        prop_assert!(merged == merged_plain);
        let mut other_dense = dense.clone();
        hll::fill_dense(&mut other_dense, &other);
        let mut plain = [0; DENSE_BYTES - HEADER_BYTES];
        hll::merge_all_plain(&mut plain, &[&dense[HEADER_BYTES..], &other_dense[HEADER_BYTES..]]);
        let strings = [&dense[..], &other_dense, &dense];
        prop_assert!(*hll::merge_all_dense(&strings) == plain);
        prop_assert_eq!(&hll::merge_all_dense(&strings[..1])[..], &dense[HEADER_BYTES..]);
        let mut packed = dense.clone();
        hll::fill_dense(&mut packed, &merged);
        prop_assert_eq!(&packed[HEADER_BYTES..], &plain[..]);
        registers.iter_mut().zip(other).for_each(|(register, other)| *register = other.max(*register));
        prop_assert!(merged == registers);
    }

    /// What a client wrote itself is refused or understood, and never read or written out of bounds.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), seen in observation(), encoding in 0..2_u8) {
        let mut bytes = [&hll::empty()[..HEADER_BYTES], &bytes].concat();
        bytes[4] = encoding;
        let Some(encoding) = hll::encoding_of(&bytes) else { return Ok(()) };
        let is_valid = hll::cardinality(&bytes, encoding).is_ok();
        let mut registers = [0; N_REGISTERS];
        prop_assert_eq!(hll::merge(&mut registers, &bytes, encoding).is_ok(), is_valid);
        prop_assert_eq!(hll::densify(&bytes).is_ok(), is_valid);
        _ = hll::describe(&bytes);
        let (mut buffer, mut len) = (grown(&bytes), bytes.len());
        _ = hll::set_sparse(&mut buffer, &mut len, 3000, seen);
    }
}

#[test]
fn estimates_are_near_the_truth() {
    let mut dense = hll::densify(&hll::empty()).expect("an empty one is valid");
    let mut n_added = 0_u64;
    for n in [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
        while n_added < n {
            n_added += 1;
            hll::set_dense(&mut dense, hll::observe(format!("element {n_added}").as_bytes()));
        }
        let estimate = hll::cardinality(&dense, Encoding::Dense).expect("dense");
        // Four deviations of 1.04 / sqrt(16384).
        assert!(estimate.abs_diff(n) as f64 <= (n as f64 * 0.0325).ceil(), "{estimate} for {n}");
    }
}
