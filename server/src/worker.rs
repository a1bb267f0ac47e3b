//! THE loop: one worker per core, pinned; it owns one shard and its clients.
//!
//! ```text
//!   poll ─► read ready clients ─► run them ─► publish outboxes ─► run peers' batches ─► publish replies ─► write clients ─► tick
//! ```
//!
//! A turn has a time budget (`TURN_NS`) across clients and inboxes; what is read and not run waits for the next turn. Nothing is held
//! across socket I/O: a slow client costs its own buffers only. Sockets are registered once, edge-triggered: a read shorter than the
//! buffer has emptied the socket. Knows no command.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::event::Event;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};

use crate::alloc::{Purging, huge};
use crate::client::{Client, ClientId, Closing, KEPT_BUFFER};
use crate::config::Config;
use crate::dispatch::Node;
use crate::evict::Rules;
use crate::listener::{Left, Listeners};
use crate::mesh::Mesh;
use crate::server::{Server, WorkerStats};
use crate::turns::TurnTrace;
use crate::vector::upkeep_slice;

/// Time budget of one turn.
const TURN_NS: u64 = 1_000_000;
/// Input between two looks at the clock, which costs what a tenth of a small request does; a read counts for so much more.
const LOOK_EVERY_BYTES: usize = 16 << 10;
const READ_COST_BYTES: usize = 2 << 10;
/// One read per ready client and turn.
const READ_BUFFER: usize = 64 << 10;
/// One read into the buffer of a client that sends a long request.
const LONG_READ: usize = 256 << 10;
/// What one client is written per turn, and in one call.
const WRITE_BYTES: usize = 512 << 10;
const WRITE_CHUNK: usize = 256 << 10;
/// When so much is written in a turn, the other clients with output wait for the next.
const TURN_WRITE_BYTES: usize = 2 << 20;
/// A parked client with more unread input than this is not read further.
const MAX_WAITING_INPUT: usize = 1 << 20;
/// Elements freed or expired per slice.
const SLICE: usize = 128;
/// Time that background work (jobs, freeing, expiry, eviction) may take of a turn.
const BACKGROUND_NS: u64 = 250_000;
/// Keys evicted per slice.
const EVICT_SLICE: usize = 32;
/// How often workers that sleep are woken to evict their share.
const WAKE_TO_EVICT: Duration = Duration::from_millis(10);

pub(crate) const WAKER: Token = Token(usize::MAX);
const FIRST_LISTENER: usize = usize::MAX - 64;

/// A connected socket.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

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
    arrivals: Receiver<Arrival>,
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
    next_tick: Instant,
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
    pub fn new(parts: WorkerParts) -> Self {
        let now = Instant::now();
        let purging = (parts.node.id.0 == 0).then(Purging::new);
        Self {
            poll: parts.poll,
            node: parts.node,
            mesh: parts.mesh,
            server: parts.server,
            connections: Vec::new(),
            arrivals: parts.arrivals,
            listeners: parts.listeners,
            left: Left::Nothing,
            placing: parts.placing,
            unread: VecDeque::new(),
            ended: Vec::new(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            spare: Vec::new(),
            late: Vec::new(),
            late_since: now,
            next_tick: now,
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
        self.node.wake_credit_waiters();
        self.node.note_closing();
        self.write_dirty();
        self.close_ended();
        self.publish();
        self.background();
        // What the background has answered does not wait for the next event.
        self.write_dirty();
        self.publish();
        self.wake_to_evict(started);
        if started >= self.next_tick {
            self.tick(started);
        }
    }

    /// Workers that sleep have their share to evict, too.
    fn wake_to_evict(&mut self, now: Instant) {
        if now < self.next_wake_to_evict || !self.node.needs_others_to_evict() {
            return;
        }
        self.next_wake_to_evict = now + WAKE_TO_EVICT;
        let own = usize::from(self.node.id.0);
        (0..self.mesh.n_peers()).filter(|peer| *peer != own).for_each(|peer| self.mesh.knock(peer));
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
            if let Some(client) = self.node.clients.get_mut(id)
                && !client.is_dirty
            {
                client.is_dirty = true;
                self.node.dirty.push(id);
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

    /// One write per client with output. A client that waits for another shard's reply is written when that has come, or `LATE`
    /// after: its whole pipeline then leaves in one write.
    fn write_dirty(&mut self) {
        if !self.late.is_empty() && self.late_since.elapsed() >= LATE {
            for id in std::mem::take(&mut self.late) {
                self.write_one(id);
            }
        }
        let mut dirty = std::mem::take(&mut self.node.dirty);
        let mut n_written = 0;
        for id in dirty.drain(..) {
            if n_written >= TURN_WRITE_BYTES {
                // The next turn begins at once.
                self.node.dirty.push(id);
                continue;
            }
            if self.may_be_late(id) {
                if self.late.is_empty() {
                    self.late_since = Instant::now();
                }
                self.late.push(id);
                continue;
            }
            n_written += self.write_one(id);
        }
        if self.node.dirty.is_empty() {
            self.node.dirty = dirty;
        }
    }

    fn may_be_late(&mut self, id: ClientId) -> bool {
        if self.mesh.n_peers() == 1 {
            return false;
        }
        let Some(client) = self.node.clients.get_mut(id) else { return false };
        let waits =
            !client.pending.is_empty() && client.closing == Closing::No && client.out.len() < LATE_BYTES;
        if waits {
            // The next reply makes it dirty again.
            client.is_dirty = false;
        }
        waits
    }

    /// Writes what a client is owed, or a part of it; how many bytes.
    fn write_one(&mut self, id: ClientId) -> usize {
        let Some(client) = self.node.clients.get_mut(id) else { return 0 };
        client.is_dirty = false;
        let Some(Some(connection)) = self.connections.get_mut(id.slot()) else { return 0 };
        if client.closing == Closing::Now {
            self.close(id);
            return 0;
        }
        let mut is_dead = false;
        let mut left = WRITE_BYTES;
        if !connection.is_blocked {
            while client.out_at < client.out.len() {
                if left == 0 {
                    // The others' turn; the rest goes on at once, or the socket tells when it has room.
                    client.is_dirty = true;
                    self.node.dirty.push(id);
                    break;
                }
                let piece = client.placed.next_piece(&client.out, client.out_at);
                let piece = &piece[..piece.len().min(WRITE_CHUNK).min(left)];
                match connection.stream.write(piece) {
                    Ok(0) => {
                        is_dead = true;
                        break;
                    }
                    Ok(n) => {
                        left -= n;
                        let is_short = n < piece.len();
                        client.placed.wrote(&mut client.out_at, n);
                        client.bytes_out += n as u64;
                        let stats = &self.server.workers[usize::from(self.node.id.0)];
                        WorkerStats::add(&stats.bytes_out, n as u64);
                        WorkerStats::add(&stats.writes, 1);
                        if is_short {
                            // The socket took a part: it is full now.
                            connection.is_blocked = true;
                            break;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        connection.is_blocked = true;
                        break;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        is_dead = true;
                        break;
                    }
                }
            }
        }
        if client.out_at == client.out.len() {
            client.out.clear();
            client.out_at = 0;
            let mut idle = std::mem::take(&mut client.out);
            if idle.capacity() <= KEPT_BUFFER && idle.capacity() > 0 && self.spare.len() < MAX_SPARE {
                idle.clear();
                self.spare.push(idle);
            }
            if client.closing == Closing::AfterReplies && client.pending.is_empty() {
                is_dead = true;
            }
        } else if client.out_at > KEPT_BUFFER
            && client.out_at / WRITTEN_PARTS > client.out.len() - client.out_at
        {
            client.placed.shift(client.out_at);
            client.out.drain(..client.out_at);
            client.out_at = 0;
        }
        let over = over_output_limit(client, &self.node.config, self.node.now_ms);
        if over {
            crate::log::warning(&format!(
                "Client id={} addr={} scheduled to be closed ASAP for overcoming of output buffer limits.",
                client.number, client.address
            ));
        }
        if is_dead || over {
            self.close(id);
        }
        WRITE_BYTES - left
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

    fn accept(&mut self, listener: usize) {
        let Some(listeners) = &mut self.listeners else { return };
        let config = self.node.config.clone();
        let (arrivals, left) = listeners.accept(listener, &config, &self.server);
        if left != Left::Nothing {
            self.left = left;
        }
        for arrival in arrivals {
            // Least loaded worker; the count is raised here so that a burst spreads.
            let loads = self.server.workers.iter().map(|w| w.clients.load(Ordering::Relaxed));
            let target = loads.enumerate().min_by_key(|(_, n)| *n).map_or(0, |(at, _)| at);
            self.server.workers[target].clients.fetch_add(1, Ordering::Relaxed);
            if target == usize::from(self.node.id.0) {
                self.admit(arrival);
            } else if self.placing[target].send(arrival).is_ok() {
                self.mesh.ring(target);
            }
        }
    }

    /// Accepts what earlier accepts have left, at whichever listener it waits.
    fn accept_left(&mut self) {
        self.left = Left::Nothing;
        for listener in 0..self.listeners.as_ref().map_or(0, Listeners::n_sockets) {
            self.accept(listener);
        }
    }

    fn admit_arrivals(&mut self) {
        while let Ok(arrival) = self.arrivals.try_recv() {
            self.admit(arrival);
        }
    }

    fn admit(&mut self, mut arrival: Arrival) {
        let number = self.server.next_client_number.fetch_add(1, Ordering::Relaxed);
        let now_ms = self.node.now_ms;
        let is_open = self.node.config.requirepass.is_empty();
        let (is_unix, fd) = (matches!(arrival.stream, Stream::Unix(_)), arrival.stream.fd());
        let id = self.node.connect(|id| {
            let mut client = Client::new(id, number, now_ms);
            client.last_active_ms = now_ms;
            client.is_authenticated = is_open;
            client.address = arrival.address;
            client.local_address = arrival.local_address;
            client.is_unix = is_unix;
            client.fd = fd;
            client
        });
        let at = id.slot();
        if self.connections.len() <= at {
            self.connections.resize_with(at + 1, || None);
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = match &mut arrival.stream {
            Stream::Tcp(stream) => self.poll.registry().register(stream, Token(at), interest),
            Stream::Unix(stream) => self.poll.registry().register(stream, Token(at), interest),
        };
        self.connections[at] = Some(Connection {
            stream: arrival.stream,
            id,
            has_unread: false,
            is_listed: false,
            is_blocked: false,
            is_read_closed: false,
        });
        if registered.is_err() {
            self.close(id);
            return;
        }
        if let Some(error) = arrival.is_refused
            && let Some(client) = self.node.clients.get_mut(id)
        {
            client.out.extend_from_slice(error.as_bytes());
            client.closing = Closing::AfterReplies;
            client.is_dirty = true;
            self.node.dirty.push(id);
        }
    }

    /// Long commands, freeing and expiry: a bounded part of each turn.
    fn background(&mut self) {
        self.node.look_at_memory();
        let must_evict = self.node.must_evict();
        if !must_evict && !self.node.has_work() && !self.has_expired_more && !huge::has_garbage() {
            return;
        }
        let started = Instant::now();
        let budget_ns = if must_evict { eviction_ns(&self.node.config) } else { BACKGROUND_NS };
        while started.elapsed().as_nanos() as u64 <= budget_ns {
            let mut is_busy = huge::has_garbage();
            huge::free_slice();
            if let Some(id) = self.node.run_vector_slice() {
                self.look_again(id);
                is_busy = true;
            }
            if self.node.has_jobs() {
                self.node.run_job_slice();
                is_busy = true;
            }
            if must_evict && self.node.evict_slice(EVICT_SLICE) {
                is_busy = true;
                self.tick_purging();
            }
            if self.node.shard.has_garbage() {
                is_busy |= self.node.shard.free_slice(SLICE);
                self.tick_purging();
            }
            if !self.node.shard.upkeep.is_empty() {
                upkeep_slice(&mut self.node.shard);
                is_busy = true;
            }
            if self.has_expired_more {
                self.has_expired_more = self.node.expire_slice(SLICE);
                is_busy |= self.has_expired_more;
            }
            if !is_busy {
                break;
            }
        }
    }

    /// Ten times a second and more: expiry, timeouts, counters.
    fn tick(&mut self, now: Instant) {
        let hz = u64::from(self.node.config.hz.clamp(1, 500));
        self.next_tick = now + Duration::from_millis(1000 / hz.max(10));
        if self.server.is_expiring_actively.load(Ordering::Relaxed) {
            self.has_expired_more = self.node.expire_slice(SLICE);
        }
        if let Some(listeners) = &mut self.listeners
            && let Some(fresh) =
                self.server.new_listeners.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            listeners.replace_tcp(fresh, self.poll.registry(), FIRST_LISTENER);
        }
        if self.left == Left::Refused {
            self.accept_left();
        }
        self.watch_resident_memory();
        self.tick_purging();
        if now >= self.next_second {
            self.next_second = now + Duration::from_secs(1);
            self.each_second();
        }
    }

    /// Holds used memory so far below `maxmemory` that resident memory does not go far beyond it: what fragmentation costs is
    /// evicted. Worker 0 does this; the others follow.
    fn watch_resident_memory(&mut self) {
        let (limit, is_evicting) = (self.node.config.maxmemory, Rules::of(&self.node.config).is_some());
        if let Some(purging) = &mut self.purging
            && limit > 0
            && is_evicting
        {
            let (withheld, is_fragmented) = withhold(crate::process::resident_bytes(), limit);
            purging.set_fragmented(is_fragmented);
            self.server.withheld_memory.store(withheld, Ordering::Relaxed);
        }
    }

    fn tick_purging(&mut self) {
        if let Some(purging) = &mut self.purging {
            purging.tick(crate::alloc::used_memory());
        }
    }

    fn each_second(&mut self) {
        self.node.each_second();
        self.close_deaf();
        let timeout_ms = i64::from(self.node.config.timeout) * 1000;
        if timeout_ms > 0 {
            let now_ms = self.node.now_ms;
            let idle: Vec<ClientId> = self
                .node
                .clients
                .iter()
                .filter(|client| {
                    now_ms - client.last_active_ms > timeout_ms
                        && client.pending.is_empty()
                        && client.subscribed.is_none()
                })
                .map(|client| client.id)
                .collect();
            for id in idle {
                crate::log::verbose("Closing idle client");
                self.close(id);
            }
        }
    }

    /// Closes clients that have been over their soft output limit for too long: those that nothing is written to any more.
    fn close_deaf(&mut self) {
        let (config, now_ms) = (self.node.config.clone(), self.node.now_ms);
        let limits = &config.client_output_buffer_limit;
        if limits.normal.soft_bytes == 0 && limits.pubsub.soft_bytes == 0 {
            return;
        }
        let over = self
            .node
            .clients
            .iter_mut()
            .filter_map(|client| over_output_limit(client, &config, now_ms).then_some(client.id));
        for id in over.collect::<Vec<_>>() {
            crate::log::warning("A client is closed for overcoming of output buffer limits.");
            self.close(id);
        }
    }

    fn stop(mut self) {
        // What is answered is still written, as far as the sockets take it.
        self.write_dirty();
        // The listeners take their socket file with them; the rest goes with the process, which is quicker than freeing each key.
        drop(self.listeners.take());
        std::mem::forget(self);
    }
}

/// The time that eviction may take of a turn: `maxmemory-eviction-tenacity`, as in Redis half a millisecond at 10 and longer by
/// 15 % a step beyond; half of that, and never more than a turn.
fn eviction_ns(config: &Config) -> u64 {
    match config.maxmemory_eviction_tenacity {
        tenacity @ 0..=10 => (u64::from(tenacity) * BACKGROUND_NS / 10).max(BACKGROUND_NS / 10),
        tenacity => (BACKGROUND_NS as f64 * 1.15f64.powi(tenacity as i32 - 10)).min(TURN_NS as f64) as u64,
    }
}

/// What to withhold of `maxmemory`: twice what resident memory is above an eighth more than that, and whether freed pages are to go
/// back at once. Evicting more is a dear way to pages, as few become free as a whole: so no more of it than the excess asks for. The
/// program itself counts for a server of small `maxmemory`.
fn withhold(resident: u64, limit: u64) -> (u64, bool) {
    const PROGRAM: u64 = 24 << 20;
    let excess = resident.saturating_sub(limit + (limit / 8).max(PROGRAM));
    ((excess * 2).min(limit / 2), excess > 0)
}

/// An outbox that has grown to this is published before the turn ends.
const EARLY_PUBLISH: usize = 48 << 10;
/// How long output may wait for the replies that follow it, and up to how much output.
const LATE: Duration = Duration::from_millis(1);
const LATE_BYTES: usize = 16 << 10;
/// What is unwritten moves to the front of the buffer when so many times as much is written: a move is short beside the writes.
const WRITTEN_PARTS: usize = 4;
/// Output buffers kept for the next clients.
const MAX_SPARE: usize = 64;

/// Reads up to `room` bytes to the end of `buffer`, which has room for them.
fn read_to_end(stream: &Stream, buffer: &mut Vec<u8>, room: usize) -> std::io::Result<usize> {
    let fd = match stream {
        Stream::Tcp(stream) => stream.as_raw_fd(),
        Stream::Unix(stream) => stream.as_raw_fd(),
    };
    let spare = buffer.spare_capacity_mut();
    let room = room.min(spare.len());
    // SAFETY: an open socket, and `room` bytes of the buffer that hold nothing yet. Safe calls would have them zeroed first.
    let n = unsafe { libc::read(fd, spare.as_mut_ptr().cast(), room) };
    let n = usize::try_from(n).map_err(|_| std::io::Error::last_os_error())?;
    // SAFETY: the call has written the next `n` bytes, at most `room`.
    unsafe { buffer.set_len(buffer.len() + n) };
    Ok(n)
}

fn over_output_limit(client: &mut Client, config: &crate::config::Config, now_ms: i64) -> bool {
    let limits = &config.client_output_buffer_limit;
    let limit = if client.subscribed.is_some() { &limits.pubsub } else { &limits.normal };
    let unsent = client.unsent() as u64;
    if limit.hard_bytes > 0 && unsent > limit.hard_bytes {
        return true;
    }
    if limit.soft_bytes == 0 || unsent <= limit.soft_bytes {
        client.soft_limit_since_ms = 0;
        return false;
    }
    if client.soft_limit_since_ms == 0 {
        client.soft_limit_since_ms = now_ms;
    }
    now_ms - client.soft_limit_since_ms > limit.soft_seconds as i64 * 1000
}

/// Unix time in milliseconds.
pub fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

impl Stream {
    fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// recv(2) without libc's cancellation points: these are four locked instructions and some 60 others a request.
    #[inline]
    fn read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // SAFETY: the kernel writes at most `len` bytes into the buffer, which is exclusively borrowed; the socket is open.
        let n = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
                0,
                NO_ADDRESS,
                NO_ADDRESS,
            )
        };
        usize::try_from(n).map_err(|_| std::io::Error::last_os_error())
    }

    /// send(2), in the same way.
    #[inline]
    fn write(&self, bytes: &[u8]) -> std::io::Result<usize> {
        // SAFETY: the kernel reads `len` bytes, which are borrowed; the socket is open.
        let n = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.fd(),
                bytes.as_ptr(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
                NO_ADDRESS,
                0,
            )
        };
        usize::try_from(n).map_err(|_| std::io::Error::last_os_error())
    }
}

const NO_ADDRESS: *mut u8 = std::ptr::null_mut();
