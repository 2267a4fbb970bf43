//! Which GPUs a container gets, and what it is told about them. All of it is pure.

mod matching;
mod preferred;
mod response;

pub use matching::{Held, PendingPod, Wish, awaited, choose, parse_devices_annotation, wishes};
pub use preferred::{PreferredError, preferred};
pub use response::{AllocateError, Feature, ResponseSettings, container_response, resolve_ids};
pub(crate) use response::{CDI_KIND, device_name, on_host};
