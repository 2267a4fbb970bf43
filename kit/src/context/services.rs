//! HTTP services within the process.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// One replica's HTTP service, answered without a socket.
pub type InProcessService = axum::Router;

/// In-process services by the Kubernetes Service that stands for them: `(namespace, name)` to the replicas behind it.
///
/// The simulated API server calls webhooks and conversion through this table where a real one would go through the
/// Service; the bytes of the review are the same. Empty in a real process.
#[derive(Clone, Default)]
pub struct ServiceTable(Arc<RwLock<Routes>>);

type Routes = BTreeMap<(String, String), BTreeMap<String, InProcessService>>;

impl ServiceTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a replica's service, or replaces it when the replica restarted.
    pub fn register(&self, namespace: &str, service: &str, replica: &str, router: InProcessService) {
        self.write().entry((namespace.into(), service.into())).or_default().insert(replica.into(), router);
    }

    /// Removes a replica: its endpoint is no longer ready.
    pub fn deregister(&self, namespace: &str, service: &str, replica: &str) {
        if let Some(replicas) = self.write().get_mut(&(namespace.to_owned(), service.to_owned())) {
            replicas.remove(replica);
        }
    }

    /// The services behind a Kubernetes Service, by replica name.
    pub fn resolve(&self, namespace: &str, service: &str) -> Vec<InProcessService> {
        let routes = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        routes
            .get(&(namespace.to_owned(), service.to_owned()))
            .map(|replicas| replicas.values().cloned().collect())
            .unwrap_or_default()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Routes> {
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
