//! Everything a program may take from the outside world, as one value.

mod clock;
mod rng;
mod services;
mod tasks;

use std::fmt;
use std::sync::Arc;

pub use clock::Clock;
pub use rng::Rng;
pub use services::{InProcessService, ServiceTable};
pub use tasks::Tasks;

/// The name by which one replica signs its lease and its events, unique among the replicas of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(Arc<str>);

impl Identity {
    /// An identity with this name, by convention `<pod name>_<random>`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Three connections to one API server, so that a storm of binds can neither delay a lease renewal nor a watch.
#[derive(Clone)]
pub struct Clients {
    /// For writes and one-off reads.
    pub write: kube::Client,
    /// For lists and watches.
    pub watch: kube::Client,
    /// For the lease alone.
    pub lease: kube::Client,
}

impl Clients {
    /// The same client for all three purposes: for command-line tools and simple tests.
    pub fn shared(client: kube::Client) -> Self {
        Self { write: client.clone(), watch: client.clone(), lease: client }
    }
}

/// Everything a program may take from the outside world.
#[derive(Clone)]
pub struct Context {
    /// Connections to the API server.
    pub clients: Clients,
    /// Time.
    pub clock: Clock,
    /// Randomness: jitter and names, never decisions.
    pub rng: Rng,
    /// Spawning, and the signal to stop.
    pub tasks: Tasks,
    /// Who this replica is.
    pub identity: Identity,
    /// How this replica's HTTP services (webhooks, conversion, admin) are reached.
    pub services: ServiceTable,
}
