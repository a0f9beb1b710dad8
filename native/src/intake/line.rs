//! The socket of one who connects to a service, Unix or TCP.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection.
#[derive(Debug)]
pub enum Line {
    /// By `unix:path`.
    Unix(UnixStream),
    /// By `tcp:host:port`.
    Tcp(TcpStream),
}

impl Line {
    /// Connects to an address.
    pub fn connect(address: &str) -> io::Result<Line> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(Line::Unix(UnixStream::connect(path)?));
        }
        let host = address.strip_prefix("tcp:").unwrap_or(address);
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        Ok(Line::Tcp(stream))
    }

    /// Whether calls return at once.
    pub fn set_nonblocking(&self, is: bool) -> io::Result<()> {
        match self {
            Line::Unix(stream) => stream.set_nonblocking(is),
            Line::Tcp(stream) => stream.set_nonblocking(is),
        }
    }

    /// Writing gives up after this time.
    pub fn set_write_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Line::Unix(stream) => stream.set_write_timeout(Some(time)),
            Line::Tcp(stream) => stream.set_write_timeout(Some(time)),
        }
    }

    /// Whether there is something to read, waited for at most so long.
    pub fn has_more(&self, timeout: Duration) -> io::Result<bool> {
        let mut wanted = libc::pollfd {
            fd: self.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the struct is ours, and one is given.
        match unsafe { libc::poll(&raw mut wanted, 1, milliseconds) } {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
            found => Ok(found > 0),
        }
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> RawFd {
        match self {
            Line::Unix(stream) => stream.as_raw_fd(),
            Line::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Unix(stream) => stream.read(buffer),
            Line::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Line::Unix(stream) => stream.write(bytes),
            Line::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
