//! `v1beta1`: conversion between the served and the stored version.

use crate::case::Runner;

pub(super) const TESTS: &[(&str, Runner)] = &[];
