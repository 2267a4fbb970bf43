//! Every API type Trireme serves or reads.
//!
//! | module | what |
//! |---|---|
//! | [`api`] | full types: schema, conversion, the command line. Readability before size |
//! | [`validation`] | what schemas cannot say: the rules of the validating webhooks |
//! | [`view`] | lean read-only structs that watches decode into; one file per watched kind |
//! | [`definition`] | the CustomResourceDefinitions made of `api`, as checked in under `crds/generated` |
//! | [`conversion`] | v1beta1 ↔ v1beta2 of `kueue.x-k8s.io`, and the webhook body around it |
//! | [`schema`] | how a Rust type becomes a structural schema, and the attributes Kubernetes adds to JSON Schema |
//! | [`names`] | labels, annotations, finalizers |
//! | [`reasons`] | condition types, condition reasons, event reasons; the engines' too |

pub mod api;
pub mod conversion;
pub mod definition;
pub mod names;
pub mod schema;
pub mod validation;
pub mod view;

pub use definition::{all, all_unconverted};
pub use model::reasons;
