//! The rules of admission-controller's validating webhooks: what schemas cannot say.
//!
//! Pure functions from an object (and, for an update, the one before) to what is wrong with it, linear in its size. Field paths
//! and kinds of errors are those of Kueue's webhooks (`pkg/webhooks`); the sentences are ours. What Kueue leaves to the schema's
//! CEL rules is in [`rules`]: API servers without CEL would let it pass.

mod cluster_queue;
mod cohort;
mod conditions;
mod finding;
mod gates;
mod metadata;
mod path;
mod quota;
mod resource_flavor;
mod resources;
pub mod rules;
mod syntax;
mod template;
mod workload;
mod workload_status;
mod workload_update;

pub use cluster_queue::{cluster_queue, cluster_queue_update};
pub use cohort::cohort;
pub use finding::{ErrorKind, FieldError};
pub use gates::Gates;
pub use metadata::label_selector;
pub use resource_flavor::resource_flavor;
pub use syntax::{is_dns_subdomain, is_domain_path, is_qualified_name};
pub use template::same_template;
pub use workload::workload;
pub use workload_update::workload_update;

use finding::Findings;
use path::Path;
