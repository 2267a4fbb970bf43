//! Sockets with a path, of the operating system or in memory.
//!
//! The kubelet and its plugins find each other by file: a socket that was removed or made anew is another socket. The
//! in-memory kind keeps those rules and adds nothing but the calls themselves, so that a whole conversation takes no
//! virtual time in a paused runtime.

mod connection;
mod memory;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

pub use connection::Connection;
pub use memory::MemorySockets;

/// A place where sockets can be made and found by path. Clones are the same place.
#[derive(Clone, Debug)]
pub enum Sockets {
    /// Unix sockets in the file system.
    Unix,
    /// Pipes inside this process.
    Memory(MemorySockets),
}

/// No channel to a socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to the socket {}: {cause}", path.display())]
pub struct ConnectError {
    /// The socket.
    pub path: PathBuf,
    /// The innermost cause.
    pub cause: String,
    /// The whole of it.
    #[source]
    pub source: tonic::transport::Error,
}

impl Sockets {
    /// An empty place in memory.
    pub fn memory() -> Self {
        Self::Memory(MemorySockets::default())
    }

    /// Makes the socket and listens on it. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// `AddrInUse` when the path exists, whether or not anybody listens there: [`Sockets::remove`] it first.
    pub fn listen(&self, path: &Path) -> io::Result<Listener> {
        let listening = match self {
            Self::Unix => Listening::Unix(UnixListener::bind(path)?),
            Self::Memory(sockets) => Listening::Memory(sockets.listen(path)?),
        };
        Ok(Listener { listening, life: CancellationToken::new().drop_guard() })
    }

    /// One raw connection.
    ///
    /// # Errors
    /// `NotFound` when there is no such socket, `ConnectionRefused` when nobody listens.
    pub async fn dial(&self, path: &Path) -> io::Result<Connection> {
        match self {
            Self::Unix => Ok(Connection::unix(UnixStream::connect(path).await?)),
            Self::Memory(sockets) => sockets.dial(path),
        }
    }

    /// A channel for a generated client. It connects now and dials the path again when the connection is lost.
    ///
    /// # Errors
    /// When the first connection cannot be made.
    pub async fn connect(&self, path: &Path) -> Result<Channel, ConnectError> {
        let (sockets, target) = (self.clone(), path.to_owned());
        let connector = service_fn(move |_| {
            let (sockets, target) = (sockets.clone(), target.clone());
            async move { sockets.dial(&target).await.map(TokioIo::new) }
        });
        // The authority is never looked at: kubelets and plugins are told apart by their sockets.
        Endpoint::from_static("http://localhost")
            .connect_with_connector(connector)
            .await
            .map_err(|source| ConnectError { path: path.to_owned(), cause: innermost(&source), source })
    }

    /// Whether there is a socket (or, in the file system, anything) at this path.
    pub fn exists(&self, path: &Path) -> bool {
        self.identity(path).is_some()
    }

    /// Removes the socket's name. Connections that were accepted live on; new ones are refused; the listener waits for ever.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Unix => std::fs::remove_file(path),
            Self::Memory(sockets) => sockets.remove(path),
        }
    }

    /// A number that stays the same as long as it is the same socket, and changes when it was made anew: how a plugin
    /// notices that the kubelet restarted.
    pub fn identity(&self, path: &Path) -> Option<u64> {
        match self {
            Self::Unix => {
                let meta = std::fs::symlink_metadata(path).ok()?;
                let mut hasher = DefaultHasher::new();
                // File systems give freed inode numbers out again, so the time belongs to it.
                (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()).hash(&mut hasher);
                Some(hasher.finish())
            }
            Self::Memory(sockets) => sockets.identity(path),
        }
    }

    /// What lies directly in a folder, sorted. Empty when there is no such folder.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        match self {
            Self::Unix => {
                let entries = match std::fs::read_dir(directory) {
                    Ok(entries) => entries,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                };
                let mut paths =
                    entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
                paths.sort();
                Ok(paths)
            }
            Self::Memory(sockets) => Ok(sockets.list(directory)),
        }
    }
}

/// Connections to one socket, as they come: what `serve_with_incoming` wants.
///
/// Dropping it does what the end of its process would: the connections it accepted break, new ones are refused, and the
/// socket's name stays behind. A server that is killed with its task (servers hand their connections to tasks of their
/// own) thus leaves none of them answering. A graceful shutdown keeps the listener until its connections are done.
#[derive(Debug)]
pub struct Listener {
    listening: Listening,
    life: DropGuard,
}

#[derive(Debug)]
enum Listening {
    Unix(UnixListener),
    Memory(mpsc::Receiver<Connection>),
}

impl Stream for Listener {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = match &mut self.listening {
            Listening::Unix(listener) => {
                listener.poll_accept(cx).map_ok(|(stream, _)| Connection::unix(stream)).map(Some)
            }
            Listening::Memory(accepted) => match accepted.poll_recv(cx) {
                Poll::Ready(Some(connection)) => Poll::Ready(Some(Ok(connection))),
                // The name is gone: like its model, the listener is not told and waits for ever.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
        };
        let life = self.life.token();
        accepted.map(|next| next.map(|result| result.map(|connection| connection.within(life))))
    }
}

impl fmt::Display for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unix => "unix",
            Self::Memory(_) => "memory",
        })
    }
}

/// tonic's own errors say "transport error" and hide the rest in the chain.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
