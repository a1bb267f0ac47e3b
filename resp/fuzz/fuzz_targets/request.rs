//! Does any input make the request parser panic, or parse differently when it comes in pieces, or with a bulk taken
//! out? The first byte is the size of the pieces, the second the limits and whether bulks are detached.
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
    let whole = feed(wire, wire.len().max(1), &limits, None);
    let detach_from = (mode & 2 != 0).then_some(usize::from(mode >> 2));
    assert_eq!(feed(wire, usize::from(*step) + 1, &limits, detach_from), whole);
});

/// As a connection would: reads of `step` bytes, and open bulks of at least `detach_from` bytes read apart.
fn feed(
    wire: &[u8],
    step: usize,
    limits: &Limits,
    detach_from: Option<usize>,
) -> (Requests, Option<ProtocolError>) {
    let mut parser = Parser::new();
    let (mut buf, mut args, mut requests) = (Vec::new(), Vec::new(), Requests::new());
    let mut apart: Vec<(usize, Vec<u8>)> = Vec::new();
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
                    let open = detach_from.and_then(|min| parser.detach_bulk(&buf, pos, limits, min));
                    let Some(bulk) = open else { break };
                    let mut body = buf.split_off(bulk.start);
                    let missing = bulk.len + 2 - body.len();
                    assert!(missing <= needed);
                    if missing > rest.len() {
                        return (requests, None);
                    }
                    body.extend_from_slice(&rest[..missing]);
                    rest = &rest[missing..];
                    body.truncate(bulk.len);
                    apart.push((bulk.index, body));
                    continue;
                }
                Ok(Parsed::Request { end, .. } | Parsed::Empty { end }) => (end, &buf[..]),
                Ok(Parsed::Inline { end, .. }) => (end, parser.inline_text()),
            };
            let mut request: Vec<Vec<u8>> = args.iter().map(|arg| arg.of(text).to_vec()).collect();
            for (index, body) in apart.drain(..) {
                request[index] = body;
            }
            requests.push(request);
            assert!(end > pos || !requests.is_empty());
            pos = end;
        }
        buf.drain(..pos);
    }
    (requests, None)
}
