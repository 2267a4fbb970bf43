use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

/// Two ends that bytes go between.
#[derive(Debug)]
pub struct Connection(Kind);

#[derive(Debug)]
enum Kind {
    Unix(UnixStream),
    Memory(DuplexStream),
}

impl Connection {
    pub(super) fn unix(stream: UnixStream) -> Self {
        Self(Kind::Unix(stream))
    }

    pub(super) fn memory(stream: DuplexStream) -> Self {
        Self(Kind::Memory(stream))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Kind::Memory(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Kind::Memory(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Memory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}
