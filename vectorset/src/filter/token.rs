//! The words of an expression.
//!
//! An error is reported as the text from where the reader stood when it gave up; Redis leaves it behind the
//! characters that it had taken, and so does this.

use super::eval::{Operator, Tuple, TupleWriter};
use super::number::{decimal, is_space};

/// Longer numbers are errors.
const MAX_NUMBER_LEN: usize = 255;
/// The characters of operators that are no words.
const OPERATOR_CHARACTERS: &[u8] = b"+-*%/!()<>=|&";

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Number(f64),
    Text(&'a [u8]),
    Tuple(Tuple),
    Null,
    /// A field's name, without the dot; empty for a dot that ends the expression.
    Selector(&'a [u8]),
    Operator(Operator),
    Open,
    Close,
}

/// The tokens of `text`, or the rest of the text from where it is none.
pub(super) fn tokenize(text: &[u8]) -> Result<Vec<Token<'_>>, &[u8]> {
    let mut reader = Reader { rest: text };
    let mut tokens = Vec::new();
    loop {
        reader.skip_spaces();
        if reader.rest.is_empty() {
            return Ok(tokens);
        }
        // A minus is a sign only where an operand is due.
        let is_operand_due = matches!(tokens.last(), None | Some(Token::Operator(_) | Token::Open));
        match reader.token(is_operand_due) {
            Some(token) => tokens.push(token),
            None => return Err(reader.rest),
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn token(&mut self, is_operand_due: bool) -> Option<Token<'a>> {
        match *self.rest {
            [b'0'..=b'9', ..] => self.number().map(Token::Number),
            [b'-', b'0'..=b'9', ..] if is_operand_due => self.number().map(Token::Number),
            [b'"' | b'\'', ..] => self.text().map(Token::Text),
            // At the very end of the text a dot alone is a selector too: one that selects nothing.
            [b'.'] => Some(self.selector()),
            [b'.', next, ..] if is_selector_character(next) => Some(self.selector()),
            [b'[', ..] => self.tuple().map(Token::Tuple),
            [first, ..] if is_operator_character(first) => self.operator_or_null(),
            _ => None,
        }
    }

    fn skip_spaces(&mut self) {
        let spaces = self.rest.iter().take_while(|&&byte| is_space(byte)).count();
        self.rest = &self.rest[spaces..];
    }

    fn number(&mut self) -> Option<f64> {
        let digits = self.rest.iter().enumerate();
        let is_of_number = |(i, byte): (usize, &u8)| {
            matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E') || (i == 0 && *byte == b'-')
        };
        let len = digits.take_while(|&at| is_of_number(at)).take(MAX_NUMBER_LEN + 1).count();
        if len > MAX_NUMBER_LEN {
            self.rest = &self.rest[MAX_NUMBER_LEN..];
            return None;
        }
        decimal(self.take(len))
    }

    /// A quoted text. A backslash only keeps the character behind it from ending the text.
    fn text(&mut self) -> Option<&'a [u8]> {
        let quote = self.rest[0];
        let mut at = 1;
        while let Some(&byte) = self.rest.get(at) {
            if byte == quote {
                let text = &self.rest[1..at];
                self.rest = &self.rest[at + 1..];
                return Some(text);
            }
            at += if byte == b'\\' && at + 1 < self.rest.len() { 2 } else { 1 };
        }
        self.rest = &[];
        None
    }

    /// `[1, "a", -2]`: numbers and texts.
    fn tuple(&mut self) -> Option<Tuple> {
        let mut tuple = TupleWriter::default();
        self.take(1);
        loop {
            self.skip_spaces();
            match self.rest.first()? {
                b']' => break,
                b'0'..=b'9' | b'-' => tuple.push_number(self.number()?),
                b'"' | b'\'' => tuple.push_text(self.text()?)?,
                _ => return None,
            }
            self.skip_spaces();
            match self.rest.first()? {
                b']' => break,
                b',' => self.take(1),
                _ => return None,
            };
        }
        self.take(1);
        Some(tuple.finish())
    }

    fn selector(&mut self) -> Token<'a> {
        self.take(1);
        Token::Selector(self.take(selector_len(self.rest)))
    }

    /// The longest operator that the run of letters and operator characters begins with; `null` only if it is
    /// the whole run.
    fn operator_or_null(&mut self) -> Option<Token<'a>> {
        let (len, token) = match self.rest {
            [b'n', b'u', b'l', b'l', rest @ ..]
                if !rest.first().is_some_and(|&next| is_operator_character(next)) =>
            {
                (4, Token::Null)
            }
            [b'(', ..] => (1, Token::Open),
            [b')', ..] => (1, Token::Close),
            rest => match Operator::at_start_of(rest) {
                Some((len, operator)) => (len, Token::Operator(operator)),
                None => {
                    // The error is reported behind the run.
                    let run = rest.iter().take_while(|&&byte| is_operator_character(byte)).count();
                    self.take(run);
                    return None;
                }
            },
        };
        self.take(len);
        Some(token)
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }
}

fn is_operator_character(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || OPERATOR_CHARACTERS.contains(&byte)
}

pub(super) fn is_selector_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn selector_len(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| is_selector_character(byte)).count()
}
