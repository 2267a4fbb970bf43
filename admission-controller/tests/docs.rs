//! Every reason that a user can meet has a page, and every page is about a reason that a user can meet.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::Path;

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
