//! COMMAND DOCS: what a command is for and how its arguments go (redis-cli's hints come from it).
//!
//! Summaries are the rows' own; group, age, complexity and arguments stand in `docs.txt`, whose head says how.
//! Departures from Redis: no `history`, and `complexity` is the formula alone.

use std::collections::HashMap;
use std::sync::OnceLock;

use skerry_resp::reply::Reply;

use super::command_info::is_hidden;
use super::{Row, TABLE};
use crate::args::Args;
use crate::command::{Conn, Flags};
use crate::error::Outcome;

const TEXT: &str = include_str!("docs.txt");

/// One command's lines.
struct Doc {
    group: &'static str,
    since: &'static str,
    complexity: &'static str,
    flags: Vec<&'static str>,
    deprecated_since: Option<&'static str>,
    replaced_by: String,
    arguments: Vec<Argument>,
}

/// One argument, with those it is made of.
#[derive(Debug, Default, PartialEq)]
struct Argument {
    name: &'static str,
    kind: &'static str,
    key_spec: Option<i64>,
    shown: Option<&'static str>,
    token: Option<String>,
    flags: Vec<&'static str>,
    since: Option<&'static str>,
    deprecated_since: Option<&'static str>,
    parts: Vec<Argument>,
}

const KINDS: &[(char, &str)] = &[
    ('k', "key"),
    ('s', "string"),
    ('i', "integer"),
    ('d', "double"),
    ('p', "pattern"),
    ('u', "unix-time"),
    ('t', "pure-token"),
    ('o', "oneof"),
    ('b', "block"),
];

/// COMMAND DOCS [command-name [command-name ...]]
pub fn command_docs(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let rows: Vec<&Row> = match args.len() {
        2 => TABLE.top_level().collect(),
        _ => args.from(2).filter_map(|name| TABLE.full_name(name)).filter(|row| !is_hidden(row)).collect(),
    };
    conn.reply.map(rows.len());
    rows.into_iter().for_each(|row| reply_doc(row, &mut conn.reply));
    Ok(())
}

fn docs() -> &'static HashMap<&'static str, Doc> {
    static DOCS: OnceLock<HashMap<&'static str, Doc>> = OnceLock::new();
    DOCS.get_or_init(|| {
        let mut docs = HashMap::new();
        let mut lines = TEXT.lines().filter(|line| !line.starts_with('#')).peekable();
        while let Some(line) = lines.next() {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap_or_default();
            let (name, group, since, complexity) = (word(), word(), word(), word());
            let flags = word().split(',').filter(|flag| !flag.is_empty()).collect();
            let deprecated_since = words.next();
            let replaced_by = words.collect::<Vec<_>>().join(" or ");
            let mut text = lines.next_if(|line| line.starts_with(' ')).unwrap_or_default().trim();
            let arguments = read_arguments(&mut text);
            let doc = Doc { group, since, complexity, flags, deprecated_since, replaced_by, arguments };
            docs.insert(name, doc);
        }
        docs
    })
}

/// The arguments at the start of `text`, up to its end or a closing bracket.
fn read_arguments(text: &mut &'static str) -> Vec<Argument> {
    let mut arguments = Vec::new();
    loop {
        *text = text.trim_start();
        if text.is_empty() {
            return arguments;
        }
        if let Some(rest) = text.strip_prefix(')') {
            *text = rest;
            return arguments;
        }
        arguments.push(read_argument(text));
    }
}

fn read_argument(text: &mut &'static str) -> Argument {
    let (name, rest) = text.split_once(':').expect("a type follows the name");
    let letter = rest.chars().next();
    let kind = KINDS.iter().find(|(of, _)| Some(*of) == letter).expect("a known type").1;
    *text = &rest[1..];
    let mut argument = Argument { name, kind, ..Argument::default() };
    if kind == "pure-token" {
        argument.token = Some(name.to_ascii_uppercase());
    }
    while let Some(mark) = text.chars().next().filter(|mark| !matches!(mark, ' ' | ')')) {
        *text = &text[1..];
        match mark {
            '@' => argument.key_spec = take(text, |c| c.is_ascii_digit()).parse().ok(),
            '=' => argument.shown = Some(take_braced(text)),
            '!' => argument.token = Some(take_braced(text).to_owned()),
            '?' => argument.flags.push("optional"),
            '*' => argument.flags.push("multiple"),
            '+' => argument.flags.push("multiple_token"),
            '^' => argument.since = Some(take(text, |c| c.is_ascii_digit() || c == '.')),
            '~' => argument.deprecated_since = Some(take(text, |c| c.is_ascii_digit() || c == '.')),
            '(' => argument.parts = read_arguments(text),
            other => panic!("no mark of an argument: {other} before {text}"),
        }
    }
    argument
}

fn take(text: &mut &'static str, is_part: impl Fn(char) -> bool) -> &'static str {
    let (part, rest) = text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()));
    *text = rest;
    part
}

fn take_braced(text: &mut &'static str) -> &'static str {
    let (part, rest) = text[1..].split_once('}').expect("a closing brace");
    *text = rest;
    part
}

fn reply_doc(row: &Row, reply: &mut Reply<'_>) {
    let command = row.command;
    reply.bulk(command.name.as_bytes());
    let doc = docs().get(command.name);
    let mut fields = vec![("summary", command.doc)];
    let is_module = command.flags.has(Flags::MODULE);
    if let Some(doc) = doc {
        fields.extend([("since", doc.since), ("group", doc.group)]);
        fields.extend((doc.complexity != "-").then_some(("complexity", doc.complexity)));
    } else if is_module {
        fields.extend([("group", "module"), ("module", "vectorset")]);
    }
    let is_flagged = doc.is_some_and(|doc| !doc.flags.is_empty());
    let has_arguments = doc.is_some_and(|doc| !doc.arguments.is_empty());
    let n_deprecation = if doc.is_some_and(|doc| doc.deprecated_since.is_some()) { 2 } else { 0 };
    let subcommands =
        if row.subcommands.is_empty() || is_hidden_container(row) { &[] } else { &row.subcommands[..] };
    let n_others = [is_flagged, has_arguments, !subcommands.is_empty()].into_iter().filter(|is| *is).count();
    reply.map(fields.len() + n_others + n_deprecation);
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if let Some(doc) = doc {
        if is_flagged {
            reply.bulk(b"doc_flags");
            reply.set(doc.flags.len());
            doc.flags.iter().for_each(|flag| reply.simple(flag));
        }
        if let Some(since) = doc.deprecated_since {
            reply.bulk(b"deprecated_since");
            reply.bulk(since.as_bytes());
            reply.bulk(b"replaced_by");
            reply.bulk(doc.replaced_by.as_bytes());
        }
        if has_arguments {
            reply.bulk(b"arguments");
            reply_arguments(&doc.arguments, reply);
        }
    }
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        subcommands.iter().for_each(|(_, id)| reply_doc(TABLE.row(*id), reply));
    }
}

fn is_hidden_container(row: &Row) -> bool {
    row.subcommands.iter().any(|(_, id)| is_hidden(TABLE.row(*id)))
}

fn reply_arguments(arguments: &[Argument], reply: &mut Reply<'_>) {
    reply.array(arguments.len());
    for argument in arguments {
        let is_compound = matches!(argument.kind, "oneof" | "block");
        let shown = (!is_compound).then(|| argument.shown.unwrap_or(argument.name));
        let texts = [
            ("name", Some(argument.name)),
            ("type", Some(argument.kind)),
            ("display_text", shown),
            ("token", argument.token.as_deref()),
            ("since", argument.since),
            ("deprecated_since", argument.deprecated_since),
        ];
        let n_texts = texts.iter().filter(|(_, text)| text.is_some()).count();
        let rest = [argument.key_spec.is_some(), !argument.flags.is_empty(), !argument.parts.is_empty()];
        reply.map(n_texts + rest.iter().filter(|has| **has).count());
        for (name, text) in texts {
            if name == "token"
                && let Some(key_spec) = argument.key_spec
            {
                reply.bulk(b"key_spec_index");
                reply.integer(key_spec);
            }
            if let Some(text) = text {
                reply.bulk(name.as_bytes());
                reply.bulk(text.as_bytes());
            }
        }
        if !argument.flags.is_empty() {
            reply.bulk(b"flags");
            reply.set(argument.flags.len());
            argument.flags.iter().for_each(|flag| reply.simple(flag));
        }
        if !argument.parts.is_empty() {
            reply.bulk(b"arguments");
            reply_arguments(&argument.parts, reply);
        }
    }
}

/// The group and the age of a command, for tables of what is supported.
pub fn group_and_since(name: &str) -> Option<(&'static str, &'static str)> {
    docs().get(name).map(|doc| (doc.group, doc.since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read() {
        let n_commands = TEXT.lines().filter(|line| !line.starts_with(['#', ' '])).count();
        assert_eq!(docs().len(), n_commands);
    }

    #[test]
    fn an_argument_with_everything() {
        let mut text = "limit:o={a b}!{LIMIT}?*+^1.2(key:k@1~3.0 x:t) rest:s";
        let arguments = read_arguments(&mut text);
        let key = Argument {
            name: "key",
            kind: "key",
            key_spec: Some(1),
            deprecated_since: Some("3.0"),
            ..Argument::default()
        };
        let x = Argument { name: "x", kind: "pure-token", token: Some("X".into()), ..Argument::default() };
        let limit = Argument {
            name: "limit",
            kind: "oneof",
            shown: Some("a b"),
            token: Some("LIMIT".into()),
            flags: vec!["optional", "multiple", "multiple_token"],
            since: Some("1.2"),
            parts: vec![key, x],
            ..Argument::default()
        };
        assert_eq!(arguments, [limit, Argument { name: "rest", kind: "string", ..Argument::default() }]);
    }
}
