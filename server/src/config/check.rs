//! Rules for texts that must have a certain form, with Redis's words for a breach.

/// Whether the text names a file in the working directory and no path out of it.
fn is_base_name(text: &[u8]) -> bool {
    !text.contains(&b'/') && !text.contains(&b'\\')
}

pub(super) fn dbfilename(text: &[u8]) -> Result<(), &'static str> {
    if is_base_name(text) { Ok(()) } else { Err("dbfilename can't be a path, just a filename") }
}

pub(super) fn appendfilename(text: &[u8]) -> Result<(), &'static str> {
    match text {
        b"" => Err("appendfilename can't be empty"),
        _ if !is_base_name(text) => Err("appendfilename can't be a path, just a filename"),
        _ => Ok(()),
    }
}

pub(super) fn appenddirname(text: &[u8]) -> Result<(), &'static str> {
    match text {
        b"" => Err("appenddirname can't be empty"),
        _ if !is_base_name(text) => Err("appenddirname can't be a path, just a dirname"),
        _ => Ok(()),
    }
}

pub(super) fn hostname(text: &[u8]) -> Result<(), &'static str> {
    const HOSTNAME_BYTES_MAX: usize = 255;
    if text.len() > HOSTNAME_BYTES_MAX {
        return Err("Hostnames must be less than 256 characters");
    }
    if text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')) {
        Ok(())
    } else {
        Err("Hostnames may only contain alphanumeric characters, hyphens or dots")
    }
}

pub(super) fn nodename(text: &[u8]) -> Result<(), &'static str> {
    if text.iter().any(|byte| b"!#$%&()*+:;<>?@[]^{|}~".contains(byte)) {
        Err("Announced human node name contained invalid character")
    } else {
        Ok(())
    }
}

/// Text with variables in braces; it must not come out blank.
pub(super) fn proc_title_template(text: &[u8]) -> Result<(), &'static str> {
    const INVALID: &str = "template format is invalid or contains unknown variables";
    const VARIABLES: [&[u8]; 7] =
        [b"title", b"listen-addr", b"server-mode", b"port", b"tls-port", b"config-file", b"unixsocket"];
    if text.trim_ascii().is_empty() {
        return Err(INVALID);
    }
    let mut rest = text;
    while let Some(open) = rest.iter().position(|&byte| byte == b'{') {
        let behind = &rest[open + 1..];
        if behind.first() == Some(&b'{') {
            // A doubled brace is a brace.
            rest = &behind[1..];
            continue;
        }
        let close = behind.iter().position(|&byte| byte == b'}').ok_or(INVALID)?;
        if !VARIABLES.contains(&&behind[..close]) {
            return Err(INVALID);
        }
        rest = &behind[close + 1..];
    }
    Ok(())
}

/// Skerry compares by bytes, which is what these locales mean.
pub(super) fn locale(text: &[u8]) -> Result<(), &'static str> {
    match text {
        b"" | b"C" | b"POSIX" | b"C.UTF-8" | b"C.utf8" => Ok(()),
        _ => Err("Invalid locale name"),
    }
}
