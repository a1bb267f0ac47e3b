//! Does any input make the request parser panic, or parse differently when it comes in pieces?
//! The first byte is the size of the pieces, the second the limits.
//! Run: `cargo +nightly fuzz run request`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skerry_resp::{Limits, Parsed, Parser, ProtocolError};

type Requests = Vec<Vec<Vec<u8>>>;

fuzz_target!(|input: &[u8]| {
    let [step, mode, wire @ ..] = input else { return };
    let limits = match mode & 1 {
        0 => Limits::default(),
        _ => Limits { max_inline: 300, ..Limits::unauthenticated() },
    };
    let whole = feed(wire, wire.len().max(1), &limits);
    assert_eq!(feed(wire, usize::from(*step) + 1, &limits), whole);
});

/// As a connection would: reads of `step` bytes.
fn feed(wire: &[u8], step: usize, limits: &Limits) -> (Requests, Option<ProtocolError>) {
    let mut parser = Parser::new();
    let (mut buf, mut args, mut requests) = (Vec::new(), Vec::new(), Requests::new());
    let mut rest = wire;
    while !rest.is_empty() {
        let (read, later) = rest.split_at(step.min(rest.len()));
        buf.extend_from_slice(read);
        rest = later;
        let mut pos = 0;
        loop {
            args.clear();
            let (end, text) = match parser.parse(&buf, pos, &mut args, limits) {
                Err(error) => return (requests, Some(error)),
                Ok(Parsed::Incomplete { needed }) => {
                    assert!(needed > 0 && args.is_empty());
                    break;
                }
                Ok(Parsed::Request { end, .. } | Parsed::Empty { end }) => (end, &buf[..]),
                Ok(Parsed::Inline { end, .. }) => (end, parser.inline_text()),
            };
            let request: Vec<Vec<u8>> = args.iter().map(|arg| arg.of(text).to_vec()).collect();
            requests.push(request);
            assert!(end > pos || !requests.is_empty());
            pos = end;
        }
        buf.drain(..pos);
    }
    (requests, None)
}
