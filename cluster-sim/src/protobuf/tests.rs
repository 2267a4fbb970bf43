use serde_json::json;

use super::*;

/// A field of bytes.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 0x80, "one byte of length is enough for a test");
    [&[number << 3 | 2, length], content].concat()
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn body(api_version: &str, kind: &str, object: &[Vec<u8>]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, &object.concat())].concat()
}

#[test]
fn a_namespace_as_kubectl_sends_it() {
    // Everything that Go does not point to is encoded, empty or not.
    let metadata = [
        bytes(1, b"x"),
        bytes(2, b""),
        bytes(3, b""),
        number(7, 0),
        bytes(8, b""),
        bytes(11, &[bytes(1, b"team"), bytes(2, b"a")].concat()),
        bytes(11, &[bytes(1, b"none"), bytes(2, b"")].concat()),
    ];
    let sent =
        body("v1", "Namespace", &[bytes(1, &metadata.concat()), bytes(2, b""), bytes(3, &bytes(1, b""))]);
    let expected = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "x", "labels": { "team": "a", "none": "" } },
    });
    assert_eq!(decode(&sent).unwrap(), expected);
}

#[test]
fn every_kind_of_field() {
    let quantity = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"500m"))].concat();
    let key = bytes(1, &[bytes(1, &bytes(1, b"conf")), bytes(2, b"k")].concat());
    let reference = bytes(3, &bytes(3, &key[2..]));
    let env = [bytes(1, b"A"), bytes(2, b""), reference].concat();
    let container =
        [bytes(1, b"main"), bytes(3, b"sh"), bytes(3, b"-c"), bytes(7, &env), bytes(8, &bytes(1, &quantity))];
    let volume = [bytes(1, b"v"), bytes(2, &bytes(2, b""))].concat();
    let spec = [bytes(1, &volume), bytes(2, &container.concat()), bytes(3, b"Never"), number(4, 0)];
    let metadata = bytes(9, &[number(1, 60), number(2, 0)].concat());
    let sent = body("v1", "Pod", &[bytes(1, &metadata), bytes(2, &spec.concat())]);
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "deletionTimestamp": "1970-01-01T00:01:00Z" },
        "spec": {
            "volumes": [{ "name": "v", "emptyDir": {} }],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "command": ["sh", "-c"],
                "env": [{ "name": "A", "valueFrom": { "configMapKeyRef": { "name": "conf", "key": "k" } } }],
                "resources": { "limits": { "cpu": "500m" } },
            }],
        },
    });
    assert_eq!(decode(&sent).unwrap(), expected);
    let budget = [bytes(1, &[number(1, 1), number(2, 0), bytes(3, b"50%")].concat())];
    let sent = body("policy/v1", "PodDisruptionBudget", &[bytes(2, &budget.concat())]);
    assert_eq!(decode(&sent).unwrap()["spec"]["minAvailable"], "50%");
    let sent = body("v1", "Secret", &[bytes(2, &[bytes(1, b"k"), bytes(2, b"v")].concat())]);
    assert_eq!(decode(&sent).unwrap()["data"]["k"], "dg==");
    let negative = [&[2 << 3][..], &[0xFF; 9], &[1]].concat();
    let sent = body("scheduling.k8s.io/v1", "PriorityClass", &[negative]);
    assert_eq!(decode(&sent).unwrap()["value"], -1);
}

#[test]
fn what_cannot_be_read_is_refused_and_never_panics() {
    let code = |body: &[u8]| decode(body).unwrap_err().code;
    assert_eq!(code(b""), 400);
    assert_eq!(code(b"{}"), 400);
    assert_eq!(code(&body("example.com/v1", "Thing", &[])), 415);
    assert_eq!(
        code(&body("v1", "Namespace", &[bytes(15, b"?")])),
        400,
        "a field nobody knows is not dropped"
    );
    assert_eq!(code(&body("v1", "Namespace", &[number(1, 1)])), 400);
    let whole = body("v1", "Namespace", &[bytes(1, &bytes(1, b"name"))]);
    for end in 0..whole.len() {
        let _refused_or_empty = decode(&whole[..end]);
    }
    for at in 0..whole.len() {
        let mut broken = whole.clone();
        broken[at] ^= 0xFF;
        let _refused_or_different = decode(&broken);
    }
}

#[test]
fn every_message_that_is_named_is_there() {
    let table = table();
    for (message, fields) in table {
        for field in fields.values() {
            let kind = field.kind.trim_start_matches("[]").trim_start_matches("{}");
            assert!(!kind.contains('.') || table.contains_key(kind), "{message}: {kind}");
        }
    }
    assert!(table.len() > 200);
}
