//! New connections: accepted by worker 0, handed to the least loaded worker, admitted there.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use mio::{Interest, Token};

use super::{Arrival, Connection, Stream, Worker};
use crate::client::{Client, Closing};
use crate::dispatch::Node;
use crate::listener::{Left, Listeners, TOO_MANY, tcp_arrival};

fn next_arrival(arrivals: &Mutex<Receiver<Arrival>>) -> Option<Arrival> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
}

/// What a worker does with its new connections while a script keeps it busy: worker 0 takes them, for they would get no answer here.
pub(super) fn hand_back(
    node: &Node,
    arrivals: Arc<Mutex<Receiver<Arrival>>>,
    placing: &[Sender<Arrival>],
) -> Box<dyn FnMut() + Send> {
    let (server, own, first) = (node.server.clone(), usize::from(node.id.0), placing[0].clone());
    Box::new(move || {
        while let Some(arrival) = next_arrival(&arrivals) {
            server.workers[own].clients.fetch_sub(1, Ordering::Relaxed);
            server.workers[0].clients.fetch_add(1, Ordering::Relaxed);
            // If there is no such worker any more the server ends.
            let _ = first.send(arrival);
        }
    })
}

impl Worker {
    pub(super) fn accept(&mut self, listener: usize) {
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
    pub(super) fn accept_left(&mut self) {
        self.left = Left::Nothing;
        for listener in 0..self.listeners.as_ref().map_or(0, Listeners::n_sockets) {
            self.accept(listener);
        }
    }

    pub(super) fn admit_arrivals(&mut self) {
        while let Some(arrival) = next_arrival(&self.arrivals) {
            self.admit(arrival);
        }
    }

    /// Connections that came while a script kept this worker busy.
    pub(super) fn admit_visitors(&mut self) {
        for visitor in self.node.take_visitors() {
            self.server.connections_received.fetch_add(1, Ordering::Relaxed);
            let n = self.server.n_clients.fetch_add(1, Ordering::Relaxed) + 1;
            let own = usize::from(self.node.id.0);
            self.server.workers[own].clients.fetch_add(1, Ordering::Relaxed);
            let stream = mio::net::TcpStream::from_std(visitor.stream);
            let mut arrival = tcp_arrival(stream, visitor.address, &self.node.config);
            if n > u64::from(self.node.config.maxclients) {
                self.server.connections_rejected.fetch_add(1, Ordering::Relaxed);
                arrival.is_refused = Some(TOO_MANY);
            }
            self.admit(arrival);
        }
    }

    pub(super) fn admit(&mut self, mut arrival: Arrival) {
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
            client.mark_dirty(&mut self.node.dirty);
        }
    }
}
