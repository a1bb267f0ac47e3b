//! What a caller may do wrong. The server turns these into Redis's texts; nothing here panics on client
//! input.

use std::fmt;

/// A client mistake, found before anything is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The vector has `got` components, the set holds vectors of `expected`.
    DimensionMismatch { got: usize, expected: usize },
    /// A component is NaN or infinite: such a row would have no distance to anything.
    NotFinite,
    /// The query names an element that the set does not hold.
    ElementNotFound,
    /// The set holds as many elements as ids can name.
    Full,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::DimensionMismatch { got, expected } => {
                write!(f, "vector dimension mismatch: got {got} but set has {expected}")
            }
            Error::NotFinite => f.write_str("vector component is not finite"),
            Error::ElementNotFound => f.write_str("element not found in set"),
            Error::Full => f.write_str("vector set is full"),
        }
    }
}

impl std::error::Error for Error {}
