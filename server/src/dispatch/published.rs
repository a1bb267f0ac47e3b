//! Reads on vector sets (`Any`): on this core if the set is published, else at its owner.

use skerry_resp::reply::Proto;

use super::Node;
use super::route::Step;
use super::wave::{Admit, Item};
use crate::args::Args;
use crate::client::{Client, Slot};
use crate::command::{AnyHandler, Caller};
use crate::commands::Row;
use crate::error::CommandError;
use crate::keyspace::Key;

impl Node {
    /// A read on a vector set: on this core if the set is published, else at its owner.
    pub(super) fn route_any(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        item: &Item,
        args: Args<'_>,
        admit: Admit,
        handler: AnyHandler,
    ) -> Step {
        if args.len() < 2 {
            self.refuse(client, CommandError::WrongArity(row.command.name));
            return Step::Done;
        }
        let args = args.with_hash(1, item.hash);
        if item.shard != self.id && self.may_go(client, row, 1 << item.shard.0) {
            let has_writes_there = client.write_mask & (1 << item.shard.0) != 0;
            if !has_writes_there
                && let Some(handle) = self.server.vectors.published(client.db, args.get(1), self.now_ms)
                && let Some(publication) = handle.publication()
                && self.read_published(client, &handle, publication, args, handler)
            {
                return Step::Done;
            }
        }
        self.route_single(client, row, item.shard, args, admit, |node, client, args| {
            let start = client.held.len();
            let is_direct = client.pending.is_empty();
            let (caller, proto) = (Caller { client: client.id, db: client.db }, client.proto);
            let out = if is_direct { &mut client.out } else { &mut client.held };
            node.any_at_owner(handler, caller, proto, out, args);
            if !is_direct {
                client.pending.push_back(Slot::Ready { start, len: client.held.len() - start });
            }
        })
    }

    /// Runs an `Any` handler here, on a set of another worker. False, and nothing done, if a transaction has written the set meanwhile:
    /// what was read may be a half of it.
    fn read_published(
        &mut self,
        client: &mut Client,
        handle: &crate::vector::VectorHandle,
        publication: u64,
        args: Args<'_>,
        handler: AnyHandler,
    ) -> bool {
        let start = client.held.len();
        let is_direct = client.pending.is_empty();
        let (caller, proto) = (Caller { client: client.id, db: client.db }, client.proto);
        let out = if is_direct { &mut client.out } else { &mut client.held };
        let out_start = out.len();
        self.any_into(Ok(Some(handle)), handler, caller, proto, out, args);
        if !handle.still_stands(publication) {
            out.truncate(out_start);
            return false;
        }
        if !is_direct {
            client.pending.push_back(Slot::Ready { start, len: client.held.len() - start });
        }
        true
    }

    /// Runs an `Any` handler at the owner: the set is looked up in the keyspace.
    pub(super) fn any_at_owner(
        &mut self,
        handler: AnyHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) {
        if args.len() < 2 {
            // The handler tells the error.
            self.any_into(Ok(None), handler, caller, proto, out, args);
            return;
        }
        let key = Key {
            bytes: args.get(1),
            hash: args.known_hash(1).unwrap_or_else(|| self.server.hash_key(args.get(1))),
        };
        match crate::vector::handle_of(&mut self.shard, caller.db, key, self.now_ms) {
            Ok(None) => self.any_into(Ok(None), handler, caller, proto, out, args),
            Ok(Some((handle, expire_at_ms))) => {
                if self.n_shards() > 1 {
                    self.server.vectors.publish(caller.db, args.get(1), &handle, expire_at_ms);
                }
                self.any_into(Ok(Some(&handle)), handler, caller, proto, out, args);
            }
            Err(error) => self.any_into(Err(error), handler, caller, proto, out, args),
        }
    }

    pub(super) fn any_into(
        &mut self,
        set: Result<Option<&crate::vector::VectorHandle>, CommandError>,
        handler: AnyHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) {
        let start = out.len();
        let mut ctx = ctx!(self, caller, out, proto);
        if let Err(error) = handler(&mut ctx, set, args) {
            self.fail_into(out, start, proto, &error);
        }
    }
}
