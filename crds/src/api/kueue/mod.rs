//! `kueue.x-k8s.io`: the quota layer's objects, in both versions that are in use.
//!
//! v1beta2 is stored; v1beta1 is served for the manifests and clients that still speak it. Where a type is the same in
//! both, [`v1beta1`] re-exports [`v1beta2`]'s; where only a bound differs, it relaxes it at the field. Field names,
//! defaults, bounds and rules are Kueue's (`apis/kueue/{v1beta1,v1beta2}`).

mod pod_template;
pub mod v1beta1;
pub mod v1beta2;

pub use pod_template::PodTemplate;
