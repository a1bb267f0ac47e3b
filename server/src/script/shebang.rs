//! The first line of a script or a library: `#!lua name=... flags=...`.

use skerry_resp::request::split_words;

use super::registry::ScriptFlags;
use crate::error::CommandError;

/// What the line of a script says, and where the code begins (with the end of that line, so that lines count on).
pub(super) fn of_script(text: &[u8]) -> Result<(ScriptFlags, usize), CommandError> {
    if !text.starts_with(b"#!") {
        return Ok((ScriptFlags { is_compatible: true, ..ScriptFlags::default() }, 0));
    }
    const MAX_LINE: usize = 64 << 10;
    let Some(end) = memchr::memchr(b'\n', &text[..text.len().min(MAX_LINE)]) else {
        return Err(CommandError::text("ERR Invalid script shebang"));
    };
    let (mut unquoted, mut ranges) = (Vec::new(), Vec::new());
    if split_words(&text[..end], &mut unquoted, &mut ranges).is_none() {
        return Err(CommandError::text("ERR Invalid engine in script shebang"));
    }
    let mut words = ranges.iter().map(|range| &unquoted[range.start as usize..range.end as usize]);
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        let error = [b"ERR Unexpected engine in script shebang: ".as_slice(), engine].concat();
        return Err(CommandError::Bytes(error));
    }
    let mut flags = ScriptFlags::default();
    for word in words {
        let Some(list) = word.strip_prefix(b"flags=") else {
            let error = [b"ERR Unknown lua shebang option: ".as_slice(), word].concat();
            return Err(CommandError::Bytes(error));
        };
        for flag in list.split(|byte| *byte == b',').filter(|_| !list.is_empty()) {
            set_flag(&mut flags, flag).map_err(|()| {
                CommandError::Bytes([b"ERR Unexpected flag in script shebang: ".as_slice(), flag].concat())
            })?;
        }
    }
    Ok((flags, end))
}

/// What the first line of a library says.
pub(super) struct LibraryLine {
    pub(super) engine: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) code_at: usize,
}

/// The first line of a library, read as Redis reads it.
pub(super) fn of_library(text: &[u8]) -> Result<LibraryLine, CommandError> {
    const INVALID: CommandError = CommandError::text("ERR Invalid library metadata");
    if !text.starts_with(b"#!") {
        return Err(CommandError::text("ERR Missing library metadata"));
    }
    // The line ends for Redis where a C string does.
    let code_at = memchr::memchr2(b'\n', 0, text).filter(|at| text[*at] == b'\n').ok_or(INVALID)?;
    let (mut unquoted, mut ranges) = (Vec::new(), Vec::new());
    split_words(&text[..code_at], &mut unquoted, &mut ranges).ok_or(INVALID)?;
    let mut words = ranges.iter().map(|range| &unquoted[range.start as usize..range.end as usize]);
    let engine = words.next().ok_or(INVALID)?.get(2..).unwrap_or_default();
    let mut name = None;
    for word in words {
        const NAME: &[u8] = b"name=";
        if !word.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME)) {
            let error = [b"ERR Invalid metadata value given: ".as_slice(), word].concat();
            return Err(CommandError::Bytes(error));
        }
        if name.replace(&word[NAME.len()..]).is_some() {
            return Err(CommandError::text(
                "ERR Invalid metadata value, name argument was given multiple times",
            ));
        }
    }
    let name = name.ok_or(CommandError::text("ERR Library name was not given"))?;
    Ok(LibraryLine { engine: engine.to_vec(), name: name.to_vec(), code_at })
}

/// Sets a flag by its name.
pub(super) fn set_flag(flags: &mut ScriptFlags, name: &[u8]) -> Result<(), ()> {
    match name {
        b"no-writes" => flags.no_writes = true,
        b"allow-oom" => flags.allow_oom = true,
        b"allow-stale" => flags.allow_stale = true,
        b"no-cluster" => flags.no_cluster = true,
        b"allow-cross-slot-keys" => flags.allow_cross_slot = true,
        _ => return Err(()),
    }
    Ok(())
}
