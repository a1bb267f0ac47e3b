//! Which connections monitor: a list that every worker keeps a copy of.

use std::sync::{Arc, Mutex, PoisonError};

use crate::client::ClientId;

/// The connections that asked for MONITOR.
#[derive(Default)]
pub struct Monitors {
    all: Mutex<Arc<[ClientId]>>,
}

impl Monitors {
    pub fn list(&self) -> Arc<[ClientId]> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn add(&self, client: ClientId) {
        self.change(|all| all.push(client));
    }

    pub fn remove(&self, client: ClientId) {
        self.change(|all| all.retain(|id| *id != client));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<ClientId>)) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = all.to_vec();
        change(&mut list);
        *all = list.into();
    }
}
