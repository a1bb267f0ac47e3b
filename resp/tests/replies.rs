//! Replies: the bytes of each call in both protocols, and round trips through decoder and scan.

use proptest::prelude::*;
use skerry_resp::{DecodeError, Decoder, Proto, Reply, Scan, Value};

/// What `write` puts on the wire in RESP2 and in RESP3.
fn check(write: impl Fn(&mut Reply<'_>), resp2: &str, resp3: &str) {
    for (proto, expected) in [(Proto::Resp2, resp2), (Proto::Resp3, resp3)] {
        let mut out = b"before".to_vec();
        write(&mut Reply::new(&mut out, proto));
        assert_eq!(out.escape_ascii().to_string(), format!("before{}", expected.as_bytes().escape_ascii()));
    }
}

#[test]
fn the_same_in_both_protocols() {
    let both = |write: &dyn Fn(&mut Reply<'_>), expected: &str| check(write, expected, expected);
    both(&|reply| reply.ok(), "+OK\r\n");
    both(&|reply| reply.pong(), "+PONG\r\n");
    both(&|reply| reply.queued(), "+QUEUED\r\n");
    both(&|reply| reply.simple("none"), "+none\r\n");
    both(&|reply| reply.error("ERR no"), "-ERR no\r\n");
    both(&|reply| reply.error(b"ERR 'a\r\n+INJ\r\n'"), "-ERR 'a  +INJ  '\r\n");
    both(&|reply| reply.bulk(b""), "$0\r\n\r\n");
    both(&|reply| reply.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
    both(&|reply| reply.bulk_integer(-17), "$3\r\n-17\r\n");
    both(&|reply| reply.bulk_header(70_000), "$70000\r\n");
    both(&|reply| reply.array(0), "*0\r\n");
    both(&|reply| reply.array(12), "*12\r\n");
    both(&|reply| reply.raw(b":1\r\n"), ":1\r\n");
    for len in [1, 9, 10, 99, 100, 999, 1000, 1001, 70_000] {
        let body = "x".repeat(len);
        both(&|reply| reply.bulk(body.as_bytes()), &format!("${len}\r\n{body}\r\n"));
        both(&|reply| reply.array(len), &format!("*{len}\r\n"));
    }
    for value in (0..1100).chain([-1, -999, -1000, 12345, i64::MAX, i64::MIN]) {
        both(&|reply| reply.integer(value), &format!(":{value}\r\n"));
    }
}

#[test]
fn where_the_protocols_part() {
    check(|reply| reply.null(), "$-1\r\n", "_\r\n");
    check(|reply| reply.null_array(), "*-1\r\n", "_\r\n");
    check(|reply| reply.map(3), "*6\r\n", "%3\r\n");
    check(|reply| reply.map(600), "*1200\r\n", "%600\r\n");
    check(|reply| reply.set(3), "*3\r\n", "~3\r\n");
    check(|reply| reply.push(3), "*3\r\n", ">3\r\n");
    check(|reply| reply.boolean(true), ":1\r\n", "#t\r\n");
    check(|reply| reply.boolean(false), ":0\r\n", "#f\r\n");
    check(|reply| reply.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
    check(|reply| reply.double(1e21), "$5\r\n1e+21\r\n", ",1e+21\r\n");
    check(|reply| reply.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
    check(|reply| reply.double(f64::NAN), "$3\r\nnan\r\n", ",nan\r\n");
    check(|reply| reply.big_number(b"-123"), "$4\r\n-123\r\n", "(-123\r\n");
    check(|reply| reply.verbatim(b"txt", b"a\nb"), "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n");
}

#[test]
fn attributes_come_before_their_value() {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Proto::Resp3);
    reply.attribute(1);
    reply.simple("ttl");
    reply.integer(7);
    reply.error("ERR x");
    assert_eq!(out, b"|1\r\n+ttl\r\n:7\r\n-ERR x\r\n");
    let (value, len) = Decoder::default().decode(&out).unwrap().unwrap();
    let attributes = vec![(Value::Simple(b"ttl".to_vec()), Value::Integer(7))];
    assert_eq!((&value, len), (&Value::Attributed { attributes, value: error("ERR x").into() }, out.len()));
    assert!(value.is_error());
    let scanned = Scan::new().next(&out, 0).unwrap().unwrap();
    assert!(scanned.is_error() && scanned.end == out.len());
}

fn error(text: &str) -> Value {
    Value::Error(text.as_bytes().to_vec())
}

/// The text of a server that is not ours, decoded.
#[test]
fn decoding() {
    let decode = |text: &str| Decoder::default().decode(text.as_bytes());
    let whole =
        |text: &str, value: Value| assert_eq!(decode(text), Ok(Some((value, text.len()))), "{text:?}");
    whole("$-1\r\n", Value::NullBulk);
    whole("*-1\r\n", Value::NullArray);
    whole("_\r\n", Value::Null);
    whole("#t\r\n", Value::Boolean(true));
    whole(",-inf\r\n", Value::Double(f64::NEG_INFINITY));
    whole(",1e-7\r\n", Value::Double(1e-7));
    whole(
        "(123456789012345678901234567890\r\n",
        Value::BigNumber(b"123456789012345678901234567890".to_vec()),
    );
    whole("!5\r\nA\r\nBC\r\n", Value::BulkError(b"A\r\nBC".to_vec()));
    whole("=5\r\nmkd:x\r\n", Value::Verbatim { format: *b"mkd", text: b"x".to_vec() });
    whole(
        "%1\r\n+a\r\n~2\r\n:1\r\n>0\r\n",
        Value::Map(vec![(
            Value::Simple(b"a".to_vec()),
            Value::Set(vec![Value::Integer(1), Value::Push(Vec::new())]),
        )]),
    );
    let broken = [
        ("?\r\n", DecodeError::UnknownType { byte: b'?' }),
        ("$x\r\n", DecodeError::InvalidLength),
        ("$-2\r\n", DecodeError::InvalidLength),
        ("$1\r\nabc", DecodeError::InvalidLength),
        ("+a\rb", DecodeError::InvalidLength),
        (":1.5\r\n", DecodeError::InvalidNumber),
        (",x\r\n", DecodeError::InvalidNumber),
        ("(-\r\n", DecodeError::InvalidNumber),
        ("#x\r\n", DecodeError::InvalidBoolean),
        ("=3\r\ntxt\r\n", DecodeError::InvalidVerbatim),
        ("$999999999999\r\n", DecodeError::TooLarge),
    ];
    for (text, error) in broken {
        assert_eq!(decode(text), Err(error), "{text:?}");
    }
}

#[test]
fn limits_of_a_client() {
    let deep = "*1\r\n".repeat(1_000_000);
    assert_eq!(Decoder::default().decode(deep.as_bytes()), Err(DecodeError::TooDeep));
    let chain = "|0\r\n".repeat(1_000_000);
    assert_eq!(Decoder::default().decode(chain.as_bytes()), Err(DecodeError::TooDeep));
    // The scan keeps a count only; depth is nothing to it.
    assert_eq!(Scan::new().next(deep.as_bytes(), 0), Ok(None));
    let done = format!("{deep}+a\r\n");
    assert_eq!(Scan::new().next(done.as_bytes(), 0).unwrap().unwrap().end, done.len());
    // Declared, not sent: nothing is allocated for it.
    assert_eq!(Decoder::default().decode(b"*1000000000\r\n:1\r\n"), Ok(None));
    let line = format!("+{}", "a".repeat(1 << 20));
    assert_eq!(
        Decoder { max_line: 1000, ..Decoder::default() }.decode(line.as_bytes()),
        Err(DecodeError::LineTooLong)
    );
    assert_eq!(Scan::new().next(line.as_bytes(), 0), Err(DecodeError::LineTooLong));
    let huge = format!("*{0}\r\n*{0}\r\n*{0}\r\n", i64::MAX);
    assert_eq!(Scan::new().next(huge.as_bytes(), 0), Err(DecodeError::TooLarge));
}

/// Writes `value` with the calls of `Reply`.
fn write(value: &Value, reply: &mut Reply<'_>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match value {
        Value::Simple(bytes) => reply.simple(&text(bytes)),
        Value::Error(bytes) => reply.error(bytes),
        Value::Integer(value) => reply.integer(*value),
        Value::Bulk(bytes) => reply.bulk(bytes),
        Value::NullBulk | Value::Null => reply.null(),
        Value::NullArray => reply.null_array(),
        Value::Array(all) => {
            reply.array(all.len());
            all.iter().for_each(|value| write(value, reply));
        }
        Value::Set(all) => {
            reply.set(all.len());
            all.iter().for_each(|value| write(value, reply));
        }
        Value::Push(all) => {
            reply.push(all.len());
            all.iter().for_each(|value| write(value, reply));
        }
        Value::Map(all) => {
            reply.map(all.len());
            all.iter().flat_map(|(key, value)| [key, value]).for_each(|value| write(value, reply));
        }
        Value::Double(value) => reply.double(*value),
        Value::Boolean(value) => reply.boolean(*value),
        Value::BigNumber(digits) => reply.big_number(digits),
        Value::Verbatim { format, text } => reply.verbatim(format, text),
        Value::Attributed { attributes, value } => {
            if reply.proto() == Proto::Resp3 {
                reply.attribute(attributes.len());
                attributes.iter().flat_map(|(key, value)| [key, value]).for_each(|value| write(value, reply));
            }
            write(value, reply);
        }
        Value::BulkError(_) => unreachable!("Redis sends none, and so does the writer"),
    }
}

/// What a client of `proto` sees of it.
fn seen(value: &Value, proto: Proto) -> Value {
    let all = |values: &[Value]| values.iter().map(|value| seen(value, proto)).collect::<Vec<_>>();
    let pairs = |pairs: &[(Value, Value)]| -> Vec<(Value, Value)> {
        pairs.iter().map(|(key, value)| (seen(key, proto), seen(value, proto))).collect()
    };
    match (proto, value) {
        (Proto::Resp3, Value::NullBulk | Value::NullArray) => Value::Null,
        (Proto::Resp2, Value::Null) => Value::NullBulk,
        (Proto::Resp2, Value::Set(values) | Value::Push(values)) => Value::Array(all(values)),
        (Proto::Resp2, Value::Map(map)) => {
            Value::Array(pairs(map).into_iter().flat_map(|(key, value)| [key, value]).collect())
        }
        (Proto::Resp2, Value::Boolean(value)) => Value::Integer(i64::from(*value)),
        (Proto::Resp2, Value::BigNumber(text) | Value::Verbatim { text, .. }) => Value::Bulk(text.clone()),
        (Proto::Resp2, Value::Double(value)) => {
            let mut text = skerry_resp::number::FloatText::new();
            Value::Bulk(skerry_resp::format_f64(*value, &mut text).to_vec())
        }
        (Proto::Resp2, Value::Attributed { value, .. }) => seen(value, proto),
        (Proto::Resp3, Value::Attributed { attributes, value }) => {
            Value::Attributed { attributes: pairs(attributes), value: seen(value, proto).into() }
        }
        (_, Value::Array(values)) => Value::Array(all(values)),
        (_, Value::Set(values)) => Value::Set(all(values)),
        (_, Value::Push(values)) => Value::Push(all(values)),
        (_, Value::Map(map)) => Value::Map(pairs(map)),
        (_, scalar) => scalar.clone(),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        "[ -~]{0,20}".prop_map(|text| Value::Simple(text.into())),
        "[A-Z]{1,9} [ -~]{0,20}".prop_map(|text| Value::Error(text.into())),
        any::<i64>().prop_map(Value::Integer),
        (-1200_i64..1200).prop_map(Value::Integer),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(Value::Bulk),
        prop::collection::vec(any::<u8>(), 990..1010).prop_map(Value::Bulk),
        Just(Value::NullBulk),
        Just(Value::NullArray),
        Just(Value::Null),
        any::<f64>()
            .prop_filter("NaN is not equal to itself", |value| !value.is_nan())
            .prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        "-?[0-9]{1,40}".prop_map(|text| Value::BigNumber(text.into())),
        ("[a-z]{3}", prop::collection::vec(any::<u8>(), 0..30)).prop_map(|(format, text)| {
            Value::Verbatim { format: format.as_bytes().try_into().unwrap(), text }
        }),
    ];
    let nested = scalar.prop_recursive(4, 40, 6, |inner| {
        let all = prop::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            all.clone().prop_map(Value::Array),
            all.clone().prop_map(Value::Set),
            all.prop_map(Value::Push),
            prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    });
    (nested.clone(), prop::option::weighted(0.1, nested)).prop_map(|(value, attribute)| match attribute {
        Some(attribute) => {
            let attributes = vec![(Value::Simple(b"popularity".to_vec()), attribute)];
            Value::Attributed { attributes, value: value.into() }
        }
        None => value,
    })
}

proptest! {
    #[test]
    fn what_is_written_is_decoded(values in prop::collection::vec(any_value(), 1..5), step in 1_usize..50) {
        for proto in [Proto::Resp2, Proto::Resp3] {
            let mut out = Vec::new();
            values.iter().for_each(|value| write(value, &mut Reply::new(&mut out, proto)));
            let (mut pos, mut scan) = (0, Scan::new());
            for value in &values {
                let (decoded, len) = Decoder::default().decode(&out[pos..]).unwrap().expect("whole");
                prop_assert_eq!(&decoded, &seen(value, proto));
                // The scan finds the same end and the same kind, in one go or in steps.
                let scanned = Scan::new().next(&out, pos).unwrap().expect("whole");
                prop_assert_eq!(scanned.end, pos + len);
                prop_assert_eq!(scanned.is_error(), decoded.is_error());
                let null = matches!(decoded, Value::Null | Value::NullBulk | Value::NullArray);
                let attributed = matches!(decoded, Value::Attributed { .. });
                prop_assert!(scanned.is_null == null || attributed);
                for end in (pos..pos + len).step_by(step) {
                    prop_assert_eq!(scan.next(&out[..end], pos).unwrap(), None);
                    prop_assert_eq!(Decoder::default().decode(&out[pos..end]).unwrap(), None);
                }
                prop_assert_eq!(scan.next(&out, pos).unwrap(), Some(scanned));
                pos += len;
            }
            prop_assert_eq!(pos, out.len());
        }
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..100), text in "[-+:$*%~>|_,#(!=0-9a\r\n]{0,100}") {
        for bytes in [&noise[..], text.as_bytes()] {
            let decoded = Decoder::default().decode(bytes);
            let scanned = Scan::new().next(bytes, 0);
            // The scan looks at less: what it refuses or waits for, the decoder never accepts.
            if let Ok(Some((_, len))) = decoded {
                prop_assert_eq!(scanned.unwrap().unwrap().end, len);
            }
        }
    }
}
