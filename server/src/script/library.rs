//! Functions in a worker's Lua: the code of libraries is run there, and what it registers is kept until the library goes.
//!
//! The code runs once on each worker that calls one of its functions: locals of a library that its functions change are each
//! worker's own. While it runs it sees the loader's `redis` alone (`sandbox::show_loader`), whose `register_function` is here.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::api::raise_error;
use super::functions::{
    Function, Functions, Library, Policy, check_name, library_exists, restored_library_exists,
};
use super::lua::{LUA_TFUNCTION, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Lua, Raise};
use super::machine::{Machine, Purpose};
use super::registry::ScriptFlags;
use super::{Name, Program, Registered, shebang};
use crate::error::CommandError;
use crate::rdb::LibraryTexts;

/// How long the code of a library may run, as in Redis.
const LOAD_PATIENCE: Duration = Duration::from_millis(500);

/// A function that is ready to be called.
struct Callable {
    library: Arc<Library>,
    index: usize,
    reference: i32,
}

/// The functions that a worker has at hand.
pub(super) struct Callables {
    pub(super) machine: Machine,
    /// By their names in lower case.
    by_name: HashMap<Box<[u8]>, Callable>,
}

/// A library whose code has run here.
struct Loaded {
    library: Arc<Library>,
    references: Vec<i32>,
}

impl Callables {
    pub(super) fn new(memory_limit: usize) -> Self {
        Self { machine: Machine::new(Purpose::Functions, memory_limit), by_name: HashMap::default() }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Program> {
        const SHORT: usize = 64;
        let mut short = [0; SHORT];
        let found = match short.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                self.by_name.get(&*lower)
            }
            None => self.by_name.get(&*name.to_ascii_lowercase()),
        }?;
        let Callable { library, index, reference } = found;
        Some(Program {
            function: *reference,
            flags: library.functions[*index].flags,
            reach: library.reach,
            name: Name::Function((library.clone(), *index)),
        })
    }

    /// Forgets the functions of libraries that are gone; whether there are others.
    pub(super) fn forget_gone(&mut self) -> bool {
        let lua = self.machine.lua();
        self.by_name.retain(|_, callable| {
            let is_gone = callable.library.is_gone();
            if is_gone {
                lua.forget(callable.reference);
            }
            !is_gone
        });
        !self.by_name.is_empty()
    }

    /// Runs the code of a library that another worker has taken in.
    pub(super) fn load_known(&mut self, library: &Arc<Library>) -> Result<(), CommandError> {
        // It has ended elsewhere, and has nothing to see that differs.
        let registered =
            self.machine.load_library(library.code(), Duration::MAX).map_err(CommandError::Bytes)?;
        let references = registered.into_iter().map(|registered| registered.reference).collect();
        self.keep(Loaded { library: library.clone(), references });
        Ok(())
    }

    fn keep(&mut self, loaded: Loaded) {
        let Loaded { library, references } = loaded;
        for (index, reference) in references.into_iter().enumerate() {
            let name = library.functions[index].name.to_ascii_lowercase().into();
            self.by_name.insert(name, Callable { library: library.clone(), index, reference });
        }
    }

    fn forget(&self, loaded: Vec<Loaded>) {
        let lua = self.machine.lua();
        loaded.into_iter().flat_map(|loaded| loaded.references).for_each(|reference| lua.forget(reference));
    }

    /// FUNCTION LOAD
    pub(super) fn load(
        &mut self,
        text: &[u8],
        policy: Policy,
        functions: &Functions,
    ) -> Result<Arc<Library>, CommandError> {
        let library = Library::read(text)?;
        if policy == Policy::Append && functions.has_library(&library.name) {
            return Err(library_exists(&library.name));
        }
        let loaded = self.load_one(library, LOAD_PATIENCE)?;
        let library = loaded.library.clone();
        self.take_in(vec![loaded], policy, functions, library_exists)?;
        Ok(library)
    }

    /// FUNCTION RESTORE: runs libraries and takes them in, all or none. A restored library may take its time.
    pub(super) fn restore(
        &mut self,
        texts: LibraryTexts<'_>,
        policy: Policy,
        functions: &Functions,
    ) -> Result<(), CommandError> {
        let mut loaded = Vec::new();
        if let Err(error) = self.load_all(texts, &mut loaded) {
            self.forget(loaded);
            return Err(error);
        }
        self.take_in(loaded, policy, functions, restored_library_exists)
    }

    fn take_in(
        &mut self,
        loaded: Vec<Loaded>,
        policy: Policy,
        functions: &Functions,
        taken: fn(&[u8]) -> CommandError,
    ) -> Result<(), CommandError> {
        let libraries: Vec<Arc<Library>> = loaded.iter().map(|loaded| loaded.library.clone()).collect();
        if let Err(error) = functions.take_in(&libraries, policy, taken) {
            self.forget(loaded);
            return Err(error);
        }
        self.forget_gone();
        loaded.into_iter().for_each(|loaded| self.keep(loaded));
        Ok(())
    }

    fn load_all(&mut self, texts: LibraryTexts<'_>, loaded: &mut Vec<Loaded>) -> Result<(), CommandError> {
        for text in texts {
            let library = Library::read(&text?)?;
            if loaded.iter().any(|other| other.library.name == library.name) {
                return Err(library_exists(&library.name));
            }
            let next = self.load_one(library, Duration::MAX)?;
            let is_known = |function: &&Function| {
                let mut others = loaded.iter().flat_map(|loaded| &loaded.library.functions);
                others.any(|other| other.name.eq_ignore_ascii_case(&function.name))
            };
            if let Some(function) = next.library.functions.iter().find(is_known) {
                let error = super::functions::function_exists(&function.name);
                self.forget(vec![next]);
                return Err(error);
            }
            loaded.push(next);
        }
        Ok(())
    }

    fn load_one(&mut self, mut library: Library, patience: Duration) -> Result<Loaded, CommandError> {
        let registered = self.machine.load_library(library.code(), patience).map_err(CommandError::Bytes)?;
        if registered.is_empty() {
            return Err(CommandError::text("ERR No functions registered"));
        }
        let mut references = Vec::with_capacity(registered.len());
        for Registered { function, reference } in registered {
            library.functions.push(function);
            references.push(reference);
        }
        Ok(Loaded { library: Arc::new(library), references })
    }
}

/// `redis.register_function(name, callback)` or `redis.register_function{function_name=..., callback=..., ...}`
pub(super) fn register_function(lua: Lua) -> Result<c_int, Raise> {
    if lua.core().loading.borrow().is_none() {
        return Err(raise_error(lua, "redis.register_function can only be called on FUNCTION LOAD command"));
    }
    let read = match lua.top() {
        1 => read_named(lua),
        2 => read_pair(lua),
        _ => Err("wrong number of arguments to redis.register_function"),
    };
    let outcome = read.and_then(|registered| keep_registered(lua, registered));
    outcome.map_err(|why| raise_error(lua, why))?;
    Ok(0)
}

fn keep_registered(lua: Lua, registered: Registered) -> Result<(), &'static str> {
    let mut loading = lua.core().loading.borrow_mut();
    let functions = loading.get_or_insert_default();
    let name = &registered.function.name;
    let error = if check_name(name).is_err() {
        "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
    } else if functions.iter().any(|other| other.function.name.eq_ignore_ascii_case(name)) {
        // Redis takes two names that differ in case, and breaks when the library goes.
        "Function already exists in the library"
    } else {
        functions.push(registered);
        return Ok(());
    };
    lua.forget(registered.reference);
    Err(error)
}

fn is_string(lua: Lua, index: c_int) -> bool {
    matches!(lua.kind(index), LUA_TSTRING | LUA_TNUMBER)
}

fn read_pair(lua: Lua) -> Result<Registered, &'static str> {
    if !is_string(lua, 1) {
        return Err("first argument to redis.register_function must be a string");
    }
    if lua.kind(2) != LUA_TFUNCTION {
        return Err("second argument to redis.register_function must be a function");
    }
    let reference = lua.keep();
    let name = lua.string(1).unwrap_or_default().into();
    let function = Function { name, description: None, flags: ScriptFlags::default() };
    Ok(Registered { function, reference })
}

fn read_named(lua: Lua) -> Result<Registered, &'static str> {
    if lua.kind(1) != LUA_TTABLE {
        return Err(
            "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
        );
    }
    let mut named = Named::default();
    lua.push_nil();
    while lua.next(1) {
        if let Err(why) = named.read(lua) {
            named.callback.into_iter().for_each(|reference| lua.forget(reference));
            return Err(why);
        }
        lua.set_top(2);
    }
    let Named { name, description, callback, flags } = named;
    match (name, callback) {
        (Some(name), Some(reference)) => {
            Ok(Registered { function: Function { name, description, flags }, reference })
        }
        (name, callback) => {
            callback.into_iter().for_each(|reference| lua.forget(reference));
            Err(match name {
                None => "redis.register_function must get a function name argument",
                Some(_) => "redis.register_function must get a callback argument",
            })
        }
    }
}

/// What a table of named arguments has said so far.
#[derive(Default)]
struct Named {
    name: Option<Box<[u8]>>,
    description: Option<Box<[u8]>>,
    callback: Option<i32>,
    flags: ScriptFlags,
}

impl Named {
    /// The pair at 2 and 3.
    fn read(&mut self, lua: Lua) -> Result<(), &'static str> {
        const KEY: c_int = 2;
        const VALUE: c_int = 3;
        if !is_string(lua, KEY) {
            return Err("named argument key given to redis.register_function is not a string");
        }
        let key = lua.real_string(KEY).unwrap_or_default().to_ascii_lowercase();
        let text = || is_string(lua, VALUE).then(|| lua.string(VALUE).unwrap_or_default().into());
        match key.as_slice() {
            b"function_name" => {
                let wrong = "function_name argument given to redis.register_function must be a string";
                self.name = Some(text().ok_or(wrong)?);
            }
            b"description" => {
                let wrong = "description argument given to redis.register_function must be a string";
                self.description = Some(text().ok_or(wrong)?);
            }
            b"callback" => {
                if lua.kind(VALUE) != LUA_TFUNCTION {
                    return Err("callback argument given to redis.register_function must be a function");
                }
                if let Some(old) = self.callback.replace(lua.keep()) {
                    lua.forget(old);
                }
            }
            b"flags" => {
                if lua.kind(VALUE) != LUA_TTABLE {
                    return Err(
                        "flags argument to redis.register_function must be a table representing function flags",
                    );
                }
                self.flags = read_flags(lua, VALUE).ok_or("unknown flag given")?;
            }
            _ => return Err("unknown argument given to redis.register_function"),
        }
        Ok(())
    }
}

fn read_flags(lua: Lua, table: c_int) -> Option<ScriptFlags> {
    let mut flags = ScriptFlags::default();
    for index in 1.. {
        lua.get_at(table, index);
        if lua.is_nil(-1) {
            break;
        }
        let name = lua.real_string(-1)?.to_ascii_lowercase();
        shebang::set_flag(&mut flags, &name).ok()?;
        lua.pop(1);
    }
    Some(flags)
}
