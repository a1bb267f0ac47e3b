//! Scripts: on which shards they run, and what their calls run on.
//!
//! The route is fixed before a script runs. One whose text proves that it touches its declared keys alone goes as a `Shard` command:
//! here if they are all here, else they are lent. Every other gets all shards, as a `Roaming` command does. With one worker there is
//! nobody to lend to, and a script waits only for jobs that hold keys.
//! Functions go the same way: their library's text proves it. A call from a script is run as a command of EXEC is (`transaction::run_on_all`).

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use skerry_resp::reply::{Proto, Reply};

use super::Node;
use super::loans::{Lend, LendPlan};
use super::memory::Room;
use super::observed::{Argv, Call};
use super::route::Step;
use super::wave::Admit;
use crate::args::Args;
use crate::client::{Client, ClientId, Parked};
use crate::command::{Command, Flags, Handler, Script};
use crate::commands::Row;
use crate::commands::functions::{key_count_of_function, read_load, read_restore};
use crate::commands::scripting::{NO_SCRIPT, key_count};
use crate::error::{CommandError, Outcome};
use crate::message::HoldMode;
use crate::script::functions::Function;
use crate::script::registry::{Running, parse_sha, sha_of};
use crate::script::{Engine, Host, Program, Reach, Run, ScriptFlags, Sha, Source};
use crate::server::{Server, WorkerStats};
use crate::shard::{Shard, ShardId};
use crate::vector;

impl Node {
    pub(super) fn route_script(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        script: Script,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        if !script.is_run() || self.n_shards() == 1 && self.holds.is_idle() {
            self.run_script_here(client, row, script, args, None);
            return Step::Done;
        }
        let (reach, sha) = match self.reach_of(script, args) {
            Some(found) if key_count(args).is_ok() => found,
            _ => {
                // It answers an error.
                self.run_script_here(client, row, script, args, None);
                return Step::Done;
            }
        };
        match reach {
            Reach::All if self.n_shards() == 1 => {
                if self.waits_for_all(client, admit) {
                    return Step::Parked;
                }
                self.run_script_here(client, row, script, args, sha);
                Step::Done
            }
            Reach::Declared if self.single_owner(row, args) == Some(self.id) => {
                self.route_single(client, row, self.id, args, admit, |node, client, args| {
                    node.run_script_here(client, row, script, args, sha);
                })
            }
            reach => self.lend_to_script(client, row, args, reach),
        }
    }

    fn lend_to_script(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
        reach: Reach,
    ) -> Step {
        let (mode, keys) = match reach {
            Reach::All => (HoldMode::Whole, Vec::new()),
            Reach::Declared => (HoldMode::Exclusive, Self::keys_of(row, args)),
        };
        // Behind a lend of all shards, which names no key.
        let is_behind_whole = client.n_lends > 0 && client.lent.is_empty();
        if is_behind_whole || !self.may_lend(client, row, keys.iter().map(|key| self.server.hash_key(key))) {
            client.parked = Parked::Order;
            return Step::Parked;
        }
        self.lend(client, LendPlan { row, args, multi: None, mode, keys, watch_mask: 0 })
    }

    /// Which shards a script touches, and its SHA-1 if that was computed; `None` if there is no such script.
    fn reach_of(&self, script: Script, args: Args<'_>) -> Option<(Reach, Option<Sha>)> {
        let Server { scripts, functions, .. } = &*self.server;
        let engine = self.scripts.as_deref();
        match script {
            Script::Eval | Script::EvalSha => {
                let is_named = script == Script::EvalSha;
                let sha = if is_named { parse_sha(args.get(1))? } else { sha_of(args.get(1)) };
                let known = engine
                    .and_then(|engine| engine.known_reach(&sha))
                    .or_else(|| scripts.get(&sha).map(|source| source.reach));
                let reach = match known {
                    Some(reach) => reach,
                    None if is_named => return None,
                    // One that does not compile touches nothing.
                    None => Source::read(args.get(1)).map_or(Reach::Declared, |source| source.reach),
                };
                Some((reach, Some(sha)))
            }
            Script::Fcall => {
                let name = args.get(1);
                let known = engine
                    .and_then(|engine| engine.known_reach_of_function(name, functions))
                    .or_else(|| functions.find(name).map(|(library, _)| library.reach));
                known.map(|reach| (reach, None))
            }
            Script::Load | Script::LoadLibrary | Script::RestoreLibraries => Some((Reach::Declared, None)),
        }
    }

    /// Whether a script inside a transaction needs all shards. One that is not known yet may be when its turn comes, and one that is
    /// known may be another if a library is loaded before.
    pub(super) fn takes_all_shards(&self, script: Script, args: Args<'_>) -> bool {
        let is_loading = matches!(script, Script::LoadLibrary | Script::RestoreLibraries);
        is_loading || self.reach_of(script, args).is_none_or(|(reach, _)| reach != Reach::Declared)
    }

    /// What a script says of itself, as far as that is known before it runs.
    pub(super) fn script_flags(&self, command: &Command, args: Args<'_>) -> Option<ScriptFlags> {
        match command.handler {
            Handler::Script(Script::Eval) => ScriptFlags::of_text(args.get(1)),
            Handler::Script(Script::EvalSha) => {
                Some(self.server.scripts.get(&parse_sha(args.get(1))?)?.flags)
            }
            Handler::Script(Script::Fcall) => {
                let (library, index) = self.server.functions.find(args.get(1))?;
                Some(library.functions[index].flags)
            }
            _ => None,
        }
    }

    /// Forgets scripts and functions that were flushed, now and then.
    pub fn follow_flushes(&mut self) {
        if let Some(engine) = &mut self.scripts {
            engine.follow(&self.server.scripts, &self.server.functions);
        }
        self.tell_lua_memory();
    }

    fn tell_lua_memory(&self) {
        let (of_scripts, of_functions) = self.scripts.as_ref().map_or((0, 0), |engine| engine.used_bytes());
        let own = self.own_stats();
        own.script_lua_bytes.store(of_scripts as u64, Relaxed);
        own.function_lua_bytes.store(of_functions as u64, Relaxed);
    }

    fn run_script_here(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        script: Script,
        args: Args<'_>,
        sha: Option<Sha>,
    ) {
        self.is_queue_tracked = client.notes_reads();
        let mut out = std::mem::take(&mut self.script_out);
        out.clear();
        self.script_into(client, row, script, args, &mut [], &mut out, sha);
        self.push_reply(client, &out);
        self.script_out = out;
        self.serve_blocked();
    }

    /// A script whose keys or shards were lent, in the database and protocol in which it was sent.
    pub(super) fn run_script_as_sent(
        &mut self,
        client: &mut Box<Client>,
        lend: &Lend,
        script: Script,
        others: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) {
        let now = (client.db, client.proto);
        (client.db, client.proto) = (lend.db, lend.proto);
        let args = Args::new(&lend.text, &lend.ranges);
        self.script_into(client, lend.row, script, args, others, out, None);
        (client.db, client.proto) = now;
    }

    /// Runs a script, whose SHA-1 may be known; its reply goes to `out`.
    #[expect(clippy::too_many_arguments, reason = "a run is all of these")]
    pub(super) fn script_into(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        script: Script,
        args: Args<'_>,
        others: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
        sha: Option<Sha>,
    ) {
        let (start, proto) = (out.len(), client.proto);
        if script.is_run() && !self.monitors.is_empty() {
            // Before the lines of what it calls.
            let call = Call {
                address: Some((client.is_unix, &client.address)),
                ..Call::of(row, client.id, client.db)
            };
            self.write_line(&call, args);
        }
        let mut engine = self.scripts.take().unwrap_or_else(|| Box::new(Engine::new(LIMIT_BYTES)));
        engine.follow(&self.server.scripts, &self.server.functions);
        let outcome = match script {
            Script::Load => self.load_script(&mut engine, args, proto, out),
            Script::LoadLibrary => self.load_library(&mut engine, args, proto, out),
            Script::RestoreLibraries => self.restore_libraries(&mut engine, args, proto, out),
            Script::Eval | Script::EvalSha | Script::Fcall => {
                self.find_program(&mut engine, script, args, sha).and_then(|(program, n_keys)| {
                    // Other workers search sets without asking: not until the script is over.
                    let run =
                        || self.run_program(&mut engine, &program, n_keys, client, row, args, others, out);
                    vector::withhold(run)
                })
            }
        };
        self.scripts = Some(engine);
        self.tell_lua_memory();
        self.running = row.id;
        if let Err(error) = outcome {
            self.fail_into(out, start, proto, &error);
        }
    }

    /// The script or function that the arguments name, compiled, and how many keys they declare.
    fn find_program(
        &mut self,
        engine: &mut Engine,
        script: Script,
        args: Args<'_>,
        sha: Option<Sha>,
    ) -> Result<(Program, usize), CommandError> {
        if script == Script::Fcall {
            let program = engine.find_function(args.get(1), &self.server.functions)?;
            return Ok((program, key_count_of_function(args)?));
        }
        let registry = &self.server.scripts;
        let is_named = script == Script::EvalSha;
        let sha = match sha {
            Some(sha) => sha,
            None if is_named => parse_sha(args.get(1)).ok_or(NO_SCRIPT)?,
            None => sha_of(args.get(1)),
        };
        let n_keys = key_count(args)?;
        if let Some(program) = engine.find(&sha, registry) {
            return Ok((program, n_keys));
        }
        if let Some(source) = registry.get(&sha) {
            return Ok((engine.compile(&source)?, n_keys));
        }
        if is_named {
            return Err(NO_SCRIPT);
        }
        let source = std::sync::Arc::new(Source::read(args.get(1))?);
        let program = engine.compile(&source)?;
        registry.add(source, false);
        Ok((program, n_keys))
    }

    /// SCRIPT LOAD
    fn load_script(
        &mut self,
        engine: &mut Engine,
        args: Args<'_>,
        proto: Proto,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let registry = &self.server.scripts;
        let text = args.get(2);
        let source = match registry.get(&sha_of(text)) {
            Some(source) => source,
            None => {
                let source = std::sync::Arc::new(Source::read(text)?);
                engine.compile(&source)?;
                source
            }
        };
        let source = registry.add(source, true);
        crate::commands::scripting::reply_sha(&mut Reply::new(out, proto), &source.name);
        Ok(())
    }

    /// FUNCTION LOAD
    fn load_library(
        &mut self,
        engine: &mut Engine,
        args: Args<'_>,
        proto: Proto,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let (policy, text) = read_load(args)?;
        let library = engine.load_library(text, policy, &self.server.functions)?;
        Reply::new(out, proto).bulk(&library.name);
        Ok(())
    }

    /// FUNCTION RESTORE
    fn restore_libraries(
        &mut self,
        engine: &mut Engine,
        args: Args<'_>,
        proto: Proto,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let (policy, texts) = read_restore(args)?;
        engine.restore_libraries(texts, policy, &self.server.functions)?;
        Reply::new(out, proto).ok();
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a run is all of these")]
    fn run_program(
        &mut self,
        engine: &mut Engine,
        program: &Program,
        n_keys: usize,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
        others: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) -> Outcome {
        // It was sent here for its declared keys; another worker has put another function in its place meanwhile.
        let is_short = program.reach == Reach::All && self.n_shards() > 1 && others.is_empty();
        if is_short && program.name.function().is_some() {
            return Err(REPLACED);
        }
        let is_read_only = row.command.flags.has(Flags::READONLY);
        let is_out_of_memory =
            self.memory.is_limited && self.is_over_memory() && matches!(self.make_room(), Room::None);
        program.flags.may_run(is_read_only, is_out_of_memory)?;
        let run = Run {
            args,
            n_keys,
            proto: client.proto,
            is_read_only,
            is_out_of_memory,
            patience: Duration::from_millis(self.config.busy_reply_threshold),
        };
        let before = (client.db, client.proto);
        let function = program.name.function();
        let mut calls = Calls { node: self, client, others, script: args, function, started: Instant::now() };
        let outcome = engine.run(&mut calls, program, &run, out);
        (client.db, client.proto) = before;
        if self.busy.last_look.take().is_some() {
            self.server.scripts.set_idle();
        }
        outcome.map_err(CommandError::from)
    }
}

/// Calls of scripts have no connection of their own.
const NOBODY: ClientId = ClientId(u64::MAX);
const REPLACED: CommandError =
    CommandError::text("TRYAGAIN the function was replaced by another while the call was on its way");
/// Memory of each of a worker's Lua states.
const LIMIT_BYTES: usize = 512 << 20;

/// What the calls of a running script run on.
struct Calls<'a> {
    node: &'a mut Node,
    client: &'a mut Box<Client>,
    others: &'a mut [(ShardId, Box<Shard>)],
    /// The script's own arguments.
    script: Args<'a>,
    function: Option<&'a Function>,
    started: Instant,
}

impl Calls<'_> {
    /// Whether all keys of a command are here: all are, or the script has declared them. If a text was read wrongly, this says so
    /// before a key is looked for in a shard that does not own it.
    fn has_keys(&self, row: &Row, args: Args<'_>) -> bool {
        if self.node.n_shards() == 1 || !self.others.is_empty() {
            return true;
        }
        let n_keys = key_count(self.script).unwrap_or(0);
        let mut is_here =
            !matches!(row.command.handler, Handler::Split(..) | Handler::Whole(_) | Handler::Cursor(_));
        row.command.for_each_key(args, |index, _| {
            is_here &= self.script.from(3).take(n_keys).any(|key| key == args.get(index));
        });
        is_here
    }
}

impl Host for Calls<'_> {
    fn call(&mut self, row: &'static Row, args: Args<'_>, proto: Proto, out: &mut Vec<u8>) {
        if !self.has_keys(row, args) {
            debug_assert!(false, "'{}' of a script that was taken to keep to its keys", row.command.name);
            Reply::new(out, proto).error("ERR the script touches keys that it has not declared");
            return;
        }
        let Self { node, client, others, .. } = self;
        client.proto = proto;
        node.running = row.id;
        let started = node.begin_call(row, args.len());
        node.queue_writer = Some(client.id);
        if node.n_shards() > 1 && row.command.is_write() && row.command.flags.has(Flags::MODULE) {
            node.withdraw_keys(row, args, others);
        }
        node.run_on_all(client, row, args, others, out);
        node.stats.count(row.id);
        if node.is_queue_tracked {
            node.note_reads(client.id, row, args, others);
        }
        if let Some(started) = started {
            let mut call = Call::of(row, NOBODY, client.db);
            call.ns = Some(started.elapsed().as_nanos() as u64);
            call.address = Some((false, "lua"));
            node.look_at_call(&call, &Argv::Sent(args));
        }
    }

    fn while_busy(&mut self, has_written: bool) -> bool {
        let Self { function, script, started, .. } = *self;
        self.node.while_busy(has_written, || {
            Some(Running {
                function: function?.name.clone(),
                command: script.iter().map(Box::from).collect(),
                started,
            })
        })
    }

    fn refuse(&mut self, row: Option<&'static Row>, error: &[u8]) {
        let own = usize::from(self.node.id.0);
        WorkerStats::add(&self.node.server.workers[own].error_replies, 1);
        self.node.stats.reject(row.map(|row| row.id), error);
    }
}
