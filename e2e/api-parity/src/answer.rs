use anyhow::{Result, bail, ensure};
use serde_json::Value;

/// What the server said to one request. Checks return the answer, so that they chain.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Method and path, for messages.
    pub request: String,
    /// HTTP status code.
    pub status: u16,
    /// The body, `null` when it is not JSON.
    pub body: Value,
    /// The body as it came.
    pub text: String,
}

impl Answer {
    /// The request was carried out: a 2xx code.
    pub fn ok(self) -> Result<Self> {
        ensure!(
            (200..300).contains(&self.status),
            "{}: wanted success, got {} {}",
            self.request,
            self.status,
            self.text
        );
        Ok(self)
    }

    /// This very status code.
    pub fn is(self, status: u16) -> Result<Self> {
        ensure!(
            self.status == status,
            "{}: wanted {status}, got {} {}",
            self.request,
            self.status,
            self.text
        );
        Ok(self)
    }

    /// Refused with this code and reason, as a well-formed `Status`.
    pub fn refused(self, code: u16, reason: &str) -> Result<Self> {
        self.is(code)?
            .has("/kind", "Status")?
            .has("/apiVersion", "v1")?
            .has("/status", "Failure")?
            .has("/reason", reason)?
            .has("/code", code)?
            .filled("/message")
    }

    /// The `Status` has a cause with this reason (a `Field...` token) at this field path.
    pub fn cause(self, reason: &str, field: &str) -> Result<Self> {
        let causes = self.at("/details/causes").as_array().cloned().unwrap_or_default();
        let found = causes.iter().any(|cause| cause["reason"] == reason && cause["field"] == field);
        ensure!(found, "{}: no cause {reason} at {field} in {}", self.request, self.text);
        Ok(self)
    }

    /// The value at a JSON pointer, `null` when there is none.
    pub fn at(&self, pointer: &str) -> &Value {
        self.body.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The value at a JSON pointer is this.
    pub fn has(self, pointer: &str, wanted: impl Into<Value>) -> Result<Self> {
        let wanted = wanted.into();
        ensure!(
            self.at(pointer) == &wanted,
            "{}: wanted {pointer} = {wanted}, got {} in {}",
            self.request,
            self.at(pointer),
            self.text
        );
        Ok(self)
    }

    /// Nothing stands at a JSON pointer.
    pub fn lacks(self, pointer: &str) -> Result<Self> {
        ensure!(
            self.at(pointer).is_null(),
            "{}: wanted nothing at {pointer}, got {}",
            self.request,
            self.at(pointer)
        );
        Ok(self)
    }

    /// A text that is not empty stands at a JSON pointer.
    pub fn filled(self, pointer: &str) -> Result<Self> {
        self.string(pointer)?;
        Ok(self)
    }

    /// The text at a JSON pointer; an error when it is absent or empty.
    pub fn string(&self, pointer: &str) -> Result<String> {
        match self.at(pointer).as_str() {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => bail!("{}: no text at {pointer} in {}", self.request, self.text),
        }
    }

    /// The number at a JSON pointer.
    pub fn number(&self, pointer: &str) -> Result<i64> {
        self.at(pointer)
            .as_i64()
            .ok_or_else(|| anyhow::anyhow!("{}: no number at {pointer} in {}", self.request, self.text))
    }

    /// `metadata.resourceVersion`.
    pub fn version(&self) -> Result<String> {
        self.string("/metadata/resourceVersion")
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> Result<String> {
        self.string("/metadata/uid")
    }

    /// The names of a list's items, in the order given.
    pub fn names(&self) -> Vec<String> {
        let items = self.at("/items").as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
    }

    /// The list has exactly these items, in this order.
    pub fn lists(self, wanted: &[&str]) -> Result<Self> {
        ensure!(self.names() == wanted, "{}: wanted items {wanted:?}, got {:?}", self.request, self.names());
        Ok(self)
    }
}
