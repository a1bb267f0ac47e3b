//! Which shards a script may touch, read from its text before it runs.
//!
//! The text proves that a script keeps to its declared keys if every `redis.call` and `redis.pcall` names a command by a literal, and
//! every argument that is a key of that command is `KEYS[...]`, a local that is never anything else, or comes from `unpack(KEYS)`;
//! and if `KEYS` is only ever read. What an index is does not matter: every element of `KEYS` is a declared key.
//! It is a reading of words, not of meaning, and it errs on one side: whatever is not one of the shapes below needs all shards
//! (aliases of `redis`, `loadstring`, `_G`, names computed, commands whose keys depend on an option, commands without keys that look
//! at all of them).

use hashbrown::{HashMap, HashSet};
use skerry_resp::request::ArgRange;

use super::registry::Reach;
use super::tokens::{Token, tokens};
use crate::args::Args;
use crate::command::{Begin, Command, Find, Handler, KeySpec};
use crate::commands::{Found, TABLE};

/// What the text proves; all shards if it proves nothing.
pub(super) fn reach_of(code: &[u8]) -> Reach {
    let is_proved =
        tokens(code).is_some_and(|tokens| Text::new(&tokens).is_some_and(|text| text.keeps_to_keys()));
    if is_proved { Reach::Declared } else { Reach::All }
}

/// The same of a library: of each of its functions.
///
/// What EVAL has in `KEYS` a function has in its first parameter. So the names of these parameters are read as `KEYS`; if one of them
/// is bound anywhere else, nothing is proved. A library outlives its calls: a function within a function may be called later, when
/// other keys are declared, so a library that has one is not looked into.
pub(super) fn reach_of_library(code: &[u8]) -> Reach {
    let is_proved = tokens(code).is_some_and(|tokens| {
        as_script(&tokens).is_some_and(|tokens| Text::new(&tokens).is_some_and(|text| text.keeps_to_keys()))
    });
    if is_proved { Reach::Declared } else { Reach::All }
}

/// A library's text as that of a script which has its keys in `KEYS`.
fn as_script<'a>(tokens: &[Token<'a>]) -> Option<Vec<Token<'a>>> {
    const KEYS: Token<'_> = Token::Name(b"KEYS");
    if has_nested_function(tokens) {
        return None;
    }
    let parameters = first_parameters(tokens)?;
    let names: HashSet<&[u8]> = parameters
        .iter()
        .filter_map(|at| match tokens[*at] {
            Token::Name(name) => Some(name),
            _ => None,
        })
        .collect();
    let mut read = tokens.to_vec();
    for (at, token) in read.iter_mut().enumerate() {
        let is_field = at > 0 && matches!(tokens[at - 1], Token::Symbol(b"." | b":"));
        let Token::Name(name) = *token else { continue };
        if parameters.contains(&at) {
            *token = Token::Name(b"_");
        } else if is_field {
        } else if names.contains(name) {
            *token = KEYS;
        } else if name == b"KEYS" {
            return None;
        }
    }
    Some(read)
}

fn has_nested_function(tokens: &[Token<'_>]) -> bool {
    let mut open: Vec<&[u8]> = Vec::new();
    for token in tokens {
        match *token {
            Token::Keyword(word @ (b"function" | b"if" | b"do" | b"repeat")) => {
                if word == b"function" && open.contains(&b"function".as_slice()) {
                    return true;
                }
                open.push(word);
            }
            Token::Keyword(b"end" | b"until") => {
                open.pop();
            }
            _ => {}
        }
    }
    false
}

/// Where the first parameters of the functions stand that the library registers.
fn first_parameters(tokens: &[Token<'_>]) -> Option<HashSet<usize>> {
    let callbacks = callbacks(tokens)?;
    let mut parameters = HashSet::new();
    for callback in &callbacks {
        let function = match tokens[*callback] {
            Token::Keyword(b"function") => *callback,
            Token::Name(name) => only_definition(tokens, name, &callbacks)?,
            _ => return None,
        };
        // `function (` or `function name (`
        let open = (function + 1..function + 3).find(|at| tokens.get(*at) == Some(&symbol(b"(")))?;
        if matches!(tokens.get(open + 1), Some(Token::Name(_))) {
            parameters.insert(open + 1);
        }
    }
    Some(parameters)
}

/// Where the callbacks of all registrations begin: a function, or the name of one.
fn callbacks(tokens: &[Token<'_>]) -> Option<HashSet<usize>> {
    const WORD: Token<'_> = Token::Name(b"register_function");
    let mut callbacks = HashSet::new();
    for at in (0..tokens.len()).filter(|at| tokens[*at] == WORD) {
        let is_of_redis = at >= 2
            && tokens[at - 2..at] == [Token::Name(b"redis"), symbol(b".")]
            && (at < 3 || !matches!(tokens[at - 3], Token::Symbol(b"." | b":")));
        if !is_of_redis {
            return None;
        }
        let (callback, ends): (usize, &[&[u8]]) = match &tokens[at + 1..] {
            [Token::Symbol(b"("), Token::Text(_), Token::Symbol(b","), ..] => (at + 4, &[b")"]),
            [Token::Symbol(b"{"), ..] => (named_callback(tokens, at + 1)?, &[b",", b";", b"}"]),
            [Token::Symbol(b"("), Token::Symbol(b"{"), ..] => {
                (named_callback(tokens, at + 2)?, &[b",", b";", b"}"])
            }
            _ => return None,
        };
        let is_whole = match tokens.get(callback)? {
            Token::Keyword(b"function") => true,
            Token::Name(_) => ends.iter().any(|end| tokens.get(callback + 1) == Some(&symbol(end))),
            _ => false,
        };
        if !is_whole {
            return None;
        }
        callbacks.insert(callback);
    }
    (!callbacks.is_empty()).then_some(callbacks)
}

/// The value of `callback` in the table that opens at `open`.
fn named_callback(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let (mut depth, mut blocks) = (0u32, 0u32);
    for at in open..tokens.len() {
        match tokens[at] {
            Token::Symbol(b"{" | b"(" | b"[") => depth += 1,
            Token::Symbol(b"}" | b")" | b"]") => depth -= 1,
            Token::Keyword(b"function" | b"if" | b"do" | b"repeat") => blocks += 1,
            Token::Keyword(b"end" | b"until") => blocks = blocks.checked_sub(1)?,
            Token::Name(b"callback")
                if depth == 1 && blocks == 0 && tokens.get(at + 1) == Some(&symbol(b"=")) =>
            {
                return Some(at + 2);
            }
            _ => {}
        }
        if depth == 0 {
            return None;
        }
    }
    None
}

/// Where the function `name` is defined, if that is once, as a local, and it is nothing but a callback.
fn only_definition(tokens: &[Token<'_>], name: &[u8], callbacks: &HashSet<usize>) -> Option<usize> {
    const LOCAL: Token<'_> = Token::Keyword(b"local");
    const FUNCTION: Token<'_> = Token::Keyword(b"function");
    let mut definition = None;
    for at in (0..tokens.len()).filter(|at| tokens[*at] == Token::Name(name) && !callbacks.contains(at)) {
        let found = match (&tokens[..at], &tokens[at + 1..]) {
            ([.., LOCAL, FUNCTION], _) => at - 1,
            ([.., LOCAL], [Token::Symbol(b"="), FUNCTION, ..]) => at + 2,
            _ => return None,
        };
        if definition.replace(found).is_some() {
            return None;
        }
    }
    definition
}

/// A text longer than this is not looked into.
const MAX_TOKENS: usize = 20_000;
/// Names by which a script can reach what its text does not show.
const DARK: &[&[u8]] =
    &[b"loadstring", b"load", b"_G", b"setfenv", b"getfenv", b"require", b"module", b"newproxy"];
/// Functions that read `KEYS` when they are given it.
const READERS: &[&[u8]] = &[b"ipairs", b"pairs", b"unpack", b"next"];
/// The same of libraries.
const LIBRARY_READERS: &[(&[u8], &[u8])] =
    &[(b"table", b"concat"), (b"cjson", b"encode"), (b"cmsgpack", b"pack"), (b"table", b"getn")];

const LIBRARIES: &[&[u8]] = &[b"redis", b"KEYS", b"table", b"cjson", b"cmsgpack"];

struct Text<'a> {
    tokens: &'a [Token<'a>],
    /// By opening bracket of any kind, where it closes.
    closes: HashMap<usize, usize>,
    /// By closing bracket of any kind, where it opens.
    opens: HashMap<usize, usize>,
    /// Locals that are always a declared key.
    keys: HashSet<&'a [u8]>,
    /// Locals that are `redis.call` or `redis.pcall`.
    calls: HashSet<&'a [u8]>,
}

const fn symbol(text: &[u8]) -> Token<'_> {
    Token::Symbol(text)
}

impl<'a> Text<'a> {
    fn new(tokens: &'a [Token<'a>]) -> Option<Self> {
        if tokens.len() > MAX_TOKENS {
            return None;
        }
        let (mut closes, mut opens) = (HashMap::new(), HashMap::new());
        let mut open: Vec<(usize, &[u8])> = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                Token::Symbol(b"(") => open.push((at, b")")),
                Token::Symbol(b"[") => open.push((at, b"]")),
                Token::Symbol(b"{") => open.push((at, b"}")),
                Token::Symbol(closing @ (b")" | b"]" | b"}")) => {
                    let (from, expected) = open.pop()?;
                    if expected != *closing {
                        return None;
                    }
                    closes.insert(from, at);
                    opens.insert(at, from);
                }
                _ => {}
            }
        }
        let mut text = Self { tokens, closes, opens, keys: HashSet::new(), calls: HashSet::new() };
        text.find_locals()?;
        Some(text)
    }

    fn at(&self, index: usize) -> Option<Token<'a>> {
        self.tokens.get(index).copied()
    }

    fn is_symbol(&self, index: usize, text: &[u8]) -> bool {
        self.at(index) == Some(symbol(text))
    }

    fn name(&self, index: usize) -> Option<&'a [u8]> {
        match self.at(index)? {
            Token::Name(name) => Some(name),
            _ => None,
        }
    }

    /// Whether the name at `index` is one that a table gives a meaning.
    fn is_field(&self, index: usize) -> bool {
        index > 0 && (self.is_symbol(index - 1, b".") || self.is_symbol(index - 1, b":"))
    }

    fn keyword(&self, index: usize) -> Option<&'a [u8]> {
        match self.at(index)? {
            Token::Keyword(word) => Some(word),
            _ => None,
        }
    }

    /// Whether an expression that ends before `index` goes no further.
    fn is_expression_end(&self, index: usize) -> bool {
        match self.at(index) {
            None | Some(Token::Name(_) | Token::Symbol(b";" | b",")) => true,
            Some(Token::Keyword(word)) => !matches!(word, b"and" | b"or"),
            _ => false,
        }
    }

    /// Behind `KEYS[...]` that begins at `index`.
    fn behind_key(&self, index: usize) -> Option<usize> {
        if self.name(index) != Some(b"KEYS") || self.is_field(index) || !self.is_symbol(index + 1, b"[") {
            return None;
        }
        Some(self.closes.get(&(index + 1))? + 1)
    }

    /// Behind `redis.call` or `redis.pcall` that begins at `index`.
    fn behind_call(&self, index: usize) -> Option<usize> {
        let is_call = self.name(index) == Some(b"redis")
            && !self.is_field(index)
            && self.is_symbol(index + 1, b".")
            && matches!(self.name(index + 2), Some(b"call" | b"pcall"));
        is_call.then_some(index + 3)
    }

    /// Finds the locals that are keys or calls: those that are bound to nothing else anywhere.
    fn find_locals(&mut self) -> Option<()> {
        let mut keys: HashSet<&[u8]> = HashSet::new();
        let mut calls: HashSet<&[u8]> = HashSet::new();
        let mut others: HashSet<&[u8]> = HashSet::new();
        for at in 0..self.tokens.len() {
            match self.at(at)? {
                Token::Keyword(b"local") if self.keyword(at + 1) != Some(b"function") => {
                    self.read_local(at, &mut keys, &mut calls, &mut others)?;
                }
                Token::Keyword(b"function") => self.read_function(at, &mut others)?,
                Token::Keyword(b"for") => self.read_for(at, &mut keys, &mut others)?,
                Token::Symbol(b"=") => self.read_assignment(at, &mut others)?,
                _ => {}
            }
        }
        // What these mean is taken for granted.
        let is_taken = |name: &&&[u8]| READERS.contains(*name) || LIBRARIES.contains(*name);
        if keys.iter().chain(&calls).chain(&others).any(|name| is_taken(&name)) {
            return None;
        }
        let is_twofold = |name: &&&[u8]| !others.contains(**name);
        self.keys = keys.iter().filter(|name| is_twofold(name) && !calls.contains(**name)).copied().collect();
        self.calls =
            calls.iter().filter(|name| is_twofold(name) && !keys.contains(**name)).copied().collect();
        // A name that was a call and is something else as well cannot be followed.
        (self.calls.len() == calls.len()).then_some(())
    }

    /// `local a, b = KEYS[1], KEYS[2]`
    fn read_local(
        &self,
        at: usize,
        keys: &mut HashSet<&'a [u8]>,
        calls: &mut HashSet<&'a [u8]>,
        others: &mut HashSet<&'a [u8]>,
    ) -> Option<()> {
        let mut names = vec![self.name(at + 1)?];
        let mut next = at + 2;
        while self.is_symbol(next, b",") {
            names.push(self.name(next + 1)?);
            next += 2;
        }
        let mut names = names.into_iter();
        if self.is_symbol(next, b"=") {
            next += 1;
            for name in names.by_ref() {
                let end = match (self.behind_key(next), self.behind_call(next)) {
                    (Some(end), _) if self.is_expression_end(end) => {
                        keys.insert(name);
                        end
                    }
                    (_, Some(end)) if self.is_expression_end(end) => {
                        calls.insert(name);
                        end
                    }
                    _ => {
                        others.insert(name);
                        break;
                    }
                };
                if !self.is_symbol(end, b",") {
                    break;
                }
                next = end + 1;
            }
        }
        others.extend(names);
        Some(())
    }

    /// A function's name and parameters.
    fn read_function(&self, at: usize, others: &mut HashSet<&'a [u8]>) -> Option<()> {
        let mut next = at + 1;
        if let Some(name) = self.name(next) {
            others.insert(name);
            next += 1;
            while self.is_symbol(next, b".") || self.is_symbol(next, b":") {
                next += 2;
            }
        }
        if !self.is_symbol(next, b"(") {
            return None;
        }
        let close = *self.closes.get(&next)?;
        others.extend((next..close).filter_map(|index| self.name(index)));
        Some(())
    }

    /// `for _, key in ipairs(KEYS) do` binds a key; any other `for` binds others.
    fn read_for(
        &self,
        at: usize,
        keys: &mut HashSet<&'a [u8]>,
        others: &mut HashSet<&'a [u8]>,
    ) -> Option<()> {
        let over_keys = [
            symbol(b","),
            Token::Name(b""),
            Token::Keyword(b"in"),
            Token::Name(b"ipairs"),
            symbol(b"("),
            Token::Name(b"KEYS"),
            symbol(b")"),
            Token::Keyword(b"do"),
        ];
        others.insert(self.name(at + 1)?);
        let is_over_keys = over_keys
            .iter()
            .enumerate()
            .all(|(nth, token)| nth == 1 || self.at(at + 2 + nth) == Some(*token));
        if is_over_keys {
            keys.insert(self.name(at + 3)?);
            return Some(());
        }
        let mut next = at + 2;
        while self.is_symbol(next, b",") {
            others.insert(self.name(next + 1)?);
            next += 2;
        }
        Some(())
    }

    /// An assignment binds what stands before it: of a list, every name back to where a statement may begin.
    fn read_assignment(&self, at: usize, others: &mut HashSet<&'a [u8]>) -> Option<()> {
        let mut before = at.checked_sub(1)?;
        if let Some(name) = self.name(before)
            && !self.is_field(before)
            && !(before > 0 && self.is_symbol(before - 1, b","))
        {
            let is_local = before > 0 && self.keyword(before - 1) == Some(b"local");
            if !is_local {
                others.insert(name);
            }
            return Some(());
        }
        let is_single = self.is_single_target(before)
            || !self.tokens[..at]
                .iter()
                .rev()
                .take_while(|token| !is_statement_edge(token))
                .any(|t| *t == symbol(b","));
        if is_single {
            // `t.x = ...` or `t[i] = ...`: which table that is, `is_read_only` looks at.
            return Some(());
        }
        loop {
            match self.at(before)? {
                // A list of locals is read where it begins.
                Token::Keyword(b"local") => return Some(()),
                token if is_statement_edge(&token) => return Some(()),
                Token::Name(b"KEYS") => return None,
                _ => {}
            }
            // In a list of locals these are no assignments: `read_local` has decided.
            if let Some(name) = self.name(before)
                && !self.is_field(before)
                && !self.is_in_local_list(before)
            {
                others.insert(name);
            }
            before = match before.checked_sub(1) {
                Some(before) => before,
                None => return Some(()),
            };
        }
    }

    /// Whether what ends at `last` is `t.x` or `t[i]`, however deep, with no comma before: the only target of its assignment, even if
    /// nothing but a space parts it from the statement before.
    fn is_single_target(&self, last: usize) -> bool {
        let mut at = last;
        loop {
            if let Some(open) = self.opens.get(&at).filter(|_| self.is_symbol(at, b"]")) {
                at = match open.checked_sub(1) {
                    Some(at) => at,
                    None => return false,
                };
            } else if self.name(at).is_none() {
                return false;
            } else if at >= 2 && self.is_symbol(at - 1, b".") {
                at -= 2;
            } else {
                return at == 0 || !(self.is_symbol(at - 1, b",") || self.is_symbol(at - 1, b":"));
            }
        }
    }

    /// Whether the name at `index` stands in `local a, b, c =`.
    fn is_in_local_list(&self, index: usize) -> bool {
        let mut at = index;
        while at >= 2 && self.is_symbol(at - 1, b",") && self.name(at - 2).is_some() {
            at -= 2;
        }
        at > 0 && matches!(self.keyword(at - 1), Some(b"local" | b"for"))
    }

    fn keeps_to_keys(&self) -> bool {
        (0..self.tokens.len()).all(|at| match self.at(at) {
            Some(Token::Name(name)) if !self.is_field(at) => self.is_harmless(name, at),
            _ => true,
        })
    }

    /// Whether the name at `at` is used in a way that is understood.
    fn is_harmless(&self, name: &'a [u8], at: usize) -> bool {
        if DARK.contains(&name) {
            return false;
        }
        if name == b"KEYS" {
            return self.is_read_only(at);
        }
        if name == b"redis" {
            if let Some(end) = self.behind_call(at) {
                let is_alias = at > 0 && self.is_alias(at);
                return is_alias || self.is_symbol(end, b"(") && self.is_good_call(end);
            }
            return self.is_symbol(at + 1, b".") && self.name(at + 2).is_some();
        }
        if self.calls.contains(name) {
            let is_declared = at > 0 && self.is_in_local_list(at);
            return is_declared || self.is_symbol(at + 1, b"(") && self.is_good_call(at + 1);
        }
        if READERS.contains(&name) {
            return self.is_symbol(at + 1, b"(") && !(at > 0 && self.keyword(at - 1) == Some(b"function"));
        }
        true
    }

    /// Whether `redis.call` at `at` is the value of a local that `find_locals` knows.
    fn is_alias(&self, at: usize) -> bool {
        // Back over the values before it to the `=`, and over the names to `local`.
        let mut before = at - 1;
        while self.is_symbol(before, b",") {
            let Some(at_value) = before.checked_sub(3) else { return false };
            if self.behind_call(at_value) != Some(before) {
                return false;
            }
            let Some(next) = at_value.checked_sub(1) else { return false };
            before = next;
        }
        if !self.is_symbol(before, b"=") || before == 0 {
            return false;
        }
        let end = at + 3;
        self.is_expression_end(end) && self.name(before - 1).is_some() && self.is_in_local_list(before - 1)
    }

    /// Whether `KEYS` at `at` is only read.
    fn is_read_only(&self, at: usize) -> bool {
        if let Some(end) = self.behind_key(at) {
            return !self.is_symbol(end, b"=");
        }
        if at > 0 && self.is_symbol(at - 1, b"#") {
            return !self.is_symbol(at + 1, b".") && !self.is_symbol(at + 1, b":");
        }
        if at < 2 || !self.is_symbol(at - 1, b"(") {
            return false;
        }
        let is_ended = self.is_symbol(at + 1, b")") || self.is_symbol(at + 1, b",");
        let Some(function) = self.name(at - 2) else { return false };
        if !self.is_field(at - 2) {
            // The loops' functions hand out the table itself: only to a loop.
            let is_loop = at >= 3
                && self.keyword(at - 3) == Some(b"in")
                && self.is_symbol(at + 1, b")")
                && self.keyword(at + 2) == Some(b"do");
            let hands_out = matches!(function, b"ipairs" | b"pairs");
            return is_ended && READERS.contains(&function) && (is_loop || !hands_out);
        }
        let library = if at >= 4 { self.name(at - 4) } else { None };
        let is_whole = at < 5 || !self.is_field(at - 4);
        is_ended && is_whole && library.is_some_and(|library| LIBRARY_READERS.contains(&(library, function)))
    }

    /// The arguments of the call whose bracket opens at `open`: first and last token of each.
    fn arguments(&self, open: usize) -> Option<Vec<(usize, usize)>> {
        let close = *self.closes.get(&open)?;
        let mut arguments = Vec::new();
        let (mut start, mut at) = (open + 1, open + 1);
        while at < close {
            if let Some(end) = self.closes.get(&at) {
                at = end + 1;
                continue;
            }
            // A function's own commas are no arguments of the call.
            if self.keyword(at) == Some(b"function") {
                return None;
            }
            if self.is_symbol(at, b",") {
                arguments.push((start, at));
                start = at + 1;
            }
            at += 1;
        }
        if start < close {
            arguments.push((start, close));
        }
        Some(arguments)
    }

    /// Whether the call whose bracket opens at `open` names a command and touches declared keys alone.
    fn is_good_call(&self, open: usize) -> bool {
        let Some(arguments) = self.arguments(open) else { return false };
        let Some(command) = self.command(&arguments) else { return false };
        let is_followed = matches!(
            command.handler,
            Handler::Shard(_) | Handler::Any(_) | Handler::Plain(_) | Handler::Conn(_)
        );
        is_followed
            && command.hidden_key.is_none()
            && command.keys.iter().all(|spec| self.fits(spec, &arguments))
    }

    fn literal(&self, argument: (usize, usize)) -> Option<&'a [u8]> {
        match self.at(argument.0)? {
            Token::Text(Some(text)) if argument.1 == argument.0 + 1 => Some(text),
            _ => None,
        }
    }

    fn command(&self, arguments: &[(usize, usize)]) -> Option<&'static Command> {
        let name = self.literal(*arguments.first()?)?;
        let mut text = name.to_vec();
        let mut ranges = vec![ArgRange { start: 0, end: text.len() as u32 }];
        if let Some(second) = arguments.get(1).and_then(|argument| self.literal(*argument)) {
            let start = text.len() as u32;
            text.extend_from_slice(second);
            ranges.push(ArgRange { start, end: text.len() as u32 });
        }
        match TABLE.find(Args::new(&text, &ranges)) {
            Found::Row(row) => Some(row.command),
            _ => None,
        }
    }

    /// Whether the argument is one declared key.
    fn is_key(&self, argument: (usize, usize)) -> bool {
        if self.behind_key(argument.0) == Some(argument.1) {
            return true;
        }
        let name = self.name(argument.0);
        argument.1 == argument.0 + 1 && name.is_some_and(|name| self.keys.contains(name))
    }

    /// Whether the argument is all declared keys.
    fn is_all_keys(&self, argument: (usize, usize)) -> bool {
        self.tokens[argument.0..argument.1]
            == [Token::Name(b"unpack"), symbol(b"("), Token::Name(b"KEYS"), symbol(b")")]
    }

    /// Whether the argument may be several values, or none: a call or `...` at the end.
    fn is_open(&self, argument: (usize, usize)) -> bool {
        let last = self.tokens[argument.1 - 1];
        matches!(last, Token::Symbol(b")" | b"..." | b"}") | Token::Text(_)) && argument.1 - argument.0 > 1
            || last == symbol(b"...")
    }

    /// Whether all arguments that a specification finds are declared keys.
    fn fits(&self, spec: &KeySpec, arguments: &[(usize, usize)]) -> bool {
        let Begin::Index(begin) = spec.begin else { return false };
        let begin = begin as usize;
        let n = arguments.len();
        // The last argument may stand for any number of them.
        let is_open = arguments.last().is_some_and(|last| self.is_open(*last));
        let n_fixed = if is_open { n - 1 } else { n };
        let is_open_good = !is_open || self.is_all_keys(arguments[n - 1]);
        let all_keys = |range: std::ops::RangeInclusive<usize>, step: usize| {
            range.step_by(step).take_while(|at| *at < n_fixed).all(|at| self.is_key(arguments[at]))
        };
        match spec.find {
            Find::Range { last, step, .. } if last >= 0 => {
                let last = begin + last as usize;
                all_keys(begin..=last, step as usize) && (last < n_fixed || is_open_good)
            }
            Find::Range { last, step, limit: 0 } if step >= 1 => {
                let n_behind = last.unsigned_abs() as usize;
                // Which of them are keys is known only if their number is, or if all are.
                match is_open {
                    true => is_open_good && (begin..n_fixed).all(|at| self.is_key(arguments[at])),
                    false if n >= n_behind => all_keys(begin..=n - n_behind, step as usize),
                    false => true,
                }
            }
            Find::KeyNum { num_index, first, step } => {
                let at = begin + num_index as usize;
                let Some(argument) = arguments.get(at).filter(|_| at < n_fixed) else { return !is_open };
                let counted = match self.at(argument.0) {
                    Some(Token::Number(digits) | Token::Text(Some(digits)))
                        if argument.1 == argument.0 + 1 =>
                    {
                        skerry_resp::number::parse_u64(digits)
                    }
                    _ => None,
                };
                let first = begin + first as usize;
                match counted {
                    Some(0) => true,
                    Some(count) if count <= n as u64 => {
                        let last = first + (count as usize - 1) * step as usize;
                        all_keys(first..=last, step as usize) && (last < n_fixed || is_open_good)
                    }
                    // However many there are, all that follows are keys.
                    _ => is_open_good && (first..n_fixed).all(|at| self.is_key(arguments[at])),
                }
            }
            _ => false,
        }
    }
}

/// Words behind which, or before which, a statement begins.
fn is_statement_edge(token: &Token<'_>) -> bool {
    match token {
        Token::Keyword(word) => {
            !matches!(*word, b"and" | b"or" | b"not" | b"nil" | b"true" | b"false" | b"local")
        }
        Token::Symbol(text) => matches!(*text, b";" | b"{"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_declared(text: &str) -> bool {
        reach_of(text.as_bytes()) == Reach::Declared
    }

    #[test]
    fn proves_what_keeps_to_its_keys() {
        for text in [
            "return 1",
            "return redis.call('get', KEYS[1])",
            "return redis.call(\"GET\", KEYS[tonumber(ARGV[1])])",
            "local k = KEYS[1] return redis.call('incrby', k, ARGV[1])",
            "local a, b = KEYS[1], KEYS[2]\nredis.call('rename', a, b)",
            "local rcall = redis.call\nlocal v = rcall('get', KEYS[1]) return v",
            "for i = 1, #KEYS do redis.call('del', KEYS[i]) end",
            "for _, key in ipairs(KEYS) do redis.pcall('del', key) end",
            "return redis.call('del', unpack(KEYS))",
            "return redis.call('mset', KEYS[1], 'x', KEYS[2], ARGV[1])",
            "return redis.call('zunionstore', KEYS[1], 2, KEYS[2], KEYS[3])",
            "return redis.call('zadd', KEYS[1], unpack(ARGV))",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "-- redis.call('get', 'x')\nreturn redis.call('ping')",
            "local t = {redis.call('time')[1], redis.call('get', KEYS[1])} return t",
            "return redis.call('publish', ARGV[1], 'x')",
            "local x, y = 1, 2 x, y = y, x return redis.call('set', KEYS[1], x)",
            "return redis.call('object', 'encoding', KEYS[1])",
            "return {redis.error_reply('x'), table.concat(KEYS, ',')}",
            "local r = {} r[1] = redis.call('get', KEYS[1]) r[2] = redis.call('get', KEYS[2]) return r",
            "local r = {a = {}}\nr.a[1] = redis.call('mget', KEYS[1], KEYS[2])\nr.a.b = redis.call('get', KEYS[2]) return r.a",
        ] {
            assert!(is_declared(text), "{text}");
        }
    }

    #[test]
    fn leaves_open_what_it_does_not_see() {
        for text in [
            "return redis.call('get', 'x')",
            "return redis.call('get', ARGV[1])",
            "return redis.call('get', KEYS[1] .. ':x')",
            "return redis.call(ARGV[1], KEYS[1])",
            "KEYS[1] = 'x' return redis.call('get', KEYS[1])",
            "local t = KEYS t[1] = 'x' return redis.call('get', KEYS[1])",
            "table.insert(KEYS, 'x') return redis.call('get', KEYS[2])",
            "local x x, KEYS[1] = 1, 'x' return redis.call('get', KEYS[1])",
            "KEYS[1], KEYS[2] = 'x', 'y' return redis.call('get', KEYS[1])",
            "local k = KEYS[1] k = 'x' return redis.call('get', k)",
            "local k = KEYS[1] local j j, k = 1, 'x' return redis.call('get', k)",
            "local k = KEYS[1] .. 'x' return redis.call('get', k)",
            "local k = KEYS[1] return (function(k) return redis.call('get', k) end)('x')",
            "local k = KEYS[1] for k in pairs(ARGV) do redis.call('get', k) end",
            "local r = redis return r.call('get', KEYS[1])",
            "return redis['call']('get', 'x')",
            "return pcall(redis.call, 'get', 'x')",
            "local c = redis.call c = error return c('get', 'x')",
            "local c = redis.call local f = c return f('get', 'x')",
            "return loadstring('return redis.call(\"get\", \"x\")')()",
            "return _G.redis.call('get', 'x')",
            "return redis.call('keys', '*')",
            "return redis.call('sort', KEYS[1], 'by', 'w_*')",
            "return redis.call('dbsize')",
            "return redis.call('mset', KEYS[1], 'x', 'y', 'z')",
            "return redis.call('mset', unpack(ARGV))",
            "return redis.call('zunionstore', KEYS[1], 2, KEYS[2], 'x')",
            "return redis.call('zunionstore', KEYS[1], ARGV[1], KEYS[2], 'x')",
            "return redis.call('del', KEYS[1], unpack(ARGV))",
            "local unpack = function() return 'x' end return redis.call('del', unpack(KEYS))",
            "local function ipairs() end for _, key in ipairs(KEYS) do redis.call('del', key) end",
            "local KEYS = {'x'} return redis.call('get', KEYS[1])",
            "local function f(KEYS) return redis.call('get', KEYS[1]) end return f({'x'})",
            "return redis.call 'dbsize'",
            "return redis.call('get', (KEYS[1]))",
            "return redis.call('g\\101t', 'x')",
            "local redis = {call = error} return 1",
            "return redis.call('get', f(function(a, b) end), KEYS[1])",
            "local k, l = KEYS[1] return redis.call('get', l)",
            "local k = KEYS[1]:sub(1) return redis.call('get', k)",
            "local k = KEYS[1] or 'x' return redis.call('get', k)",
            "local _, t = pairs(KEYS) t[1] = 'x' return redis.call('get', KEYS[1])",
            "local t = select(2, ipairs(KEYS)) t[1] = 'x' return redis.call('get', KEYS[1])",
            "local table = {concat = function(t) t[1] = 'x' end} table.concat(KEYS) return redis.call('get', KEYS[1])",
            "function k() end local k = KEYS[1] return redis.call('get', k)",
            "local k, r = KEYS[1], {} k, r[1] = 'x', 1 return redis.call('get', k)",
            "local k, r = KEYS[1], {} print(1, 2) k, r.a[1] = 'x', 1 return redis.call('get', k)",
            "local r = {} r[1] = redis.call('get', KEYS[1]) KEYS[1] = 'x' return redis.call('get', KEYS[1])",
        ] {
            assert!(!is_declared(text), "{text}");
        }
    }
    fn library_is_declared(text: &str) -> bool {
        reach_of_library(text.as_bytes()) == Reach::Declared
    }

    #[test]
    fn proves_libraries_whose_functions_keep_to_their_keys() {
        for text in [
            "redis.register_function('f', function(keys, args) return redis.call('get', keys[1]) end)",
            "redis.register_function('f', function(KEYS, ARGV) return redis.call('get', KEYS[1]) end)",
            "redis.register_function{function_name='f', callback=function(k) local x = k[1] return redis.call('del', x) end}",
            "redis.register_function({callback=function(k) return redis.call('del', unpack(k)) end, function_name='f'})",
            "local function f(keys, args) return redis.call('set', keys[1], args[1]) end redis.register_function('f', f)",
            "local f = function(keys) return redis.call('get', keys[1]) end redis.register_function{function_name='f', callback=f, flags={'no-writes'}}",
            "local n = 0 local function twice(x) return x * 2 end\n\
             redis.register_function('f', function(keys) n = n + twice(1) for _, k in ipairs(keys) do redis.call('del', k) end return n end)\n\
             redis.register_function('g', function(names) if #names > 1 then return redis.call('rename', names[1], names[2]) end end)",
            "redis.register_function('f', function() return redis.call('ping') end)",
        ] {
            assert!(library_is_declared(text), "{text}");
        }
    }

    #[test]
    fn leaves_open_what_it_does_not_see_of_libraries() {
        for text in [
            "redis.register_function('f', function(keys, args) return redis.call('get', args[1]) end)",
            "redis.register_function('f', function(keys, args) return redis.call('get', 'x') end)",
            "redis.register_function('f', function(keys, args) return redis.call('get', KEYS[1]) end)",
            "local function get(k) return redis.call('get', k) end redis.register_function('f', function(keys) return get(keys[1]) end)",
            "local function f(keys) return redis.call('get', keys[1]) end redis.register_function('f', f) redis.register_function('g', function() return f({'x'}) end)",
            "local s redis.register_function('f', function(keys) s = function() return redis.call('get', keys[1]) end end) redis.register_function('g', function() return s() end)",
            "local s redis.register_function('f', function(keys) s = keys end) redis.register_function('g', function(keys) return redis.call('get', s[1]) end)",
            "redis.register_function('f', function(keys) keys = {'x'} return redis.call('get', keys[1]) end)",
            "redis.register_function('f', function(keys) keys[1] = 'x' return redis.call('get', keys[1]) end)",
            "redis.register_function('f', function(a, keys) return redis.call('get', keys[1]) end) redis.register_function('g', function(keys) return 1 end)",
            "local function g(keys) return redis.call('get', keys[1]) end redis.register_function('f', function(keys) return g({'x'}) end)",
            "local t = {register_function = function(n, f) return f({'x'}) end} t.register_function('f', function(keys) return redis.call('get', keys[1]) end)",
            "local t = {callback = function(keys) return redis.call('get', keys[1]) end} redis.register_function{function_name='f', ['callback']=function(k) return t.callback({'x'}) end}",
            "local g = function(keys) return redis.call('get', keys[1]) end redis.register_function('f', function(keys) local callback = g; return callback({'x'}) end) redis.register_function('g', g)",
            "redis.register_function('f', make(function(keys) return redis.call('get', keys[1]) end))",
            "local f = redis.register_function f('f', function(keys) return redis.call('get', keys[1]) end)",
            "redis.register_function('f', function(...) return redis.call('get', ...) end)",
            "local r = redis redis.register_function('f', function(keys) return r.call('get', 'x') end)",
            "return 1",
        ] {
            assert!(!library_is_declared(text), "{text}");
        }
    }
}
