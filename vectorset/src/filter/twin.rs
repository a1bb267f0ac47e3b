//! The oracle of the tests: each selector reads the raw JSON anew, each value owns its memory, every array is
//! read to the depth it has. Slow, recursive, and written apart from the fast reader.

use super::compile::{Filter, Step};
use super::eval::{Operator, Tuple};
use super::number::{decimal, is_space, number_of};

#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    Text(Vec<u8>),
    Tuple(Vec<Value>),
    Null,
}

/// What `Filter::matches` has to answer for this attribute.
pub(super) fn matches(filter: &Filter, json: &[u8]) -> bool {
    let mut stack: Vec<Value> = Vec::new();
    for step in &filter.program {
        let value = match step {
            Step::Number(number) => Value::Number(*number),
            Step::Text(text) => Value::Text(text.to_vec()),
            Step::Tuple(tuple) => Value::Tuple(elements(tuple)),
            Step::Null => Value::Null,
            Step::Field(name) => match field(json, name.text()) {
                Some(value) => value,
                None => return false,
            },
            Step::Apply(operator) => {
                let b = stack.pop().expect("an operand");
                let a = if *operator == Operator::Not { Value::Null } else { stack.pop().expect("two") };
                Value::Number(apply(*operator, &a, &b))
            }
        };
        stack.push(value);
    }
    truth(&stack.pop().expect("a result"))
}

fn elements(tuple: &Tuple) -> Vec<Value> {
    let (mut elements, mut rest) = (Vec::new(), &*tuple.0);
    while !rest.is_empty() {
        if rest[0] == 1 {
            elements.push(Value::Number(f64::from_le_bytes(rest[1..9].try_into().expect("eight bytes"))));
            rest = &rest[9..];
        } else {
            let len = u32::from_le_bytes(rest[1..5].try_into().expect("four bytes")) as usize;
            elements.push(Value::Text(rest[5..5 + len].to_vec()));
            rest = &rest[5 + len..];
        }
    }
    elements
}

fn truth(value: &Value) -> bool {
    match value {
        Value::Number(number) => *number != 0.0,
        Value::Text(text) => !text.is_empty(),
        Value::Tuple(_) => true,
        Value::Null => false,
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Number(number) => *number,
        Value::Text(text) => number_of(text),
        Value::Tuple(_) | Value::Null => 0.0,
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => a == b,
        (Value::Null, b) => matches!(b, Value::Null),
        (_, Value::Null) => false,
        (a, b) => number(a) == number(b),
    }
}

fn apply(operator: Operator, a: &Value, b: &Value) -> f64 {
    let (x, y) = (number(a), number(b));
    let holds = match operator {
        Operator::Power => return x.powf(y),
        Operator::Multiply => return x * y,
        Operator::Divide => return x / y,
        Operator::Modulo => return x % y,
        Operator::Add => return x + y,
        Operator::Subtract => return x - y,
        Operator::Not => !truth(b),
        Operator::Greater => x > y,
        Operator::GreaterOrEqual => x >= y,
        Operator::Less => x < y,
        Operator::LessOrEqual => x <= y,
        Operator::Equal => equal(a, b),
        Operator::NotEqual => !equal(a, b),
        Operator::And => truth(a) && truth(b),
        Operator::Or => truth(a) || truth(b),
        Operator::In => match (a, b) {
            (a, Value::Tuple(elements)) => elements.iter().any(|element| equal(a, element)),
            (Value::Text(a), Value::Text(b)) => a.is_empty() || b.windows(a.len()).any(|part| part == a),
            _ => false,
        },
    };
    f64::from(u8::from(holds))
}

/// The value of the first field of this name, if the text is sound up to there.
fn field(json: &[u8], wanted: &[u8]) -> Option<Value> {
    if wanted.is_empty() {
        return None;
    }
    let mut rest = json.trim_start(is_space).strip_prefix(b"{")?;
    loop {
        rest = rest.trim_start(is_space);
        let after_name = skip(rest).filter(|_| rest[0] == b'"')?;
        let name = &rest[1..rest.len() - after_name.len() - 1];
        rest = after_name.trim_start(is_space).strip_prefix(b":")?.trim_start(is_space);
        if name == wanted {
            return read(rest).map(|(value, _)| value);
        }
        rest = skip(rest)?.trim_start(is_space).strip_prefix(b",")?;
    }
}

/// What is left behind the value that `json` begins with.
fn skip(json: &[u8]) -> Option<&[u8]> {
    match *json.first()? {
        b'"' => {
            let mut at = 1;
            while *json.get(at)? != b'"' {
                at += if json[at] == b'\\' { 2 } else { 1 };
            }
            Some(&json[at + 1..])
        }
        open @ (b'{' | b'[') => {
            let (mut depth, mut rest) = (0, json);
            loop {
                match *rest.first()? {
                    b'"' => {
                        rest = skip(rest)?;
                        continue;
                    }
                    byte if byte == open => depth += 1,
                    byte if byte == open + 2 => depth -= 1,
                    _ => {}
                }
                rest = &rest[1..];
                if depth == 0 {
                    return Some(rest);
                }
            }
        }
        b't' => json.strip_prefix(b"true"),
        b'f' => json.strip_prefix(b"false"),
        b'n' => json.strip_prefix(b"null"),
        _ => {
            let rest = json.trim_start(|byte| b"0123456789+-.eE".contains(&byte));
            (rest.len() < json.len()).then_some(rest)
        }
    }
}

fn read(json: &[u8]) -> Option<(Value, &[u8])> {
    let json = json.trim_start(is_space);
    let literal = |word: &[u8], value| {
        let rest = json.strip_prefix(word)?;
        let is_end = rest.first().is_none_or(|&byte| is_space(byte) || b",]}".contains(&byte));
        is_end.then_some((value, rest))
    };
    match *json.first()? {
        b'"' => {
            let rest = skip(json)?;
            let mut raw = json[1..json.len() - rest.len() - 1].iter();
            let mut text = Vec::new();
            while let Some(&byte) = raw.next() {
                text.push(match byte {
                    b'\\' => match raw.next()? {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        other => *other,
                    },
                    byte => byte,
                });
            }
            Some((Value::Text(text), rest))
        }
        b'[' => {
            let mut elements = Vec::new();
            let mut rest = json[1..].trim_start(is_space);
            if let Some(rest) = rest.strip_prefix(b"]") {
                return Some((Value::Tuple(elements), rest));
            }
            loop {
                let (element, after) = read(rest)?;
                elements.push(element);
                rest = after.trim_start(is_space);
                match rest.strip_prefix(b",") {
                    Some(more) => rest = more,
                    None => return Some((Value::Tuple(elements), rest.strip_prefix(b"]")?)),
                }
            }
        }
        b't' => literal(b"true", Value::Number(1.0)),
        b'f' => literal(b"false", Value::Number(0.0)),
        b'n' => literal(b"null", Value::Null),
        b'0'..=b'9' | b'-' | b'+' => {
            let len = json.len() - json.trim_start(|byte| b"0123456789+-.eE".contains(&byte)).len();
            let (digits, rest) = json.split_at(len.min(255));
            Some((Value::Number(decimal(digits)?), rest))
        }
        _ => None,
    }
}

/// `trim_start_matches` for bytes.
trait TrimStart {
    fn trim_start(&self, is_trimmed: impl Fn(u8) -> bool) -> &[u8];
}

impl TrimStart for [u8] {
    fn trim_start(&self, is_trimmed: impl Fn(u8) -> bool) -> &[u8] {
        let n = self.iter().take_while(|&&byte| is_trimmed(byte)).count();
        &self[n..]
    }
}
