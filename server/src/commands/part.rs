//! Reads the parts of a `Split` in its merge. A part was written by a handler of this process: a malformed
//! one is a bug.

use skerry_resp::number;

/// The number of a part that is one integer.
pub fn part_integer(part: &[u8]) -> i64 {
    integer_line(part, b':').0
}

/// The numbers of a part that is an array of integers.
pub fn part_integers(part: &[u8]) -> Vec<i64> {
    let (n, mut rest) = integer_line(part, b'*');
    let mut numbers = Vec::with_capacity(n as usize);
    for _ in 0..n {
        let (number, behind) = integer_line(rest, b':');
        numbers.push(number);
        rest = behind;
    }
    numbers
}

/// The body of a part that is one bulk string.
pub fn part_bulk(part: &[u8]) -> &[u8] {
    let (len, rest) = integer_line(part, b'$');
    &rest[..len as usize]
}

fn integer_line(text: &[u8], kind: u8) -> (i64, &[u8]) {
    let end = memchr::memchr(b'\r', text).expect("a part's line ends");
    assert_eq!(text[0], kind, "a part is of the kind that its handler writes");
    let number = number::parse_i64(&text[1..end]).expect("a part's header is a number");
    (number, &text[end + 2..])
}
