//! A socket of a load process, Unix or TCP.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

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
