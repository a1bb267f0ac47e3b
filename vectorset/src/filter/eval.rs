//! Values, operators, and the machine that runs a program over the fields of an attribute.
//!
//! A selector that finds nothing makes the whole expression false, wherever it stands: there is no short
//! circuit. Cost: one pass over the program; no allocation up to `DEEP_STACK` values on the stack.

use memchr::memmem;

use super::attribute::Attribute;
use super::compile::{Filter, Step};
use super::number::number_of;

/// Stacks up to these depths live on the caller's stack; deeper ones are allocated per evaluation.
const SHALLOW_STACK: usize = 6;
const DEEP_STACK: usize = 48;

/// An operand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Number(f64),
    Text(&'a [u8]),
    /// The elements as `TupleWriter` wrote them.
    Tuple(&'a [u8]),
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Not,
    Power,
    Multiply,
    Divide,
    Modulo,
    Add,
    Subtract,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    In,
    And,
    Or,
}

/// Spellings, and how tightly they bind. A longer spelling comes before its prefix.
const OPERATORS: &[(&[u8], Operator, u8)] = &[
    (b"!=", Operator::NotEqual, 2),
    (b"!", Operator::Not, 6),
    (b"not", Operator::Not, 6),
    (b"**", Operator::Power, 5),
    (b"*", Operator::Multiply, 4),
    (b"/", Operator::Divide, 4),
    (b"%", Operator::Modulo, 4),
    (b"+", Operator::Add, 3),
    (b"-", Operator::Subtract, 3),
    (b">=", Operator::GreaterOrEqual, 2),
    (b">", Operator::Greater, 2),
    (b"<=", Operator::LessOrEqual, 2),
    (b"<", Operator::Less, 2),
    (b"==", Operator::Equal, 2),
    (b"in", Operator::In, 2),
    (b"and", Operator::And, 1),
    (b"&&", Operator::And, 1),
    (b"or", Operator::Or, 0),
    (b"||", Operator::Or, 0),
];

impl Operator {
    /// The operator that `text` begins with, and the length of its spelling.
    pub(super) fn at_start_of(text: &[u8]) -> Option<(usize, Operator)> {
        let (spelling, operator, _) = OPERATORS.iter().find(|(spelling, ..)| text.starts_with(spelling))?;
        Some((spelling.len(), *operator))
    }

    pub(super) fn precedence(self) -> u8 {
        let found = OPERATORS.iter().find(|(_, operator, _)| *operator == self);
        found.map_or(0, |(_, _, precedence)| *precedence)
    }

    pub(super) fn arity(self) -> usize {
        if self == Operator::Not { 1 } else { 2 }
    }

    /// The result of an operator of two operands.
    pub(super) fn of(self, a: Value<'_>, b: Value<'_>) -> f64 {
        match self {
            Operator::Not => truth(!b.is_true()),
            Operator::Power => a.number().powf(b.number()),
            Operator::Multiply => a.number() * b.number(),
            Operator::Divide => a.number() / b.number(),
            Operator::Modulo => a.number() % b.number(),
            Operator::Add => a.number() + b.number(),
            Operator::Subtract => a.number() - b.number(),
            Operator::Greater => truth(a.number() > b.number()),
            Operator::GreaterOrEqual => truth(a.number() >= b.number()),
            Operator::Less => truth(a.number() < b.number()),
            Operator::LessOrEqual => truth(a.number() <= b.number()),
            Operator::Equal => truth(a.equals(b)),
            Operator::NotEqual => truth(!a.equals(b)),
            Operator::In => truth(b.contains(a)),
            Operator::And => truth(a.is_true() && b.is_true()),
            Operator::Or => truth(a.is_true() || b.is_true()),
        }
    }
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

impl Value<'_> {
    pub(super) fn is_true(self) -> bool {
        match self {
            Value::Number(number) => number != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::Tuple(_) => true,
            Value::Null => false,
        }
    }

    fn number(self) -> f64 {
        match self {
            Value::Number(number) => number,
            Value::Text(text) => number_of(text),
            Value::Tuple(_) | Value::Null => 0.0,
        }
    }

    fn equals(self, other: Value<'_>) -> bool {
        match (self, other) {
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::Null, Value::Null) => true,
            (Value::Null, _) | (_, Value::Null) => false,
            _ => self.number() == other.number(),
        }
    }

    /// Whether a tuple has the element, or a text the part.
    fn contains(self, part: Value<'_>) -> bool {
        match (self, part) {
            (Value::Tuple(elements), _) => TupleReader(elements).any(|element| part.equals(element)),
            (Value::Text(text), Value::Text(part)) => memmem::find(text, part).is_some(),
            _ => false,
        }
    }
}

impl Filter {
    /// Whether an element with this attribute passes.
    pub fn matches(&self, attribute: &Attribute) -> bool {
        if self.max_depth <= SHALLOW_STACK {
            self.run(attribute, &mut [Value::Null; SHALLOW_STACK])
        } else if self.max_depth <= DEEP_STACK {
            self.run(attribute, &mut [Value::Null; DEEP_STACK])
        } else {
            self.run(attribute, &mut vec![Value::Null; self.max_depth])
        }
    }

    fn run<'a>(&'a self, attribute: &'a Attribute, stack: &mut [Value<'a>]) -> bool {
        let mut depth = 0;
        for step in &self.program {
            let value = match *step {
                Step::Number(number) => Value::Number(number),
                Step::Text(ref text) => Value::Text(text),
                Step::Tuple(ref tuple) => Value::Tuple(&tuple.0),
                Step::Null => Value::Null,
                Step::Field(ref name) => match attribute.field(name) {
                    Some(value) => value,
                    None => return false,
                },
                Step::Apply(Operator::Not) => {
                    depth -= 1;
                    Value::Number(truth(!stack[depth].is_true()))
                }
                Step::Apply(operator) => {
                    depth -= 2;
                    Value::Number(operator.of(stack[depth], stack[depth + 1]))
                }
            };
            stack[depth] = value;
            depth += 1;
        }
        stack[0].is_true()
    }
}

/// The elements of a tuple, one behind the other:
/// null `0` | number `1`, f64 | text `2`, length u32, bytes | tuple `3`, whose elements no operator can see.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tuple(pub(super) Box<[u8]>);

#[derive(Default)]
pub(super) struct TupleWriter(Vec<u8>);

const NULL: u8 = 0;
const NUMBER: u8 = 1;
const TEXT: u8 = 2;
const TUPLE: u8 = 3;

impl TupleWriter {
    pub(super) fn push_null(&mut self) {
        self.0.push(NULL);
    }

    pub(super) fn push_number(&mut self, number: f64) {
        self.0.push(NUMBER);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// `None` if the text is too long to be kept.
    pub(super) fn push_text(&mut self, text: &[u8]) -> Option<()> {
        let len = u32::try_from(text.len()).ok()?;
        self.0.push(TEXT);
        self.0.extend_from_slice(&len.to_le_bytes());
        self.0.extend_from_slice(text);
        Some(())
    }

    pub(super) fn push_tuple(&mut self) {
        self.0.push(TUPLE);
    }

    pub(super) fn finish(self) -> Tuple {
        Tuple(self.0.into_boxed_slice())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

struct TupleReader<'a>(&'a [u8]);

impl<'a> Iterator for TupleReader<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (value, rest) = match tag {
            NULL => (Value::Null, rest),
            NUMBER => {
                let (number, rest) = rest.split_first_chunk()?;
                (Value::Number(f64::from_le_bytes(*number)), rest)
            }
            TEXT => {
                let (len, rest) = rest.split_first_chunk()?;
                let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
                (Value::Text(text), rest)
            }
            _ => (Value::Tuple(&[]), rest),
        };
        self.0 = rest;
        Some(value)
    }
}
