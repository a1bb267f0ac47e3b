//! A connected socket, read and written without libc's detours.

use std::os::fd::{AsRawFd, RawFd};

use mio::net::{TcpStream, UnixStream};

/// A connected socket.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// recv(2) without libc's cancellation points: these are four locked instructions and some 60 others a request.
    #[inline]
    pub(super) fn read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // SAFETY: the kernel writes at most `len` bytes into the buffer, which is exclusively borrowed; the socket is open.
        let n = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
                0,
                NO_ADDRESS,
                NO_ADDRESS,
            )
        };
        usize::try_from(n).map_err(|_| std::io::Error::last_os_error())
    }

    /// send(2), in the same way.
    #[inline]
    pub(super) fn write(&self, bytes: &[u8]) -> std::io::Result<usize> {
        // SAFETY: the kernel reads `len` bytes, which are borrowed; the socket is open.
        let n = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.fd(),
                bytes.as_ptr(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
                NO_ADDRESS,
                0,
            )
        };
        usize::try_from(n).map_err(|_| std::io::Error::last_os_error())
    }
}

/// Reads up to `room` bytes to the end of `buffer`, which has room for them.
pub(super) fn read_to_end(stream: &Stream, buffer: &mut Vec<u8>, room: usize) -> std::io::Result<usize> {
    let fd = match stream {
        Stream::Tcp(stream) => stream.as_raw_fd(),
        Stream::Unix(stream) => stream.as_raw_fd(),
    };
    let spare = buffer.spare_capacity_mut();
    let room = room.min(spare.len());
    // SAFETY: an open socket, and `room` bytes of the buffer that hold nothing yet. Safe calls would have them zeroed first.
    let n = unsafe { libc::read(fd, spare.as_mut_ptr().cast(), room) };
    let n = usize::try_from(n).map_err(|_| std::io::Error::last_os_error())?;
    // SAFETY: the call has written the next `n` bytes, at most `room`.
    unsafe { buffer.set_len(buffer.len() + n) };
    Ok(n)
}

const NO_ADDRESS: *mut u8 = std::ptr::null_mut();
