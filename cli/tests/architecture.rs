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
    ("cli", &["embedded"]),
    ("conformance", &["model", "crds", "kit", "admission-controller", "quota-engine"]),
    ("control-plane", &[]),
    ("bench", &["model", "crds", "kit", "cluster-sim", "control-plane"]),
    ("real-runner", &["api-parity", "control-plane", "kit", "admission-controller"]),
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
    const ENGINE_MAY_USE: &[&str] =
        &["model", "thiserror", "foldhash", "hashbrown", "slotmap", "slab", "smallvec", "serde"];
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
        let sources =
            rust_files().into_iter().filter(|(path, _)| path.starts_with(&format!("{manifest}/src/")));
        for (path, text) in sources {
            for forbidden in
                ["std::time::Instant", "SystemTime", "std::env", "std::net", "std::fs", "std::thread"]
            {
                assert!(!text.contains(forbidden), "{path} uses {forbidden}");
            }
        }
    }
}

#[test]
fn unsafe_code_lives_in_two_files() {
    let mut found = BTreeSet::new();
    for (path, text) in rust_files() {
        // This file names the lint to look for it.
        if path == "cli/tests/architecture.rs" {
            continue;
        }
        let opens = text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains("unsafe_code")
        });
        if opens {
            found.insert(path);
        }
    }
    let expected = ["node-agent/fake-nvml/abi/src/lib.rs", "node-agent/src/driver/nvml_raw.rs"];
    assert_eq!(found, expected.map(str::to_owned).into());
}

/// Every Rust file of the repository, tests and generators included, by its path from the root: those that git would
/// commit, or in an unpacked archive whatever lies outside build folders.
fn rust_files() -> BTreeMap<String, String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.rs"])
        .current_dir(root())
        .output();
    let listed = listed.ok().filter(|output| output.status.success() && !output.stdout.is_empty());
    let paths = match listed {
        Some(output) => {
            let text = String::from_utf8(output.stdout).unwrap();
            text.split_terminator('\0').map(PathBuf::from).collect()
        }
        None => walk(Path::new("")),
    };
    let read = |path: PathBuf| {
        // A file that git knows may have been deleted from the tree.
        let text = std::fs::read_to_string(root().join(&path)).ok()?;
        Some((path.display().to_string(), text))
    };
    let files: BTreeMap<String, String> = paths.into_iter().filter_map(read).collect();
    assert!(files.contains_key("cli/tests/architecture.rs"), "found only {:?}", files.keys());
    files
}

/// The Rust files below a folder of the repository, as paths from the root.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !name.starts_with("target") && !name.starts_with('.') {
            found.extend(walk(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn an_unpacked_archive_is_searched_as_well() {
    let found = walk(Path::new(""));
    for file in ["cli/tests/architecture.rs", "node-agent/tests/nvml.rs", "model/src/quantity.rs"] {
        assert!(found.iter().any(|path| path == Path::new(file)), "{file} is not found");
    }
}
