//! Our own kinds, `trireme.dev`.

pub mod v1alpha1;
