//! Fair sharing: shares, its order and its preemption, admission fair sharing.

use crate::case::Runner;

pub(super) const TESTS: &[(&str, Runner)] = &[];
