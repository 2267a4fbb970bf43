//! Every label, annotation, gate and finalizer is explained to users.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn pages(folder: &Path, text: &mut String) {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|one| one.unwrap().path()).collect();
    found.sort();
    for path in found {
        if path.is_dir() {
            pages(&path, text);
        } else {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

/// Tables say `…/name` for the second of a row. What is known under two names is written once.
#[test]
fn every_key_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    pages(&root.join("../docs"), &mut text);
    let names = std::fs::read_to_string(root.join("src/names.rs")).unwrap();
    let keys: BTreeSet<&str> =
        names.split('"').skip(1).step_by(2).filter(|word| word.contains("/") && word.contains('.')).collect();
    assert!(keys.len() > 40, "{keys:?}");
    let is_told = |key: &&&str| {
        let (_, name) = key.split_once('/').unwrap();
        text.contains(**key) || text.contains(&format!("…/{name}"))
    };
    let untold: Vec<&&str> = keys.iter().filter(|key| !is_told(key)).collect();
    assert!(untold.is_empty(), "{untold:?}");
}
