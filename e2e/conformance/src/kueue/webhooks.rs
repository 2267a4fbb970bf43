//! Validation of what users write.

use crate::case::Runner;

pub(super) const TESTS: &[(&str, Runner)] = &[];
