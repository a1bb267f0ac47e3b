//! Scripts: on which shards they run, and what their calls run on.
//!
//! The route is fixed before a script runs. One whose text proves that it touches its declared keys alone goes as a `Shard` command:
//! here if they are all here, else they are lent. Every other gets all shards, as a `Roaming` command does. With one worker there is
//! nobody to lend to, and a script waits only for jobs that hold keys.
//! A call from a script is run as a command of EXEC is (`transaction::run_on_all`).

use std::time::Duration;

use skerry_resp::reply::{Proto, Reply};

use super::Node;
use super::loans::{Lend, LendPlan};
use super::memory::Room;
use super::observed::{Argv, Call};
use super::route::Step;
use super::wave::Admit;
use crate::args::Args;
use crate::client::{Client, ClientId, Parked};
use crate::command::{Flags, Handler, Script};
use crate::commands::Row;
use crate::commands::scripting::{NO_SCRIPT, key_count};
use crate::error::{CommandError, Outcome};
use crate::message::HoldMode;
use crate::script::registry::{parse_sha, sha_of};
use crate::script::{Engine, Host, Program, Reach, Run, Source};
use crate::server::WorkerStats;
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
        if script == Script::Load || self.n_shards() == 1 && self.holds.is_idle() {
            self.run_script_here(client, row, script, args);
            return Step::Done;
        }
        let reach = match self.reach_of(script, args) {
            Some(reach) if key_count(args).is_ok() => reach,
            _ => {
                // It answers an error.
                self.run_script_here(client, row, script, args);
                return Step::Done;
            }
        };
        match reach {
            Reach::All if self.n_shards() == 1 => {
                if self.waits_for_all(client, admit) {
                    return Step::Parked;
                }
                self.run_script_here(client, row, script, args);
                Step::Done
            }
            Reach::Declared if self.single_owner(row, args) == Some(self.id) => {
                self.route_single(client, row, self.id, args, admit, |node, client, args| {
                    node.run_script_here(client, row, script, args);
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

    /// Which shards a script touches; `None` if there is no such script.
    fn reach_of(&self, script: Script, args: Args<'_>) -> Option<Reach> {
        match script {
            Script::Eval => {
                let known = self.server.scripts.get(&sha_of(args.get(1)));
                Some(known.map_or_else(
                    || Source::read(args.get(1)).map_or(Reach::Declared, |s| s.reach),
                    |s| s.reach,
                ))
            }
            Script::EvalSha => Some(self.server.scripts.get(&parse_sha(args.get(1))?)?.reach),
            Script::Load => Some(Reach::Declared),
        }
    }

    /// Whether a script inside a transaction needs all shards. One that is not known yet may be when its turn comes.
    pub(super) fn takes_all_shards(&self, script: Script, args: Args<'_>) -> bool {
        self.reach_of(script, args) != Some(Reach::Declared)
    }

    fn run_script_here(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        script: Script,
        args: Args<'_>,
    ) {
        self.is_queue_tracked = client.notes_reads();
        let mut out = std::mem::take(&mut self.script_out);
        out.clear();
        self.script_into(client, row, script, args, &mut [], &mut out);
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
        self.script_into(client, lend.row, script, args, others, out);
        (client.db, client.proto) = now;
    }

    /// Runs a script, whose reply goes to `out`.
    pub(super) fn script_into(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        script: Script,
        args: Args<'_>,
        others: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) {
        let (start, proto) = (out.len(), client.proto);
        if !self.monitors.is_empty() {
            // Before the lines of what it calls.
            let call = Call {
                address: Some((client.is_unix, &client.address)),
                ..Call::of(row, client.id, client.db)
            };
            self.write_line(&call, args);
        }
        let mut engine = self.scripts.take().unwrap_or_else(|| Box::new(Engine::new(LIMIT_BYTES)));
        let outcome = match script {
            Script::Load => self.load_script(&mut engine, args, proto, out),
            Script::Eval | Script::EvalSha => {
                self.find_script(&mut engine, script, args).and_then(|program| {
                    // Other workers search sets without asking: not until the script is over.
                    let run = || self.run_program(&mut engine, program, client, row, args, others, out);
                    vector::withhold(run)
                })
            }
        };
        self.scripts = Some(engine);
        self.running = row.id;
        if let Err(error) = outcome {
            self.fail_into(out, start, proto, &error);
        }
    }

    /// The script that the arguments name, compiled.
    fn find_script(
        &mut self,
        engine: &mut Engine,
        script: Script,
        args: Args<'_>,
    ) -> Result<Program, CommandError> {
        let registry = &self.server.scripts;
        let is_named = script == Script::EvalSha;
        let sha = if is_named { parse_sha(args.get(1)).ok_or(NO_SCRIPT)? } else { sha_of(args.get(1)) };
        key_count(args)?;
        if let Some(program) = engine.find(&sha, registry) {
            return Ok(program);
        }
        if let Some(source) = registry.get(&sha) {
            return engine.compile(&source);
        }
        if is_named {
            return Err(NO_SCRIPT);
        }
        let source = std::sync::Arc::new(Source::read(args.get(1))?);
        let program = engine.compile(&source)?;
        registry.add(source, false);
        Ok(program)
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

    #[expect(clippy::too_many_arguments, reason = "a run is all of these")]
    fn run_program(
        &mut self,
        engine: &mut Engine,
        program: Program,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
        others: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) -> Outcome {
        let is_read_only = row.command.flags.has(Flags::READONLY);
        let is_out_of_memory =
            self.memory.is_limited && self.is_over_memory() && matches!(self.make_room(), Room::None);
        program.flags.may_run(is_read_only, is_out_of_memory)?;
        let run = Run {
            args,
            n_keys: key_count(args)?,
            proto: client.proto,
            is_read_only,
            is_out_of_memory,
            patience: Duration::from_millis(self.config.busy_reply_threshold),
        };
        let before = (client.db, client.proto);
        let mut calls = Calls { node: self, client, others, script: args };
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
/// Memory of one worker's Lua.
const LIMIT_BYTES: usize = 512 << 20;

/// What the calls of a running script run on.
struct Calls<'a> {
    node: &'a mut Node,
    client: &'a mut Box<Client>,
    others: &'a mut [(ShardId, Box<Shard>)],
    /// The script's own arguments.
    script: Args<'a>,
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
        self.node.while_busy(has_written)
    }

    fn refuse(&mut self, row: Option<&'static Row>, error: &[u8]) {
        let own = usize::from(self.node.id.0);
        WorkerStats::add(&self.node.server.workers[own].error_replies, 1);
        self.node.stats.reject(row.map(|row| row.id), error);
    }
}
