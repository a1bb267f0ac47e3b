//! What a directive's value may be: numbers, memory sizes, yes/no, words of a list, text; how each is read
//! from an argument and printed for CONFIG GET.
//!
//! Source: CONFIG SET's error texts and CONFIG GET's forms of Redis 8.2.3, recorded in `tests/golden`.
//! Departure: a memory size beyond 2^63-1 is out of range, where Redis lets `18014398509481985kb` wrap to 1 kB,
//! and a `maxmemory-clients` of 2^64-1 to 1%.
//! It must never know which directives exist.

use std::borrow::Cow;

use super::table::Directive;
use super::words;

/// Why a value was not taken: the part of Redis's error text behind the dash.
pub type Fault = Cow<'static, str>;

/// Where a value comes from. Lines of a file add up for `save`; CONFIG SET replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    File,
    ConfigSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Signed,
    /// Redis keeps it in an unsigned type, and says so when the number is negative.
    Unsigned,
}

/// The form of a directive's value, with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Integer {
        min: i64,
        max: i64,
        sign: Sign,
    },
    /// Bytes, written plainly or with one of the units b, k, kb, m, mb, g, gb.
    Memory {
        min: i64,
        max: i64,
        sign: Sign,
    },
    /// Bytes, or a share of `maxmemory` such as `5%`.
    MemoryOrPercent {
        max_percent: i64,
    },
    Octal {
        min: i64,
        max: i64,
    },
    /// One word of a list.
    Enum,
    /// Text whose empty form is a value like any other.
    Text,
    /// Text whose empty form means that the directive is absent.
    OptionalText,
    /// A form of its own, see `special`.
    Special,
}

/// A typed field of `Config`.
pub(super) trait Field {
    /// Takes the arguments, or leaves the field as it is.
    fn assign(&mut self, row: &Directive, args: &[&[u8]], source: Source) -> Result<(), Fault>;
    /// The value as CONFIG GET prints it.
    fn print(&self, row: &Directive) -> Vec<u8>;
    /// The values of this directive's lines in a rewritten file.
    fn rewrite(&self, row: &Directive) -> Vec<Vec<u8>> {
        vec![self.print(row)]
    }
}

impl Field for bool {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        *self = match args[0].to_ascii_lowercase().as_slice() {
            b"yes" => true,
            b"no" => false,
            _ => return Err("argument must be 'yes' or 'no'".into()),
        };
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        if *self { b"yes".to_vec() } else { b"no".to_vec() }
    }
}

/// A field for each integer type. The kind's bounds fit the type, which a test holds for every row.
macro_rules! integer_fields {
    ($($int:ty),+) => {$(
        impl Field for $int {
            fn assign(&mut self, row: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
                let number = parse_number(row.kind, args[0])?;
                *self = <$int>::try_from(number).expect("the bounds of a directive fit its field");
                Ok(())
            }

            fn print(&self, row: &Directive) -> Vec<u8> {
                match row.kind {
                    Kind::Octal { .. } => format!("{self:o}").into_bytes(),
                    _ => self.to_string().into_bytes(),
                }
            }

            fn rewrite(&self, row: &Directive) -> Vec<Vec<u8>> {
                match row.kind {
                    Kind::Memory { .. } => vec![format_memory(*self as u64).into_bytes()],
                    _ => vec![self.print(row)],
                }
            }
        }
    )+};
}
integer_fields!(u16, u32, u64, i32, i64);

impl Field for Vec<u8> {
    fn assign(&mut self, row: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        if let Some(check) = row.check {
            check(args[0])?;
        }
        args[0].clone_into(self);
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        self.clone()
    }

    fn rewrite(&self, row: &Directive) -> Vec<Vec<u8>> {
        match row.kind {
            Kind::OptionalText if self.is_empty() => Vec::new(),
            _ => vec![words::quote(self)],
        }
    }
}

/// `maxmemory-clients`: bytes, or a share of `maxmemory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrPercent {
    Bytes(u64),
    Percent(u8),
}

impl Field for MemoryOrPercent {
    fn assign(&mut self, row: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        let Kind::MemoryOrPercent { max_percent } = row.kind else {
            unreachable!("the row's kind is this type's")
        };
        if let Some(bytes) = parse_memory(args[0]) {
            let bytes = u64::try_from(bytes)
                .map_err(|_| format!("percentage argument must be less or equal to {max_percent}"))?;
            *self = MemoryOrPercent::Bytes(bytes);
            return Ok(());
        }
        let percent = args[0].strip_suffix(b"%").and_then(parse_integer).filter(|&percent| percent >= 0);
        match percent {
            None => Err("argument must be a memory or percent value".into()),
            Some(0) => {
                *self = MemoryOrPercent::Bytes(0);
                Ok(())
            }
            Some(percent) if percent > max_percent => {
                Err(format!("percentage argument must be less or equal to {max_percent}").into())
            }
            Some(percent) => {
                *self = MemoryOrPercent::Percent(u8::try_from(percent).expect("at most 100"));
                Ok(())
            }
        }
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        match self {
            MemoryOrPercent::Bytes(bytes) => bytes.to_string().into_bytes(),
            MemoryOrPercent::Percent(percent) => format!("{percent}%").into_bytes(),
        }
    }

    fn rewrite(&self, row: &Directive) -> Vec<Vec<u8>> {
        match self {
            MemoryOrPercent::Bytes(bytes) => vec![format_memory(*bytes).into_bytes()],
            MemoryOrPercent::Percent(_) => vec![self.print(row)],
        }
    }
}

/// A Rust enum whose variants are the words of a directive; a variant may have several, it prints the first.
macro_rules! words_of {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal $(| $other:literal)*),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($variant),+ }

        impl $name {
            const WORDS: &[(&str, $name)] =
                &[$(($word, $name::$variant), $(($other, $name::$variant),)*)+];

            /// The word of `redis.conf`.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl Field for $name {
            fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
                *self = find_word($name::WORDS, args[0])?;
                Ok(())
            }

            fn print(&self, _: &Directive) -> Vec<u8> {
                self.as_str().as_bytes().to_vec()
            }
        }
    )+};
}

words_of! {
    MaxmemoryPolicy {
        VolatileLru = "volatile-lru",
        VolatileLfu = "volatile-lfu",
        VolatileRandom = "volatile-random",
        VolatileTtl = "volatile-ttl",
        AllkeysLru = "allkeys-lru",
        AllkeysLfu = "allkeys-lfu",
        AllkeysRandom = "allkeys-random",
        NoEviction = "noeviction",
        // Since Redis 8.6.
        VolatileLrm = "volatile-lrm",
        AllkeysLrm = "allkeys-lrm",
    }
    /// Ordered from the most to the least talkative.
    LogLevel {
        Debug = "debug", Verbose = "verbose", Notice = "notice", Warning = "warning", Nothing = "nothing",
    }
    Supervised { Upstart = "upstart", Systemd = "systemd", Auto = "auto", No = "no" }
    SyslogFacility {
        User = "user", Local0 = "local0", Local1 = "local1", Local2 = "local2", Local3 = "local3",
        Local4 = "local4", Local5 = "local5", Local6 = "local6", Local7 = "local7",
    }
    AppendFsync { EverySec = "everysec", Always = "always", No = "no" }
    ReplDisklessLoad { Disabled = "disabled", OnEmptyDb = "on-empty-db", SwapDb = "swapdb" }
    TlsAuthClients { No = "no", Yes = "yes", Optional = "optional" }
    OomScoreAdj { No = "no", Relative = "yes" | "relative", Absolute = "absolute" }
    AclPubsubDefault { AllChannels = "allchannels", ResetChannels = "resetchannels" }
    SanitizeDumpPayload { No = "no", Yes = "yes", Clients = "clients" }
    /// Who may use DEBUG, MODULE or CONFIG SET of a protected directive.
    ProtectedAction { No = "no", Yes = "yes", Local = "local" }
    ClusterEndpointType { Ip = "ip", Hostname = "hostname", UnknownEndpoint = "unknown-endpoint" }
    PropagationErrorBehavior { Ignore = "ignore", Panic = "panic", PanicOnReplicas = "panic-on-replicas" }
    /// Skerry's own: whether commands of one pipeline may run in another order than they came when they go to
    /// different shards (the replies keep their order either way).
    PipelineOrder { Relaxed = "relaxed", Strict = "strict" }
    /// Skerry's own: bits a component of the codes that float32 vector sets are walked by.
    VsetCodeBits { Auto = "auto", Off = "off", Two = "2", Four = "4", Eight = "8" }
}

/// The value that a word stands for, whatever its case.
pub(super) fn find_word<T: Copy>(words: &[(&str, T)], word: &[u8]) -> Result<T, Fault> {
    let found = words.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
    found.map(|&(_, value)| value).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|&(name, _)| name).collect();
        format!("argument(s) must be one of the following: {}", names.join(", ")).into()
    })
}

fn parse_number(kind: Kind, text: &[u8]) -> Result<i64, Fault> {
    match kind {
        Kind::Integer { min, max, sign } => {
            let number = parse_integer(text).ok_or("argument couldn't be parsed into an integer")?;
            check_bounds(number, min, max, sign)
        }
        Kind::Memory { min, max, sign } => {
            let number = parse_memory(text).ok_or("argument must be a memory value")?;
            check_bounds(number, min, max, sign)
        }
        Kind::Octal { min, max } => parse_octal(text, min, max),
        other => unreachable!("{other:?} is not a number"),
    }
}

fn check_bounds(number: i64, min: i64, max: i64, sign: Sign) -> Result<i64, Fault> {
    if sign == Sign::Unsigned && number < 0 {
        return Err("argument must be greater or equal to 0".into());
    }
    if number < min || number > max {
        return Err(format!("argument must be between {min} and {max} inclusive").into());
    }
    Ok(number)
}

/// The empty text is 0, as C's strtoll has it.
fn parse_octal(text: &[u8], min: i64, max: i64) -> Result<i64, Fault> {
    let text = str::from_utf8(text).unwrap_or("?");
    let number = if text.is_empty() { Ok(0) } else { i64::from_str_radix(text, 8) };
    let number = number.map_err(|_| "argument couldn't be parsed as an octal number")?;
    if number < 0 {
        return Err("argument must be greater or equal to 0".into());
    }
    if number < min || number > max {
        return Err(format!("argument must be between {min:o} and {max:o} inclusive").into());
    }
    Ok(number)
}

/// A decimal integer in its only form: no blank, no plus, no leading zero, no `-0`.
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    let number: i64 = str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

/// Bytes with an optional unit. Digits may be missing (`k` is 0), as in Redis. A size beyond 2^63-1 comes
/// back as -1, which every bound refuses. `None`: not a memory value.
pub(super) fn parse_memory(text: &[u8]) -> Option<i64> {
    const DIGITS_MAX: usize = 127;
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unit: u64 = match text[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    if digits > DIGITS_MAX {
        return None;
    }
    let value = text[..digits]
        .iter()
        .try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .and_then(|value| i64::try_from(value.checked_mul(unit)?).ok());
    Some(value.unwrap_or(-1))
}

/// A size in the largest unit that divides it.
pub(super) fn format_memory(bytes: u64) -> String {
    for (unit, shift) in [("gb", 30), ("mb", 20), ("kb", 10)] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}
