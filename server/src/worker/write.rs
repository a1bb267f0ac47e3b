//! Output: one write per client and turn, and the limits of what may wait.

use std::io::ErrorKind;
use std::time::Instant;

use super::{LATE, MAX_SPARE, Worker};
use crate::client::{Client, ClientId, Closing, KEPT_BUFFER};
use crate::config::Config;
use crate::server::WorkerStats;

/// What one client is written per turn, and in one call.
const WRITE_BYTES: usize = 512 << 10;
const WRITE_CHUNK: usize = 256 << 10;
/// When so much is written in a turn, the other clients with output wait for the next.
const TURN_WRITE_BYTES: usize = 2 << 20;
/// So many clients are written their messages in a turn.
const TURN_TOLD: usize = 128;
/// Output of this much does not wait for the replies that follow it.
const LATE_BYTES: usize = 16 << 10;
/// What is unwritten moves to the front of the buffer when so many times as much is written: a move is short beside the writes.
const WRITTEN_PARTS: usize = 4;

impl Worker {
    /// One write per client with output. A client that waits for another shard's reply is written when that has come, or `LATE`
    /// after: its whole pipeline then leaves in one write.
    pub(super) fn write_dirty(&mut self) {
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

    /// One write for each client that has been sent messages: as soon as a turn brings nothing new, or `LATE` after. While publishers are busy a
    /// write then carries the messages of several turns.
    pub(super) fn write_told(&mut self, is_busy: bool, now: Instant) {
        if self.node.told.is_empty() {
            return;
        }
        let since = *self.told_since.get_or_insert(now);
        if is_busy && now.duration_since(since) < LATE {
            return;
        }
        let n = self.node.told.len().min(TURN_TOLD);
        for at in 0..n {
            let id = self.node.told[at];
            if let Some(client) = self.node.clients.get_mut(id) {
                client.is_told = false;
                self.write_one(id);
            }
        }
        self.node.told.drain(..n);
        if self.node.told.is_empty() {
            self.told_since = None;
        }
    }

    pub(super) fn may_be_late(&mut self, id: ClientId) -> bool {
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
    pub(super) fn write_one(&mut self, id: ClientId) -> usize {
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
                    client.mark_dirty(&mut self.node.dirty);
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

    /// Closes clients that have been over their soft output limit for too long: those that nothing is written to any more.
    pub(super) fn close_deaf(&mut self) {
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
}

fn over_output_limit(client: &mut Client, config: &Config, now_ms: i64) -> bool {
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
