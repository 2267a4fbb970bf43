//! Topology-aware scheduling: placement alone and within a cycle.

use crate::case::Runner;

pub(super) const TESTS: &[(&str, Runner)] = &[];
