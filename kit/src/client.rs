//! Connections to the API server of a real process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use crate::Clients;

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may stay silent while it owes an answer to a write. Single writes have shorter limits of their
/// own; this one frees connections that died unnoticed.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read or lacks something.
    #[error("kubeconfig {}: {source}; name another with --kubeconfig or --context", .path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// No kubeconfig was named and this is not a pod.
    #[error("not in a cluster ({0}); name a kubeconfig with --kubeconfig")]
    NotInCluster(kube::config::InClusterError),
    /// The client cannot be made of the configuration, for instance because a certificate is broken.
    #[error("the API server's client cannot be set up: {0}")]
    Client(kube::Error),
}

/// Three connections (writes, watches, lease) by the kubeconfig, or as the pod's service account without one. kube's
/// own retries are off and there is no client-side rate limit: see [`crate::writes`]. The API server sees `program` as
/// the user agent.
///
/// # Errors
/// See [`ConnectError`]. Whether the server can be reached is not tried.
pub async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    program: &str,
) -> Result<Clients, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => from_file(path, context).await?,
        None => Config::incluster().map_err(ConnectError::NotInCluster)?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let agent = format!("{program}/{} (trireme)", env!("CARGO_PKG_VERSION"));
    if let Ok(agent) = http::HeaderValue::from_str(&agent) {
        config.headers.push((http::header::USER_AGENT, agent));
    }
    let client = |read_timeout| {
        let mut config = config.clone();
        config.read_timeout = read_timeout;
        kube::Client::try_from(config).map_err(ConnectError::Client)
    };
    Ok(Clients {
        write: client(Some(READ_TIMEOUT))?,
        // A watch may be silent for minutes; it has its own notion of a dead connection.
        watch: client(None)?,
        lease: client(Some(READ_TIMEOUT))?,
    })
}

async fn from_file(path: &Path, context: Option<&str>) -> Result<Config, ConnectError> {
    let error = |source| ConnectError::Kubeconfig { path: path.to_owned(), source };
    let kubeconfig = Kubeconfig::read_from(path).map_err(error)?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_or_wrong_kubeconfig_is_named() {
        let missing =
            connect(Some(Path::new("/no/such/file")), None, "test").await.err().unwrap().to_string();
        assert!(missing.contains("/no/such/file"), "{missing}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "apiVersion: v1\nkind: Config\ncontexts: []\n").unwrap();
        let wrong = connect(Some(file.path()), Some("prod"), "test").await.err().unwrap().to_string();
        assert!(wrong.contains(&*file.path().to_string_lossy()) && wrong.contains("prod"), "{wrong}");
    }
}
