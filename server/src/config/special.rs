//! The directives whose value has a form of its own: bind, save, client-output-buffer-limit, dir,
//! notify-keyspace-events, latency percentiles, oom-score-adj-values, shutdown-on-sig*, replicaof.
//!
//! Source: redis.conf and the answers of Redis 8.2.3. Everything is checked before anything is changed.

use std::path::{Path, PathBuf};

use super::table::Directive;
use super::value::{Fault, Field, Source, find_word, format_memory, parse_integer, parse_memory};
use super::words;

/// The addresses to listen on, as written: `*`, `-::*`, `127.0.0.1`. A leading `-`: it may be unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind(pub Vec<Vec<u8>>);

impl Bind {
    const ADDRESSES_MAX: usize = 16;

    pub(super) fn every_address() -> Bind {
        Bind(vec![b"*".to_vec(), b"-::*".to_vec()])
    }
}

impl Field for Bind {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        if args.len() > Bind::ADDRESSES_MAX {
            return Err("Too many bind addresses specified.".into());
        }
        // One empty argument asks for no address at all, which leaves only the Unix socket.
        let none = matches!(args, [b""]);
        self.0 = if none { Vec::new() } else { args.iter().map(|address| address.to_vec()).collect() };
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        self.0.join(&b' ')
    }

    fn rewrite(&self, _: &Directive) -> Vec<Vec<u8>> {
        if *self == Bind::every_address() {
            return Vec::new();
        }
        if self.0.is_empty() {
            return vec![b"\"\"".to_vec()];
        }
        vec![self.0.iter().map(|address| quote_if_needed(address)).collect::<Vec<_>>().join(&b' ')]
    }
}

/// Plain words stay as they are; anything that could end the word or the line is quoted.
fn quote_if_needed(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".:*-_%/[]".contains(byte);
    if !word.is_empty() && word.iter().all(plain) { word.to_vec() } else { words::quote(word) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    pub seconds: i64,
    pub changes: i64,
}

/// `save`: when to write a snapshot. Empty: never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavePoints(pub Vec<SavePoint>);

impl Field for SavePoints {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], source: Source) -> Result<(), Fault> {
        if matches!(args, [b""]) {
            self.0.clear();
            return Ok(());
        }
        let (pairs, rest) = args.as_chunks::<2>();
        let parse = |[seconds, changes]: &[&[u8]; 2]| {
            let seconds = parse_integer(seconds).filter(|&seconds| seconds >= 1)?;
            let changes = parse_integer(changes).filter(|&changes| changes >= 0)?;
            Some(SavePoint { seconds, changes })
        };
        let points: Option<Vec<SavePoint>> = pairs.iter().map(parse).collect();
        let points = points.filter(|_| rest.is_empty()).ok_or("Invalid save parameters")?;
        match source {
            Source::File => self.0.extend(points),
            Source::ConfigSet => self.0 = points,
        }
        Ok(())
    }

    fn print(&self, row: &Directive) -> Vec<u8> {
        if self.0.is_empty() { Vec::new() } else { self.rewrite(row).join(&b' ') }
    }

    fn rewrite(&self, _: &Directive) -> Vec<Vec<u8>> {
        if self.0.is_empty() {
            return vec![b"\"\"".to_vec()];
        }
        self.0.iter().map(|point| format!("{} {}", point.seconds, point.changes).into_bytes()).collect()
    }
}

/// A client is closed when its replies exceed `hard_bytes`, or `soft_bytes` for `soft_seconds`. 0: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBufferLimit {
    pub hard_bytes: u64,
    pub soft_bytes: u64,
    pub soft_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBufferLimits {
    pub normal: OutputBufferLimit,
    pub replica: OutputBufferLimit,
    pub pubsub: OutputBufferLimit,
}

impl OutputBufferLimits {
    pub(super) const DEFAULT: OutputBufferLimits = OutputBufferLimits {
        normal: OutputBufferLimit { hard_bytes: 0, soft_bytes: 0, soft_seconds: 0 },
        replica: OutputBufferLimit { hard_bytes: 256 << 20, soft_bytes: 64 << 20, soft_seconds: 60 },
        pubsub: OutputBufferLimit { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_seconds: 60 },
    };

    fn of_class(&mut self, class: &[u8]) -> Option<&mut OutputBufferLimit> {
        match class.to_ascii_lowercase().as_slice() {
            b"normal" => Some(&mut self.normal),
            b"replica" | b"slave" => Some(&mut self.replica),
            b"pubsub" => Some(&mut self.pubsub),
            _ => None,
        }
    }
}

impl Field for OutputBufferLimits {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        let (classes, rest) = args.as_chunks::<4>();
        if !rest.is_empty() {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        let mut limits = *self;
        for [class, hard, soft, seconds] in classes {
            let limit = limits
                .of_class(class)
                .ok_or("Invalid client class specified in buffer limit configuration.")?;
            let unsigned = |number: Option<i64>| {
                number
                    .and_then(|number| u64::try_from(number).ok())
                    .ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")
            };
            *limit = OutputBufferLimit {
                hard_bytes: unsigned(parse_memory(hard))?,
                soft_bytes: unsigned(parse_memory(soft))?,
                soft_seconds: unsigned(parse_integer(seconds))?,
            };
        }
        *self = limits;
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        // CONFIG GET still says "slave" here, which clients parse.
        [("normal", self.normal), ("slave", self.replica), ("pubsub", self.pubsub)]
            .map(|(class, limit)| {
                format!("{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
            })
            .join(" ")
            .into_bytes()
    }

    fn rewrite(&self, _: &Directive) -> Vec<Vec<u8>> {
        [("normal", self.normal), ("replica", self.replica), ("pubsub", self.pubsub)]
            .map(|(class, limit)| {
                let (hard, soft) = (format_memory(limit.hard_bytes), format_memory(limit.soft_bytes));
                format!("{class} {hard} {soft} {}", limit.soft_seconds).into_bytes()
            })
            .to_vec()
    }
}

/// The working directory, absolute. Empty: the one the process was started in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dir(pub PathBuf);

impl Dir {
    pub(super) fn absolute(&self) -> PathBuf {
        if self.0.as_os_str().is_empty() {
            std::env::current_dir().unwrap_or_default()
        } else {
            self.0.clone()
        }
    }
}

impl Field for Dir {
    /// Asks the file system, so that a wrong directory is refused here and not after everything was set.
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        let [path] = args else { return Err("wrong number of arguments".into()) };
        if path.is_empty() {
            return Err("No such file or directory".into());
        }
        let path = self.absolute().join(path_of(path));
        let path = path.canonicalize().map_err(|error| Fault::from(error_text(&error)))?;
        if !path.is_dir() {
            return Err("Not a directory".into());
        }
        self.0 = path;
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        self.absolute().into_os_string().into_encoded_bytes()
    }

    fn rewrite(&self, row: &Directive) -> Vec<Vec<u8>> {
        vec![words::quote(&self.print(row))]
    }
}

pub(super) fn path_of(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// The system's words for an error, without Rust's "(os error 2)".
pub fn error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// `notify-keyspace-events`: which events are published, and on which of the two channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceEvents(u32);

impl KeyspaceEvents {
    pub const KEYSPACE: KeyspaceEvents = KeyspaceEvents(1 << 0);
    pub const KEYEVENT: KeyspaceEvents = KeyspaceEvents(1 << 1);
    pub const GENERIC: KeyspaceEvents = KeyspaceEvents(1 << 2);
    pub const STRING: KeyspaceEvents = KeyspaceEvents(1 << 3);
    pub const LIST: KeyspaceEvents = KeyspaceEvents(1 << 4);
    pub const SET: KeyspaceEvents = KeyspaceEvents(1 << 5);
    pub const HASH: KeyspaceEvents = KeyspaceEvents(1 << 6);
    pub const ZSET: KeyspaceEvents = KeyspaceEvents(1 << 7);
    pub const EXPIRED: KeyspaceEvents = KeyspaceEvents(1 << 8);
    pub const EVICTED: KeyspaceEvents = KeyspaceEvents(1 << 9);
    pub const STREAM: KeyspaceEvents = KeyspaceEvents(1 << 10);
    pub const KEY_MISS: KeyspaceEvents = KeyspaceEvents(1 << 11);
    pub const MODULE: KeyspaceEvents = KeyspaceEvents(1 << 12);
    pub const NEW: KeyspaceEvents = KeyspaceEvents(1 << 13);

    /// The classes that `A` stands for, in the order in which they are printed.
    const ALL: [(u8, KeyspaceEvents); 10] = [
        (b'g', Self::GENERIC),
        (b'$', Self::STRING),
        (b'l', Self::LIST),
        (b's', Self::SET),
        (b'h', Self::HASH),
        (b'z', Self::ZSET),
        (b'x', Self::EXPIRED),
        (b'e', Self::EVICTED),
        (b't', Self::STREAM),
        (b'd', Self::MODULE),
    ];
    const OTHERS: [(u8, KeyspaceEvents); 4] =
        [(b'n', Self::NEW), (b'K', Self::KEYSPACE), (b'E', Self::KEYEVENT), (b'm', Self::KEY_MISS)];

    /// Whether every one of `events` is asked for.
    pub fn contains(self, events: KeyspaceEvents) -> bool {
        self.0 & events.0 == events.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn with(self, events: KeyspaceEvents) -> KeyspaceEvents {
        KeyspaceEvents(self.0 | events.0)
    }

    fn all() -> KeyspaceEvents {
        Self::ALL.iter().fold(KeyspaceEvents(0), |events, &(_, class)| events.with(class))
    }
}

impl Field for KeyspaceEvents {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        let mut events = KeyspaceEvents(0);
        for letter in args[0] {
            let mut classes = Self::ALL.iter().chain(&Self::OTHERS);
            events = match classes.find(|(name, _)| name == letter) {
                Some(&(_, class)) => events.with(class),
                None if *letter == b'A' => events.with(Self::all()),
                None => return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into()),
            };
        }
        *self = events;
        Ok(())
    }

    /// Beside `A`, Redis does not print `n`, though it stays set.
    fn print(&self, _: &Directive) -> Vec<u8> {
        let every_class = self.contains(Self::all());
        let classes = Self::ALL.iter().filter(|_| !every_class);
        let others = Self::OTHERS.iter().filter(|(letter, _)| !(every_class && *letter == b'n'));
        let mut letters = if every_class { b"A".to_vec() } else { Vec::new() };
        letters.extend(
            classes.chain(others).filter(|(_, class)| self.contains(*class)).map(|(letter, _)| letter),
        );
        letters
    }

    /// A file keeps the `n` that CONFIG GET leaves out, or the next start would lose it.
    fn rewrite(&self, row: &Directive) -> Vec<Vec<u8>> {
        let mut letters = self.print(row);
        if self.contains(Self::NEW) && !letters.contains(&b'n') {
            letters.push(b'n');
        }
        vec![words::quote(&letters)]
    }
}

/// `latency-tracking-info-percentiles`, each between 0 and 100.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles(pub Vec<f64>);

impl Field for Percentiles {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        if matches!(args, [b""]) {
            self.0.clear();
            return Ok(());
        }
        let parse = |text: &&[u8]| {
            let percentile = str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
            let percentile = percentile
                .filter(|percentile| !percentile.is_nan())
                .ok_or("Invalid latency-tracking-info-percentiles parameters")?;
            if !(0.0..=100.0).contains(&percentile) {
                return Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]");
            }
            Ok(percentile)
        };
        self.0 = args.iter().map(parse).collect::<Result<Vec<f64>, &'static str>>()?;
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        let trimmed = |percentile: &f64| {
            let text = format!("{percentile:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        self.0.iter().map(trimmed).collect::<Vec<_>>().join(" ").into_bytes()
    }

    fn rewrite(&self, row: &Directive) -> Vec<Vec<u8>> {
        if self.0.is_empty() { vec![b"\"\"".to_vec()] } else { vec![self.print(row)] }
    }
}

/// `oom-score-adj-values`: for a master, a replica and a child that saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomScoreAdjValues(pub [i32; 3]);

impl Field for OomScoreAdjValues {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        let mut values = [0; 3];
        if args.len() != values.len() {
            return Err("wrong number of arguments".into());
        }
        for (value, text) in values.iter_mut().zip(args) {
            *value = parse_integer(text)
                .and_then(|value| i32::try_from(value).ok())
                .filter(|value| (-2000..=2000).contains(value))
                .ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")?;
        }
        self.0 = values;
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        self.0.map(|value| value.to_string()).join(" ").into_bytes()
    }
}

/// What SHUTDOWN does that a signal asks for. None set: what SHUTDOWN does by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownFlags(u8);

impl ShutdownFlags {
    pub const SAVE: ShutdownFlags = ShutdownFlags(1);
    pub const NOSAVE: ShutdownFlags = ShutdownFlags(2);
    pub const NOW: ShutdownFlags = ShutdownFlags(4);
    pub const FORCE: ShutdownFlags = ShutdownFlags(8);
    const WORDS: [(&str, ShutdownFlags); 5] = [
        ("default", ShutdownFlags(0)),
        ("save", Self::SAVE),
        ("nosave", Self::NOSAVE),
        ("now", Self::NOW),
        ("force", Self::FORCE),
    ];

    pub fn contains(self, flags: ShutdownFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl Field for ShutdownFlags {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        let mut flags = ShutdownFlags(0);
        // Without an argument there is no word to be found, which Redis reports like a wrong one.
        let words = if args.is_empty() { &[b"" as &[u8]] } else { args };
        for word in words {
            flags.0 |= find_word(&Self::WORDS, word)?.0;
        }
        if flags.contains(Self::SAVE) && flags.contains(Self::NOSAVE) {
            return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
        }
        *self = flags;
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        if self.0 == 0 {
            return b"default".to_vec();
        }
        let set = Self::WORDS.iter().filter(|(_, flag)| flag.0 != 0 && self.contains(*flag));
        set.map(|&(word, _)| word).collect::<Vec<_>>().join(" ").into_bytes()
    }
}

/// `replicaof host port`; `no one` for a master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaOf(pub Option<(Vec<u8>, u16)>);

impl Field for ReplicaOf {
    fn assign(&mut self, _: &Directive, args: &[&[u8]], _: Source) -> Result<(), Fault> {
        let [host, port] = args else { return Err("wrong number of arguments".into()) };
        if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
            self.0 = None;
            return Ok(());
        }
        let port = parse_integer(port).and_then(|port| u16::try_from(port).ok());
        self.0 = Some((host.to_vec(), port.ok_or("Invalid master port")?));
        Ok(())
    }

    fn print(&self, _: &Directive) -> Vec<u8> {
        match &self.0 {
            None => Vec::new(),
            Some((host, port)) => [host.as_slice(), port.to_string().as_bytes()].join(&b' '),
        }
    }

    fn rewrite(&self, _: &Directive) -> Vec<Vec<u8>> {
        let line = |(host, port): &(Vec<u8>, u16)| {
            [quote_if_needed(host).as_slice(), port.to_string().as_bytes()].join(&b' ')
        };
        self.0.iter().map(line).collect()
    }
}
