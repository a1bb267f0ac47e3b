//! Command templates: a command line parsed once into constant bytes and holes, then stamped out per request.
//!
//! `SET __key__ __data__` becomes `*3 $3 SET` | key | `$256 xxx..`: three copies and a decimal number per
//! request. Each `__key__` is a key of its own, text around it in the same argument is kept; `__data__` and
//! `__vector__` stand alone, as in memtier_benchmark. A vector belongs to the first key of its request,
//! wherever that stands, so a loaded set does not depend on how many clients loaded it; a command without
//! keys numbers its vectors itself.
//!
//! Invariant: the bytes between holes are whole RESP arguments; no request allocates.

use crate::clustered::ClusteredVectors;
use crate::command_line::{UnbalancedQuotes, split_command};
use crate::keys::{KeyGenerator, KeyPattern};
use crate::random::SplitMix64;

const KEY_PLACEHOLDER: &str = "__key__";
const DATA_PLACEHOLDER: &str = "__data__";
const VECTOR_PLACEHOLDER: &str = "__vector__";
/// Decimal digits of the greatest u64.
const MAX_DIGITS: usize = 20;

/// A command line that cannot become a template.
#[derive(Debug, PartialEq, Eq)]
pub enum TemplateError {
    Empty,
    Quotes,
    NameIsPlaceholder,
    MixedPlaceholder(&'static str),
}

impl From<UnbalancedQuotes> for TemplateError {
    fn from(_: UnbalancedQuotes) -> Self {
        Self::Quotes
    }
}

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("the command is empty"),
            Self::Quotes => f.write_str("unbalanced quotes in the command"),
            Self::NameIsPlaceholder => f.write_str("the first word must be the command's name"),
            Self::MixedPlaceholder(p) => write!(f, "{p} cannot be combined with other text"),
        }
    }
}

/// Size and content of `__data__`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataShape {
    pub minimum_bytes: usize,
    pub maximum_bytes: usize,
    pub content: DataContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataContent {
    /// memtier's default: the letter x.
    OneLetter,
    /// `--random-data`.
    Random,
}

#[derive(Clone, Debug)]
enum Segment {
    Constant(Vec<u8>),
    Key(KeyArgument),
    Data,
    Vector,
    /// The seconds of a SETEX, drawn from `--expiry-range`.
    Expiry,
}

/// Bulk headers and prefix ready for each number of digits; `headers[n]` is `$len CRLF prefix`.
#[derive(Clone, Debug)]
struct KeyArgument {
    headers: Vec<Vec<u8>>,
    tail: Vec<u8>,
}

impl KeyArgument {
    fn new(prefix: &[u8], suffix: &[u8]) -> Self {
        let headers = (0..=MAX_DIGITS)
            .map(|n_digits| {
                let mut header = format!("${}\r\n", prefix.len() + n_digits + suffix.len()).into_bytes();
                header.extend_from_slice(prefix);
                header
            })
            .collect();
        Self { headers, tail: [suffix, b"\r\n"].concat() }
    }

    #[inline]
    fn append(&self, key: u64, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(key).as_bytes();
        out.extend_from_slice(&self.headers[digits.len()]);
        out.extend_from_slice(digits);
        out.extend_from_slice(&self.tail);
    }
}

/// One command of a workload.
#[derive(Clone, Debug)]
pub struct Template {
    /// The command's name in upper case.
    pub name: String,
    pub key_pattern: KeyPattern,
    /// How many times it is sent before the next command's turn.
    pub ratio: u32,
    n_keys: usize,
    takes_vector: bool,
    segments: Vec<Segment>,
}

impl Template {
    /// Parses a `--command` line.
    pub fn parse(
        line: &str,
        key_prefix: &str,
        data: DataShape,
        key_pattern: KeyPattern,
        ratio: u32,
    ) -> Result<Self, TemplateError> {
        let words = split_command(line)?;
        let name = words.first().ok_or(TemplateError::Empty)?;
        let name = String::from_utf8_lossy(name).to_uppercase();
        if [KEY_PLACEHOLDER, DATA_PLACEHOLDER, VECTOR_PLACEHOLDER]
            .iter()
            .any(|p| name.contains(&p.to_uppercase()))
        {
            return Err(TemplateError::NameIsPlaceholder);
        }
        let mut builder = SegmentsBuilder::new(words.len());
        for word in &words {
            if let Some(at) = find(word, KEY_PLACEHOLDER) {
                let prefix = [&word[..at], key_prefix.as_bytes()].concat();
                builder.hole(Segment::Key(KeyArgument::new(&prefix, &word[at + KEY_PLACEHOLDER.len()..])));
            } else if find(word, DATA_PLACEHOLDER).is_some() {
                builder.alone(word, DATA_PLACEHOLDER)?;
                builder.data(data);
            } else if find(word, VECTOR_PLACEHOLDER).is_some() {
                builder.alone(word, VECTOR_PLACEHOLDER)?;
                builder.hole(Segment::Vector);
            } else {
                builder.argument(word);
            }
        }
        Ok(builder.finish(name, key_pattern, ratio))
    }

    /// memtier's default write: `SET key data`, or `SETEX key seconds data` under `--expiry-range`.
    pub fn set(
        key_prefix: &str,
        data: DataShape,
        expires: bool,
        key_pattern: KeyPattern,
        ratio: u32,
    ) -> Self {
        let (name, n_args) = if expires { ("SETEX", 4) } else { ("SET", 3) };
        let mut builder = SegmentsBuilder::new(n_args);
        builder.argument(name.as_bytes());
        builder.hole(Segment::Key(KeyArgument::new(key_prefix.as_bytes(), b"")));
        if expires {
            builder.hole(Segment::Expiry);
        }
        builder.data(data);
        builder.finish(name.to_owned(), key_pattern, ratio)
    }

    /// memtier's default read.
    pub fn get(key_prefix: &str, key_pattern: KeyPattern, ratio: u32) -> Self {
        let mut builder = SegmentsBuilder::new(2);
        builder.argument(b"GET");
        builder.hole(Segment::Key(KeyArgument::new(key_prefix.as_bytes(), b"")));
        builder.finish("GET".to_owned(), key_pattern, ratio)
    }

    pub fn takes_vector(&self) -> bool {
        self.takes_vector
    }

    /// Appends one request.
    #[inline]
    pub fn append_request(&self, command_index: usize, source: &mut ArgumentSource, out: &mut Vec<u8>) {
        let first_key =
            if self.n_keys > 0 { source.keys.next_key(command_index, self.key_pattern) } else { 0 };
        let mut next_key = first_key;
        let mut n_keys_left = self.n_keys;
        for segment in &self.segments {
            match segment {
                Segment::Constant(bytes) => out.extend_from_slice(bytes),
                Segment::Key(argument) => {
                    argument.append(next_key, out);
                    n_keys_left -= 1;
                    if n_keys_left > 0 {
                        next_key = source.keys.next_key(command_index, self.key_pattern);
                    }
                }
                Segment::Data => source.append_data(out),
                Segment::Vector => source.append_vector((self.n_keys > 0).then_some(first_key), out),
                Segment::Expiry => source.append_expiry(out),
            }
        }
    }
}

struct SegmentsBuilder {
    segments: Vec<Segment>,
    constant: Vec<u8>,
}

impl SegmentsBuilder {
    fn new(n_args: usize) -> Self {
        Self { segments: Vec::new(), constant: format!("*{n_args}\r\n").into_bytes() }
    }

    fn argument(&mut self, bytes: &[u8]) {
        self.constant.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        self.constant.extend_from_slice(bytes);
        self.constant.extend_from_slice(b"\r\n");
    }

    fn hole(&mut self, segment: Segment) {
        if !self.constant.is_empty() {
            self.segments.push(Segment::Constant(std::mem::take(&mut self.constant)));
        }
        self.segments.push(segment);
    }

    /// Data of one size and one letter never changes, so it joins the constant bytes.
    fn data(&mut self, data: DataShape) {
        if data.minimum_bytes == data.maximum_bytes && data.content == DataContent::OneLetter {
            self.argument(&vec![b'x'; data.maximum_bytes]);
        } else {
            self.hole(Segment::Data);
        }
    }

    fn alone(&self, word: &[u8], placeholder: &'static str) -> Result<(), TemplateError> {
        if word == placeholder.as_bytes() {
            Ok(())
        } else {
            Err(TemplateError::MixedPlaceholder(placeholder))
        }
    }

    fn finish(mut self, name: String, key_pattern: KeyPattern, ratio: u32) -> Template {
        if !self.constant.is_empty() {
            self.segments.push(Segment::Constant(self.constant));
        }
        Template {
            name,
            key_pattern,
            ratio,
            n_keys: self.segments.iter().filter(|s| matches!(s, Segment::Key(_))).count(),
            takes_vector: self.segments.iter().any(|s| matches!(s, Segment::Vector)),
            segments: self.segments,
        }
    }
}

/// What one client fills the holes with.
#[derive(Clone, Debug)]
pub struct ArgumentSource {
    pub keys: KeyGenerator,
    random: SplitMix64,
    data: DataShape,
    data_buffer: Vec<u8>,
    expiry_s: (u64, u64),
    vectors: Option<std::sync::Arc<ClusteredVectors>>,
    next_vector: u64,
}

impl ArgumentSource {
    pub fn new(
        keys: KeyGenerator,
        data: DataShape,
        expiry_s: (u64, u64),
        vectors: Option<std::sync::Arc<ClusteredVectors>>,
        seed: u64,
    ) -> Self {
        let mut random = SplitMix64::new(seed ^ 0x6461_7461);
        let data_buffer = match data.content {
            DataContent::OneLetter => vec![b'x'; data.maximum_bytes],
            // Twice the size: each value starts at a random offset, so values differ at no cost per byte.
            DataContent::Random => (0..data.maximum_bytes * 2).map(|_| random.next_u64() as u8).collect(),
        };
        Self { keys, random, data, data_buffer, expiry_s, vectors, next_vector: 0 }
    }

    fn append_data(&mut self, out: &mut Vec<u8>) {
        let (minimum, maximum) = (self.data.minimum_bytes as u64, self.data.maximum_bytes as u64);
        let n_bytes = self.random.range_inclusive(minimum, maximum) as usize;
        let start = match self.data.content {
            DataContent::OneLetter => 0,
            DataContent::Random => self.random.range_inclusive(0, maximum) as usize,
        };
        append_bulk_header(n_bytes as u64, out);
        out.extend_from_slice(&self.data_buffer[start..start + n_bytes]);
        out.extend_from_slice(b"\r\n");
    }

    fn append_vector(&mut self, key: Option<u64>, out: &mut Vec<u8>) {
        let index = key.unwrap_or_else(|| {
            self.next_vector += 1;
            self.next_vector - 1
        });
        let vectors = self.vectors.as_ref().expect("a workload with __vector__ has a vector generator");
        append_bulk_header(vectors.blob_bytes() as u64, out);
        vectors.append_blob(index, out);
        out.extend_from_slice(b"\r\n");
    }

    fn append_expiry(&mut self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(self.random.range_inclusive(self.expiry_s.0, self.expiry_s.1));
        append_bulk_header(digits.len() as u64, out);
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

fn append_bulk_header(n_bytes: u64, out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(n_bytes).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn find(word: &[u8], placeholder: &str) -> Option<usize> {
    word.windows(placeholder.len()).position(|window| window == placeholder.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustered::VectorShape;
    use crate::keys::{KeyRange, KeyShape};
    use std::sync::Arc;

    const DATA: DataShape = DataShape { minimum_bytes: 4, maximum_bytes: 4, content: DataContent::OneLetter };

    fn source(data: DataShape) -> ArgumentSource {
        let range = KeyRange { minimum: 8, maximum: 11 };
        let vectors = ClusteredVectors::new(VectorShape { n_dims: 2, n_clusters: 1, seed: 1 });
        let keys = KeyGenerator::new(range, KeyShape::default(), 1, 1);
        ArgumentSource::new(keys, data, (7, 7), Some(Arc::new(vectors)), 1)
    }

    fn stamp(template: &Template, source: &mut ArgumentSource) -> Vec<u8> {
        let mut out = Vec::new();
        template.append_request(0, source, &mut out);
        out
    }

    fn parse(line: &str) -> Result<Template, TemplateError> {
        Template::parse(line, "k-", DATA, KeyPattern::Sequential, 1)
    }

    #[test]
    fn each_key_placeholder_is_one_generated_key() {
        let template = parse("mset __key__ __data__ a__key__z 1").expect("parses");
        assert_eq!(template.name, "MSET");
        let mut source = source(DATA);
        assert_eq!(
            stamp(&template, &mut source),
            b"*5\r\n$4\r\nmset\r\n$3\r\nk-8\r\n$4\r\nxxxx\r\n$5\r\nak-9z\r\n$1\r\n1\r\n"
        );
        assert_eq!(
            stamp(&template, &mut source),
            b"*5\r\n$4\r\nmset\r\n$4\r\nk-10\r\n$4\r\nxxxx\r\n$6\r\nak-11z\r\n$1\r\n1\r\n"
        );
    }

    #[test]
    fn memtiers_default_commands() {
        let mut source = source(DATA);
        let set = Template::set("m-", DATA, false, KeyPattern::Sequential, 1);
        assert_eq!(stamp(&set, &mut source), b"*3\r\n$3\r\nSET\r\n$3\r\nm-8\r\n$4\r\nxxxx\r\n");
        let setex = Template::set("m-", DATA, true, KeyPattern::Sequential, 1);
        assert_eq!(
            stamp(&setex, &mut source),
            b"*4\r\n$5\r\nSETEX\r\n$3\r\nm-9\r\n$1\r\n7\r\n$4\r\nxxxx\r\n"
        );
        let get = Template::get("m-", KeyPattern::Sequential, 1);
        assert_eq!(stamp(&get, &mut source), b"*2\r\n$3\r\nGET\r\n$4\r\nm-10\r\n");
    }

    #[test]
    fn data_of_a_range_has_every_size_and_its_true_length() {
        let shape = DataShape { minimum_bytes: 1, maximum_bytes: 3, content: DataContent::Random };
        let template = Template::parse("X __data__", "", shape, KeyPattern::Random, 1).expect("parses");
        let mut source = source(shape);
        let mut seen = [false; 4];
        for _ in 0..200 {
            let request = stamp(&template, &mut source);
            let bulk = request.strip_prefix(b"*2\r\n$1\r\nX\r\n$").expect("constant part");
            let n_bytes = usize::from(bulk[0] - b'0');
            assert_eq!(bulk.len(), 1 + 2 + n_bytes + 2);
            seen[n_bytes] = true;
        }
        assert_eq!(seen, [false, true, true, true]);
    }

    #[test]
    fn a_vector_belongs_to_the_requests_key_even_if_the_key_comes_later() {
        let template = parse("VADD v FP32 __vector__ __key__").expect("parses");
        assert!(template.takes_vector());
        let mut source = source(DATA);
        let request = stamp(&template, &mut source);
        let mut blob = Vec::new();
        source.vectors.as_ref().expect("given").append_blob(8, &mut blob);
        assert!(request.windows(8).any(|w| w == blob), "vector 8 with key 8");
        assert!(request.ends_with(b"$3\r\nk-8\r\n"));
    }

    #[test]
    fn vectors_without_keys_are_numbered() {
        let template = parse("VSIM v FP32 __vector__").expect("parses");
        let mut source = source(DATA);
        assert_ne!(stamp(&template, &mut source), stamp(&template, &mut source));
    }

    #[test]
    fn unusable_commands_are_refused() {
        assert_eq!(parse("SET \"a").map(|_| ()), Err(TemplateError::Quotes));
        assert_eq!(parse("  ").map(|_| ()), Err(TemplateError::Empty));
        assert_eq!(parse("__key__ a").map(|_| ()), Err(TemplateError::NameIsPlaceholder));
        assert_eq!(parse("SET a b__data__").map(|_| ()), Err(TemplateError::MixedPlaceholder("__data__")));
        assert_eq!(
            parse("VADD a FP32 x__vector__ b").map(|_| ()),
            Err(TemplateError::MixedPlaceholder("__vector__"))
        );
    }
}
