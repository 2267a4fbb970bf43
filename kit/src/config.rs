//! Configuration files.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// The largest file that is read; a ConfigMap holds at most 1 MiB.
const MAX_BYTES: u64 = 1 << 20;

/// Why a configuration file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("configuration file {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is larger than any configuration.
    #[error("configuration file {}: larger than {MAX_BYTES} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Its content is wrong.
    #[error("configuration file {}: {field}{reason}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The path of the field, followed by a colon; empty when the file is no YAML.
        field: String,
        /// What is wrong, where known with line and column.
        reason: String,
    },
}

impl ConfigError {
    /// A field whose value has the right type but no sense.
    pub fn invalid(path: &Path, field: &str, reason: impl std::fmt::Display) -> Self {
        Self::Invalid { path: path.to_owned(), field: format!("{field}: "), reason: reason.to_string() }
    }
}

/// Reads a YAML file. Unknown fields are refused where `T` says `#[serde(deny_unknown_fields)]`, as every
/// configuration should: a misspelt limit must not be no limit.
///
/// # Errors
/// See [`ConfigError`]; each names the file, the field and the reason.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_BYTES {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    parse(path, &std::fs::read_to_string(path).map_err(unreadable)?)
}

/// The same for a text that was read already; `path` is for the messages.
///
/// # Errors
/// See [`read`].
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    let mut field = String::new();
    let parsed = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            if path != "." {
                field = format!("{path}: ");
            }
            error.into_inner()
        })
    });
    parsed.map_err(|error| ConfigError::Invalid {
        path: path.to_owned(),
        field,
        reason: error.without_snippet().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        limit: u32,
    }

    #[test]
    fn errors_name_file_field_and_reason() {
        let path = Path::new("/etc/x.yaml");
        let good: Outer = parse(path, "inner:\n- limit: 3\n").unwrap();
        assert_eq!(good, Outer { inner: vec![Inner { limit: 3 }] });
        for (text, parts) in [
            ("inner:\n- limit: many\n", &["inner[0].limit: ", "invalid u32", "line 2"][..]),
            ("inner:\n- limit: 3\n  limits: 4\n", &["inner[0].limits: ", "unknown field"]),
            ("inner: [", &["/etc/x.yaml: "]),
        ] {
            let error = parse::<Outer>(path, text).unwrap_err().to_string();
            for part in parts.iter().chain(&["configuration file /etc/x.yaml"]) {
                assert!(error.contains(part), "{error:?} lacks {part:?}");
            }
        }
        let missing = read::<Outer>(Path::new("/no/such")).unwrap_err().to_string();
        assert!(missing.contains("/no/such"), "{missing}");
    }
}
