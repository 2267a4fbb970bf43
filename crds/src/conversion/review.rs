//! The conversion webhook's body: a `ConversionReview` in, a `ConversionReview` out.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::convert;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Vec<Map<String, Value>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    converted_objects: Vec<Map<String, Value>>,
    result: Value,
}

/// Answers a conversion request (`apiextensions.k8s.io/v1`). Never fails: what cannot be converted, or read, is answered with
/// status `Failed` and a sentence that says which object and why.
pub fn convert_review(body: &[u8]) -> Vec<u8> {
    let response = match serde_json::from_slice::<Review>(body) {
        Err(error) => {
            failed(String::new(), format!("the body is not a ConversionReview with a request: {error}"))
        }
        Ok(review) if review.api_version != API_VERSION || review.kind != KIND => failed(
            review.request.uid,
            format!("{} {} is not understood: send {API_VERSION} {KIND}", review.api_version, review.kind),
        ),
        Ok(review) => answer(review.request),
    };
    let answer = Answer { api_version: API_VERSION, kind: KIND, response };
    serde_json::to_vec(&answer).expect("the answer's keys are strings")
}

fn answer(request: Request) -> Response {
    let mut objects = request.objects;
    for (index, object) in objects.iter_mut().enumerate() {
        if let Err(error) = convert(object, &request.desired_api_version) {
            return failed(request.uid, format!("objects[{index}]{}: {error}", name_of(object)));
        }
    }
    Response { uid: request.uid, converted_objects: objects, result: json!({ "status": "Success" }) }
}

/// " (Kind namespace/name)", as far as the object says.
fn name_of(object: &Map<String, Value>) -> String {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("unknown kind");
    let metadata = |key| object.get("metadata").and_then(|m| m.get(key)).and_then(Value::as_str);
    match (metadata("namespace"), metadata("name")) {
        (Some(namespace), Some(name)) => format!(" ({kind} {namespace}/{name})"),
        (None, Some(name)) => format!(" ({kind} {name})"),
        _ => format!(" ({kind})"),
    }
}

fn failed(uid: String, message: String) -> Response {
    let result = json!({ "status": "Failed", "message": message });
    Response { uid, converted_objects: Vec::new(), result }
}
