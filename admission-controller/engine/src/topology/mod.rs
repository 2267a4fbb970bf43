//! Where the pods of a workload go: placement by topology.
//!
//! A [`TopologyIndex`] holds the nodes of one flavor as a tree of domains – the levels of its Topology, from block to host,
//! say – and what is free on them. [`TopologyIndex::place`] finds a place for all pods of a workload at once or says, with
//! numbers, why there is none. Rules: KEP-2724 as Kueue 0.20 carries it out.
//!
//! 1. **Room** (`room`): of every leaf, how many pods fit; summed up the tree, once without and once with the leader of a
//!    pod-set group beside them.
//! 2. **Choice** (`choose`, or `balance` behind its gate): the domains of the requested level, or of one above it, that
//!    hold the pods.
//! 3. **Descent** (`descend`): level by level the pods are given to as few domains as will do.
//!
//! `replace` is about pods that have places already: a node has failed, or an elastic job grows or shrinks.
//!
//! Domains of a level lie in one array, in the order of their values from the top level down, so that the children and the
//! leaves of a domain are ranges, and an index says at once which of two domains comes first. Amounts are columns by
//! resource. A what-if is done in place and undone; nothing is copied but the rooms that balanced placement tries out.

mod assignment;
mod balance;
mod choose;
mod descend;
mod filter;
mod index;
mod place;
mod reason;
mod replace;
mod request;
mod room;
mod tree;
mod trial;

pub use assignment::{Assignment, DomainPods};
pub(crate) use index::UsageByPlace;
pub use index::{Node, TopologyIndex, View};
pub use model::node::HOSTNAME;
pub use place::Outcome;
pub use reason::{Exclusions, LayerRoom, TopologyReason};
pub use request::{PodSetRequest, Preference, Previous, Rules, SelectorConflict, SliceLayer, Spread};
pub(crate) use trial::{Chance, Trial};
