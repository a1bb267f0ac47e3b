//! FILTER: boolean expressions over the JSON attributes of elements, as Redis 8.2 answers them.
//!
//! ```text
//!   text --token--> tokens --compile--> postfix program          once per search
//!   JSON --attribute--> fields (name, typed value)                once, when the attribute is set
//!   program x fields --eval--> bool                               per candidate
//! ```
//!
//! - `token`: numbers, strings, tuples, selectors, operators, and where a syntax error is reported
//! - `compile`: precedence and arity, the shunting-yard way
//! - `attribute`: the lenient JSON reader and what it keeps
//! - `eval`: the value stack and the operators
//! - `number`: text as a number, as C's strtod reads it
//! - `search`: which way a search with a filter takes
//! - `matches`, `log`: lists of what an expression matches, and what changed since they were made
//!
//! Nothing recurses, so neither deep parentheses nor deep arrays can exhaust a stack; every pass is linear in
//! its text, up to a sort of the field names. `twin` is the slow oracle of the tests: it reads the raw JSON
//! anew for each selector. Source: the Redis 8.2 vector set pages, and Redis 8.2.3 itself where they are
//! silent.

mod attribute;
mod compile;
mod eval;
mod log;
mod matches;
mod number;
mod search;
#[cfg(test)]
mod tests;
mod token;
#[cfg(test)]
mod twin;

pub use attribute::Attribute;
pub use compile::{Filter, FilterError};
pub(crate) use matches::MatchCache;
pub use search::FilteredSearch;
pub(crate) use search::FilteredState;
