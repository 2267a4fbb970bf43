use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::Connection;

/// Bytes in flight in one direction of a connection: HTTP/2's default window, so the pipe never limits what it would not.
const PIPE: usize = 64 * 1024;
/// Connections not yet accepted, as `net.core.somaxconn` of old.
const BACKLOG: usize = 128;

/// Sockets inside this process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemorySockets(Arc<Mutex<Names>>);

#[derive(Debug, Default)]
struct Names {
    sockets: BTreeMap<PathBuf, Socket>,
    made: u64,
}

#[derive(Debug)]
struct Socket {
    identity: u64,
    backlog: mpsc::Sender<Connection>,
}

impl MemorySockets {
    pub(super) fn listen(&self, path: &Path) -> io::Result<mpsc::Receiver<Connection>> {
        let mut names = self.lock();
        if names.sockets.contains_key(path) {
            return Err(error(io::ErrorKind::AddrInUse, path, "the path exists; remove it first"));
        }
        let (backlog, accepted) = mpsc::channel(BACKLOG);
        names.made += 1;
        let identity = names.made;
        names.sockets.insert(path.to_owned(), Socket { identity, backlog });
        Ok(accepted)
    }

    pub(super) fn dial(&self, path: &Path) -> io::Result<Connection> {
        let names = self.lock();
        let socket =
            names.sockets.get(path).ok_or_else(|| error(io::ErrorKind::NotFound, path, "no such socket"))?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        match socket.backlog.try_send(Connection::memory(theirs)) {
            Ok(()) => Ok(Connection::memory(ours)),
            Err(mpsc::error::TrySendError::Closed(_)) => {
                Err(error(io::ErrorKind::ConnectionRefused, path, "nobody listens"))
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(error(io::ErrorKind::WouldBlock, path, "too many connections wait to be accepted"))
            }
        }
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.lock().sockets.remove(path);
        removed.map(drop).ok_or_else(|| error(io::ErrorKind::NotFound, path, "no such socket"))
    }

    pub(super) fn identity(&self, path: &Path) -> Option<u64> {
        self.lock().sockets.get(path).map(|socket| socket.identity)
    }

    pub(super) fn list(&self, directory: &Path) -> Vec<PathBuf> {
        self.lock().sockets.keys().filter(|path| path.parent() == Some(directory)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn error(kind: io::ErrorKind, path: &Path, what: &str) -> io::Error {
    io::Error::new(kind, format!("{}: {what}", path.display()))
}
