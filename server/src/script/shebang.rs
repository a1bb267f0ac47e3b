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
