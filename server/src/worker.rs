//! THE loop: one worker per core, pinned; it owns one shard and its clients.
//!
//! ```text
//!   poll ─► read ready clients ─► run them ─► publish outboxes ─► run peers' batches ─► publish replies ─► write clients ─► tick
//! ```
//!
//! A turn has a time budget (`TURN_NS`) across clients and inboxes; what is read and not run waits for the next turn. Nothing is held
//! across socket I/O: a slow client costs its own buffers only. Sockets are registered once, edge-triggered: a read shorter than the
//! buffer has emptied the socket. Knows no command. Beside it: `accept` (new connections), `write` (output), `background` (what no client
//! asks for), `client_memory` (maxmemory-clients), `stream` (a socket).

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::event::Event;
use mio::{Events, Poll, Token};

use crate::alloc::{Purging, huge};
use crate::client::{ClientId, Closing};
use crate::dispatch::Node;
use crate::listener::{Left, Listeners};
use crate::mesh::Mesh;
use crate::server::{Server, WorkerStats};
use crate::turns::TurnTrace;

mod accept;
mod background;
mod client_memory;
mod stream;
mod write;

pub use stream::Stream;
use stream::read_to_end;

/// Time budget of one turn.
const TURN_NS: u64 = 1_000_000;
/// Input between two looks at the clock, which costs what a tenth of a small request does; a read counts for so much more.
const LOOK_EVERY_BYTES: usize = 16 << 10;
const READ_COST_BYTES: usize = 2 << 10;
/// One read per ready client and turn.
const READ_BUFFER: usize = 64 << 10;
/// One read into the buffer of a client that sends a long request.
const LONG_READ: usize = 256 << 10;
/// A parked client with more unread input than this is not read further.
const MAX_WAITING_INPUT: usize = 1 << 20;

/// An outbox that has grown to this is published before the turn ends.
const EARLY_PUBLISH: usize = 48 << 10;
/// How long output may wait for the replies that follow it.
const LATE: Duration = Duration::from_millis(1);
/// Output buffers kept for the next clients.
const MAX_SPARE: usize = 64;

pub(crate) const WAKER: Token = Token(usize::MAX);
const FIRST_LISTENER: usize = usize::MAX - 64;

/// A connection on its way to the worker that will own it.
pub struct Arrival {
    pub stream: Stream,
    pub address: String,
    pub local_address: String,
    /// Refused by protected mode: gets the error and is closed.
    pub is_refused: Option<&'static str>,
}

struct Connection {
    stream: Stream,
    id: ClientId,
    /// The socket may hold more input.
    has_unread: bool,
    /// In `unread`.
    is_listed: bool,
    /// The last write did not take all.
    is_blocked: bool,
    /// The client sends no more: a short read is not the last one, the end of the input follows it without an event of its own.
    is_read_closed: bool,
}

/// One worker.
pub struct Worker {
    poll: Poll,
    node: Node,
    mesh: Mesh,
    server: Arc<Server>,
    connections: Vec<Option<Connection>>,
    /// Shared with what runs while a script keeps this worker busy.
    arrivals: Arc<Mutex<Receiver<Arrival>>>,
    /// Only worker 0 listens; it hands connections out.
    listeners: Option<Listeners>,
    /// What waits at them that the poll will not tell of again.
    left: Left,
    placing: Vec<Sender<Arrival>>,
    /// Sockets that may hold more input.
    unread: VecDeque<usize>,
    /// Clients whose input has ended while they are owed replies: closed when they have them.
    ended: Vec<ClientId>,
    buffer: Box<[u8]>,
    /// Output buffers of idle clients.
    spare: Vec<Vec<u8>>,
    /// Clients whose output waits a little for replies of other shards, so that both leave in one write.
    late: Vec<ClientId>,
    /// When the oldest of them began to wait.
    late_since: Instant,
    /// When the oldest message that is not written began to wait for more.
    told_since: Option<Instant>,
    next_tick: Instant,
    next_client_weighing: Instant,
    next_second: Instant,
    trace: TurnTrace,
    /// Worker 0 decides when freed pages go back to the system.
    purging: Option<Purging>,
    has_expired_more: bool,
    next_wake_to_evict: Instant,
}

/// What a worker is built from.
pub struct WorkerParts {
    pub poll: Poll,
    pub node: Node,
    pub mesh: Mesh,
    pub server: Arc<Server>,
    pub arrivals: Receiver<Arrival>,
    pub listeners: Option<Listeners>,
    pub placing: Vec<Sender<Arrival>>,
}

impl Worker {
    pub fn new(mut parts: WorkerParts) -> Self {
        let now = Instant::now();
        let arrivals = Arc::new(Mutex::new(parts.arrivals));
        if parts.node.id.0 != 0 {
            parts.node.while_scripts_run(accept::hand_back(&parts.node, arrivals.clone(), &parts.placing));
        }
        let purging = (parts.node.id.0 == 0).then(Purging::default);
        Self {
            poll: parts.poll,
            node: parts.node,
            mesh: parts.mesh,
            server: parts.server,
            connections: Vec::new(),
            arrivals,
            listeners: parts.listeners,
            left: Left::Nothing,
            placing: parts.placing,
            unread: VecDeque::new(),
            ended: Vec::new(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            spare: Vec::new(),
            late: Vec::new(),
            late_since: now,
            told_since: None,
            next_tick: now,
            next_client_weighing: now,
            next_second: now,
            trace: TurnTrace::default(),
            purging,
            has_expired_more: false,
            next_wake_to_evict: now,
        }
    }

    /// Turns until the server stops.
    pub fn run(mut self) {
        huge::defer_frees();
        let mut events = Events::with_capacity(1024);
        if let Some(listeners) = &mut self.listeners {
            listeners.register(self.poll.registry(), FIRST_LISTENER);
        }
        loop {
            self.wait(&mut events);
            let started = Instant::now();
            if self.server.is_stopping.load(Ordering::Relaxed) {
                break;
            }
            let is_traced = self.node.config.turn_trace;
            self.trace.begin(is_traced);
            self.turn(&events, started);
            self.trace.end(is_traced, &self.server, self.node.id);
        }
        self.stop();
    }

    /// Polls: not at all if there is work, until the next tick otherwise.
    fn wait(&mut self, events: &mut Events) {
        // What a full ring did not take goes out as soon as the peer has made room; nobody wakes us for that.
        let has_unsent = self.node.outboxes.iter().any(|outbox| !outbox.is_empty());
        let has_work = has_unsent
            || !self.unread.is_empty()
            || !self.node.dirty.is_empty()
            || !self.node.told.is_empty()
            || self.node.has_work()
            || huge::has_garbage()
            || self.has_expired_more
            || self.node.must_evict()
            || self.node.waits_for_memory()
            || self.left == Left::More;
        let mut timeout = Duration::ZERO;
        let mut sleeps = false;
        if !has_work {
            let mesh = &self.mesh;
            sleeps = mesh.door().sleep.may_sleep(|| mesh.has_mail());
            if sleeps {
                timeout = match self.late.is_empty() {
                    true => self.next_tick.saturating_duration_since(Instant::now()),
                    false => LATE,
                };
                if let Some(ms) = self.node.ms_to_deadline(unix_ms()) {
                    timeout = timeout.min(Duration::from_millis(ms));
                }
            }
        }
        if let Err(error) = self.poll.poll(events, Some(timeout))
            && error.kind() != ErrorKind::Interrupted
        {
            panic!("epoll failed: {error}");
        }
        if sleeps {
            self.mesh.door().sleep.woke();
        }
    }

    fn turn(&mut self, events: &Events, started: Instant) {
        self.node.begin_turn(unix_ms());
        if self.left == Left::More {
            self.accept_left();
        }
        for event in events {
            self.take_event(event);
        }
        self.read_ready(started);
        self.run_waiting(started);
        self.publish();
        self.take_mail(started);
        self.admit_visitors();
        self.node.wake_credit_waiters();
        self.node.note_closing();
        self.write_dirty();
        self.close_ended();
        self.publish();
        self.background();
        // What the background has answered does not wait for the next event.
        self.write_dirty();
        self.write_told(!events.is_empty(), started);
        self.publish();
        self.wake_to_evict(started);
        self.hold_client_memory(started);
        if started >= self.next_tick {
            self.tick(started);
        }
    }

    fn take_event(&mut self, event: &Event) {
        let token = event.token().0;
        if event.token() == WAKER {
            self.admit_arrivals();
            return;
        }
        if token >= FIRST_LISTENER {
            self.accept(token - FIRST_LISTENER);
            return;
        }
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        if event.is_writable() && connection.is_blocked {
            connection.is_blocked = false;
            let id = connection.id;
            if let Some(client) = self.node.clients.get_mut(id) {
                client.mark_dirty(&mut self.node.dirty);
            }
        }
        connection.is_read_closed |= event.is_read_closed();
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.list_unread(token);
        }
    }

    fn list_unread(&mut self, at: usize) {
        let Some(Some(connection)) = self.connections.get_mut(at) else { return };
        connection.has_unread = true;
        if !connection.is_listed {
            connection.is_listed = true;
            self.unread.push_back(at);
        }
    }

    /// One read for each listed socket; time permitting.
    fn read_ready(&mut self, started: Instant) {
        let mut since_look = 0;
        for _ in 0..self.unread.len() {
            if since_look >= LOOK_EVERY_BYTES {
                since_look = 0;
                if started.elapsed().as_nanos() as u64 > TURN_NS {
                    break;
                }
            }
            let Some(at) = self.unread.pop_front() else { break };
            since_look += self.read_one(at) + READ_COST_BYTES;
            if self.mesh.n_peers() > 1
                && self.node.outboxes.iter().any(|outbox| outbox.bytes.len() > EARLY_PUBLISH)
            {
                // What is under way stays in the cache, and the peers are not left waiting.
                self.publish();
                self.take_mail(started);
            }
        }
    }

    /// Reads one socket and runs what came; the number of bytes.
    fn read_one(&mut self, at: usize) -> usize {
        let Some(Some(connection)) = self.connections.get_mut(at) else { return 0 };
        connection.is_listed = false;
        let id = connection.id;
        let Some(client) = self.node.clients.get_mut(id) else { return 0 };
        if client.closing != Closing::No {
            return 0;
        }
        if client.query.len() - client.query_at > MAX_WAITING_INPUT
            && (client.is_waiting() || client.is_queued)
        {
            // Parked with much to do: the socket keeps the rest. Looked at again when the client goes on.
            return 0;
        }
        if client.out.capacity() == 0 {
            client.out = self.spare.pop().unwrap_or_default();
        }
        let limit = self.node.config.client_query_buffer_limit as usize;
        let stats = &self.server.workers[usize::from(self.node.id.0)];
        WorkerStats::add(&stats.reads, 1);
        let room = client.make_room(self.buffer.len(), LONG_READ);
        let read = match room {
            0 => connection.stream.read(&mut self.buffer),
            _ => read_to_end(&connection.stream, &mut client.query, room),
        };
        let n = match read {
            Ok(0) => {
                connection.has_unread = false;
                if !self.ended.contains(&id) {
                    self.ended.push(id);
                }
                return 0;
            }
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.has_unread = false;
                return 0;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                self.list_unread(at);
                return 0;
            }
            Err(_) => {
                self.close(id);
                return 0;
            }
        };
        let asked = if room > 0 { room } else { self.buffer.len() };
        connection.has_unread = n == asked || connection.is_read_closed;
        let has_unread = connection.has_unread;
        WorkerStats::add(&stats.bytes_in, n as u64);
        // Not before what was read has been sent: nobody may find alive what was dead when it was asked for.
        self.node.now_ms = unix_ms();
        let n_waiting = match room {
            0 => self.node.feed(id, &self.buffer[..n]),
            _ => self.node.fed(id, n),
        };
        if n_waiting > limit
            && let Some(client) = self.node.clients.get_mut(id)
        {
            crate::log::warning(&format!(
                "Closing client that reached max query buffer length: id={} addr={}",
                client.number, client.address
            ));
            self.close(id);
            return 0;
        }
        if has_unread {
            self.list_unread(at);
        }
        n
    }

    /// Clients whose requests waited.
    fn run_waiting(&mut self, started: Instant) {
        for n in 0..self.node.runnable.len() {
            if n > 0 && started.elapsed().as_nanos() as u64 > TURN_NS {
                break;
            }
            let Some(id) = self.node.runnable.pop_front() else { break };
            self.node.resume(id);
            self.look_again(id);
        }
    }

    /// A client that was parked has gone on: what its socket kept meanwhile is read.
    fn look_again(&mut self, id: ClientId) {
        let at = id.slot();
        if let Some(Some(connection)) = self.connections.get(at)
            && connection.id == id
            && connection.has_unread
        {
            self.list_unread(at);
        }
    }

    fn publish(&mut self) {
        if self.mesh.n_peers() > 1 {
            let n = self.mesh.publish(&mut self.node.outboxes);
            if n > 0 {
                WorkerStats::add(&self.server.workers[usize::from(self.node.id.0)].messages_sent, n);
            }
        }
    }

    /// Peers' batches: at least one of each, more while there is time.
    fn take_mail(&mut self, started: Instant) {
        let own = usize::from(self.node.id.0);
        for peer in (0..self.mesh.n_peers()).filter(|peer| *peer != own) {
            let mut is_first = true;
            while is_first || started.elapsed().as_nanos() as u64 <= TURN_NS {
                is_first = false;
                let Some(mut batch) = self.mesh.next_batch(peer) else { break };
                // As after a read.
                self.node.now_ms = unix_ms();
                self.node.receive(crate::shard::ShardId(peer as u8), &mut batch);
                self.mesh.give_back(peer, batch);
            }
        }
    }

    /// Closes the clients whose input has ended, unless what they asked before is still on its way to them.
    fn close_ended(&mut self) {
        for id in std::mem::take(&mut self.ended) {
            let Some(client) = self.node.clients.get_mut(id) else { continue };
            match client.is_owed_replies() {
                true => self.ended.push(id),
                false => self.close(id),
            }
        }
    }

    /// Ends a connection; what it has in flight completes without it.
    fn close(&mut self, id: ClientId) {
        let at = id.slot();
        if self.connections.get(at).is_some_and(|c| c.as_ref().is_some_and(|c| c.id == id)) {
            // Dropping the socket closes it and takes it out of the poll.
            self.connections[at] = None;
        }
        if self.node.disconnect(id).is_some() {
            self.server.n_clients.fetch_sub(1, Ordering::Relaxed);
            let clients = &self.server.workers[usize::from(self.node.id.0)].clients;
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn stop(mut self) {
        // What is answered is still written, as far as the sockets take it.
        self.write_dirty();
        self.write_told(false, Instant::now());
        // The listeners take their socket file with them; the rest goes with the process, which is quicker than freeing each key.
        drop(self.listeners.take());
        std::mem::forget(self);
    }
}

/// Unix time in milliseconds.
pub fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
