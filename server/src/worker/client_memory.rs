//! `maxmemory-clients`: when all clients together take more memory than that, the greatest are closed.
//!
//! Each worker weighs its own clients every few milliseconds, tells their sum and the greatest of them, and closes its greatest as long
//! as all workers' sums are above the limit and no other worker has a greater one. CLIENT NO-EVICT keeps a client out of it, though
//! its memory counts. Without a limit nothing is weighed.
//!
//! Departure from Redis: the sum is of the last few milliseconds, so it may be above the limit for so long.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::Worker;
use crate::client::ClientId;
use crate::config::{Config, MemoryOrPercent};

/// How often clients are weighed, and how often if there are many.
const INTERVAL: Duration = Duration::from_millis(10);
const MANY_CLIENTS: usize = 1000;
const INTERVAL_OF_MANY: Duration = Duration::from_millis(100);

/// The limit in bytes; none: there is no limit.
fn limit_of(config: &Config) -> Option<u64> {
    let limit = match config.maxmemory_clients {
        MemoryOrPercent::Bytes(bytes) => bytes,
        MemoryOrPercent::Percent(percent) => {
            (u128::from(config.maxmemory) * u128::from(percent) / 100).min(u128::from(u64::MAX)) as u64
        }
    };
    (limit > 0).then_some(limit)
}

impl Worker {
    /// Weighs the clients when it is time to, and closes the greatest of them where they are too much.
    pub(super) fn hold_client_memory(&mut self, now: Instant) {
        let Some(limit) = limit_of(&self.node.config) else { return };
        if now < self.next_client_weighing {
            return;
        }
        let is_many = self.node.clients.len() > MANY_CLIENTS;
        self.next_client_weighing = now + if is_many { INTERVAL_OF_MANY } else { INTERVAL };
        let mut own = 0;
        let mut evictable: Vec<(u64, ClientId)> = Vec::new();
        for client in self.node.clients.iter() {
            let bytes = client.bytes() as u64;
            own += bytes;
            if !client.is_no_evict {
                evictable.push((bytes, client.id));
            }
        }
        evictable.sort_unstable_by_key(|(bytes, _)| *bytes);
        loop {
            let greatest = evictable.last().map_or(0, |(bytes, _)| *bytes);
            let (of_others, greatest_of_others) = self.tell_client_memory(own, greatest);
            if own.saturating_add(of_others) <= limit || greatest < greatest_of_others {
                return;
            }
            let Some((bytes, id)) = evictable.pop() else { return };
            crate::log::notice(&format!("Evicting client {id:?} of {bytes} bytes: maxmemory-clients"));
            self.server.workers[usize::from(self.node.id.0)].evicted_clients.fetch_add(1, Relaxed);
            self.close(id);
            own -= bytes;
        }
    }

    /// Tells the others; what they have told: their sum and the greatest of their clients.
    fn tell_client_memory(&self, own: u64, greatest: u64) -> (u64, u64) {
        let (mut sum, mut greatest_of_others) = (0_u64, 0);
        for (at, worker) in self.server.workers.iter().enumerate() {
            if at == usize::from(self.node.id.0) {
                worker.client_bytes.store(own, Relaxed);
                worker.greatest_client_bytes.store(greatest, Relaxed);
            } else {
                sum = sum.saturating_add(worker.client_bytes.load(Relaxed));
                greatest_of_others = greatest_of_others.max(worker.greatest_client_bytes.load(Relaxed));
            }
        }
        (sum, greatest_of_others)
    }
}
