//! Payloads written by hand, in every type of value that Redis 8.2.3 reads, so that a fault of the server's own writer
//! cannot hide and forms that nobody writes any more are read.

use super::support::crc64::crc64;
use super::support::rng::Rng;
use super::values::Value;

/// The types, with the name of what they hold.
pub(crate) const TYPES: &[(u8, &str)] = &[
    (0, "string"),
    (1, "list"),
    (2, "set"),
    (3, "zset"),
    (4, "hash"),
    (5, "zset"),
    (9, "hash"),
    (10, "list"),
    (11, "integers"),
    (12, "zset"),
    (13, "hash"),
    (14, "list"),
    (16, "hash"),
    (17, "zset"),
    (18, "list"),
    (20, "set"),
    (22, "timed"),
    (23, "timed"),
    (24, "timed"),
    (25, "timed"),
];

/// How strings and lengths are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// As short as they are.
    Plain,
    /// In any form that is read: integers, compressed, lengths longer than needed.
    Any,
}

/// Type and body.
pub(crate) fn body(kind: u8, value: &Value, style: Style, rng: &mut Rng) -> Vec<u8> {
    let mut out = Out { bytes: vec![kind], style, rng };
    match value {
        Value::String(text) => out.string(text),
        Value::List(elements) => out.list(kind, elements),
        Value::Set(members) => out.set(kind, members),
        Value::Hash(fields) => out.hash(kind, fields),
        Value::Timed(fields) => out.timed(kind, fields),
        Value::Zset(scored) => out.zset(kind, scored),
    }
    out.bytes
}

/// The body with a footer that is right.
pub(crate) fn seal(mut body: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let version = *rng.pick(&[12_u16, 12, 12, 11, 9, 6]);
    body.extend_from_slice(&version.to_le_bytes());
    let sum = crc64(&body);
    body.extend_from_slice(&sum.to_le_bytes());
    body
}

struct Out<'a> {
    bytes: Vec<u8>,
    style: Style,
    rng: &'a mut Rng,
}

impl Out<'_> {
    fn length(&mut self, value: u64) {
        let longer = if self.style == Style::Any && self.rng.chance(20) { self.rng.within(1, 3) } else { 0 };
        match value {
            0..64 if longer == 0 => self.bytes.push(value as u8),
            0..0x4000 if longer < 2 => self.bytes.extend((0x4000 | value as u16).to_be_bytes()),
            0..=0xffff_ffff if longer < 3 => {
                self.bytes.push(0x80);
                self.bytes.extend((value as u32).to_be_bytes());
            }
            _ => {
                self.bytes.push(0x81);
                self.bytes.extend(value.to_be_bytes());
            }
        }
    }

    fn string(&mut self, text: &[u8]) {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
        let number = number.filter(|n| n.to_string().as_bytes() == text);
        match number {
            Some(number) if self.style == Style::Any && self.rng.percent(80) => match number {
                -128..128 => self.bytes.extend([0xc0, number as i8 as u8]),
                -0x8000..0x8000 => {
                    self.bytes.push(0xc1);
                    self.bytes.extend((number as i16).to_le_bytes());
                }
                _ => {
                    self.bytes.push(0xc2);
                    self.bytes.extend(number.to_le_bytes());
                }
            },
            _ if self.style == Style::Any && !text.is_empty() && self.rng.percent(15) => {
                let compressed = lzf(text);
                self.bytes.push(0xc3);
                self.length(compressed.len() as u64);
                self.length(text.len() as u64);
                self.bytes.extend(compressed);
            }
            _ => {
                self.length(text.len() as u64);
                self.bytes.extend(text);
            }
        }
    }

    fn list(&mut self, kind: u8, elements: &[Vec<u8>]) {
        match kind {
            1 => {
                self.length(elements.len() as u64);
                elements.iter().for_each(|element| self.string(element));
            }
            10 => self.string(&ziplist(elements)),
            _ => {
                let n = self.rng.within(1, 1 + elements.len() as i64 / 4) as usize;
                let nodes: Vec<_> = elements.chunks(elements.len().div_ceil(n)).collect();
                self.length(nodes.len() as u64);
                for node in nodes {
                    if kind == 14 {
                        self.string(&ziplist(node));
                    } else if let ([element], true) = (node, self.rng.percent(50)) {
                        // A plain node is never empty.
                        let element = if element.is_empty() { b"x" } else { &element[..] };
                        self.length(1);
                        self.string(element);
                    } else {
                        self.length(2);
                        self.string(&listpack(node));
                    }
                }
            }
        }
    }

    fn set(&mut self, kind: u8, members: &[Vec<u8>]) {
        match kind {
            2 => {
                self.length(members.len() as u64);
                members.iter().for_each(|member| self.string(member));
            }
            11 => self.string(&intset(members)),
            _ => self.string(&listpack(members)),
        }
    }

    fn hash(&mut self, kind: u8, fields: &[(Vec<u8>, Vec<u8>)]) {
        let flat: Vec<Vec<u8>> = fields.iter().flat_map(|(f, v)| [f.clone(), v.clone()]).collect();
        match kind {
            4 => {
                self.length(fields.len() as u64);
                flat.iter().for_each(|text| self.string(text));
            }
            9 => {
                let zipmap = zipmap(fields, self.rng);
                self.string(&zipmap);
            }
            13 => self.string(&ziplist(&flat)),
            _ => self.string(&listpack(&flat)),
        }
    }

    fn timed(&mut self, kind: u8, fields: &[(Vec<u8>, Vec<u8>, i64)]) {
        let earliest_ms = fields.iter().map(|(_, _, ms)| *ms).filter(|ms| *ms > 0).min().unwrap_or(0);
        if matches!(kind, 24 | 25) {
            self.bytes.extend(earliest_ms.to_le_bytes());
        }
        if matches!(kind, 23 | 25) {
            let flat =
                fields.iter().flat_map(|(f, v, ms)| [f.clone(), v.clone(), ms.to_string().into_bytes()]);
            return self.string(&listpack(&flat.collect::<Vec<_>>()));
        }
        self.length(fields.len() as u64);
        for (field, value, deadline_ms) in fields {
            match *deadline_ms {
                ms if ms > 0 && kind == 24 => self.length((ms - earliest_ms + 1) as u64),
                ms => self.length(ms as u64),
            }
            self.string(field);
            self.string(value);
        }
    }

    fn zset(&mut self, kind: u8, scored: &[(Vec<u8>, f64)]) {
        // No longer than Redis's own buffer for a score.
        let text = |score: f64| match score.to_string() {
            text if text.len() > 30 => format!("{score:e}").into_bytes(),
            text => text.into_bytes(),
        };
        let flat: Vec<Vec<u8>> = scored.iter().flat_map(|(m, score)| [m.clone(), text(*score)]).collect();
        match kind {
            12 => return self.string(&ziplist(&flat)),
            17 => return self.string(&listpack(&flat)),
            _ => self.length(scored.len() as u64),
        }
        for (member, score) in scored {
            self.string(member);
            match *score {
                _ if kind == 5 => self.bytes.extend(score.to_le_bytes()),
                f64::INFINITY => self.bytes.push(254),
                f64::NEG_INFINITY => self.bytes.push(255),
                _ => {
                    // Decimal text of a far exponent is longer than a length can say here.
                    let text = format!("{score:e}");
                    self.bytes.push(text.len() as u8);
                    self.bytes.extend(text.as_bytes());
                }
            }
        }
    }
}

/// Runs of one byte as matches, all else as literals.
fn lzf(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let n_equal = text[at..].iter().take_while(|byte| **byte == text[at]).count();
        if at > 0 && text[at - 1] == text[at] && n_equal >= 9 {
            let n = n_equal.min(264);
            out.extend([7 << 5, (n - 9) as u8, 0]);
            at += n;
        } else {
            let run = &text[at..text.len().min(at + if n_equal >= 9 { 1 } else { 32 })];
            out.push((run.len() - 1) as u8);
            out.extend(run);
            at += run.len();
        }
    }
    out
}

/// The number whose text this is.
fn number(text: &[u8]) -> Option<i64> {
    let number = std::str::from_utf8(text).ok()?.parse::<i64>().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

fn listpack(elements: &[Vec<u8>]) -> Vec<u8> {
    let mut entries = Vec::new();
    for element in elements {
        let start = entries.len();
        match (number(element), element.len()) {
            (Some(n @ 0..128), _) => entries.push(n as u8),
            (Some(n @ -4096..4096), _) => entries.extend([0xc0 | (n >> 8) as u8 & 0x1f, n as u8]),
            (Some(n @ -0x8000..0x8000), _) => tagged(&mut entries, 0xf1, n, 2),
            (Some(n @ -0x80_0000..0x80_0000), _) => tagged(&mut entries, 0xf2, n, 3),
            (Some(n @ -0x8000_0000..0x8000_0000), _) => tagged(&mut entries, 0xf3, n, 4),
            (Some(n), _) => tagged(&mut entries, 0xf4, n, 8),
            (None, 0..64) => entries.push(0x80 | element.len() as u8),
            (None, 64..4096) => entries.extend([0xe0 | (element.len() >> 8) as u8, element.len() as u8]),
            (None, _) => {
                entries.push(0xf0);
                entries.extend((element.len() as u32).to_le_bytes());
            }
        }
        if number(element).is_none() {
            entries.extend(element);
        }
        let n = entries.len() - start;
        match n {
            0..128 => entries.push(n as u8),
            128..16383 => entries.extend([(n >> 7) as u8, n as u8 & 127 | 128]),
            _ => entries.extend([(n >> 14) as u8, (n >> 7) as u8 & 127 | 128, n as u8 & 127 | 128]),
        }
    }
    let count = elements.len().min(0xffff) as u16;
    [&(entries.len() as u32 + 7).to_le_bytes()[..], &count.to_le_bytes(), &entries, &[0xff]].concat()
}

fn tagged(out: &mut Vec<u8>, tag: u8, number: i64, n_bytes: usize) {
    out.push(tag);
    out.extend(&number.to_le_bytes()[..n_bytes]);
}

fn ziplist(elements: &[Vec<u8>]) -> Vec<u8> {
    let (mut entries, mut before, mut last_at) = (Vec::new(), 0, 10);
    for element in elements {
        last_at = 10 + entries.len();
        match before {
            0..254 => entries.push(before as u8),
            _ => {
                entries.push(0xfe);
                entries.extend((before as u32).to_le_bytes());
            }
        }
        match (number(element), element.len()) {
            (Some(n @ 0..13), _) => entries.push(0xf1 + n as u8),
            (Some(n @ -128..128), _) => tagged(&mut entries, 0xfe, n, 1),
            (Some(n @ -0x8000..0x8000), _) => tagged(&mut entries, 0xc0, n, 2),
            (Some(n @ -0x80_0000..0x80_0000), _) => tagged(&mut entries, 0xf0, n, 3),
            (Some(n @ -0x8000_0000..0x8000_0000), _) => tagged(&mut entries, 0xd0, n, 4),
            (Some(n), _) => tagged(&mut entries, 0xe0, n, 8),
            (None, 0..64) => entries.push(element.len() as u8),
            (None, 64..16384) => entries.extend([0x40 | (element.len() >> 8) as u8, element.len() as u8]),
            (None, _) => {
                entries.push(0x80);
                entries.extend((element.len() as u32).to_be_bytes());
            }
        }
        if number(element).is_none() {
            entries.extend(element);
        }
        before = 10 + entries.len() - last_at;
    }
    let (n_bytes, count) = (entries.len() as u32 + 11, elements.len().min(0xffff) as u16);
    let header = [&n_bytes.to_le_bytes()[..], &(last_at as u32).to_le_bytes(), &count.to_le_bytes()].concat();
    [&header[..], &entries, &[0xff]].concat()
}

fn zipmap(fields: &[(Vec<u8>, Vec<u8>)], rng: &mut Rng) -> Vec<u8> {
    let mut out = vec![fields.len().min(254) as u8];
    let length = |out: &mut Vec<u8>, len: usize| match len {
        0..254 => out.push(len as u8),
        _ => {
            out.push(254);
            out.extend((len as u32).to_le_bytes());
        }
    };
    for (field, value) in fields {
        length(&mut out, field.len());
        out.extend(field);
        length(&mut out, value.len());
        let n_free = if rng.chance(4) { rng.below(5) } else { 0 };
        out.push(n_free as u8);
        out.extend(value);
        out.extend(vec![0; n_free]);
    }
    out.push(0xff);
    out
}

fn intset(members: &[Vec<u8>]) -> Vec<u8> {
    let mut integers: Vec<i64> = members.iter().filter_map(|member| number(member)).collect();
    integers.sort_unstable();
    let fits = |n_bytes: u32| {
        let limit = 1_i128 << (8 * n_bytes - 1);
        integers.iter().all(|n| (-limit..limit).contains(&i128::from(*n)))
    };
    let width = [2, 4, 8].into_iter().find(|width| fits(*width)).unwrap_or(8);
    let mut out = [width.to_le_bytes(), (integers.len() as u32).to_le_bytes()].concat();
    integers.iter().for_each(|n| out.extend(&n.to_le_bytes()[..width as usize]));
    out
}
