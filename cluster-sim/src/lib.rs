//! Only Kubernetes, in one process: API server, kubelets, job controllers, faults, virtual time.
//!
//! [`Cluster`] is the API server: a store with resource versions and watches, behind the HTTP interface that
//! `kube::Client` and `kubectl` speak. [`Cluster::client`] gives a client without a socket; [`Cluster::listen`] serves
//! the same over TLS on loopback. Time, randomness and tasks come from the [`SimConfig`], so that a paused runtime
//! replays a seed exactly.
//!
//! What it does not do, on purpose: authorisation (every review says yes), managed fields and their conflicts
//! (server-side apply creates or merges), CEL (`x-kubernetes-validations`, `matchConditions`, admission policies),
//! answers in protobuf (request bodies of built-in kinds are read), `exec`, `attach` and `port-forward` (nothing runs),
//! node leases and the taints of nodes that are not ready, webhooks outside the process. What it does is held to the real
//! server by the api-parity suite.
//!
//! A built-in kind is an entry of `resources/table.rs`, a controller a file in `controllers/`. A difference from the real server that
//! is accepted stands in `tests/parity.rs`, with the reason.

mod admission;
mod aggregation;
mod cluster;
mod controllers;
mod crd;
mod delete;
mod discovery;
mod error;
pub mod faults;
mod handle;
mod http;
mod lifecycle;
mod listen;
pub mod node;
mod object;
mod pages;
mod patch;
mod protobuf;
mod read;
mod request;
mod resources;
mod selectors;
mod store;
mod subresources;
mod table;
mod validation;
mod watch;
mod write;

pub use cluster::{Cluster, Image, PodLogs, SimConfig};
pub use delete::{DeleteOptions, Propagation};
pub use error::ApiError;
pub use handle::{Changes, Part, Store};
pub use http::{ApiService, ResponseBody};
pub use listen::{ListenError, Served};
pub use object::{Object, ObjectKey};
pub use resources::GroupResource;
pub use store::{Change, ChangeKind, Commit, Verb};
