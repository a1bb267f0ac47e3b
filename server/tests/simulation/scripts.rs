//! The scripts of the simulation: a list of commands as Lua, and the same list for the model, in the comment at the script's end.
//!
//! ```text
//!   local r={} r[#r+1]=redis.call('SET',KEYS[1],ARGV[1]); r[#r+1]=redis.pcall('GET',KEYS[2]); error('boom'); return r
//!   --call SET ant 1.1;pcall GET bee;error
//! ```
//! A wrong comment would not go unnoticed: the model's replies would be others.

use std::collections::BTreeSet;

use crate::model::Word;

/// What becomes of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// `redis.call`: it ends the script.
    Raising,
    /// `redis.pcall`: it is a value.
    Protected,
    /// No command: the script ends by itself.
    Error,
}

/// A step of a script.
pub struct Call {
    pub guard: Guard,
    pub argv: Vec<Word>,
}

/// What a script that ends by itself says.
pub const BOOM: &[u8] = b"ERR user_script:1: boom";

/// EVAL or EVAL_RO of these steps. Keys that are not declared stand in the text.
pub fn script_of(name: &str, steps: &[Call], is_declared: bool, keys: &[Word]) -> Vec<Word> {
    let (mut declared, mut arguments): (Vec<Word>, Vec<Word>) = (Vec::new(), Vec::new());
    let (mut text, mut plan) = (String::from("local r={} "), Vec::new());
    for Call { guard, argv } in steps {
        let function = match guard {
            Guard::Raising => "call",
            Guard::Protected => "pcall",
            Guard::Error => {
                text.push_str("error('boom'); ");
                plan.push("error".to_owned());
                continue;
            }
        };
        let words: Vec<String> = argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        plan.push(format!("{function} {}", words.join(" ")));
        text.push_str(&format!("r[#r+1]=redis.{function}('{}'", words[0]));
        for (word, text_of) in argv.iter().zip(&words).skip(1) {
            text.push(',');
            text.push_str(&match (keys.contains(word), is_declared) {
                (true, true) => format!("KEYS[{}]", place_of(&mut declared, word)),
                (true, false) => format!("'{text_of}'"),
                (false, _) => format!("ARGV[{}]", place_of(&mut arguments, word)),
            });
        }
        text.push_str("); ");
    }
    text.push_str(&format!("return r --{}", plan.join(";")));
    let head = [name.as_bytes().to_vec(), text.into_bytes(), declared.len().to_string().into_bytes()];
    [&head[..], &declared, &arguments].concat()
}

fn place_of(words: &mut Vec<Word>, word: &Word) -> usize {
    let at = words.iter().position(|other| other == word);
    at.unwrap_or_else(|| {
        words.push(word.clone());
        words.len() - 1
    }) + 1
}

pub fn is_script(argv: &[Word]) -> bool {
    argv[0].starts_with(b"EVAL")
}

/// The steps of a script.
pub fn steps_of(argv: &[Word]) -> Vec<Call> {
    let text = String::from_utf8_lossy(&argv[1]);
    let (_, plan) = text.rsplit_once("--").expect("a script ends by its plan");
    let step = |text: &str| {
        let (function, command) = text.split_once(' ').unwrap_or((text, ""));
        let guard = match function {
            "call" => Guard::Raising,
            "pcall" => Guard::Protected,
            _ => Guard::Error,
        };
        Call { guard, argv: command.split(' ').map(|word| word.as_bytes().to_vec()).collect() }
    };
    plan.split(';').map(step).collect()
}

/// Every key that a script declares or touches, and no other words: those of its commands that may be keys.
pub fn script_keys(argv: &[Word]) -> BTreeSet<Word> {
    let n_declared = skerry_resp::parse_i64(&argv[2]).expect("a number of keys") as usize;
    let mut keys: BTreeSet<Word> = argv[3..3 + n_declared].iter().cloned().collect();
    let text = String::from_utf8_lossy(&argv[1]);
    let quoted =
        text.split('\'').skip(1).step_by(2).filter(|word| word.bytes().any(|b| b.is_ascii_lowercase()));
    keys.extend(quoted.filter(|word| *word != "boom").map(|word| word.as_bytes().to_vec()));
    keys
}

/// Whether a command of a script may change something.
pub fn is_write(name: &[u8]) -> bool {
    !matches!(name, b"GET" | b"MGET" | b"EXISTS" | b"LLEN" | b"LRANGE" | b"SMEMBERS" | b"PING")
}
