//! One question at a time over a blocking connection: send a command, wait for its reply, decode it.

use crate::connection::{BlockingStream, Handshake, ServerAddress, open_blocking};
use skerry_resp::encode_command;
use skerry_resp::value::{Decoder, Scan, Value};
use std::io;

/// A connection for questions.
pub struct Questioner {
    stream: Box<dyn BlockingStream>,
    out: Vec<u8>,
    replies: Vec<u8>,
}

impl std::fmt::Debug for Questioner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Questioner").finish_non_exhaustive()
    }
}

impl Questioner {
    pub fn connect(address: &ServerAddress, handshake: &Handshake) -> io::Result<Self> {
        Ok(Self { stream: open_blocking(address, handshake)?, out: Vec::new(), replies: Vec::new() })
    }

    /// The reply to `args`. An error reply is an `Err` that tells the command's name and the server's text.
    pub fn ask(&mut self, args: &[impl AsRef<[u8]>]) -> io::Result<Value> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        encode_command(args, &mut out);
        let sent = self.send(&out);
        self.out = out;
        sent?;
        let value = self.receive()?;
        value_or_error(value).map_err(|text| {
            let name = String::from_utf8_lossy(args[0].as_ref()).into_owned();
            io::Error::other(format!("{name}: {text}"))
        })
    }

    /// Sends requests that are encoded already.
    pub fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// The next reply, error or not; waits for it.
    pub fn receive(&mut self) -> io::Result<Value> {
        let mut scan = Scan::new();
        loop {
            if let Some(value) = self.next_of_buffer(&mut scan)? {
                return Ok(value);
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.replies.extend_from_slice(&buffer[..n]),
            }
        }
    }

    /// The next reply if it has come already.
    pub fn receive_if_here(&mut self) -> io::Result<Option<Value>> {
        self.next_of_buffer(&mut Scan::new())
    }

    fn next_of_buffer(&mut self, scan: &mut Scan) -> io::Result<Option<Value>> {
        let Some(reply) = scan.next(&self.replies, 0).map_err(io::Error::other)? else { return Ok(None) };
        let decoded = Decoder::default().decode(&self.replies[..reply.end]).map_err(io::Error::other)?;
        self.replies.drain(..reply.end);
        let Some((value, _)) = decoded else { unreachable!("the scan saw the reply's end") };
        Ok(Some(value))
    }
}

/// An error reply's text as the error.
pub fn value_or_error(value: Value) -> Result<Value, String> {
    match value {
        Value::Error(text) | Value::BulkError(text) => Err(String::from_utf8_lossy(&text).into_owned()),
        value => Ok(value),
    }
}
