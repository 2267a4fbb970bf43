//! Serving HTTP: over TLS or plain on TCP, or, in a simulation, without any socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::front_proxy::PeerCertificates;
use crate::{Context, ServiceTable, Tasks};

/// The largest body that is read. The review of an update holds the object twice, as it is and as it will be, and the
/// API server takes either up to 3 MiB (`limitedReadBody`); around them 1 MiB is room enough. Webhooks made with
/// controller-runtime have the same limit (`maxRequestSize`).
pub const BODY_LIMIT: usize = (2 * 3 + 1) << 20;
/// The longest a request may take: the longest `timeoutSeconds` a webhook can have.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take to say hello or to send its head.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a silent HTTP/2 client is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Connections at a time: the API servers of a large cluster keep a few each, scrapers one.
const MAX_CONNECTIONS: usize = 512;

/// All addresses of the machine, be they IPv4 or IPv6.
pub const EVERYWHERE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
/// `EAFNOSUPPORT` of Linux: what a kernel without IPv6 says.
const NO_SUCH_FAMILY: i32 = 97;
/// `EADDRNOTAVAIL` of Linux: what one says whose IPv6 is switched off.
const NO_SUCH_ADDRESS: i32 = 99;

/// Who sent a request over a socket, among its extensions. Requests within the process have none.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Where a program's service is reached.
#[derive(Clone)]
pub enum Listen {
    /// Through the context's table of in-process services.
    InProcess,
    /// Plain HTTP on this address.
    Plain(SocketAddr),
    /// HTTPS on this address, with certificates that may change while serving.
    Tls(SocketAddr, Arc<rustls::ServerConfig>),
}

/// Why a service could not be published.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; choose another address in the configuration")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Serves the router, until the context's tasks stop, as the Kubernetes Service of this namespace and name. Returns
/// the address, which tells the port when port 0 was asked for; none in process.
///
/// # Errors
/// When the address cannot be bound.
pub async fn publish(
    ctx: &Context,
    namespace: &str,
    service: &str,
    listen: &Listen,
    router: Router,
) -> Result<Option<SocketAddr>, ListenError> {
    let router = bounded(router);
    let (address, tls) = match listen {
        Listen::InProcess => {
            let entry = Registration {
                table: ctx.services.clone(),
                namespace: namespace.to_owned(),
                service: service.to_owned(),
                replica: ctx.identity.to_string(),
            };
            entry.table.register(namespace, service, &entry.replica, router);
            let tasks = ctx.tasks.clone();
            ctx.tasks.spawn(async move {
                let _entry = entry;
                tasks.stopping().await;
            });
            return Ok(None);
        }
        Listen::Plain(address) => (*address, None),
        Listen::Tls(address, config) => (*address, Some(TlsAcceptor::from(config.clone()))),
    };
    let error = |source| ListenError { address, source };
    let listener = bind(address).await.map_err(error)?;
    let local = listener.local_addr().map_err(error)?;
    ctx.tasks.spawn(accept(ctx.tasks.clone(), listener, tls, router));
    Ok(Some(local))
}

/// Every address is `[::]`, of IPv4 too; where the kernel has no IPv6 it is that of IPv4.
async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let tried = TcpListener::bind(address).await;
    let lacks_ipv6 = |error: &std::io::Error| {
        address == SocketAddr::new(EVERYWHERE, address.port())
            && matches!(error.raw_os_error(), Some(NO_SUCH_FAMILY | NO_SUCH_ADDRESS))
    };
    match tried {
        Err(error) if lacks_ipv6(&error) => {
            TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()))).await
        }
        tried => tried,
    }
}

/// The router with the body limit and the time limit every service here has.
pub fn bounded(router: Router) -> Router {
    router.layer(DefaultBodyLimit::max(BODY_LIMIT)).layer(middleware::from_fn(in_time))
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => (StatusCode::GATEWAY_TIMEOUT, "no answer in time\n").into_response(),
    }
}

/// Takes the replica out of the table when the process stops or is killed.
struct Registration {
    table: ServiceTable,
    namespace: String,
    service: String,
    replica: String,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.table.deregister(&self.namespace, &self.service, &self.replica);
    }
}

async fn accept(tasks: Tasks, listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = tasks.stopping() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok((stream, address)) => (stream, Peer(address)),
            Err(error) => {
                // Usually out of file descriptors: others may close some.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!(limit = MAX_CONNECTIONS, "too many connections; one was closed");
            continue;
        };
        let (tls, router, stopping) = (tls.clone(), router.clone(), tasks.clone());
        tasks.spawn(async move {
            greet(stopping, (stream, peer), tls, router).await;
            drop(place);
        });
    }
}

async fn greet(tasks: Tasks, (stream, peer): (TcpStream, Peer), tls: Option<TlsAcceptor>, router: Router) {
    let _latency_matters = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return listen_then_serve(tasks, stream, router, (peer, None)).await;
    };
    match tokio::time::timeout(GREETING_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().map(PeerCertificates::new);
            listen_then_serve(tasks, stream, router, (peer, shown)).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_elapsed) => tracing::debug!("TLS handshake took too long"),
    }
}

/// Serves who says something in time: hyper's own limit begins with the first bytes, and who keeps silent would keep its place.
async fn listen_then_serve(
    tasks: Tasks,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    from: (Peer, Option<PeerCertificates>),
) {
    let mut stream = BufReader::new(stream);
    let first = tokio::select! {
        biased;
        () = tasks.stopping() => return,
        first = tokio::time::timeout(GREETING_TIMEOUT, stream.fill_buf()) => first,
    };
    match first {
        Ok(Ok([])) => {}
        Ok(Ok(_)) => serve(tasks, stream, router, from).await,
        Ok(Err(error)) => tracing::debug!(%error, "connection ended before a request"),
        Err(_elapsed) => tracing::debug!("no request came"),
    }
}

async fn serve(
    tasks: Tasks,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    (peer, shown): (Peer, Option<PeerCertificates>),
) {
    let router = router.map_request(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        if let Some(shown) = &shown {
            request.extensions_mut().insert(shown.clone());
        }
        request
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(GREETING_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(250);
    // A node that dies says no goodbye.
    builder.http2().keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(GREETING_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            () = tasks.stopping(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(error, "connection ended");
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tower::ServiceExt;

    use super::*;
    use crate::test_support::context;

    fn router() -> Router {
        Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/slow", get(std::future::pending::<()>))
            .route("/echo", post(|body: axum::body::Bytes| async move { body.len().to_string() }))
    }

    #[tokio::test]
    async fn a_plain_service_answers_and_stops() {
        let ctx = context();
        let listen = Listen::Plain(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = publish(&ctx, "ns", "s", &listen, router()).await.unwrap().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        ctx.tasks.stop();
        ctx.tasks.ended().await;
        assert!(TcpStream::connect(address).await.is_err());
        let taken = TcpListener::bind(address).await.unwrap();
        let error = publish(&ctx, "ns", "s", &Listen::Plain(taken.local_addr().unwrap()), router())
            .await
            .unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_loses_its_place() {
        let ctx = context();
        let listen = Listen::Plain(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = publish(&ctx, "ns", "s", &listen, router()).await.unwrap().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let end = tokio::time::timeout(GREETING_TIMEOUT * 2, stream.read(&mut [0])).await;
        assert_eq!(end.unwrap().unwrap(), 0);
        ctx.tasks.stop();
    }

    /// Whether the machine has IPv6 or not.
    #[tokio::test]
    async fn everywhere_is_where_ipv4_is_too() {
        let ctx = context();
        let listen = Listen::Plain(SocketAddr::new(EVERYWHERE, 0));
        let address = publish(&ctx, "ns", "s", &listen, router()).await.unwrap().unwrap();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.is_ok());
        ctx.tasks.stop();
    }

    #[tokio::test(start_paused = true)]
    async fn an_in_process_service_is_bounded_and_leaves_the_table_when_killed() {
        let mut ctx = context();
        ctx.tasks = ctx.tasks.child();
        assert_eq!(publish(&ctx, "ns", "s", &Listen::InProcess, router()).await.unwrap(), None);
        let service = ctx.services.resolve("ns", "s").remove(0);
        let ask = |request: Request| service.clone().oneshot(request);
        let slow = ask(Request::get("/slow").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(slow.status(), StatusCode::GATEWAY_TIMEOUT);
        let big =
            ask(Request::post("/echo").body(Body::from(vec![0; BODY_LIMIT + 1])).unwrap()).await.unwrap();
        assert_eq!(big.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let fits = ask(Request::post("/echo").body(Body::from(vec![0; BODY_LIMIT])).unwrap()).await.unwrap();
        assert_eq!(fits.status(), StatusCode::OK);
        ctx.tasks.kill();
        ctx.tasks.ended().await;
        assert!(ctx.services.resolve("ns", "s").is_empty());
    }
}
