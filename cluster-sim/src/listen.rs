//! The same server over TLS on a socket, for `kubectl` and clients of other processes.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kit::Tasks;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::Service;

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::http::{ApiService, ResponseBody, refused};

/// Bytes of randomness in the token, as hexadecimal digits twice as many.
const TOKEN_BYTES: usize = 32;

/// A cluster that listens, until its task group stops. See [`Cluster::listen`].
#[derive(Clone)]
pub struct Served {
    address: SocketAddr,
    authority: String,
    token: String,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Served({})", self.url())
    }
}

impl Served {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The bearer token that every request needs.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The certificate of the authority that signed the server's, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A kubeconfig file for it.
    pub fn kubeconfig(&self) -> String {
        let (url, authority, token) = (self.url(), STANDARD.encode(&self.authority), &self.token);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: trireme\nclusters:\n- name: trireme\n  cluster:\n    \
             server: {url}\n    certificate-authority-data: {authority}\nusers:\n- name: trireme\n  user:\n    \
             token: {token}\ncontexts:\n- name: trireme\n  context:\n    cluster: trireme\n    user: trireme\n    \
             namespace: default\n"
        )
    }
}

/// Why a cluster cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken or not this machine's.
    #[error("cannot listen on {address}: {source}; choose another port, or 0 for any free one")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The certificates could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS refused the certificate.
    #[error("cannot use the certificate: {0}")]
    Tls(#[from] rustls::Error),
}

impl Cluster {
    /// Serves the cluster over TLS, with a certificate of its own authority and a random token, until the cluster's
    /// task group stops. Meant for loopback addresses: whoever has the token may do everything.
    ///
    /// # Errors
    /// If the address cannot be bound or no certificate can be made.
    pub async fn listen(&self, address: SocketAddr) -> Result<Served, ListenError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| ListenError::Bind { address, source })?;
        let address = listener.local_addr().map_err(|source| ListenError::Bind { address, source })?;
        let (authority, config) = certificate(address)?;
        // The token guards a real socket: it must not follow from a seed.
        let entropy = kit::Rng::from_entropy();
        let token: String = (0..TOKEN_BYTES).map(|_| format!("{:02x}", entropy.u64(0..256))).collect();
        let served = Served { address, authority, token };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let door = Door { cluster: self.clone(), token: served.token.as_str().into() };
        let tasks = self.tasks().clone();
        self.tasks().spawn(accept(tasks, listener, acceptor, door));
        Ok(served)
    }
}

fn certificate(address: SocketAddr) -> Result<(String, rustls::ServerConfig), ListenError> {
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.distinguished_name.push(DnType::CommonName, "trireme simulated cluster");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), address.ip().to_string()];
    let mut leaf = CertificateParams::new(names.to_vec())?;
    leaf.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let leaf = leaf.signed_by(&key, &Issuer::new(authority, authority_key))?;
    let chain = vec![CertificateDer::from(leaf.der().to_vec())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((authority_certificate.pem(), config))
}

/// Spawns what hyper wants spawned in the cluster's task group.
#[derive(Clone)]
struct Executor(Tasks);

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

async fn accept(tasks: Tasks, listener: TcpListener, acceptor: TlsAcceptor, door: Door) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = tasks.stopping() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(serve(tasks.clone(), stream, acceptor.clone(), door.clone()));
            }
            Err(error) => {
                // Usually out of file descriptors; others may close some.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(tasks: Tasks, stream: TcpStream, acceptor: TlsAcceptor, door: Door) {
    let connection = async {
        let stream = acceptor.accept(stream).await?;
        let service = TowerToHyperService::new(door);
        Builder::new(Executor(tasks.clone()))
            .serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(io::Error::other)
    };
    tokio::select! {
        biased;
        () = tasks.stopping() => {}
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended");
            }
        }
    }
}

/// Lets in who has the token. The writer's name is the program's, from its User-Agent.
#[derive(Clone)]
struct Door {
    cluster: Cluster,
    token: Arc<str>,
}

impl Service<Request<Incoming>> for Door {
    type Response = Response<ResponseBody>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let text = |name| request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let health = matches!(request.uri().path(), "/healthz" | "/readyz" | "/livez");
        let token = text(header::AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default();
        if token != &*self.token && !health {
            let answer = refused(ApiError::new(401, "Unauthorized", "Unauthorized"));
            return Box::pin(async { Ok(answer) });
        }
        let agent = text(header::USER_AGENT).split(['/', ' ']).next().unwrap_or_default();
        let writer = if agent.is_empty() { "client" } else { agent };
        ApiService::new(self.cluster.clone(), writer).call(request)
    }
}
