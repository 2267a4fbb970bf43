//! Being an aggregated API server: who is believed to be the API server that passes on users' requests.
//!
//! The API server asks the user for proof, checks the user's rights to the path, and then calls with its front-proxy
//! certificate and the user's name in headers. Who has such a certificate is believed; nobody else is answered. The
//! authority is in the ConfigMap `kube-system/extension-apiserver-authentication`, which every account may be allowed to
//! read by a Role of the same namespace, `extension-apiserver-authentication-reader`.

mod subject;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use crate::Context;
use crate::backoff::Backoff;
use crate::tls::provider;
use crate::writes::REQUEST_TIMEOUT;

/// The ConfigMap with the authority.
const CONFIG_MAP: &str = "extension-apiserver-authentication";
/// How often it is read: an authority is replaced by adding the new one long before it is used.
const LOOK_EVERY: Duration = Duration::from_secs(5 * 60);

/// The certificates that a client has shown and whose key it has. They are not judged yet. An extension of a request.
#[derive(Clone, Debug)]
pub struct PeerCertificates(Arc<[CertificateDer<'static>]>);

impl PeerCertificates {
    pub(crate) fn new(chain: &[CertificateDer<'_>]) -> Self {
        Self(chain.iter().map(|one| one.clone().into_owned()).collect())
    }
}

/// Who may pass on users' requests. Cheap to clone.
#[derive(Clone)]
pub struct FrontProxy(Arc<RwLock<Trust>>);

enum Trust {
    /// There are no strangers: the service is reached in process only.
    Everyone,
    /// What is needed to judge is not known yet.
    Unknown,
    Certified(Certified),
}

struct Certified {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Common names that are believed; any where there are none.
    names: Vec<String>,
}

/// Why a client is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stranger {
    /// The authority was not read yet.
    #[error("whom to believe is not known yet")]
    TooEarly,
    /// No certificate, or one of another authority, or out of date.
    #[error("only the API server may call here, with its front-proxy certificate")]
    Unproven,
}

impl FrontProxy {
    /// For services that nobody can reach but within this process.
    pub fn in_process() -> Self {
        Self(Arc::new(RwLock::new(Trust::Everyone)))
    }

    /// Reads the cluster's authority, now and from time to time, in the context's tasks.
    pub fn start(ctx: &Context) -> Self {
        let this = Self(Arc::new(RwLock::new(Trust::Unknown)));
        ctx.tasks.spawn(this.clone().keep(ctx.clone()));
        this
    }

    /// Whether the client that shows these certificates is the API server.
    ///
    /// # Errors
    /// When it is not, or nobody can tell yet.
    pub fn judge(&self, shown: Option<&PeerCertificates>, now: UnixTime) -> Result<(), Stranger> {
        let trust = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let certified = match &*trust {
            Trust::Everyone => return Ok(()),
            Trust::Unknown => return Err(Stranger::TooEarly),
            Trust::Certified(certified) => certified,
        };
        let (leaf, others) = shown.and_then(|shown| shown.0.split_first()).ok_or(Stranger::Unproven)?;
        certified.verifier.verify_client_cert(leaf, others, now).map_err(|_| Stranger::Unproven)?;
        let names = &certified.names;
        let named = || subject::common_name(leaf).is_some_and(|name| names.contains(&name));
        if names.is_empty() || named() { Ok(()) } else { Err(Stranger::Unproven) }
    }

    async fn keep(self, ctx: Context) {
        let api = Api::<ConfigMap>::namespaced(ctx.clients.watch.clone(), "kube-system");
        let mut backoff = Backoff::for_watches();
        loop {
            let read = match tokio::time::timeout(REQUEST_TIMEOUT, api.get(CONFIG_MAP)).await {
                Ok(read) => read.map_err(|error| error.to_string()),
                Err(_elapsed) => Err(format!("no answer within {REQUEST_TIMEOUT:?}")),
            };
            let wait = match read.and_then(|map| certified(&map.data.unwrap_or_default())) {
                Ok(certified) => {
                    *self.0.write().unwrap_or_else(PoisonError::into_inner) = Trust::Certified(certified);
                    backoff.reset();
                    ctx.rng.jitter(LOOK_EVERY, 0.2)
                }
                Err(error) => {
                    tracing::warn!(
                        error,
                        "ConfigMap kube-system/{CONFIG_MAP}: the front proxy's authority cannot be read"
                    );
                    backoff.next(&ctx.rng)
                }
            };
            tokio::select! {
                biased;
                () = ctx.tasks.stopping() => return,
                () = ctx.clock.sleep(wait) => {}
            }
        }
    }
}

fn certified(data: &BTreeMap<String, String>) -> Result<Certified, String> {
    let key = "requestheader-client-ca-file";
    let pem = data.get(key).ok_or_else(|| format!("it has no {key}: aggregation is not set up"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("{key}: {error}"))?;
        roots.add(certificate).map_err(|error| format!("{key}: {error}"))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let names = data.get("requestheader-allowed-names").map_or("[]", String::as_str);
    Ok(Certified {
        verifier: verifier.build().map_err(|error| format!("{key}: {error}"))?,
        names: serde_json::from_str(names)
            .map_err(|error| format!("requestheader-allowed-names: {error}"))?,
    })
}

/// Asks clients for a certificate and has them prove that they have its key, but takes any, or none: other services on the
/// same port need none, and the authority may change while connections live.
#[derive(Debug)]
pub(crate) struct Unjudged(rustls::crypto::WebPkiSupportedAlgorithms);

impl Default for Unjudged {
    fn default() -> Self {
        Self(provider().signature_verification_algorithms)
    }
}

impl ClientCertVerifier for Unjudged {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, leaf, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, leaf, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };
    use rustls::pki_types::UnixTime;

    use super::*;

    struct Authority(CertificateParams, KeyPair, rcgen::Certificate);

    fn authority() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Authority(params, key, certificate)
    }

    fn client(authority: &Authority, name: &str) -> PeerCertificates {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(DnType::OrganizationName, "others");
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = Issuer::from_params(&authority.0, &authority.1);
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        PeerCertificates::new(&[leaf.der().clone()])
    }

    #[test]
    fn only_the_front_proxy_is_believed() {
        let (ours, theirs) = (authority(), authority());
        let now = UnixTime::now();
        let proxy = |names: &str| {
            let data = [
                ("requestheader-client-ca-file".to_owned(), ours.2.pem()),
                ("requestheader-allowed-names".to_owned(), names.to_owned()),
            ];
            FrontProxy(Arc::new(RwLock::new(Trust::Certified(certified(&data.into()).unwrap()))))
        };
        let named = proxy(r#"["front-proxy-client"]"#);
        for (shown, believed) in [
            (Some(client(&ours, "front-proxy-client")), true),
            (Some(client(&ours, "somebody")), false),
            (Some(client(&theirs, "front-proxy-client")), false),
            (None, false),
        ] {
            assert_eq!(named.judge(shown.as_ref(), now).is_ok(), believed, "{shown:?}");
        }
        assert_eq!(proxy("[]").judge(Some(&client(&ours, "somebody")), now), Ok(()));
        let late = UnixTime::since_unix_epoch(Duration::from_secs(1 << 40));
        assert_eq!(proxy("[]").judge(Some(&client(&ours, "somebody")), late), Err(Stranger::Unproven));
        let unknown = FrontProxy(Arc::new(RwLock::new(Trust::Unknown)));
        assert_eq!(unknown.judge(None, now), Err(Stranger::TooEarly));
        assert!(certified(&BTreeMap::new()).err().unwrap().contains("requestheader-client-ca-file"));
    }
}
