//! Certificates this project makes for itself: one Secret shared by the replicas, rotated without a gap.
//!
//! Each rotation makes an authority and one leaf and throws the authority's key away. The new leaf is served an hour
//! after it was stored: by then every API server trusts both authorities, since the bundle holds the old and the new.

mod bundle;
mod generations;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use bundle::{CaTargets, keep_ca_bundle};

use crate::Context;
use crate::backoff::Backoff;
use crate::front_proxy::Unjudged;
use crate::patch::{self, Subresource, Target, WriteError, Written};
use generations::{Generation, Generations};

/// How often the Secret is looked at: often enough within the hour before a new leaf is served.
const LOOK_EVERY: Duration = Duration::from_secs(5 * 60);
/// The key of the Secret that holds everything; the others are for people and tools.
const STATE_KEY: &str = "state.json";

/// Which Secret, and for which names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its namespace, which is the service's.
    pub namespace: String,
    /// Its name.
    pub secret: String,
    /// The Kubernetes Service the certificates are for.
    pub service: String,
}

impl Settings {
    /// The names under which the API server and others in the cluster call the service.
    fn names(&self) -> Vec<String> {
        let Self { namespace, service, .. } = self;
        ["", ".svc", ".svc.cluster.local"].iter().map(|tail| format!("{service}.{namespace}{tail}")).collect()
    }
}

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The Secret could not be read.
    #[error("Secret {secret}: cannot be read: {source}")]
    Read {
        /// Namespace and name.
        secret: String,
        /// Why.
        source: kube::Error,
    },
    /// The Secret could not be written.
    #[error("Secret {secret}: {source}")]
    Write {
        /// Namespace and name.
        secret: String,
        /// Why.
        source: WriteError,
    },
    /// The Secret's namespace is not there.
    #[error(
        "Secret {0}: there is no such namespace; create it, or name in `namespace` of the configuration the one with the Service"
    )]
    NoNamespace(String),
    /// No certificate can be made.
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// What the Secret holds is no usable certificate and key.
    #[error("the certificate cannot be used: {0}")]
    Use(String),
}

/// The certificates as they are now. Cheap to clone.
#[derive(Clone)]
pub struct Certificates {
    served: Arc<Served>,
    bundle: watch::Receiver<String>,
}

impl Certificates {
    /// Reads or creates the Secret, waiting as long as the API server takes, then keeps it fresh in the context's
    /// tasks.
    ///
    /// # Errors
    /// When no certificate can be made or used; an unavailable API server is waited for.
    pub async fn start(ctx: &Context, settings: Settings) -> Result<Self, TlsError> {
        let served = Arc::new(Served(RwLock::default()));
        let (publish, bundle) = watch::channel(String::new());
        let mut keeper = Keeper {
            api: Api::namespaced(ctx.clients.write.clone(), &settings.namespace),
            ctx: ctx.clone(),
            settings,
            served: served.clone(),
            publish,
        };
        let mut backoff = Backoff::for_watches();
        loop {
            match keeper.refresh().await {
                Ok(()) => break,
                Err(error @ (TlsError::Make(_) | TlsError::Use(_))) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "no certificate yet; trying again");
                    ctx.clock.sleep(backoff.next(&ctx.rng)).await;
                }
            }
        }
        ctx.tasks.spawn(keeper.run());
        Ok(Self { served, bundle })
    }

    /// For [`crate::http::Listen::Tls`]; new certificates are used without a restart.
    ///
    /// # Errors
    /// Never in practice: ring supports the protocol versions asked for.
    pub fn server_config(&self) -> Result<Arc<rustls::ServerConfig>, TlsError> {
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Use(error.to_string()))?
            .with_client_cert_verifier(Arc::new(Unjudged::default()))
            .with_cert_resolver(self.served.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The authorities to trust, in PEM: the old and, around a rotation, the new one. Tells of changes.
    pub fn ca_bundle(&self) -> watch::Receiver<String> {
        self.bundle.clone()
    }
}

/// ring, by name: two libraries in one process may want different defaults.
pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[derive(Debug)]
struct Served(RwLock<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Served {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Keeper {
    ctx: Context,
    api: Api<Secret>,
    settings: Settings,
    served: Arc<Served>,
    publish: watch::Sender<String>,
}

impl Keeper {
    async fn run(mut self) {
        loop {
            let wait = self.ctx.rng.jitter(LOOK_EVERY, 0.2);
            tokio::select! {
                biased;
                () = self.ctx.tasks.stopping() => return,
                () = self.ctx.clock.sleep(wait) => {}
            }
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "the certificates were not refreshed; the present ones are still served");
            }
        }
    }

    /// Reads the Secret, rotates if it is time, and serves what is due.
    async fn refresh(&mut self) -> Result<(), TlsError> {
        let now = self.ctx.clock.now().as_second();
        // Another replica may be quicker; then its certificates are used.
        for _ in 0..3 {
            let secret = self.read().await?;
            let mut generations = secret.as_ref().map(stored).unwrap_or_default();
            if !generations.rotate(now, &self.settings.names())? {
                return self.serve(&generations, now);
            }
            match self.write(secret.as_ref(), &generations).await {
                Ok(_) => {
                    tracing::info!(secret = self.settings.secret, "a new certificate was stored");
                    return self.serve(&generations, now);
                }
                // What is created has nothing else to miss.
                Err(WriteError::Gone) if secret.is_none() => {
                    return Err(TlsError::NoNamespace(self.named()));
                }
                Err(WriteError::Conflict(_) | WriteError::Gone) => {}
                Err(source) => return Err(TlsError::Write { secret: self.named(), source }),
            }
        }
        Err(TlsError::Write {
            secret: self.named(),
            source: WriteError::Conflict("others keep writing it".into()),
        })
    }

    async fn read(&self) -> Result<Option<Secret>, TlsError> {
        match self.api.get(&self.settings.secret).await {
            Ok(secret) => Ok(Some(secret)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(source) => Err(TlsError::Read { secret: self.named(), source }),
        }
    }

    async fn write(&self, seen: Option<&Secret>, generations: &Generations) -> Result<Written, WriteError> {
        let data = data(generations, self.ctx.clock.now().as_second());
        match seen {
            Some(secret) => {
                patch::merge(&self.api, &Target::of(secret), json!({ "data": data }), Subresource::Main).await
            }
            None => {
                let secret = json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": { "name": self.settings.secret },
                    "type": "Opaque",
                    "data": data,
                });
                patch::create(&self.api, &secret).await
            }
        }
    }

    fn serve(&self, generations: &Generations, now: i64) -> Result<(), TlsError> {
        let Some(generation) = generations.serving(now) else {
            return Err(TlsError::Use("there is none".into()));
        };
        let key = certified(generation)?;
        *self.served.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
        let bundle = generations.ca_bundle();
        self.publish.send_if_modified(|before| std::mem::replace(before, bundle.clone()) != bundle);
        Ok(())
    }

    fn named(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.secret)
    }
}

/// What the Secret holds; nothing if it is not ours to understand, then it is made anew.
fn stored(secret: &Secret) -> Generations {
    let state = secret.data.as_ref().and_then(|data| data.get(STATE_KEY));
    state.and_then(|bytes| serde_json::from_slice(&bytes.0).ok()).unwrap_or_default()
}

fn data(generations: &Generations, now: i64) -> Value {
    let encode = |text: &str| STANDARD.encode(text);
    let serving = generations.serving(now);
    json!({
        STATE_KEY: encode(&serde_json::to_string(generations).unwrap_or_default()),
        "ca.crt": encode(&generations.ca_bundle()),
        "tls.crt": encode(serving.map(|generation| generation.cert.as_str()).unwrap_or_default()),
        "tls.key": encode(serving.map(|generation| generation.key.as_str()).unwrap_or_default()),
    })
}

fn certified(generation: &Generation) -> Result<CertifiedKey, TlsError> {
    let unusable = |error: &dyn std::fmt::Display| TlsError::Use(error.to_string());
    let chain = CertificateDer::pem_slice_iter(generation.cert.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(generation.key.as_bytes()).map_err(|error| unusable(&error))?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| unusable(&error))
}

#[cfg(test)]
mod tests;
