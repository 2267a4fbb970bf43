//! `v1beta1`: conversion between the served and the stored version.

use crds::conversion::convert;
use serde_json::{Map, Value};

use super::cycle::plain_places;
use crate::case::{Case, Runner, Verdict};

const V1BETA1: &str = "kueue.x-k8s.io/v1beta1";
const V1BETA2: &str = "kueue.x-k8s.io/v1beta2";

/// The runner of `v1beta1.Test<Kind>…`, whatever the kind.
pub(super) fn runner(file: &str) -> Option<Runner> {
    let ways: [(&str, Runner); 4] = [
        ("ConvertTo", convert_to),
        ("ConvertFrom", convert_from),
        ("Conversion_RoundTrip", round_trip),
        ("Conversion_RoundTrip_Reverse", reverse_round_trip),
    ];
    let test = file.strip_prefix("v1beta1.Test")?;
    ways.into_iter().find(|(way, _)| test.ends_with(way)).map(|(_, run)| run)
}

fn convert_to(case: &Case) -> Verdict {
    compare(&converted(case, &case.tc()["input"], V1BETA1, V1BETA2)?, &case.tc()["expected"], V1BETA2)
}

fn convert_from(case: &Case) -> Verdict {
    compare(&converted(case, &case.tc()["input"], V1BETA2, V1BETA1)?, &case.tc()["expected"], V1BETA1)
}

fn round_trip(case: &Case) -> Verdict {
    there_and_back(case, &case.tc()["v1beta1Obj"], V1BETA1, V1BETA2)
}

fn reverse_round_trip(case: &Case) -> Verdict {
    there_and_back(case, &case.tc()["v1beta2Obj"], V1BETA2, V1BETA1)
}

fn there_and_back(case: &Case, object: &Value, from: &str, to: &str) -> Verdict {
    let there = converted(case, object, from, to)?;
    compare(&converted(case, &there, to, from)?, object, from)
}

/// The kind is in the test's name: `v1beta1.Test<Kind>Conver…`.
fn kind(case: &Case) -> &str {
    let test = case.file.trim_start_matches("v1beta1.Test");
    test.split("Conver").next().unwrap_or_default()
}

fn converted(case: &Case, object: &Value, from: &str, to: &str) -> Result<Value, String> {
    let mut object = object.as_object().ok_or("there is no object")?.clone();
    object.insert("apiVersion".to_owned(), from.into());
    object.insert("kind".to_owned(), kind(case).into());
    convert(&mut object, to).map_err(|error| error.to_string())?;
    Ok(object.into())
}

fn compare(found: &Value, wanted: &Value, version: &str) -> Verdict {
    let [found, wanted] = [found, wanted].map(|object| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.retain(|key, _| key != "apiVersion" && key != "kind");
        }
        if version == V1BETA2 {
            // It has several ways of writing the same places.
            plain_places(&mut object);
        }
        object
    });
    match said(&found) == said(&wanted) {
        true => Ok(()),
        false => Err(format!("{found}\nwanted {wanted}")),
    }
}

/// Without what Go writes for "nothing": `null`, `""`, empty lists and objects. Zero stays: a pointer to it is not nothing.
fn said(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(items.iter().map(|item| said(item).unwrap_or_default()).collect()),
        Value::Object(map) => {
            let map: Map<String, Value> =
                map.iter().filter_map(|(key, value)| Some((key.clone(), said(value)?))).collect();
            (!map.is_empty()).then(|| map.into())
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_compared_whatever_they_are_cut_into() {
        let slice = |host: Value, count: u32| json!({ "domainCount": count, "valuesPerLevel": [host], "podCounts": { "universal": 1 } });
        let one = |host: &str| slice(json!({ "universal": host }), 1);
        let both = slice(json!({ "individual": { "roots": ["a", "b"] } }), 2);
        let workload = |topology: Value| json!({ "status": { "admission": { "podSetAssignments": [{ "topologyAssignment": topology }] } } });
        let packed = |slices: Value| workload(json!({ "levels": ["host"], "slices": slices }));
        let domains = json!([{ "values": ["a"], "count": 1 }, { "values": ["b"], "count": 1 }]);
        let plain = workload(json!({ "levels": ["host"], "domains": domains }));
        for (slices, is_same) in [
            (json!([both]), true),
            (json!([one("a"), one("b")]), true),
            (json!([one("b"), one("a")]), false),
            (json!([one("a")]), false),
        ] {
            let run = |test: &str, tc: Value| {
                let file = format!("v1beta1.TestWorkload{test}");
                let case = Case { file, name: String::new(), line: json!({ "tc": tc }) };
                super::super::run(&case).unwrap().is_ok()
            };
            let expected = packed(slices.clone());
            assert_eq!(
                run("ConvertTo", json!({ "input": plain, "expected": expected })),
                is_same,
                "{slices}"
            );
            assert!(run("Conversion_RoundTrip_Reverse", json!({ "v1beta2Obj": expected })), "{slices}");
        }
    }
}
