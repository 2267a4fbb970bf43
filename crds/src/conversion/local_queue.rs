//! `LocalQueue`.

use serde_json::{Map, Value};

use super::{ConversionError, Version, child, rename};

pub(super) fn convert(object: &mut Map<String, Value>, to: Version) -> Result<(), ConversionError> {
    if let Some(status) = child(object, &["status"]) {
        match to {
            Version::V1Beta2 => {
                rename(status, "flavorUsage", "flavorsUsage");
                status.remove("flavors");
            }
            Version::V1Beta1 => rename(status, "flavorsUsage", "flavorUsage"),
        }
    }
    Ok(())
}
