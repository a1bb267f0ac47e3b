//! A raw client connection: commands out, strictly decoded replies in, nothing remembered in between.

use super::reply::{Decoded, Reply, decode};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// No reply that a test waits for takes longer; a miss is a failure, so the bound only limits how long one takes.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Conn {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of `input` already decoded.
    taken: usize,
}

/// Why no reply came.
#[derive(Debug)]
pub enum NoReply {
    Closed,
    TimedOut,
    Broken(String),
}

impl Conn {
    pub fn open(port: u16) -> Conn {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server accepts");
        stream.set_nodelay(true).expect("nodelay");
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("read timeout");
        stream.set_write_timeout(Some(REPLY_TIMEOUT)).expect("write timeout");
        Conn { stream, input: Vec::new(), taken: 0 }
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> Result<(), NoReply> {
        let mut bytes = Vec::new();
        encode(argv, &mut bytes);
        self.send_raw(&bytes)
    }

    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), NoReply> {
        self.stream.write_all(bytes).map_err(|_| NoReply::Closed)
    }

    pub fn read(&mut self) -> Result<Reply, NoReply> {
        loop {
            match decode(&self.input[self.taken..]) {
                Decoded::Reply(reply, n) => {
                    self.taken += n;
                    if self.taken == self.input.len() {
                        self.input.clear();
                        self.taken = 0;
                    }
                    return Ok(reply);
                }
                Decoded::Broken(why) => return Err(NoReply::Broken(why)),
                Decoded::Incomplete => self.fill()?,
            }
        }
    }

    /// A reply, if one is there already.
    pub fn read_if_there(&mut self) -> Result<Option<Reply>, NoReply> {
        self.stream.set_nonblocking(true).expect("a socket can be asked not to wait");
        let outcome = self.read();
        self.stream.set_nonblocking(false).expect("a socket can be asked to wait");
        match outcome {
            Err(NoReply::TimedOut) => Ok(None),
            other => other.map(Some),
        }
    }

    /// A reply, if one comes within `patience`.
    pub fn read_within(&mut self, patience: Duration) -> Result<Option<Reply>, NoReply> {
        self.stream.set_read_timeout(Some(patience)).expect("read timeout");
        let outcome = self.read();
        self.stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("read timeout");
        match outcome {
            Err(NoReply::TimedOut) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sends one command and reads one reply; panics if none comes.
    pub fn call<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> Reply {
        let reply = self.send(argv).and_then(|()| self.read());
        reply.unwrap_or_else(|why| {
            let words: Vec<_> =
                argv.iter().map(|a| String::from_utf8_lossy(a.as_ref()).into_owned()).collect();
            panic!("no reply to {words:?}: {why:?}")
        })
    }

    fn fill(&mut self) -> Result<(), NoReply> {
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(NoReply::Closed),
            Ok(n) => {
                self.input.extend_from_slice(&chunk[..n]);
                Ok(())
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(NoReply::TimedOut)
            }
            Err(_) => Err(NoReply::Closed),
        }
    }
}

/// Writes a command as an array of bulk strings.
pub fn encode<A: AsRef<[u8]>>(argv: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", argv.len()).as_bytes());
    for arg in argv {
        out.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        out.extend_from_slice(arg.as_ref());
        out.extend_from_slice(b"\r\n");
    }
}
