//! The list of known differences is the truth: neither more nor less differs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use conformance::{Case, Differences, Report, kueue};

#[test]
fn known_differences_are_the_truth() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance/kueue");
    if !folder.exists() {
        eprintln!("SKIPPED known_differences_are_the_truth: {} is not there", folder.display());
        return;
    }
    let cases = Case::load(&folder).unwrap();
    assert!(!cases.is_empty(), "no case in {}", folder.display());
    let report = Report::of(&cases, kueue::run);
    for (family, counts) in report.families() {
        println!("{family}: {} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    }
    let untrue = Differences::parse(kueue::KNOWN_DIFFERENCES).untrue(&report);
    assert!(untrue.is_empty(), "{} not as known-differences.md says\n{}", untrue.len(), untrue.join("\n"));
}
