//! Admission: the server's own plugins, and webhooks called through the table of in-process services.

pub(crate) mod builtin;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::resources::Resource;
use crate::store::State;
use crate::write::Caller;

/// What is done to the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

/// The webhooks of all configurations, ready to be matched.
#[derive(Debug, Default)]
pub(crate) struct Hooks;

impl Hooks {
    pub(crate) fn compile(_state: &State) -> Self {
        Self
    }
}

pub(crate) async fn run(
    _cluster: &Cluster,
    _caller: &Caller,
    _resource: &Resource,
    _operation: Operation,
    _subresource: &str,
    _old: Option<&Value>,
    new: Value,
) -> Result<Value, ApiError> {
    Ok(new)
}

pub(crate) async fn call(
    _cluster: &Cluster,
    _config: &Value,
    _review: &Value,
    _timeout_seconds: u64,
) -> Result<Value, String> {
    Err("no service".into())
}
