//! Does any input make the decoder, the scan or a number parser panic, or disagree with each other?
//! Run: `cargo +nightly fuzz run reply`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skerry_resp::number::FloatText;
use skerry_resp::{Decoder, LongDouble, Scan, format_f64, parse_f64, parse_i64, parse_u64};

fuzz_target!(|input: &[u8]| {
    let decoded = Decoder::default().decode(input);
    let scanned = Scan::new().next(input, 0);
    if let Ok(Some((value, len))) = decoded {
        let scanned = scanned.expect("the scan looks at less").expect("it is whole");
        assert_eq!((scanned.end, scanned.is_error()), (len, value.is_error()));
        let mut scan = Scan::new();
        for end in 0..len.min(200) {
            assert_eq!(scan.next(&input[..end], 0), Ok(None));
        }
    }

    if let Some(value) = parse_i64(input) {
        assert_eq!(value.to_string().as_bytes(), input);
        assert!(value < 0 || parse_u64(input) == Some(value as u64));
    }
    let double = parse_f64(input);
    if let Some(value) = double {
        let mut text = FloatText::new();
        assert_eq!(parse_f64(format_f64(value, &mut text)).map(f64::to_bits), Some(value.to_bits()));
    }
    let long = LongDouble::parse(input);
    assert!(long.is_some() || double.is_none() || input.len() >= 5 * 1024, "the wider format reads more");
    if let Some(value) = long {
        let mut out = Vec::new();
        (value + LongDouble::ZERO).push_text(&mut out);
        assert!(value.is_infinite() || LongDouble::parse(&out).is_some());
    }
});
