use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::UnixStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// Two ends that bytes go between.
#[derive(Debug)]
pub struct Connection {
    kind: Kind,
    /// Completes when the listener that accepted it is gone.
    end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

#[derive(Debug)]
enum Kind {
    Unix(UnixStream),
    Memory(DuplexStream),
}

impl Connection {
    pub(super) fn unix(stream: UnixStream) -> Self {
        Self { kind: Kind::Unix(stream), end: None }
    }

    pub(super) fn memory(stream: DuplexStream) -> Self {
        Self { kind: Kind::Memory(stream), end: None }
    }

    pub(super) fn within(mut self, life: &CancellationToken) -> Self {
        self.end = Some(Box::pin(life.clone().cancelled_owned()));
        self
    }

    /// A completed wait may be polled again: it looks at the token first.
    fn broken(&mut self, cx: &mut Context<'_>) -> bool {
        self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.broken(cx) {
            // Nothing more to read: the reader closes its side, and so the peer learns of it.
            return Poll::Ready(Ok(()));
        }
        match &mut self.kind {
            Kind::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Kind::Memory(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.broken(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match &mut self.kind {
            Kind::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Kind::Memory(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Memory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}
