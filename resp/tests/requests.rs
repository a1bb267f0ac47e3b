//! Requests: byte cases whose answers were probed on a live Redis 8.2.3, and properties over any chunking.

use proptest::prelude::*;
use skerry_resp::{ArgRange, Limits, Parsed, Parser, ProtocolError, encode_command};
use std::time::{Duration, Instant};

type Request = Vec<Vec<u8>>;

/// What a connection makes of its input: the requests, the error that ended it, the bytes left unparsed.
#[derive(Debug, PartialEq)]
struct Outcome {
    requests: Vec<Request>,
    error: Option<ProtocolError>,
    left: usize,
}

/// Feeds `input` in steps of the given sizes (round and round) through one parser, as a connection would, moving the
/// buffer's content to its front between reads.
fn feed(input: &[u8], steps: &[usize], limits: &Limits) -> Outcome {
    let mut parser = Parser::new();
    let (mut buf, mut args, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    let mut steps = steps.iter().cycle();
    let mut rest = input;
    while !rest.is_empty() {
        let step = rest.len().min(*steps.next().unwrap());
        buf.extend_from_slice(&rest[..step]);
        rest = &rest[step..];
        let mut pos = 0;
        loop {
            args.clear();
            let parsed = match parser.parse(&buf, pos, &mut args, limits) {
                Ok(parsed) => parsed,
                Err(error) => {
                    assert!(args.is_empty(), "ranges of a refused request");
                    return Outcome { requests, error: Some(error), left: 0 };
                }
            };
            let (text, argc, end) = match parsed {
                Parsed::Request { end, argc } => (&buf[..], argc, end),
                Parsed::Inline { end, argc } => (parser.inline_text(), argc, end),
                Parsed::Empty { end } => (&buf[..], 0, end),
                Parsed::Incomplete { needed } => {
                    assert!(needed > 0 && args.is_empty());
                    break;
                }
            };
            assert_eq!(argc, args.len());
            assert!(end > pos && end <= buf.len());
            if argc > 0 {
                requests.push(args.iter().map(|arg: &ArgRange| arg.of(text).to_vec()).collect());
            }
            pos = end;
        }
        buf.drain(..pos);
    }
    Outcome { requests, error: None, left: buf.len() }
}

/// One case: the same however the bytes come. `expected` holds requests as `a|b`, or an error's text behind `-`,
/// or `...` for bytes that wait for more.
fn check(input: &[u8], limits: &Limits, expected: &[&str]) {
    for steps in [&[usize::MAX][..], &[1], &[2, 3], &[7, 1, 1]] {
        let outcome = feed(input, steps, limits);
        let mut got: Vec<String> = outcome
            .requests
            .iter()
            .map(|request| {
                request.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join("|")
            })
            .collect();
        if let Some(error) = outcome.error {
            got.push(format!("-{}", error.text().escape_ascii()));
        }
        if outcome.left > 0 {
            got.push("...".into());
        }
        assert_eq!(got, expected, "of {} in steps of {steps:?}", input.escape_ascii());
    }
}

const BAD_COUNT: &str = "-Protocol error: invalid multibulk length";
const BAD_BULK: &str = "-Protocol error: invalid bulk length";
const QUOTES: &str = "-Protocol error: unbalanced quotes in request";

#[test]
fn multibulk() {
    let cases: &[(&[u8], &[&str])] = &[
        (b"*1\r\n$4\r\nPING\r\n", &["PING"]),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$4\r\nPI\r\n\r\n", &["SET|k|", "PI\\r\\n"]),
        (b"*-1\r\nPING\r\n", &["PING"]),
        (b"*0\r\n*1\r\n$4\r\nPING\r\n", &["PING"]),
        (b"*-9223372036854775808\r\nPING\r\n", &["PING"]),
        (b"*-9223372036854775809\r\n", &[BAD_COUNT]),
        (b"*2147483647\r\n", &["..."]),
        (b"*2147483648\r\n", &[BAD_COUNT]),
        (b"*1048577\r\n$1\r\na\r\n", &["..."]),
        (b"*abc\r\n", &[BAD_COUNT]),
        (b"*+1\r\n", &[BAD_COUNT]),
        (b"*01\r\n", &[BAD_COUNT]),
        (b"*-0\r\n", &[BAD_COUNT]),
        (b"*1 \r\n", &[BAD_COUNT]),
        (b"*\r\n", &[BAD_COUNT]),
        (b"*1\n$4\nPING\n\r\n", &[BAD_COUNT]),
        (b"*1\n$4\nPING\n", &["..."]),
        (b"*1\r\n$-1\r\n", &[BAD_BULK]),
        (b"*1\r\n$abc\r\n", &[BAD_BULK]),
        (b"*1\r\n$\r\n\r\n", &[BAD_BULK]),
        (b"*1\r\n$01\r\nP\r\n", &[BAD_BULK]),
        (b"*1\r\n$+4\r\nPING\r\n", &[BAD_BULK]),
        (b"*1\r\n$ 4\r\nPING\r\n", &[BAD_BULK]),
        (b"*1\r\n$536870912\r\n", &["..."]),
        (b"*1\r\n$536870913\r\n", &[BAD_BULK]),
        (b"*2\r\n$4\r\nPING\r\nfoo\r\n", &["-Protocol error: expected \\'$\\', got \\'f\\'"]),
        (b"*1\r\n\r\n", &["-Protocol error: expected \\'$\\', got \\'\\r\\'"]),
        (b"*1\r\n\xff\r\n", &["-Protocol error: expected \\'$\\', got \\'\\xff\\'"]),
        (b"*1\r\nf", &["..."]),
        // What stands for the line feed of a header and for the CR LF of a bulk is not looked at.
        (b"*1\r\n$4\rXPINGab", &["PING"]),
        (b"*1\rX$4\rXPINGabPING\r\n", &["PING", "PING"]),
        (b"PING\r\n*1\r\n$4\r\nPING\r\n\r\nPING\r\n", &["PING", "PING", "PING"]),
    ];
    for (input, expected) in cases {
        check(input, &Limits::default(), expected);
    }
}

#[test]
fn inline() {
    let cases: &[(&[u8], &[&str])] = &[
        (b"PING\n", &["PING"]),
        (b"PING\r\r\n", &["PING"]),
        (b"\r\n\n   \r\nPING\r\n", &["PING"]),
        (b" SET  k\tv \r\n", &["SET|k|v"]),
        (b"$4\r\nPING\r\n", &["$4", "PING"]),
        (b"PING \"a", &["..."]),
        (b"PING \"a\r\n", &[QUOTES]),
        (b"PING 'a\r\n", &[QUOTES]),
        (b"PING \"a\"b\r\n", &[QUOTES]),
        (b"PING 'a'b\r\n", &[QUOTES]),
        (b"PING a'b\r\n", &[QUOTES]),
        (b"PING \"abc\\\"\r\n", &[QUOTES]),
        (b"PING \"abc\\\r\n", &[QUOTES]),
        (b"PING 'abc\\'\r\n", &[QUOTES]),
        (b"PING a\"b\" c\r\n", &["PING|ab|c"]),
        (b"PING a'b c' d\r\n", &["PING|ab c|d"]),
        (b"\"PING\" \"\" ''\r\n", &["PING||"]),
        (br#"PING "\x41\n\r\t\b\a\q\"\\" "\xZZ\x4""#, &["..."]),
        (
            b"PING \"\\x41\\n\\r\\t\\b\\a\\q\\\"\\\\\" \"\\xZZ\\x4\"\n",
            &["PING|A\\n\\r\\t\\x08\\x07q\\\"\\\\|xZZx4"],
        ),
        (b"PING 'it\\'s \\n'\r\n", &["PING|it\\'s \\\\n"]),
        (b"PING a\\ b\r\n", &["PING|a\\\\|b"]),
        (b"PING\ra\rb\r\n", &["PING|a|b"]),
        (b"PING\x0ba \x0bb\x0c\r\n", &["PING\\x0ba|b\\x0c"]),
        (b"PING \"a\"\x0b\"b\"\r\n", &["PING|a|b"]),
        // A departure: Redis waits for ever here.
        (b"PING a\0b\r\n", &["PING|a\\x00b"]),
    ];
    for (input, expected) in cases {
        check(input, &Limits::default(), expected);
    }
}

#[test]
fn limits_hold_to_the_byte() {
    let limits = Limits::default();
    let long = |head: &str, fill: &str, n: usize| [head, &fill.repeat(n)].concat().into_bytes();
    let steps = &[16 << 10];
    let error = |input: &[u8]| feed(input, steps, &limits).error;
    assert_eq!(error(&long("*", "1", 65535)), None);
    assert_eq!(error(&long("*", "1", 65536)), Some(ProtocolError::TooBigMultibulkCount));
    assert_eq!(error(&long("*1\r\n$", "1", 65535)), None);
    assert_eq!(error(&long("*1\r\n$", "1", 65536)), Some(ProtocolError::TooBigBulkCount));
    assert_eq!(error(&long("*1\r\n", "f", 65537)), Some(ProtocolError::TooBigBulkCount));
    assert_eq!(error(&long("", "a", 65536)), None);
    assert_eq!(error(&long("", "a", 65537)), Some(ProtocolError::TooBigInline));
    // The longest line with its CR, and one byte more; told alike however it comes.
    for steps in [&[usize::MAX][..], &[1000], &[65537, 1]] {
        let mut line = long("PING ", "a", 65530);
        line.extend_from_slice(b"\r\n");
        assert_eq!(feed(&line, steps, &limits).requests.len(), 1);
        line.insert(5, b'a');
        assert_eq!(feed(&line, steps, &limits).error, Some(ProtocolError::TooBigInline));
    }
}

#[test]
fn those_who_have_not_authenticated_get_less() {
    let cases: &[(&[u8], &[&str])] = &[
        (b"*10\r\n", &["..."]),
        (b"*11\r\n", &["-Protocol error: unauthenticated multibulk length"]),
        (b"*2147483648\r\n", &[BAD_COUNT]),
        (b"*1\r\n$16384\r\n", &["..."]),
        (b"*1\r\n$16385\r\n", &["-Protocol error: unauthenticated bulk length"]),
        (b"*1\r\n$536870913\r\n", &[BAD_BULK]),
    ];
    for (input, expected) in cases {
        check(input, &Limits::unauthenticated(), expected);
    }
    let small = Limits { max_bulk_len: 5, max_args: 3, ..Limits::default() };
    check(b"*3\r\n$1\r\na\r\n$5\r\nbbbbb\r\n$6\r\n", &small, &[BAD_BULK]);
    check(b"*4\r\n", &small, &[BAD_COUNT]);
}

#[test]
fn a_bulk_tells_exactly_what_it_needs() {
    let (mut parser, mut args) = (Parser::new(), Vec::new());
    let limits = Limits::default();
    let mut needed = |buf: &[u8]| match parser.parse(buf, 0, &mut args, &limits) {
        Ok(Parsed::Incomplete { needed }) => needed,
        other => panic!("{other:?}"),
    };
    assert_eq!(needed(b"*2\r\n$3\r\nGET\r\n$100000\r\n"), 100_002);
    assert_eq!(needed(b"*2\r\n$3\r\nGET\r\n$100000\r\nabc"), 99_999);
    assert_eq!(needed(b""), 1);
}

#[test]
fn a_big_bulk_keeps_no_state_and_no_memory() {
    let (mut parser, mut args) = (Parser::new(), Vec::new());
    let parsed =
        parser.parse(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nab", 0, &mut args, &Limits::default());
    assert_eq!(parsed, Ok(Parsed::Incomplete { needed: (512 << 20) }));
    assert_eq!(parser.heap_bytes(), 0);
    assert!(args.capacity() < 64, "room for {} arguments was made on a declaration", args.capacity());
}

#[test]
fn a_declared_count_allocates_nothing() {
    let (mut parser, mut args) = (Parser::new(), Vec::new());
    let parsed = parser.parse(b"*2147483647\r\n$1\r\na\r\n$1", 0, &mut args, &Limits::default());
    assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })));
    assert!(args.capacity() + parser.heap_bytes() < 256);
}

/// Were each feed to start over, this would read 7 * 10^9 headers.
#[test]
fn a_request_fed_in_crumbs_costs_linear_time() {
    let request: Vec<Vec<u8>> = (0..100_000_u32).map(|i| i.to_string().into_bytes()).collect();
    let mut input = Vec::new();
    encode_command(&request, &mut input);
    let (mut parser, mut args) = (Parser::new(), Vec::new());
    let limits = Limits::default();
    let start = Instant::now();
    for end in (0..input.len()).step_by(8) {
        let parsed = parser.parse(&input[..end], 0, &mut args, &limits);
        assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })), "{parsed:?} at {end}");
    }
    let parsed = parser.parse(&input, 0, &mut args, &limits);
    assert_eq!(parsed, Ok(Parsed::Request { end: input.len(), argc: request.len() }));
    assert!(args.iter().map(|arg| arg.of(&input)).eq(request.iter().map(Vec::as_slice)));
    assert_eq!(parser.heap_bytes(), 0);
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}

/// A request on the wire: multibulk, inline or nothing at all, and what it means.
fn wire_request() -> impl Strategy<Value = (Vec<u8>, Option<Request>)> {
    let arg = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..20),
        1 => prop::collection::vec(any::<u8>(), 90..1200),
        1 => Just(b"\r\n$3\r\n*1\r\n".to_vec()),
    ];
    let request = prop_oneof![
        9 => prop::collection::vec(arg.clone(), 1..6),
        1 => prop::collection::vec(arg, 15..40),
    ];
    let multibulk = request.prop_map(|args| {
        let mut wire = Vec::new();
        encode_command(&args, &mut wire);
        (wire, Some(args))
    });
    let inline = prop::collection::vec("[a-z]{1,60}", 1..5).prop_map(|words| {
        let wire = format!("{}\r\n", words.join(" ")).into_bytes();
        (wire, Some(words.into_iter().map(String::into_bytes).collect()))
    });
    let empty = prop_oneof![Just("*0\r\n"), Just("*-1\r\n"), Just("\r\n"), Just("\n"), Just("  \r\n")]
        .prop_map(|text| (text.as_bytes().to_vec(), None));
    prop_oneof![6 => multibulk, 2 => inline, 1 => empty]
}

proptest! {
    #[test]
    fn any_chunking_parses_alike(
        pipeline in prop::collection::vec(wire_request(), 1..12),
        steps in prop::collection::vec(1_usize..400, 1..6),
    ) {
        let wire: Vec<u8> = pipeline.iter().flat_map(|(wire, _)| wire.clone()).collect();
        let requests: Vec<Request> = pipeline.into_iter().filter_map(|(_, request)| request).collect();
        let expected = Outcome { requests, error: None, left: 0 };
        for steps in [&steps[..], &[usize::MAX], &[1]] {
            prop_assert_eq!(&feed(&wire, steps, &Limits::default()), &expected);
        }
    }

    /// Any bytes, and valid ones with one changed: no panic, and the same outcome however they come.
    #[test]
    fn broken_input_is_refused_alike(
        pipeline in prop::collection::vec(wire_request(), 1..6),
        at: prop::sample::Index,
        byte: u8,
        cut: prop::sample::Index,
        steps in prop::collection::vec(1_usize..100, 1..6),
    ) {
        let mut wire: Vec<u8> = pipeline.iter().flat_map(|(wire, _)| wire.clone()).collect();
        let at = at.index(wire.len());
        wire[at] = byte;
        wire.truncate(1 + cut.index(wire.len()));
        let limits = Limits::unauthenticated();
        let whole = feed(&wire, &[usize::MAX], &limits);
        prop_assert_eq!(&feed(&wire, &steps, &limits), &whole);
        prop_assert_eq!(&feed(&wire, &[1], &limits), &whole);
    }

    #[test]
    fn noise_never_panics(noise in "[*$+ \r\n0-9a\"'\\\\x-]{0,200}", steps in prop::collection::vec(1_usize..20, 1..4)) {
        let whole = feed(noise.as_bytes(), &[usize::MAX], &Limits::default());
        prop_assert_eq!(feed(noise.as_bytes(), &steps, &Limits::default()), whole);
    }
}
