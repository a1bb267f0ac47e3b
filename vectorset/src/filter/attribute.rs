//! An element's attribute: the text as given, and its top-level fields, read once.
//!
//! ```text
//!   fields [ key | name at | kind | payload ]   24 bytes each, ordered by key
//!               |               number: f64 bits
//!               |               text: place in `text`, or in `pool` if it had escapes
//!               |               tuple: place in `pool`
//!               a name of up to 8 characters, or the hash of a longer one
//! ```
//!
//! The reader is as lenient as Redis's, which looks for one key and stops there: what follows a broken place
//! is missing, what comes before counts; of two fields of one name the first counts, even if its value is of
//! no use; keys are compared raw. Only names that a selector can spell are kept. Memory: at most five times
//! the text.

use super::eval::{TupleWriter, Value};
use super::number::{decimal, is_space};
use super::token::is_selector_character;

/// Characters of a number that are read.
const MAX_NUMBER_LEN: usize = 255;
/// Up to so many fields are looked through in turn.
const FEW_FIELDS: usize = 8;

/// An attribute, read.
#[derive(Debug)]
pub struct Attribute {
    text: Box<[u8]>,
    fields: Box<[Field]>,
    pool: Box<[u8]>,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    key: u64,
    name_at: u32,
    name_len: u16,
    kind: Kind,
    payload: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    /// A text without escapes: a part of the attribute's text.
    Text,
    /// A text that had escapes: in the pool.
    Decoded,
    Tuple,
    Null,
    /// An object, or nothing that JSON knows. It hides later fields of its name and is then dropped.
    Unusable,
}

/// A field's name, ready to be looked for.
#[derive(Clone, Debug)]
pub(super) struct Name {
    key: u64,
    text: Box<[u8]>,
}

impl Name {
    pub(super) fn new(text: &[u8]) -> Name {
        Name { key: key_of(text), text: text.into() }
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }
}

/// A short name itself (its characters are ASCII, so the top bit is clear), or a longer one's hash.
fn key_of(name: &[u8]) -> u64 {
    let mut packed = [0; 8];
    match packed.get_mut(..name.len()) {
        Some(start) => {
            start.copy_from_slice(name);
            u64::from_le_bytes(packed)
        }
        // FNV-1a: names of one hash are told apart by their text.
        None => {
            let hash = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
            name.iter().fold(0xCBF2_9CE4_8422_2325, hash) | LONG_NAME
        }
    }
}

const LONG_NAME: u64 = 1 << 63;

impl Attribute {
    /// Reads an attribute; any text is one.
    pub fn parse(text: &[u8]) -> Attribute {
        let mut fields = FieldsReader { text, at: 0, fields: Vec::new(), pool: Vec::new() };
        fields.read();
        let FieldsReader { mut fields, pool, .. } = fields;
        let name_of = |field: &Field| field.name(text);
        // Stable, so the first of a name stays the first.
        fields.sort_by(|a, b| a.key.cmp(&b.key).then_with(|| name_of(a).cmp(name_of(b))));
        fields.dedup_by(|later, first| later.key == first.key && name_of(later) == name_of(first));
        fields.retain(|field| field.kind != Kind::Unusable);
        Attribute { text: text.into(), fields: fields.into_boxed_slice(), pool: pool.into_boxed_slice() }
    }

    /// The text as it was given.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Bytes allocated for it, its own box included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Attribute>() + self.text.len() + size_of_val(&*self.fields) + self.pool.len()
    }

    /// Reads something of the fields, to have it in the cache.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.fields.first().map_or(0, |field| field.key)
    }

    #[inline]
    pub(super) fn field(&self, name: &Name) -> Option<Value<'_>> {
        let is_it = |field: &&Field| {
            field.key == name.key && (name.key & LONG_NAME == 0 || field.name(&self.text) == &*name.text)
        };
        let field = if self.fields.len() <= FEW_FIELDS {
            self.fields.iter().find(is_it)?
        } else {
            let order =
                |field: &Field| field.key.cmp(&name.key).then_with(|| field.name(&self.text).cmp(&name.text));
            &self.fields[self.fields.binary_search_by(order).ok()?]
        };
        Some(match field.kind {
            Kind::Number => Value::Number(f64::from_bits(field.payload)),
            Kind::Text => Value::Text(part(&self.text, field.payload)),
            Kind::Decoded => Value::Text(part(&self.pool, field.payload)),
            Kind::Tuple => Value::Tuple(part(&self.pool, field.payload)),
            Kind::Null => Value::Null,
            Kind::Unusable => return None,
        })
    }
}

impl Field {
    fn name<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.name_at as usize..][..usize::from(self.name_len)]
    }
}

/// A place within a text: offset in the low half, length in the high one.
fn place(offset: usize, len: usize) -> Option<u64> {
    Some(u64::from(u32::try_from(offset).ok()?) | u64::from(u32::try_from(len).ok()?) << 32)
}

fn part(text: &[u8], place: u64) -> &[u8] {
    &text[place as u32 as usize..][..(place >> 32) as usize]
}

/// A value that was read: what to keep of it.
enum Read<'a> {
    Number(f64),
    Text { raw: &'a [u8], has_escapes: bool },
    Null,
}

struct FieldsReader<'a> {
    text: &'a [u8],
    at: usize,
    fields: Vec<Field>,
    pool: Vec<u8>,
}

impl<'a> FieldsReader<'a> {
    /// Reads fields up to the end or the first broken place.
    fn read(&mut self) -> Option<()> {
        self.skip_spaces();
        self.expect(b'{')?;
        loop {
            self.skip_spaces();
            let name_at = self.at + 1;
            self.skip_text()?;
            let name = &self.text[name_at..self.at - 1];
            self.skip_spaces();
            self.expect(b':')?;
            self.skip_spaces();
            let value_at = self.at;
            self.peek()?;
            if !name.is_empty() && name.iter().all(|&byte| is_selector_character(byte)) {
                self.keep(name_at, name)?;
            }
            // What follows is found by skipping the value, which is more lenient than reading it.
            self.at = value_at;
            self.skip_value()?;
            self.skip_spaces();
            self.expect(b',')?;
        }
    }

    fn keep(&mut self, name_at: usize, name: &[u8]) -> Option<()> {
        let pool_len = self.pool.len();
        let (kind, payload) = self.value().unwrap_or_else(|| {
            self.pool.truncate(pool_len);
            (Kind::Unusable, 0)
        });
        // Names of 64 KiB and places beyond 4 GiB are not kept: reading ends there.
        let name_len = u16::try_from(name.len()).ok()?;
        let name_at = u32::try_from(name_at).ok()?;
        self.fields.push(Field { key: key_of(name), name_at, name_len, kind, payload });
        Some(())
    }

    /// The value here, read strictly; `None` if it is of no use.
    fn value(&mut self) -> Option<(Kind, u64)> {
        if self.peek()? == b'[' {
            let tuple = self.array()?;
            let offset = self.pool.len();
            self.pool.extend_from_slice(tuple.as_bytes());
            return Some((Kind::Tuple, place(offset, tuple.as_bytes().len())?));
        }
        Some(match self.scalar()? {
            Read::Number(number) => (Kind::Number, number.to_bits()),
            Read::Text { raw, has_escapes: false } => {
                (Kind::Text, place(self.at - 1 - raw.len(), raw.len())?)
            }
            Read::Text { raw, has_escapes: true } => {
                let offset = self.pool.len();
                unescape(raw, &mut self.pool);
                (Kind::Decoded, place(offset, self.pool.len() - offset)?)
            }
            Read::Null => (Kind::Null, 0),
        })
    }

    fn scalar(&mut self) -> Option<Read<'a>> {
        match self.peek()? {
            b'"' => self.text(),
            b't' => self.literal(b"true", Read::Number(1.0)),
            b'f' => self.literal(b"false", Read::Number(0.0)),
            b'n' => self.literal(b"null", Read::Null),
            b'0'..=b'9' | b'-' | b'+' => {
                let len = self.number_len().min(MAX_NUMBER_LEN);
                let number = decimal(&self.text[self.at..self.at + len])?;
                self.at += len;
                Some(Read::Number(number))
            }
            _ => None,
        }
    }

    fn text(&mut self) -> Option<Read<'a>> {
        let begin = self.at + 1;
        self.skip_text()?;
        let raw = &self.text[begin..self.at - 1];
        Some(Read::Text { raw, has_escapes: raw.contains(&b'\\') })
    }

    /// A literal that ends where a value may end.
    fn literal(&mut self, word: &[u8], read: Read<'a>) -> Option<Read<'a>> {
        self.skip_literal(word)?;
        match self.peek() {
            None | Some(b',' | b']' | b'}') => Some(read),
            Some(other) => is_space(other).then_some(read),
        }
    }

    /// An array of scalars and arrays. Those within are only checked: no operator can see into them.
    fn array(&mut self) -> Option<TupleWriter> {
        let mut tuple = TupleWriter::default();
        let mut depth = 0_usize;
        loop {
            self.skip_spaces();
            if self.peek()? == b'[' {
                if depth == 1 {
                    tuple.push_tuple();
                }
                depth += 1;
                self.at += 1;
                self.skip_spaces();
                if self.peek()? != b']' {
                    continue;
                }
            } else {
                let scalar = self.scalar()?;
                if depth == 1 {
                    push_scalar(&mut tuple, scalar)?;
                }
            }
            // Behind a value or before the end of an empty array.
            loop {
                self.skip_spaces();
                match self.peek()? {
                    b',' => {
                        self.at += 1;
                        break;
                    }
                    b']' => {
                        self.at += 1;
                        depth -= 1;
                        if depth == 0 {
                            return Some(tuple);
                        }
                    }
                    _ => return None,
                }
            }
        }
    }

    fn skip_value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_text(),
            b'{' => self.skip_bracketed(b'{', b'}'),
            b'[' => self.skip_bracketed(b'[', b']'),
            b't' => self.skip_literal(b"true"),
            b'f' => self.skip_literal(b"false"),
            b'n' => self.skip_literal(b"null"),
            _ => {
                let len = self.number_len();
                self.at += len;
                (len > 0).then_some(())
            }
        }
    }

    /// Up to the closing bracket of this kind; brackets of the other kind are not looked at.
    fn skip_bracketed(&mut self, open: u8, close: u8) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.skip_text()?;
                    continue;
                }
                byte if byte == open => depth += 1,
                byte if byte == close => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn skip_text(&mut self) -> Option<()> {
        self.expect(b'"')?;
        loop {
            match self.peek()? {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                _ => self.at += 1,
            }
        }
    }

    fn skip_literal(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn number_len(&self) -> usize {
        let is_of_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        self.text[self.at..].iter().take_while(is_of_number).count()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

fn push_scalar(tuple: &mut TupleWriter, scalar: Read<'_>) -> Option<()> {
    match scalar {
        Read::Number(number) => tuple.push_number(number),
        Read::Text { raw, has_escapes: false } => tuple.push_text(raw)?,
        Read::Text { raw, has_escapes: true } => {
            let mut decoded = Vec::new();
            unescape(raw, &mut decoded);
            tuple.push_text(&decoded)?;
        }
        Read::Null => tuple.push_null(),
    }
    Some(())
}

/// Appends a JSON text without its backslashes. Redis knows `\n`, `\r` and `\t`; any other character stands
/// for itself, so `\u0041` reads `u0041`.
fn unescape(raw: &[u8], decoded: &mut Vec<u8>) {
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        let plain = match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(&other) => other,
                None => break,
            },
            other => other,
        };
        decoded.push(plain);
    }
}
