//! Facts about one Workload.

use crate::case::Runner;

pub(super) const TESTS: &[(&str, Runner)] = &[];
