//! Every test of a run.

mod manifests;
mod parity;

use crate::registry::Test;

/// Every test, in the order in which those that run alone are run.
pub(crate) fn all() -> Vec<Test> {
    [parity::all(), manifests::all()].into_iter().flatten().collect()
}
