//! What a row of the directive table says, and the macro that makes `Config` and the table from one list.
//!
//! A row reads `field: type = default; form("name", bounds).more();`. From it come the field of `Config`, its
//! default, and a `Directive` with the functions that set, print and rewrite it. The rows are in `directives`.

use super::Config;
use super::value::{Fault, Kind, Sign, Source};

/// When a directive may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutability {
    /// Only at start.
    Immutable,
    Modifiable,
    /// By CONFIG SET only where `enable-protected-configs` allows it.
    Protected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    One,
    /// Several arguments; one argument with blanks counts as several.
    Many,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    Listed,
    /// CONFIG GET answers its exact name only.
    Hidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    Public,
    /// Never logged, and redacted in the slow log.
    Secret,
}

/// When CONFIG REWRITE adds a line that the file does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rewriting {
    IfNotDefault,
    Always,
}

pub(super) type Assign = fn(&mut Config, &Directive, &[&[u8]], Source) -> Result<(), Fault>;
pub(super) type Check = fn(&[u8]) -> Result<(), &'static str>;

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Directive {
    pub name: &'static str,
    /// A second name that means the same, usually an older one.
    pub alias: Option<&'static str>,
    pub kind: Kind,
    pub mutability: Mutability,
    pub arity: Arity,
    pub visibility: Visibility,
    pub secrecy: Secrecy,
    pub(super) rewriting: Rewriting,
    /// Why any value but the default is refused: the feature does not exist yet.
    pub(super) unbuilt: Option<&'static str>,
    /// A text's own rule.
    pub(super) check: Option<Check>,
    pub(super) assign: Assign,
    pub(super) print: fn(&Config, &Directive) -> Vec<u8>,
    pub(super) lines: fn(&Config, &Directive) -> Vec<Vec<u8>>,
}

impl Directive {
    pub fn is_secret(&self) -> bool {
        self.secrecy == Secrecy::Secret
    }

    /// Whether this is one of its names, in any case.
    pub fn is_called(&self, name: &[u8]) -> bool {
        self.names().any(|own| own.as_bytes().eq_ignore_ascii_case(name))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.alias)
    }

    /// The value as CONFIG GET prints it.
    pub fn value(&self, config: &Config) -> Vec<u8> {
        (self.print)(config, self)
    }

    /// Sets the directive. On a fault `config` may be half changed: give it a copy.
    pub(super) fn set(&self, config: &mut Config, args: &[&[u8]], source: Source) -> Result<(), Fault> {
        if self.arity == Arity::One && args.len() != 1 {
            return Err("wrong number of arguments".into());
        }
        (self.assign)(config, self, args, source)?;
        if let Some(reason) = self.unbuilt
            && self.value(config) != self.value(&Config::default())
        {
            return Err(reason.into());
        }
        Ok(())
    }
}

/// A row before the macro gives it its field.
pub(super) const fn row(name: &'static str, kind: Kind) -> Directive {
    Directive {
        name,
        alias: None,
        kind,
        mutability: Mutability::Modifiable,
        arity: Arity::One,
        visibility: Visibility::Listed,
        secrecy: Secrecy::Public,
        rewriting: Rewriting::IfNotDefault,
        unbuilt: None,
        check: None,
        assign: |_, _, _, _| unreachable!("the macro sets it"),
        print: |_, _| unreachable!("the macro sets it"),
        lines: |_, _| unreachable!("the macro sets it"),
    }
}

pub(super) const fn yes_no(name: &'static str) -> Directive {
    row(name, Kind::Bool)
}

pub(super) const fn word(name: &'static str) -> Directive {
    row(name, Kind::Enum)
}

pub(super) const fn plain_text(name: &'static str) -> Directive {
    row(name, Kind::Text)
}

pub(super) const fn optional_text(name: &'static str) -> Directive {
    row(name, Kind::OptionalText)
}

pub(super) const fn special(name: &'static str) -> Directive {
    row(name, Kind::Special)
}

pub(super) const fn int(name: &'static str, min: i64, max: i64) -> Directive {
    row(name, Kind::Integer { min, max, sign: Sign::Signed })
}

pub(super) const fn uint(name: &'static str, min: i64, max: i64) -> Directive {
    row(name, Kind::Integer { min, max, sign: Sign::Unsigned })
}

pub(super) const fn memory(name: &'static str, min: i64, max: i64) -> Directive {
    row(name, Kind::Memory { min, max, sign: Sign::Signed })
}

pub(super) const fn umemory(name: &'static str, min: i64, max: i64) -> Directive {
    row(name, Kind::Memory { min, max, sign: Sign::Unsigned })
}

pub(super) const fn memory_or_percent(name: &'static str, max_percent: i64) -> Directive {
    row(name, Kind::MemoryOrPercent { max_percent })
}

pub(super) const fn octal(name: &'static str, min: i64, max: i64) -> Directive {
    row(name, Kind::Octal { min, max })
}

impl Directive {
    pub(super) const fn alias(mut self, alias: &'static str) -> Directive {
        self.alias = Some(alias);
        self
    }

    pub(super) const fn immutable(mut self) -> Directive {
        self.mutability = Mutability::Immutable;
        self
    }

    pub(super) const fn protected(mut self) -> Directive {
        self.mutability = Mutability::Protected;
        self
    }

    pub(super) const fn many(mut self) -> Directive {
        self.arity = Arity::Many;
        self
    }

    pub(super) const fn hidden(mut self) -> Directive {
        self.visibility = Visibility::Hidden;
        self
    }

    pub(super) const fn secret(mut self) -> Directive {
        self.secrecy = Secrecy::Secret;
        self
    }

    pub(super) const fn always_written(mut self) -> Directive {
        self.rewriting = Rewriting::Always;
        self
    }

    pub(super) const fn checked(mut self, check: Check) -> Directive {
        self.check = Some(check);
        self
    }

    pub(super) const fn unbuilt(mut self, reason: &'static str) -> Directive {
        self.unbuilt = Some(reason);
        self
    }
}

/// Makes `Config`, its default and `TABLE` from the rows.
macro_rules! directives {
    ($($(#[$doc:meta])* $field:ident : $type:ty = $default:expr; $row:expr;)+) => {
        /// Every directive's value, typed. The field has the directive's name with `_` for `-`.
        #[derive(Clone, PartialEq)]
        pub struct Config {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Default for Config {
            fn default() -> Config {
                Config { $($field: $default,)+ }
            }
        }

        /// The one table of directives. CONFIG GET, SET, REWRITE and the reading of files follow from it.
        pub const TABLE: &[Directive] = &[$(Directive {
            assign: |config, row, args, source| Field::assign(&mut config.$field, row, args, source),
            print: |config, row| Field::print(&config.$field, row),
            lines: |config, row| Field::rewrite(&config.$field, row),
            ..$row
        },)+];

        #[cfg(test)]
        pub(super) const FIELDS: &[&str] = &[$(stringify!($field),)+];
    };
}
pub(super) use directives;
