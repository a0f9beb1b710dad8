//! The sockets that suppliers connect to, and who needs a token.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::config::Address;
use super::connection::Stream;

/// A socket that is listened to.
pub enum Listener {
    /// Of the network.
    Tcp(TcpListener),
    /// Of this machine; its file, by path and number, is removed in the end.
    Unix(UnixListener, PathBuf, u64),
}

/// Whether addresses like this one are this machine's own.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
    }
}

/// Where another listens that is about to end, such as one whose supervisor was killed, that is waited for so long.
const ABOUT_TO_END: Duration = Duration::from_secs(2);

/// Opens what may be taken for a moment still.
fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && began.elapsed() < ABOUT_TO_END => {
                thread::sleep(ABOUT_TO_END / 100);
            }
            other => return other,
        }
    }
}

impl Listener {
    /// Listens; without a token only where nobody from elsewhere can come.
    pub fn open(address: &Address, has_token: bool) -> Result<Listener, String> {
        match address {
            Address::Unix(path) => {
                let opened = patiently(|| open_unix(path)).and_then(|listener| {
                    let own = fs::symlink_metadata(path)?.ino();
                    Ok(Listener::Unix(listener, path.clone(), own))
                });
                opened.map_err(|error| format!("unix:{}: {error}", path.display()))
            }
            Address::Tcp(text) => {
                let addresses: Vec<SocketAddr> = text
                    .to_socket_addrs()
                    .map_err(|error| format!("tcp:{text}: {error}"))?
                    .collect();
                if !has_token && addresses.iter().any(|address| !is_local(address.ip())) {
                    return Err(format!(
                        "tcp:{text} can be reached from elsewhere; that needs a token, or listen on 127.0.0.1"
                    ));
                }
                let listener =
                    patiently(|| TcpListener::bind(&addresses[..])).map_err(|error| format!("tcp:{text}: {error}"))?;
                listener
                    .set_nonblocking(true)
                    .map_err(|error| format!("tcp:{text}: {error}"))?;
                Ok(Listener::Tcp(listener))
            }
        }
    }

    /// Its descriptor.
    pub fn fd(&self) -> RawFd {
        match self {
            Listener::Tcp(listener) => listener.as_raw_fd(),
            Listener::Unix(listener, ..) => listener.as_raw_fd(),
        }
    }

    /// The address as clients write it; a port that was chosen is in it.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| String::new(), |at| format!("tcp:{at}")),
            Listener::Unix(_, path, _) => format!("unix:{}", path.display()),
        }
    }

    /// The next connection with its name, and whether it needs no token.
    pub fn accept(&self) -> io::Result<(Stream, String, bool)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok((Stream::Tcp(stream), format!("tcp:{peer}"), is_local(peer.ip())))
            }
            Listener::Unix(listener, ..) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Stream::Unix(stream), "unix".to_owned(), true))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another may have taken its place.
        if let Listener::Unix(_, path, own) = self
            && fs::symlink_metadata(&*path).is_ok_and(|about| about.ino() == *own)
        {
            let _ = fs::remove_file(path);
        }
    }
}

fn open_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // What a killed intake left is removed; one at which somebody listens is not.
    if fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens here"));
        }
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A thousand connections need as many descriptors; the soft limit is often less.
pub(crate) fn raise_file_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls are given a live struct of the right type.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
