//! The definitions: checked-in files are what the types say, and what the types say is what the peers' definitions say.
//!
//! One test binary: building all schemas takes a second, and every test here needs them.

#![expect(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(crds::definition::all);

fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn checked_in_files_are_current() {
    let mut wanted = BTreeSet::new();
    for definition in &*DEFINITIONS {
        let name = crds::definition::file_name(definition);
        let found = fs::read_to_string(crate_path("generated").join(&name)).unwrap_or_default();
        assert!(
            found == crds::definition::to_yaml(definition),
            "crds/generated/{name} is stale: run `cargo run -p crds --bin crdgen`"
        );
        wanted.insert(name);
    }
    let found: BTreeSet<String> = fs::read_dir(crate_path("generated"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, wanted, "files without a definition");
}

#[test]
fn those_that_are_converted_are_known_by_name() {
    let converted = DEFINITIONS.iter().filter(|definition| definition.spec.conversion.is_some());
    let names: Vec<&str> = converted.filter_map(|definition| definition.metadata.name.as_deref()).collect();
    assert_eq!(names, crds::conversion::definition_names());
}

#[test]
fn definitions_fit_an_object() {
    // etcd refuses requests above 1.5 MiB; server-side apply keeps a second set of field names beside the object.
    for definition in &*DEFINITIONS {
        let size = serde_json::to_vec(definition).unwrap().len();
        assert!(size < 700_000, "{} has {size} bytes", crds::definition::file_name(definition));
    }
}

#[test]
fn schemas_are_structural() {
    for definition in &*DEFINITIONS {
        for version in &definition.spec.versions {
            let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()).unwrap();
            let name = format!("{}/{}", crds::definition::file_name(definition), version.name);
            let schema = serde_json::to_value(schema).unwrap();
            assert_structural(&schema, &name);
            assert_eq!(schema["properties"]["metadata"], json!({ "type": "object" }), "{name}");
        }
    }
}

/// The API server's rules of structural schemas, as far as ours could break them.
fn assert_structural(schema: &Value, path: &str) {
    let map = schema.as_object().unwrap_or_else(|| panic!("{path} is no schema"));
    if !map.contains_key("x-kubernetes-int-or-string") {
        assert!(map.get("type").is_some_and(Value::is_string), "{path} has no type: {map:?}");
        for keyword in ["anyOf", "oneOf", "allOf", "not"] {
            assert!(!map.contains_key(keyword), "{path} has {keyword}");
        }
    }
    assert_ne!(map.get("required"), Some(&json!([])), "{path} requires nothing, in so many words");
    for keyword in ["$ref", "nullable", "uniqueItems", "title"] {
        assert!(!map.contains_key(keyword), "{path} has {keyword}");
    }
    if let Some(properties) = map.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            assert_structural(property, &format!("{path}.{name}"));
        }
        for name in map.get("required").and_then(Value::as_array).into_iter().flatten() {
            assert!(
                properties.contains_key(name.as_str().unwrap()),
                "{path} requires {name}, which it lacks"
            );
        }
    }
    if let Some(items) = map.get("items") {
        assert_structural(items, &format!("{path}[]"));
        let keys = map.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
        for key in keys.map(|key| key.as_str().unwrap()) {
            let required = items["required"].as_array().is_some_and(|r| r.contains(&json!(key)));
            let default = !items["properties"][key]["default"].is_null();
            assert!(
                required || default,
                "{path} is keyed by {key}, which is neither required nor has a default"
            );
        }
    }
    if let Some(values @ Value::Object(_)) = map.get("additionalProperties") {
        assert_structural(values, &format!("{path}{{}}"));
    }
}

/// One line a fact: path, keyword, value.
type Facts = BTreeMap<String, String>;

/// Fields whose type is Kubernetes': what is inside them is not compared.
const CORE_FIELDS: [&str; 5] =
    ["template", "nodeTaints[]", "tolerations[]", "namespaceSelector", "labelSelector"];

fn schema_facts(schema: &Value, path: &str, facts: &mut Facts) {
    let map = schema.as_object().unwrap_or_else(|| panic!("{path} is no schema"));
    facts.insert(format!("{path} exists"), String::new());
    for (keyword, value) in map {
        let value = match keyword.as_str() {
            "properties" | "items" | "additionalProperties" | "description" => continue,
            "x-kubernetes-validations" => {
                let rules = value.as_array().unwrap().iter().map(|rule| {
                    assert!(
                        rule["message"].as_str().is_some_and(|m| !m.is_empty()),
                        "{path}: a rule has no message"
                    );
                    json!([rule["rule"], rule["reason"], rule["fieldPath"]])
                });
                Value::Array(rules.collect())
            }
            "enum" | "required" => {
                let mut values: Vec<&str> =
                    value.as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
                values.sort_unstable();
                json!(values)
            }
            _ => value.clone(),
        };
        facts.insert(format!("{path} {keyword}"), plain(&value));
    }
    if CORE_FIELDS.iter().any(|field| path.ends_with(&format!(".{field}"))) {
        return;
    }
    for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        schema_facts(property, &format!("{path}.{name}"), facts);
    }
    if let Some(items) = map.get("items") {
        schema_facts(items, &format!("{path}[]"), facts);
    }
    if let Some(values @ Value::Object(_)) = map.get("additionalProperties") {
        schema_facts(values, &format!("{path}{{}}"), facts);
    }
}

/// JSON text in which 1 and 1.0 are the same.
fn plain(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_f64().unwrap().to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            format!(
                "{{{}}}",
                map.iter().map(|(k, v)| format!("{k}: {}", plain(v))).collect::<Vec<_>>().join(", ")
            )
        }
        other => other.to_string(),
    }
}

fn definition_facts(definition: &Value) -> Facts {
    let spec = &definition["spec"];
    let name = definition["metadata"]["name"].as_str().unwrap();
    let mut facts = Facts::new();
    for key in ["group", "scope"] {
        facts.insert(format!("{name} {key}"), plain(&spec[key]));
    }
    for key in ["kind", "listKind", "plural", "singular", "shortNames", "categories"] {
        facts.insert(format!("{name} {key}"), plain(&spec["names"][key]));
    }
    for version in spec["versions"].as_array().unwrap() {
        let path = format!("{name}/{}", version["name"].as_str().unwrap());
        for key in ["served", "storage", "deprecated", "subresources", "selectableFields"] {
            facts.insert(format!("{path} {key}"), plain(&version[key]));
        }
        facts.insert(
            format!("{path} deprecationWarning"),
            version["deprecationWarning"].is_string().to_string(),
        );
        for (index, column) in
            version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate()
        {
            for key in ["name", "type", "jsonPath", "priority", "format"] {
                facts.insert(format!("{path} column {index} {key}"), plain(&column[key]));
            }
        }
        schema_facts(&version["schema"]["openAPIV3Schema"], &path, &mut facts);
    }
    facts
}

/// `PATH KEYWORD: reason` a line; `#` begins a comment.
fn wanted_differences() -> BTreeMap<String, String> {
    fs::read_to_string(crate_path("tests/wanted-differences.txt"))
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (fact, reason) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?} gives no reason"));
            (fact.to_owned(), reason.to_owned())
        })
        .collect()
}

#[test]
fn same_as_the_peers() {
    let shared = crate_path("../../shared/conformance/crds");
    if !shared.is_dir() {
        eprintln!("SKIPPED same_as_the_peers: {} is not there", shared.display());
        return;
    }
    // Every kind of theirs is ours too: the loop below compares what we have, and would not miss one.
    let ours: BTreeSet<String> = DEFINITIONS.iter().map(crds::definition::file_name).collect();
    let theirs: BTreeSet<String> = fs::read_dir(shared.join("kueue"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(theirs.len() >= 11, "read only {theirs:?}");
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "kinds of kueue.x-k8s.io without a definition of ours: {missing:?}");
    let mut wanted = wanted_differences();
    let mut unexplained = Vec::new();
    for definition in &*DEFINITIONS {
        let folder = match definition.spec.group.as_str() {
            "kueue.x-k8s.io" => "kueue",
            "scheduling.volcano.sh" => "volcano",
            _ => continue,
        };
        let text =
            fs::read_to_string(shared.join(folder).join(crds::definition::file_name(definition))).unwrap();
        let theirs = definition_facts(&serde_saphyr::from_str::<Value>(&text).unwrap());
        let ours = definition_facts(&serde_json::to_value(definition).unwrap());
        assert!(theirs.len() > 50, "read only {} facts of {folder}", theirs.len());
        for fact in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
            let (their, our) = (theirs.get(fact), ours.get(fact));
            if their != our && wanted.remove(fact).is_none() {
                unexplained.push(format!("{fact}\n    theirs {their:?}\n    ours   {our:?}"));
            }
        }
    }
    assert!(unexplained.is_empty(), "{} differences:\n{}", unexplained.len(), unexplained.join("\n"));
    assert!(wanted.is_empty(), "no longer different: {wanted:?}");
}

/// Inside a pod template what is required is compared, and nothing else.
fn required_facts(schema: &Value, path: &str, facts: &mut Facts) {
    let mut required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    required.sort_unstable();
    if !required.is_empty() {
        facts.insert(path.to_owned(), required.join(" "));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        // Its own API object, with all of its metadata.
        if name != "volumeClaimTemplate" {
            required_facts(property, &format!("{path}.{name}"), facts);
        }
    }
    if schema["items"].is_object() {
        required_facts(&schema["items"], &format!("{path}[]"), facts);
    }
}

/// What a job may leave away, its Workload may leave away too: it could not be made otherwise.
#[test]
fn a_template_needs_what_it_needs_in_kueues_definition() {
    let file = crate_path("../../shared/conformance/crds/kueue/kueue.x-k8s.io_workloads.yaml");
    let Ok(text) = fs::read_to_string(&file) else {
        eprintln!(
            "SKIPPED a_template_needs_what_it_needs_in_kueues_definition: {} is not there",
            file.display()
        );
        return;
    };
    let ours = DEFINITIONS.iter().find(|one| one.spec.names.kind == "Workload").unwrap();
    let [theirs, ours] = [
        serde_saphyr::from_str::<Value>(&text).unwrap(),
        serde_json::to_value(ours).unwrap(),
    ]
    .map(|definition| {
        let versions = definition["spec"]["versions"].as_array().unwrap().clone();
        let mut facts = Facts::new();
        for version in &versions {
            let at = "/schema/openAPIV3Schema/properties/spec/properties/podSets/items/properties/template";
            let name = version["name"].as_str().unwrap();
            required_facts(version.pointer(at).unwrap(), name, &mut facts);
        }
        facts
    });
    assert!(theirs.len() > 100, "read only {} facts", theirs.len());
    assert_eq!(ours, theirs);
}

#[test]
fn the_comparison_sees_a_difference() {
    let definition = |maximum: i64, rule: &str| {
        json!({
            "metadata": { "name": "things.example.com" },
            "spec": { "versions": [{
                "name": "v1",
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": {
                    "type": "integer", "maximum": maximum,
                    "x-kubernetes-validations": [{ "rule": rule, "message": "no" }],
                }}}},
            }]},
        })
    };
    let base = definition_facts(&definition(1, "self == 1"));
    assert_eq!(base["things.example.com/v1.spec maximum"], "1");
    for other in [definition(2, "self == 1"), definition(1, "self == 2")] {
        let other = definition_facts(&other);
        assert_eq!(base.iter().filter(|(fact, value)| other[*fact] != **value).count(), 1);
    }
}
