//! Who is connected, for whoever has only a connection's name or number at hand: a slow call's owner, MONITOR, a redirection.
//!
//! Written when a connection comes, goes or names itself; no request looks here unless it is logged, shown or told of.

use std::sync::Arc;

use dashmap::DashMap;

use crate::client::ClientId;

/// What is said of a connection.
#[derive(Clone, Debug, Default)]
pub struct Card {
    pub address: Arc<str>,
    pub name: Vec<u8>,
    /// Its socket is a file: MONITOR shows it otherwise.
    pub is_unix: bool,
}

/// The connections of all workers.
#[derive(Default)]
pub struct Connections {
    cards: DashMap<ClientId, Card>,
    by_number: DashMap<u64, ClientId>,
}

impl Connections {
    pub fn add(&self, id: ClientId, number: u64, card: Card) {
        self.cards.insert(id, card);
        self.by_number.insert(number, id);
    }

    pub fn remove(&self, id: ClientId, number: u64) {
        self.cards.remove(&id);
        self.by_number.remove(&number);
    }

    pub fn rename(&self, id: ClientId, name: &[u8]) {
        if let Some(mut card) = self.cards.get_mut(&id) {
            name.clone_into(&mut card.name);
        }
    }

    /// Nothing is known of a connection that is gone (or of a script's own).
    pub fn card(&self, id: ClientId) -> Card {
        self.cards.get(&id).map(|card| card.clone()).unwrap_or_default()
    }

    /// The connection with this CLIENT ID.
    pub fn numbered(&self, number: u64) -> Option<ClientId> {
        self.by_number.get(&number).map(|id| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_found_until_it_is_gone() {
        let (connections, id) = (Connections::default(), ClientId(5));
        connections.add(id, 9, Card { address: "1.2.3.4:5".into(), ..Card::default() });
        connections.rename(id, b"me");
        assert_eq!(connections.numbered(9), Some(id));
        assert_eq!(
            (&*connections.card(id).address, &connections.card(id).name[..]),
            ("1.2.3.4:5", &b"me"[..])
        );
        connections.remove(id, 9);
        assert_eq!(connections.numbered(9), None);
        assert_eq!(&*connections.card(id).address, "");
    }
}
