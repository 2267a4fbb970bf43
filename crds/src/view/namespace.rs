//! Namespace: what selectors see of it.

use super::meta::view;

view! {
    /// `v1` Namespace.
    pub struct Namespace("Namespace", "", "v1", "namespaces", ClusterResourceScope) {
    }
}
