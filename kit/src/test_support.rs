//! What the tests of several modules need.

use std::convert::Infallible;

use jiff::Timestamp;
use kube::client::Body;

use crate::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};

/// A context with virtual time whose API server answers nothing but 503.
pub(crate) fn context() -> Context {
    context_with(kube::Client::new(
        tower::service_fn(|_request: http::Request<Body>| async {
            let response = http::Response::builder().status(503).body(Body::empty());
            Ok::<_, Infallible>(response.expect("a response without a body"))
        }),
        "default",
    ))
}

/// A context with virtual time that talks to this client.
pub(crate) fn context_with(client: kube::Client) -> Context {
    Context {
        clients: Clients::shared(client),
        clock: Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a date")),
        rng: Rng::seeded(1),
        tasks: Tasks::new(),
        identity: Identity::new("replica-0"),
        services: ServiceTable::new(),
    }
}
