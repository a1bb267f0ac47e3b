//! A connection as the dispatcher sees it: no socket, only bytes in and bytes out.
//!
//! ```text
//!   query ──parse──► requests ──► run here ───────────────► out ──► socket
//!                        └──► another shard ─► pending ──┘   (replies leave in request order)
//! ```
//!
//! Invariants: while `pending` is empty, replies go straight to `out`; else they wait in `held`, each in its slot, until every
//! earlier slot is answered. `front` is the sequence number of the first pending slot. An idle client owns no buffer.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashSet;

use skerry_resp::reply::Proto;
use skerry_resp::request::Parser;

use crate::args::MIN_SHARED_BYTES;
use crate::blocked::{Claim, EndOfWait};
use crate::command::{Caller, Command, CommandId, Handler};
use crate::commands::Row;
use crate::keyspace::Touch;
use crate::output::{Placed, PlacedStrings};
use crate::pubsub::{Kind, Subscribed};
use crate::shard::{DbIndex, ShardId};
use crate::tracking::Tracking;

/// Names a connection for its whole life: worker, slot, and the slot's generation (replies to gone clients are dropped).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    /// 8 bits worker, 24 bits slot, 32 bits generation.
    pub fn new(worker: ShardId, slot: usize, generation: u32) -> Self {
        debug_assert!(slot < 1 << 24, "more slots than maxclients allows");
        Self((u64::from(worker.0) << 56) | ((slot as u64) << 32) | u64::from(generation))
    }

    pub fn worker(self) -> ShardId {
        ShardId((self.0 >> 56) as u8)
    }

    pub fn slot(self) -> usize {
        ((self.0 >> 32) & 0xff_ffff) as usize
    }

    pub fn generation(self) -> u32 {
        self.0 as u32
    }
}

/// One unanswered, or answered but not yet sendable, request.
#[derive(Debug)]
pub enum Slot {
    /// Sent to another shard. `is_write` counts toward the client's unanswered writes; a muted reply is dropped (CLIENT REPLY).
    Waiting { is_write: bool, is_muted: bool },
    /// The reply is `held[start..start + len]`.
    Ready { start: usize, len: usize },
    /// Waits for the parts of a `Split`, for a lend or for a job (by their own tables).
    Gathering { is_muted: bool, is_split: bool },
}

/// A command queued by MULTI: its row and a copy of its arguments.
pub struct Queued {
    pub command: &'static Command,
    pub row: CommandId,
    pub text: Vec<u8>,
    pub ranges: Vec<skerry_resp::request::ArgRange>,
}

/// The state of MULTI.
#[derive(Default)]
pub struct Multi {
    pub queue: Vec<Queued>,
    /// A queued command was refused: EXEC answers EXECABORT.
    pub is_broken: bool,
    pub bytes: usize,
}

impl Multi {
    /// Whether the queue may change the connection (SELECT, HELLO).
    pub fn changes_connection(&self) -> bool {
        self.queue.iter().any(|queued| matches!(queued.command.handler, Handler::Conn(_)))
    }
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReplyMode {
    #[default]
    On,
    Off,
    /// The reply of the running command and of the next one are left out: set by SKIP.
    SkipNext,
    /// The reply of this command is left out.
    Skip,
}

/// What a client's next request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    No,
    /// Earlier requests of its own on other shards.
    Order,
    /// Room toward a peer.
    Credit,
    /// Answers to what it has asked of other shards: they may be big.
    Room,
    /// A key that is held by a lend.
    Hold,
    /// A slice for its search or plan.
    Work,
    /// CLIENT PAUSE.
    Pause,
}

/// A request that waits for a key to be filled, or may yet. Nothing behind it runs.
pub struct BlockedRequest {
    /// Its slot.
    pub sequence: u32,
    pub claim: Arc<Claim>,
    pub state: BlockedState,
    pub reason: Reason,
    pub deadline_ms: Option<i64>,
    /// Shards in whose lines it may stand.
    pub mask: u64,
    /// What runs when it is called, if its keys have several owners.
    pub request: Option<CalledRequest>,
    /// It was ended while its lend was under way: the command does not run then.
    pub ending: Option<Ending>,
    /// One more key was filled meanwhile.
    pub is_called_again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedState {
    /// Sent to the owner, or its keys are being lent: whether it waits is not known.
    Asked,
    Waits,
    /// A key was filled, and all its keys are being lent.
    Called,
    /// Its reply is made and about to be in its place: nobody can end the wait any more.
    Answered,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Keys,
    /// WAIT
    Replicas,
    /// WAITAOF
    LocalAndReplicas,
}

/// How a wait ends without what it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its time is over, or CLIENT UNBLOCK says so.
    TimedOut,
    /// CLIENT UNBLOCK id ERROR
    Unblocked,
}

pub struct CalledRequest {
    pub row: &'static Row,
    pub text: Vec<u8>,
    pub ranges: Vec<skerry_resp::request::ArgRange>,
}

impl BlockedRequest {
    pub fn asked(sequence: u32) -> Self {
        Self {
            sequence,
            claim: Arc::default(),
            state: BlockedState::Asked,
            reason: Reason::Keys,
            deadline_ms: None,
            mask: 0,
            request: None,
            ending: None,
            is_called_again: false,
        }
    }

    /// Ends the wait, if there is one and nobody has served it. Its answer is the dispatcher's, now or when its lend is there.
    pub fn end(&mut self, ending: Ending) -> EndOfWait {
        match self.state {
            BlockedState::Asked | BlockedState::Answered => EndOfWait::Over,
            BlockedState::Waits => self.claim.end(),
            BlockedState::Called if self.ending.is_some() => EndOfWait::Over,
            BlockedState::Called => {
                self.ending = Some(ending);
                EndOfWait::Ended
            }
        }
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    No,
    /// When all that is owed is written (QUIT, protocol errors).
    AfterReplies,
    Now,
}

/// A connection.
pub struct Client {
    pub id: ClientId,
    /// CLIENT ID: 1, 2, 3 ... over the whole server.
    pub number: u64,
    pub db: DbIndex,
    pub proto: Proto,
    pub is_authenticated: bool,
    pub reply_mode: ReplyMode,
    /// The request that has just run has seen to that itself (EXEC).
    pub is_reply_settled: bool,
    pub closing: Closing,
    pub is_no_evict: bool,
    pub is_monitor: bool,
    /// Its transaction runs.
    pub is_executing: bool,
    /// CLIENT NO-TOUCH
    pub touch: Touch,
    pub is_unix: bool,
    pub name: Vec<u8>,
    pub lib_name: Vec<u8>,
    pub lib_ver: Vec<u8>,
    pub address: String,
    pub local_address: String,
    pub fd: i32,
    pub created_ms: i64,
    pub last_active_ms: i64,
    pub last_command: Option<&'static Command>,
    pub n_commands: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub multi: Option<Box<Multi>>,
    /// Shards that hold watches of this client.
    pub watch_mask: u64,
    /// Names of the watched keys (EXEC holds them).
    pub watched: Vec<Box<[u8]>>,
    /// What it asked for by CLIENT TRACKING.
    pub tracking: Option<Box<Tracking>>,
    /// What it listens to; `None` if nothing.
    pub subscribed: Option<Box<Subscribed>>,
    /// Its last request waits for a key, or may yet.
    pub blocked: Option<Box<BlockedRequest>>,

    pub parser: Parser,
    /// Bytes read and not yet run.
    pub query: Vec<u8>,
    /// Bytes at the start of `query` that have run.
    pub query_at: usize,
    /// At least so many bytes are missing of the request at the end of `query`; 0 if that is not known.
    pub missing_input: usize,
    /// Replies ready for the socket.
    pub out: Vec<u8>,
    /// Long strings that belong into `out`.
    pub placed: PlacedStrings,
    /// Bytes at the start of `out` that are written.
    pub out_at: usize,
    /// Replies that wait for an earlier one.
    pub held: Vec<u8>,
    /// Long strings that belong into `held`.
    pub held_placed: Vec<Placed>,
    pub pending: VecDeque<Slot>,
    /// Running average of the bytes of answers from other shards.
    answer_bytes: usize,
    /// Sequence number of `pending[0]`.
    pub front: u32,
    /// Unanswered writes on other shards, all by `write_command` (`None`: by several), to the shards in `write_mask`.
    pub n_unanswered_writes: u32,
    pub write_command: Option<&'static Command>,
    pub write_mask: u64,
    /// Shards that were asked for anything since all its answers were last there.
    pub asked_mask: u64,
    /// Unanswered `Split`s, WATCHes and jobs: a write waits for them.
    pub n_gathers: u32,
    /// Lends in flight, all by `lend_command`.
    pub n_lends: u32,
    /// One of them is an EXEC that may change the connection (SELECT, HELLO): what comes after it waits.
    pub is_exec_rebinding: bool,
    pub lend_command: Option<&'static Command>,
    /// Hashes of the keys of write lends in flight: each is in one of them only.
    pub lent: HashSet<u64>,
    /// What the next request waits for: nothing more is run until that changes.
    pub parked: Parked,
    /// Which publication of a vector set the search in the line began to read.
    pub publication: u64,
    /// In the node's list of clients to run again.
    pub is_queued: bool,
    /// In the worker's list of clients with output.
    pub is_dirty: bool,
    /// In its list of clients with messages.
    pub is_told: bool,
    /// When the output first passed the soft limit.
    pub soft_limit_since_ms: i64,
}

impl Client {
    pub fn new(id: ClientId, number: u64, now_ms: i64) -> Self {
        Self {
            id,
            number,
            db: DbIndex(0),
            proto: Proto::Resp2,
            is_authenticated: true,
            reply_mode: ReplyMode::On,
            is_reply_settled: false,
            closing: Closing::No,
            is_no_evict: false,
            is_monitor: false,
            is_executing: false,
            touch: Touch::Marks,
            is_unix: false,
            name: Vec::new(),
            lib_name: Vec::new(),
            lib_ver: Vec::new(),
            address: String::new(),
            local_address: String::new(),
            fd: -1,
            created_ms: now_ms,
            last_active_ms: now_ms,
            last_command: None,
            n_commands: 0,
            bytes_in: 0,
            bytes_out: 0,
            multi: None,
            watch_mask: 0,
            watched: Vec::new(),
            tracking: None,
            subscribed: None,
            blocked: None,
            parser: Parser::default(),
            query: Vec::new(),
            query_at: 0,
            missing_input: 0,
            out: Vec::new(),
            placed: PlacedStrings::default(),
            out_at: 0,
            held: Vec::new(),
            held_placed: Vec::new(),
            pending: VecDeque::new(),
            answer_bytes: MAX_ANSWERS_UNDER_WAY / FIRST_PENDING,
            front: 0,
            n_unanswered_writes: 0,
            write_command: None,
            write_mask: 0,
            asked_mask: 0,
            n_gathers: 0,
            n_lends: 0,
            is_exec_rebinding: false,
            lend_command: None,
            lent: HashSet::new(),
            parked: Parked::No,
            publication: 0,
            is_queued: false,
            is_dirty: false,
            is_told: false,
            soft_limit_since_ms: 0,
        }
    }

    /// Who asks, as handlers see it.
    #[inline]
    pub fn caller(&self) -> Caller {
        Caller { client: self.id, db: self.db, touch: self.touch }
    }

    /// Whether the keys that it reads now are noted.
    #[inline]
    pub fn notes_reads(&self) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.notes_reads())
    }

    /// How many requests it may have unanswered elsewhere: their replies together stay bounded.
    pub fn max_pending(&self) -> usize {
        (MAX_ANSWERS_UNDER_WAY / self.answer_bytes.max(1)).clamp(MIN_PENDING, MAX_PENDING)
    }

    /// Whether its next request waits for something.
    pub fn is_waiting(&self) -> bool {
        self.parked != Parked::No
    }

    /// Whether nothing that it sends runs now: it is blocked, or a transaction in flight may change the connection.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.is_exec_rebinding || self.blocked.is_some()
    }

    /// Whether it waits for a key, as CLIENT LIST tells.
    pub fn is_blocked(&self) -> bool {
        self.blocked.as_ref().is_some_and(|it| matches!(it.state, BlockedState::Waits | BlockedState::Called))
    }

    /// What it has sent that has not run: input, and what a transaction has queued.
    pub fn waiting_input_bytes(&self) -> usize {
        self.query.len() + self.multi.as_ref().map_or(0, |multi| multi.bytes)
    }

    /// Makes room at the end of `query` for the rest of a long request, `read_bytes` at least of which are missing; for how much of it,
    /// 0 if there is none such. Room follows what has come, not what was announced.
    pub fn make_room(&mut self, read_bytes: usize, max_bytes: usize) -> usize {
        if self.missing_input < MIN_SHARED_BYTES || self.is_waiting() || self.is_queued {
            return 0;
        }
        let room = self.missing_input.min(max_bytes);
        if self.query.capacity() - self.query.len() < room {
            let grow = self.missing_input.min(self.query.len().max(read_bytes));
            self.query.reserve_exact(grow);
        }
        room.min(self.query.capacity() - self.query.len())
    }

    /// Bytes of output not yet written.
    pub fn unsent(&self) -> usize {
        let placed: usize = self.held_placed.iter().map(|(_, bytes)| bytes.len()).sum();
        self.out.len() - self.out_at + self.held.len() + self.placed.unwritten() + placed
    }

    /// Takes back what was written since `out` had `out_len` bytes and `held` had `held_len`.
    #[cold]
    pub fn cut_output(&mut self, out_len: usize, held_len: usize) {
        self.out.truncate(out_len);
        self.placed.truncate(out_len);
        self.held.truncate(held_len);
        self.held_placed.retain(|(at, _)| *at <= held_len);
    }

    /// Drops the reply of the last request, which is answered but waits for earlier ones.
    #[cold]
    pub fn drop_last_held(&mut self) {
        if let Some(Slot::Ready { start, len }) = self.pending.back_mut() {
            let (start, end) = (*start, *start + std::mem::take(len));
            self.held_placed.retain(|(at, _)| *at <= start || *at > end);
        }
    }

    /// Whether something it has asked still runs, waits its turn or is unwritten. What waits for the end of a pause is not owed:
    /// it has not begun.
    pub fn is_owed_replies(&self) -> bool {
        if self.is_blocked() {
            // It waits for nothing but its key, and the dead eat nothing. The last slot is that request's. `held` keeps replies that have
            // moved to `out` until the line is empty, so it does not tell.
            return self.pending.len() > 1 || self.out.len() > self.out_at;
        }
        let is_running = self.is_queued || !matches!(self.parked, Parked::No | Parked::Pause);
        is_running || (self.parked != Parked::Pause && (!self.pending.is_empty() || self.unsent() > 0))
    }

    /// The sequence number that the next pushed slot will have.
    pub fn next_sequence(&self) -> u32 {
        self.front.wrapping_add(self.pending.len() as u32)
    }

    /// Answers the slot `sequence` with `reply`, and the long strings that belong into it; replies that became sendable move to
    /// `out`.
    pub fn answer(&mut self, sequence: u32, reply: &[u8], strings: impl Iterator<Item = Placed>) {
        let index = sequence.wrapping_sub(self.front) as usize;
        let Some(slot) = self.pending.get_mut(index) else { return };
        let is_muted = match *slot {
            Slot::Waiting { is_write, is_muted } => {
                if is_write {
                    self.n_unanswered_writes -= 1;
                    if self.n_unanswered_writes == 0 {
                        self.write_mask = 0;
                    }
                }
                is_muted
            }
            Slot::Gathering { is_muted, is_split } => {
                self.n_gathers -= u32::from(is_split);
                is_muted
            }
            Slot::Ready { .. } => panic!("a slot is answered twice"),
        };
        self.answer_bytes = (self.answer_bytes * 7 + reply.len()) / 8;
        let (reply, strings) = match is_muted {
            true => (&[][..], None),
            false => (reply, Some(strings)),
        };
        let strings = strings.into_iter().flatten();
        if index == 0 {
            let start = self.out.len();
            strings.for_each(|(at, bytes)| self.placed.push(start + at, bytes));
            self.out.extend_from_slice(reply);
            self.pending.pop_front();
            self.front = self.front.wrapping_add(1);
            self.release_ready();
        } else {
            let start = self.held.len();
            self.held_placed.extend(strings.map(|(at, bytes)| (start + at, bytes)));
            self.held.extend_from_slice(reply);
            *slot = Slot::Ready { start, len: reply.len() };
        }
    }

    /// Whether `sequence` is the first in the line.
    pub fn is_next(&self, sequence: u32) -> bool {
        let is_muted = matches!(self.pending.front(), None | Some(Slot::Gathering { is_muted: true, .. }));
        self.front == sequence && !is_muted
    }

    /// Moves answered slots at the front of the line to `out`.
    fn release_ready(&mut self) {
        while let Some(Slot::Ready { start, len }) = self.pending.front() {
            let (start, len) = (*start, *len);
            if !self.held_placed.is_empty() {
                let is_in = |placed: &mut Placed| placed.0 > start && placed.0 <= start + len;
                let out_len = self.out.len();
                for (at, bytes) in self.held_placed.extract_if(.., is_in) {
                    self.placed.push(out_len + at - start, bytes);
                }
            }
            self.out.extend_from_slice(&self.held[start..start + len]);
            self.pending.pop_front();
            self.front = self.front.wrapping_add(1);
        }
        if self.pending.is_empty() {
            self.asked_mask = 0;
            self.held.clear();
            if self.held.capacity() > KEPT_BUFFER {
                self.held = Vec::new();
            }
        }
    }

    /// Puts it on its worker's list of those with output, if it is not there.
    #[inline]
    pub fn mark_dirty(&mut self, dirty: &mut Vec<ClientId>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push(self.id);
        }
    }

    /// All its memory.
    pub fn bytes(&self) -> usize {
        self.buffer_bytes() + size_of::<Self>()
    }

    /// Memory of the buffers, for CLIENT LIST and limits. Strings that leave by reference count: the client keeps them.
    pub fn buffer_bytes(&self) -> usize {
        let placed: usize = self.held_placed.iter().map(|(_, bytes)| bytes.len()).sum();
        self.query.capacity()
            + self.out.capacity()
            + self.held.capacity()
            + self.placed.unwritten()
            + placed
            + self.multi.as_ref().map_or(0, |m| m.bytes)
            + self.subscribed.as_ref().map_or(0, |subscribed| {
                (subscribed.count(Kind::Channel) + subscribed.count(Kind::Shard)) * SUBSCRIPTION_BYTES
            })
    }
}

/// What a subscription takes, about: its name and its place in a set.
const SUBSCRIPTION_BYTES: usize = 64;
/// Bytes of replies that one client may have under way from other shards, as far as their size is foreseeable.
const MAX_ANSWERS_UNDER_WAY: usize = 4 << 20;
/// Bounds of the number of requests that this makes, and its value before any answer has come.
const MIN_PENDING: usize = 4;
const MAX_PENDING: usize = 4096;
const FIRST_PENDING: usize = 64;

/// A buffer bigger than this is given back when it empties.
pub const KEPT_BUFFER: usize = 64 << 10;

/// The connections of one worker. A client that is being run is out of its place (`take`, `put_back`).
#[derive(Default)]
pub struct Clients {
    places: Vec<Place>,
    free: Vec<usize>,
    len: usize,
    /// Connections whose `closing` somebody else has set (CLIENT KILL), for the worker to see to.
    pub to_close: Vec<ClientId>,
    /// Clients whose wait CLIENT UNBLOCK has ended and that are to be told so.
    pub to_unblock: Vec<(ClientId, Ending)>,
}

#[derive(Default)]
struct Place {
    generation: u32,
    client: Option<Box<Client>>,
}

impl Clients {
    /// Admits a connection.
    pub fn insert(&mut self, worker: ShardId, make: impl FnOnce(ClientId) -> Client) -> ClientId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let id = ClientId::new(worker, slot, self.places[slot].generation);
        self.places[slot].client = Some(Box::new(make(id)));
        self.len += 1;
        id
    }

    /// Ends a connection: its id is dead from here on.
    pub fn remove(&mut self, id: ClientId) -> Option<Box<Client>> {
        let place = self.places.get_mut(id.slot())?;
        if place.generation != id.generation() {
            return None;
        }
        let client = place.client.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.slot());
        self.len -= 1;
        Some(client)
    }

    #[inline]
    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        let place = self.places.get_mut(id.slot())?;
        if place.generation == id.generation() { place.client.as_deref_mut() } else { None }
    }

    /// Takes a client out of its place to run it.
    #[inline]
    pub fn take(&mut self, id: ClientId) -> Option<Box<Client>> {
        let place = self.places.get_mut(id.slot())?;
        if place.generation == id.generation() { place.client.take() } else { None }
    }

    /// Puts a taken client back.
    #[inline]
    pub fn put_back(&mut self, client: Box<Client>) {
        let place = &mut self.places[client.id.slot()];
        debug_assert!(place.client.is_none() && place.generation == client.id.generation());
        place.client = Some(client);
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the client of this id, a connection of this worker, is being run, out of its place.
    pub fn is_out(&self, id: ClientId) -> bool {
        self.places
            .get(id.slot())
            .is_some_and(|place| place.generation == id.generation() && place.client.is_none())
    }

    /// The connections of the worker that owns `shard`: none if that shard is here on loan, for its worker's connections are not.
    pub fn of_owner(&self, shard: ShardId) -> impl Iterator<Item = &Client> {
        self.iter().filter(move |client| client.id.worker() == shard)
    }

    /// Memory of the connections of `shard`'s owner, and their buffers.
    pub fn bytes(&self, shard: ShardId) -> usize {
        self.of_owner(shard).map(Client::bytes).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.places.iter().filter_map(|place| place.client.as_deref())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.places.iter_mut().filter_map(|place| place.client.as_deref_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn none() -> impl Iterator<Item = Placed> {
        std::iter::empty()
    }

    #[test]
    fn replies_leave_in_request_order() {
        let mut client = Client::new(ClientId::new(ShardId(0), 0, 0), 1, 0);
        for _ in 0..3 {
            client.pending.push_back(Slot::Waiting { is_write: false, is_muted: false });
        }
        client.answer(2, b"c", none());
        client.answer(1, b"$2\r\n\r\n", [(4, Bytes::from_static(b"xy"))].into_iter());
        assert!(client.out.is_empty());
        assert_eq!(client.unsent(), 9);
        client.answer(0, b"a", none());
        assert_eq!(client.out, b"a$2\r\n\r\nc");
        assert_eq!(client.placed.next_piece(&client.out, 5), b"xy");
        assert!(client.held_placed.is_empty());
        assert!(client.pending.is_empty() && client.held.is_empty());
        assert_eq!(client.next_sequence(), 3);
    }

    #[test]
    fn a_blocked_client_is_owed_only_what_is_unwritten() {
        let mut client = Client::new(ClientId::new(ShardId(0), 0, 0), 1, 0);
        for _ in 0..3 {
            client.pending.push_back(Slot::Waiting { is_write: false, is_muted: false });
        }
        client.answer(1, b"second", none());
        client.answer(0, b"first", none());
        client.blocked = Some(Box::new(BlockedRequest {
            sequence: 2,
            claim: Arc::default(),
            state: BlockedState::Waits,
            reason: Reason::Keys,
            deadline_ms: None,
            mask: 0,
            request: None,
            ending: None,
            is_called_again: false,
        }));
        assert!(client.is_owed_replies());
        client.out_at = client.out.len();
        assert!(client.pending.len() == 1 && !client.held.is_empty() && !client.is_owed_replies());
    }

    #[test]
    fn a_dead_id_finds_nobody() {
        let mut clients = Clients::default();
        let first = clients.insert(ShardId(3), |id| Client::new(id, 1, 0));
        assert!(clients.remove(first).is_some());
        let second = clients.insert(ShardId(3), |id| Client::new(id, 2, 0));
        assert_eq!(first.slot(), second.slot());
        assert!(clients.get_mut(first).is_none() && clients.get_mut(second).is_some());
    }
}
