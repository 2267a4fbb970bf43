//! From bytes to objects, one bad object at a time.
//!
//! Objects are always read from a `&str`: the compiler makes a reader of every kind of object for each kind of input, and they
//! are large.

use kube::core::Status;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::value::RawValue;

/// Which object did not decode, and why.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Empty where the server does not say; so is the kind.
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) error: String,
}

/// One page of a list.
pub(super) struct Page<K> {
    pub(super) items: Vec<Result<K, Box<Named>>>,
    /// The token of the next page.
    pub(super) next: Option<String>,
    /// The resourceVersion of the list as a whole.
    pub(super) version: String,
}

/// One line of a watch, and the resourceVersion that it says.
pub(super) enum Line<K> {
    Applied { object: K, version: Option<String> },
    Deleted { object: K, version: Option<String> },
    Bookmark { version: Option<String> },
    Undecodable { bad: Box<Named>, added: bool, deleted: bool, version: Option<String> },
    Error(Box<Status>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawList<K> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: RawListMeta,
    // Go writes an empty list as null.
    items: Option<Vec<K>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// The token of the next page, if that is found without reading the whole page: lists of built-in kinds begin with their
/// metadata, those of custom resources end with it. Objects have no field of that name.
pub(super) fn token_of(page: &str) -> Option<String> {
    /// So near to its end or its beginning; tokens have a few hundred bytes.
    const NEAR: usize = 4096;
    const FIELD: &str = "\"metadata\":";
    let (bytes, length) = (page.as_bytes(), page.len());
    let tail =
        bytes[length.saturating_sub(NEAR)..].windows(FIELD.len()).rposition(|at| at == FIELD.as_bytes());
    let tail = tail.map(|at| length.saturating_sub(NEAR) + at);
    let head = bytes[..length.min(NEAR)].windows(FIELD.len()).position(|at| at == FIELD.as_bytes());
    [tail, head].into_iter().flatten().find_map(|at| {
        let metadata = &bytes[at + FIELD.len()..];
        let read = serde_json::Deserializer::from_slice(metadata).into_iter::<RawListMeta>().next()?;
        read.ok()?.next.filter(|token| !token.is_empty())
    })
}

/// Decodes a page: at full speed when all objects are good, one by one otherwise.
pub(super) fn page<K: DeserializeOwned>(text: &str) -> Result<Page<K>, serde_json::Error> {
    let (metadata, items) = match serde_json::from_str::<RawList<K>>(text) {
        Ok(list) => (list.metadata, list.items.unwrap_or_default().into_iter().map(Ok).collect()),
        Err(_) => {
            let list: RawList<Box<RawValue>> = serde_json::from_str(text)?;
            // The items of a list of built-in objects do not say what they are; the list does.
            let kind = list.kind.strip_suffix("List").unwrap_or_default();
            let of_list = |mut bad: Box<Named>| {
                if bad.kind.is_empty() {
                    (bad.api_version, bad.kind) = (list.api_version.clone(), kind.to_owned());
                }
                bad
            };
            let items = list.items.unwrap_or_default().into_iter();
            (list.metadata, items.map(|item| object(item.get()).map_err(of_list)).collect())
        }
    };
    Ok(Page {
        items,
        next: metadata.next.filter(|token| !token.is_empty()),
        version: metadata.resource_version,
    })
}

fn object<K: DeserializeOwned>(text: &str) -> Result<K, Box<Named>> {
    serde_json::from_str(text).map_err(|error| named(text, &error))
}

fn named(text: &str, error: &serde_json::Error) -> Box<Named> {
    let Name { api_version, kind, metadata } = serde_json::from_str(text).unwrap_or_default();
    let NameMeta { namespace, name, uid } = metadata;
    Box::new(Named {
        api_version: api_version.unwrap_or_default(),
        kind: kind.unwrap_or_default(),
        namespace: namespace.unwrap_or_default(),
        name: name.unwrap_or_default(),
        uid: uid.unwrap_or_default(),
        error: error.to_string(),
    })
}

/// What tells which object it is. Nothing else is looked at: it may be nested deeper than anything can be read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Name {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: NameMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NameMeta {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Deserialize)]
struct RawLine<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The little that every event is read for, whatever its object.
#[derive(Deserialize)]
struct Versioned {
    #[serde(default)]
    metadata: VersionedMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMeta {
    resource_version: Option<String>,
}

/// Decodes one line of a watch.
pub(super) fn line<K: DeserializeOwned>(line: &[u8]) -> Result<Line<K>, serde_json::Error> {
    let line = str::from_utf8(line).map_err(serde_json::Error::custom)?;
    let RawLine { r#type, object: text } = serde_json::from_str(line)?;
    let text = text.get();
    let version = serde_json::from_str::<Versioned>(text)?.metadata.resource_version;
    let version = version.filter(|version| !version.is_empty());
    let (added, deleted) = match r#type.as_str() {
        "ADDED" => (true, false),
        "MODIFIED" => (false, false),
        "DELETED" => (false, true),
        "BOOKMARK" => return Ok(Line::Bookmark { version }),
        "ERROR" => return Ok(Line::Error(serde_json::from_str(text)?)),
        other => return Err(serde_json::Error::custom(format!("there are no events of type {other:?}"))),
    };
    Ok(match object(text) {
        Ok(object) if deleted => Line::Deleted { object, version },
        Ok(object) => Line::Applied { object, version },
        Err(bad) => Line::Undecodable { bad, added, deleted, version },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Strict {
        replicas: u32,
    }

    #[derive(Debug, Deserialize)]
    struct Open {
        anything: serde_json::Value,
    }

    #[test]
    fn a_bad_object_in_a_list_is_named_and_the_others_survive() {
        let text = r#"{"apiVersion":"v1","kind":"ThingList","metadata":{"resourceVersion":"7","continue":"t"},"items":[
            {"replicas":1},{"metadata":{"namespace":"a","name":"b","uid":"u"},"replicas":"x"},{"replicas":3}]}"#;
        let page = page::<Strict>(text).unwrap();
        assert_eq!((page.version.as_str(), page.next.as_deref()), ("7", Some("t")));
        assert_eq!(page.items[0], Ok(Strict { replicas: 1 }));
        assert_eq!(page.items[2], Ok(Strict { replicas: 3 }));
        let bad = page.items[1].as_ref().unwrap_err();
        assert_eq!((bad.namespace.as_str(), bad.name.as_str(), bad.uid.as_str()), ("a", "b", "u"));
        assert_eq!((bad.api_version.as_str(), bad.kind.as_str()), ("v1", "Thing"));
        assert!(bad.error.contains("invalid type"), "{}", bad.error);
    }

    /// Somebody may store such a thing in a field that takes anything, and all others would wait for ever.
    #[test]
    fn an_object_that_is_nested_deeper_than_can_be_read_spoils_no_other() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let object = format!(r#"{{"anything":{deep},"metadata":{{"name":"deep","resourceVersion":"9"}}}}"#);
        let list = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{object},{{"anything":1}}]}}"#);
        let page = page::<Open>(&list).unwrap();
        assert_eq!(page.items[0].as_ref().unwrap_err().name, "deep");
        assert_eq!(page.items[1].as_ref().unwrap().anything, 1);
        let line = line::<Open>(format!(r#"{{"type":"ADDED","object":{object}}}"#).as_bytes()).unwrap();
        assert!(
            matches!(line, Line::Undecodable { bad, version, .. } if bad.name == "deep" && version.as_deref() == Some("9"))
        );
    }

    #[test]
    fn the_token_of_the_next_page_is_found_at_either_end() {
        let items = r#""items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]"#;
        for (page, token) in [
            (
                format!(
                    r#"{{"kind":"PodList","metadata":{{"resourceVersion":"7","continue":"t"}},{items}}}"#
                ),
                Some("t"),
            ),
            (
                format!(
                    r#"{{{items},"kind":"WorkloadList","metadata":{{"continue":"t","resourceVersion":"7"}}}}"#
                ),
                Some("t"),
            ),
            (format!(r#"{{{items},"metadata":{{"continue":"","resourceVersion":"7"}}}}"#), None),
            (format!(r#"{{"metadata":{{"resourceVersion":"7"}},{items}}}"#), None),
            (format!("{{{items}}}"), None),
            (String::new(), None),
        ] {
            assert_eq!(token_of(&page).as_deref(), token, "{page}");
        }
    }

    #[test]
    fn null_items_and_an_empty_token_are_an_empty_last_page() {
        let page =
            page::<Strict>(r#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#).unwrap();
        assert!(page.items.is_empty() && page.next.is_none());
    }

    #[test]
    fn lines_of_every_type() {
        let get = |text: &str| line::<Strict>(text.as_bytes()).unwrap();
        let object = r#"{"metadata":{"resourceVersion":"9","uid":"u"},"replicas":2}"#;
        let bad = r#"{"metadata":{"resourceVersion":"9","uid":"u"},"replicas":-2}"#;
        // Go writes the type first, other servers may write the object first.
        assert!(matches!(get(&format!(r#"{{"type":"ADDED","object":{object}}}"#)),
            Line::Applied { object: Strict { replicas: 2 }, version } if version.as_deref() == Some("9")));
        assert!(matches!(get(&format!(r#"{{"object":{object},"type":"DELETED"}}"#)),
            Line::Deleted { object: Strict { replicas: 2 }, version } if version.as_deref() == Some("9")));
        assert!(matches!(get(&format!(r#"{{"type":"MODIFIED","object":{bad}}}"#)),
            Line::Undecodable { bad, added: false, deleted: false, version } if version.as_deref() == Some("9") && bad.uid == "u"));
        assert!(matches!(get(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"11"}}}"#),
            Line::Bookmark { version } if version.as_deref() == Some("11")));
        for nothing in [r#"{}"#, r#"{"metadata":{}}"#, r#"{"metadata":{"resourceVersion":""}}"#] {
            let line = get(&format!(r#"{{"type":"BOOKMARK","object":{nothing}}}"#));
            assert!(matches!(line, Line::Bookmark { version: None }), "{nothing}");
        }
        assert!(
            matches!(get(r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#),
            Line::Error(status) if status.code == 410)
        );
        assert!(line::<Strict>(format!(r#"{{"type":"MOVED","object":{object}}}"#).as_bytes()).is_err());
    }
}
