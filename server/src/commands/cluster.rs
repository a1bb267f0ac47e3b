//! CLUSTER, ASKING, READONLY and READWRITE, as a Redis outside a cluster answers them: with one fixed error.
//!
//! HELP answers the error as well: Redis 8.2.3 looks at the mode first.

use crate::args::Args;
use crate::command::{Command, Conn, Flags, Handler, row};
use crate::error::{CommandError, Outcome};

#[rustfmt::skip]
pub const SUBCOMMANDS: &[Command] = &[
    row("cluster|addslots", -3, Handler::Conn(cluster_disabled), "Assigns slots to this node").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|addslotsrange", -4, Handler::Conn(cluster_disabled), "Assigns ranges of slots to this node").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|bumpepoch", 2, Handler::Conn(cluster_disabled), "Advances the configuration epoch").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|count-failure-reports", 3, Handler::Conn(cluster_disabled), "How many nodes report a node as failing").flags(Flags::ADMIN.with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|countkeysinslot", 3, Handler::Conn(cluster_disabled), "The number of keys in a slot").flags(Flags::STALE),
    row("cluster|delslots", -3, Handler::Conn(cluster_disabled), "Takes slots from this node").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|delslotsrange", -4, Handler::Conn(cluster_disabled), "Takes ranges of slots from this node").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|failover", -2, Handler::Conn(cluster_disabled), "Makes a replica take over").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|flushslots", 2, Handler::Conn(cluster_disabled), "Takes all of this node's slots from it").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|forget", 3, Handler::Conn(cluster_disabled), "Removes a node from the cluster").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|getkeysinslot", 4, Handler::Conn(cluster_disabled), "Some keys of a slot").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|help", 2, Handler::Conn(cluster_disabled), "The subcommands of CLUSTER").flags(Flags::LOADING.with(Flags::STALE)),
    row("cluster|info", 2, Handler::Conn(cluster_disabled), "The cluster's state").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|keyslot", 3, Handler::Conn(cluster_disabled), "The slot of a key").flags(Flags::STALE),
    row("cluster|links", 2, Handler::Conn(cluster_disabled), "The links to other nodes").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|meet", -4, Handler::Conn(cluster_disabled), "Joins another node").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|myid", 2, Handler::Conn(cluster_disabled), "This node's id").flags(Flags::STALE),
    row("cluster|myshardid", 2, Handler::Conn(cluster_disabled), "The id of this node's shard").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|nodes", 2, Handler::Conn(cluster_disabled), "The nodes as this one sees them").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|replicas", 3, Handler::Conn(cluster_disabled), "A node's replicas").flags(Flags::ADMIN.with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|replicate", 3, Handler::Conn(cluster_disabled), "Makes this node a replica").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|reset", -2, Handler::Conn(cluster_disabled), "Leaves the cluster").flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE)),
    row("cluster|saveconfig", 2, Handler::Conn(cluster_disabled), "Writes the cluster's configuration").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|set-config-epoch", 3, Handler::Conn(cluster_disabled), "Sets the configuration epoch").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|setslot", -4, Handler::Conn(cluster_disabled), "Changes a slot's state").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|shards", 2, Handler::Conn(cluster_disabled), "The shards and their nodes").flags(Flags::LOADING.with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|slaves", 3, Handler::Conn(cluster_disabled), "A node's replicas").flags(Flags::ADMIN.with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|slot-stats", -4, Handler::Conn(cluster_disabled), "Statistics of slots").flags(Flags::LOADING.with(Flags::STALE)).tips(&["nondeterministic_output", "request_policy:all_shards"]),
    row("cluster|slots", 2, Handler::Conn(cluster_disabled), "The slots and their nodes").flags(Flags::LOADING.with(Flags::STALE)).tips(&["nondeterministic_output"]),
];

/// What any cluster command answers.
pub fn cluster_disabled(_conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    Err(CommandError::text("ERR This instance has cluster support disabled"))
}
