//! The libraries that FUNCTION LOAD has made known to the whole server, and the names of their functions.
//!
//! A worker runs a library's code for itself before it first calls one of its functions, in a Lua state that is for functions alone
//! (`callable`); what is here is the text and what was found out when it was loaded. A library that is deleted or replaced is marked
//! gone, which is all that a worker looks at: FCALL takes no lock once its worker knows the function.
//! As in Redis, names of libraries are told apart by case and those of functions are not, and a function's name is unique over all
//! libraries. A library is taken in whole or not at all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use super::registry::{Reach, ScriptFlags};
use super::{proof, shebang};
use crate::error::CommandError;

/// A function as its library has registered it.
#[derive(Debug)]
pub struct Function {
    pub name: Box<[u8]>,
    pub description: Option<Box<[u8]>>,
    pub flags: ScriptFlags,
}

/// A library: its text and what it has registered.
pub struct Library {
    pub name: Box<[u8]>,
    pub text: Box<[u8]>,
    /// Where the code begins: with the end of the first line.
    code_at: usize,
    /// In the order in which they were registered.
    pub functions: Vec<Function>,
    /// Of every one of its functions.
    pub reach: Reach,
    is_gone: AtomicBool,
}

impl Library {
    /// What a text says of itself; it has not run yet.
    pub(super) fn read(text: &[u8]) -> Result<Self, CommandError> {
        let line = shebang::of_library(text)?;
        check_name(&line.name)?;
        if !line.engine.eq_ignore_ascii_case(b"lua") {
            let error = [b"ERR Engine '".as_slice(), &line.engine, b"' not found"].concat();
            return Err(CommandError::Bytes(error));
        }
        Ok(Self {
            name: line.name.into(),
            text: text.into(),
            code_at: line.code_at,
            functions: Vec::new(),
            reach: proof::reach_of_library(&text[line.code_at..]),
            is_gone: AtomicBool::new(false),
        })
    }

    pub(super) fn code(&self) -> &[u8] {
        &self.text[self.code_at..]
    }

    /// Deleted or replaced.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    fn bytes(&self) -> usize {
        let of_function = |function: &Function| {
            size_of::<Function>()
                + function.name.len()
                + function.description.as_ref().map_or(0, |text| text.len())
        };
        size_of::<Self>()
            + self.name.len()
            + self.text.len()
            + self.functions.iter().map(of_function).sum::<usize>()
    }
}

/// Redis's rule for names of libraries and of functions.
pub(super) fn check_name(name: &[u8]) -> Result<(), CommandError> {
    let is_good = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    match is_good {
        true => Ok(()),
        false => Err(CommandError::text(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        )),
    }
}

/// What becomes of the libraries that are there when others are taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// None may have the name of one that comes.
    Append,
    /// One of the same name goes.
    Replace,
    /// All go.
    Flush,
}

/// Where a function stands: its library, and which one it is there.
pub type Place = (Arc<Library>, usize);

#[derive(Default)]
struct Known {
    libraries: BTreeMap<Box<[u8]>, Arc<Library>>,
    /// By their names in lower case.
    functions: HashMap<Box<[u8]>, Place>,
}

impl Known {
    fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.libraries.remove(name) else { return false };
        library.is_gone.store(true, Relaxed);
        for function in &library.functions {
            self.functions.remove(&*function.name.to_ascii_lowercase());
        }
        true
    }

    fn insert(&mut self, library: Arc<Library>) {
        for (index, function) in library.functions.iter().enumerate() {
            self.functions.insert(function.name.to_ascii_lowercase().into(), (library.clone(), index));
        }
        self.libraries.insert(library.name.clone(), library);
    }
}

/// The server's libraries.
#[derive(Default)]
pub struct Functions {
    known: Mutex<Known>,
    /// How often libraries have gone.
    n_losses: AtomicU64,
}

impl Functions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A function by its name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<Place> {
        self.known().functions.get(&*name.to_ascii_lowercase()).cloned()
    }

    pub(super) fn has_library(&self, name: &[u8]) -> bool {
        self.known().libraries.contains_key(name)
    }

    /// Changes whenever a library goes.
    #[inline]
    pub(super) fn n_losses(&self) -> u64 {
        self.n_losses.load(Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.known().libraries.is_empty()
    }

    /// Takes libraries of different names in, all or none; `taken` is the error for a name that is taken.
    pub(super) fn take_in(
        &self,
        libraries: &[Arc<Library>],
        policy: Policy,
        taken: fn(&[u8]) -> CommandError,
    ) -> Result<(), CommandError> {
        let mut known = self.known();
        if policy == Policy::Append
            && let Some(library) =
                libraries.iter().find(|library| known.libraries.contains_key(&library.name))
        {
            return Err(taken(&library.name));
        }
        if policy != Policy::Flush {
            // Functions of the libraries that will be replaced do not count.
            let stays = |place: &Place| !libraries.iter().any(|library| library.name == place.0.name);
            let mut functions = libraries.iter().flat_map(|library| &library.functions);
            let is_taken = |function: &&Function| {
                known.functions.get(&*function.name.to_ascii_lowercase()).is_some_and(stays)
            };
            if let Some(function) = functions.find(is_taken) {
                return Err(function_exists(&function.name));
            }
        }
        let going: Vec<Box<[u8]>> = match policy {
            Policy::Append => Vec::new(),
            Policy::Replace => libraries.iter().map(|library| library.name.clone()).collect(),
            Policy::Flush => known.libraries.keys().cloned().collect(),
        };
        let n_gone = going.iter().filter(|name| known.remove(name)).count();
        for library in libraries {
            known.insert(library.clone());
        }
        if n_gone > 0 {
            self.n_losses.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// FUNCTION DELETE
    pub fn delete(&self, name: &[u8]) -> Result<(), CommandError> {
        if !self.known().remove(name) {
            return Err(CommandError::text("ERR Library not found"));
        }
        self.n_losses.fetch_add(1, Relaxed);
        Ok(())
    }

    /// FUNCTION FLUSH
    pub fn flush(&self) {
        let mut known = self.known();
        known.libraries.values().for_each(|library| library.is_gone.store(true, Relaxed));
        *known = Known::default();
        self.n_losses.fetch_add(1, Relaxed);
    }

    /// The libraries in the order of their names.
    pub fn all(&self) -> Vec<Arc<Library>> {
        self.known().libraries.values().cloned().collect()
    }

    /// How many libraries and functions there are, and their bytes.
    pub fn size(&self) -> (usize, usize, usize) {
        let known = self.known();
        (
            known.libraries.len(),
            known.functions.len(),
            known.libraries.values().map(|library| library.bytes()).sum(),
        )
    }
}

pub(super) fn function_exists(name: &[u8]) -> CommandError {
    CommandError::Bytes([b"ERR Function ".as_slice(), name, b" already exists"].concat())
}

/// FUNCTION LOAD's words.
pub(super) fn library_exists(name: &[u8]) -> CommandError {
    CommandError::Bytes([b"ERR Library '".as_slice(), name, b"' already exists"].concat())
}

/// FUNCTION RESTORE's.
pub(super) fn restored_library_exists(name: &[u8]) -> CommandError {
    CommandError::Bytes([b"ERR Library ".as_slice(), name, b" already exists"].concat())
}
