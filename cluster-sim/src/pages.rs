use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::object::{ObjectKey, at, text};

/// Where the next page of a list begins: after `last`, in the list as it was at `revision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Continue {
    pub(crate) revision: u64,
    pub(crate) last: ObjectKey,
}

impl Continue {
    pub(crate) fn token(&self) -> String {
        let token = json!({
            "v": "meta.k8s.io/v1", "rv": self.revision,
            "namespace": &*self.last.namespace, "name": &*self.last.name,
        });
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    pub(crate) fn parse(token: &str) -> Result<Self, ApiError> {
        let invalid = || ApiError::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        let revision = at(&token, &["rv"]).as_u64().ok_or_else(invalid)?;
        Ok(Self { revision, last: ObjectKey::new(text(&token, &["namespace"]), text(&token, &["name"])) })
    }

    /// The list of which this was a page can no longer be told.
    pub(crate) fn expired() -> ApiError {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You must start a new \
             list without the continue parameter.",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_was() {
        let page = Continue { revision: 7, last: ObjectKey::new("ns", "pod-1") };
        assert_eq!(Continue::parse(&page.token()).unwrap(), page);
        assert_eq!(Continue::parse("nonsense").unwrap_err().code, 400);
    }
}
