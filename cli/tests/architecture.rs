//! The rules of ARCHITECTURE.md that a machine can hold us to.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Normal and build dependencies of every workspace member, by package name.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        dependencies
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
            .collect()
    };
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["name"].as_str().unwrap().to_owned(), names(package)))
        .collect()
}

/// What each crate of ours may use of ours. A new crate must be entered here, and so be thought about.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("quota-engine", &["model"]),
    ("placement-engine", &["model"]),
    ("crds", &["model"]),
    ("proto", &[]),
    ("kit", &[]),
    ("fake-nvml", &[]),
    ("fake-nvml-abi", &["fake-nvml"]),
    ("api-parity", &[]),
    ("cluster-sim", &["model", "kit", "proto"]),
    ("admission-controller", &["model", "crds", "kit", "quota-engine"]),
    ("gang-scheduler", &["model", "crds", "kit", "placement-engine"]),
    ("node-agent", &["model", "crds", "kit", "proto", "fake-nvml"]),
    (
        "embedded",
        &[
            "model",
            "crds",
            "kit",
            "proto",
            "cluster-sim",
            "admission-controller",
            "gang-scheduler",
            "node-agent",
            "fake-nvml",
        ],
    ),
    ("cli", &["embedded", "kit", "crds"]),
    ("real-runner", &["api-parity", "kit", "admission-controller"]),
];

#[test]
fn dependencies_point_one_way() {
    let dependencies = dependencies();
    let ours: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    assert_eq!(ours, allowed.keys().copied().collect(), "the table of this test and the workspace disagree");
    for (name, uses) in &dependencies {
        let surplus: Vec<_> = uses
            .iter()
            .filter(|used| ours.contains(used.as_str()) && !allowed[name.as_str()].contains(used.as_str()))
            .collect();
        assert!(
            surplus.is_empty(),
            "{name} must not depend on {surplus:?}; see the layers in ARCHITECTURE.md"
        );
    }
}

#[test]
fn engines_are_pure() {
    // Nothing that could read a clock, a socket, an environment variable or a random source.
    const ENGINE_MAY_USE: &[&str] = &["model", "thiserror", "rustc-hash", "serde"];
    let dependencies = dependencies();
    for engine in ["model", "quota-engine", "placement-engine"] {
        for used in &dependencies[engine] {
            assert!(
                ENGINE_MAY_USE.contains(&used.as_str()),
                "{engine} must stay pure, yet it depends on {used}"
            );
        }
        let manifest = if engine == "model" {
            "model"
        } else if engine == "quota-engine" {
            "admission-controller/engine"
        } else {
            "gang-scheduler/engine"
        };
        for (path, text) in sources(&root().join(manifest).join("src")) {
            for forbidden in
                ["std::time::Instant", "SystemTime", "std::env", "std::net", "std::fs", "std::thread"]
            {
                assert!(!text.contains(forbidden), "{} uses {forbidden}", path.display());
            }
        }
    }
}

#[test]
fn unsafe_code_lives_in_two_files() {
    let mut found = BTreeSet::new();
    for (path, text) in sources(&root()) {
        let opens = text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains("unsafe_code")
        });
        if opens {
            found.insert(path.strip_prefix(root()).unwrap().display().to_string());
        }
    }
    let expected = ["node-agent/fake-nvml/abi/src/lib.rs", "node-agent/src/driver/nvml_raw.rs"];
    assert_eq!(found, expected.map(str::to_owned).into());
}

fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != "tests" && !name.starts_with('.') {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}
