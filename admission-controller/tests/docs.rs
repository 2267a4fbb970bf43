//! What a user can meet is documented, and what is documented can be met: reasons, fields of the configuration, kinds of jobs,
//! fields of objects. (Metrics: `metrics.rs`.)

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::Path;

use admission_controller::config;
use admission_controller::jobs::TABLE;
use admission_controller::pods::{FRAMEWORK, OWNERS};
use serde_json::Value;

fn doc(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap()
}

#[test]
fn every_reason_has_a_page_and_every_page_a_reason() {
    // What the programs write is declared in one place; what any of them says through kit is the last one.
    let reasons: BTreeSet<&str> =
        crds::reasons::ALL.concat().into_iter().chain([kit::watch::UNDECODABLE]).collect();
    assert!(reasons.len() > 50, "{reasons:?}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reasons");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let pages: BTreeSet<String> =
        files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    let pages: BTreeSet<&str> = pages.iter().map(String::as_str).collect();
    let (missing, stray) = (reasons.difference(&pages), pages.difference(&reasons));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "reasons without a page");
    assert_eq!(stray.collect::<Vec<_>>(), Vec::<&&str>::new(), "pages about nothing that is said");
    for page in pages {
        let text = std::fs::read_to_string(folder.join(format!("{page}.md"))).unwrap();
        for part in [&format!("# {page}\n"), "**On** ", "**Written by** ", "**What to do.** "] {
            assert!(text.contains(part), "docs/reasons/{page}.md lacks {part:?}");
        }
    }
}

/// By itself, or by what it is part of where all of that has one fate.
#[test]
fn every_field_of_the_configuration_is_documented() {
    let text = doc("admission-controller.md");
    let told = |path: &str| text.contains(&format!("`{path}`")) || text.contains(&format!("`{path}:"));
    let parts = |path: &str| -> Vec<String> {
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        ends.map(|end| path[..end].to_owned()).collect()
    };
    let untold: Vec<&str> =
        config::paths().filter(|path| !parts(path).iter().any(|part| told(part))).collect();
    assert_eq!(untold, Vec::<&str>::new());
}

#[test]
fn every_kind_of_job_is_documented() {
    let text = doc("kinds.md");
    let kinds = TABLE.iter().map(|kind| kind.framework);
    let kinds = kinds.chain(OWNERS.iter().map(|owner| owner.kind.framework)).chain([FRAMEWORK]);
    let untold: Vec<&str> = kinds.filter(|kind| !text.contains(&format!("`{kind}`"))).collect();
    assert_eq!(untold, Vec::<&str>::new());
    for kind in TABLE {
        let version = format!("`{}/{}`", kind.group, kind.version);
        assert!(text.contains(&version), "{version}");
    }
}

/// Types of Kubernetes' own: it is told that they are there.
const KUBERNETES: [&str; 5] = ["template", "conditions", "namespaceSelector", "nodeTaints", "tolerations"];

/// The paths of all fields of an object, those of lists with `[]`.
fn fields(at: &str, schema: &Value, found: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = match at {
            "" if ["apiVersion", "kind", "metadata"].contains(&name.as_str()) => continue,
            "" => name.clone(),
            _ => format!("{at}.{name}"),
        };
        if !KUBERNETES.contains(&name.as_str()) {
            fields(&path, field, found);
        }
        found.insert(path);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            fields(&format!("{at}[]"), &schema[inner], found);
        }
    }
}

/// Each in the section of its kind, by itself or as what others are part of; and no section has any that no object has.
#[test]
fn every_field_of_kueues_objects_is_documented() {
    let text = doc("fields.md");
    let sections = text.split("\n## ").skip(1).map(|section| {
        let (heading, body) = section.split_once('\n').unwrap();
        (heading, body.split('`').skip(1).step_by(2).collect::<BTreeSet<&str>>())
    });
    let sections: Vec<(&str, BTreeSet<&str>)> = sections.collect();
    let section = |name: &str| {
        let found = sections.iter().find(|(heading, _)| heading.split(", ").any(|one| one == name));
        found.map(|(_, told)| told).unwrap_or_else(|| panic!("docs/fields.md has no section {name}"))
    };
    let (mut known, mut untold) = (BTreeSet::new(), Vec::new());
    for crd in crds::definition::all().into_iter().filter(|crd| crd.spec.group == "kueue.x-k8s.io") {
        let crd = serde_json::to_value(crd).unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let old = (version["name"] == "v1beta1").then(|| section("v1beta1"));
            let told: Vec<&str> = section(kind).iter().chain(old.into_iter().flatten()).copied().collect();
            let is_told = |path: &str| {
                let mut rests = told.iter().filter_map(|one| one.strip_prefix(path));
                rests.any(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            let mut found = BTreeSet::new();
            fields("", &version["schema"]["openAPIV3Schema"], &mut found);
            untold.extend(found.iter().filter(|path| !is_told(path)).map(|path| format!("{kind} {path}")));
            known.extend(found);
        }
    }
    assert!(known.len() > 100, "{known:?}");
    assert_eq!(untold, Vec::<String>::new());
    let told = sections.iter().flat_map(|(_, told)| told.iter().copied());
    let mut paths = told.filter(|one| one.starts_with("spec.") || one.starts_with("status."));
    assert_eq!(paths.find(|path| !known.contains(*path)), None, "no object has that");
}

/// `kubectl explain` shows what they mean.
#[test]
fn every_field_of_our_own_objects_is_described() {
    fn undescribed(at: &str, schema: &Value, found: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            let is_standard = [".metadata", ".kind", ".apiVersion"].iter().any(|one| at == *one);
            if field["description"].as_str().is_none_or(str::is_empty) && !is_standard {
                found.push(at.clone());
            }
            // Conditions are the same everywhere.
            if name != "conditions" {
                undescribed(&at, field, found);
            }
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                undescribed(&format!("{at}[]"), &schema[inner], found);
            }
        }
    }
    let ours = crds::definition::all().into_iter().filter(|crd| crd.spec.group == "trireme.dev");
    let mut seen = 0;
    for crd in ours {
        seen += 1;
        let crd = serde_json::to_value(crd).unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let mut found = Vec::new();
            undescribed("", &version["schema"]["openAPIV3Schema"], &mut found);
            assert_eq!(found, Vec::<String>::new(), "{}", crd["metadata"]["name"]);
        }
    }
    assert!(seen >= 2);
}
