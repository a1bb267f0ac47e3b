//! The server that a subcommand measures, as flags.

use crate::connection::ServerAddress;
use clap::Args;
use std::io;

#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    #[arg(short = 's', long, alias = "host", default_value = "localhost")]
    server: String,
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
    /// Process id of the server, for its memory or CPU time
    #[arg(long)]
    pub(crate) server_pid: Option<u32>,
}

impl Target {
    pub(crate) fn address(&self) -> io::Result<ServerAddress> {
        ServerAddress::resolve(&self.server, self.port)
    }
}
