//! The story from the outside: the command a newcomer runs first.

use std::process::Command;

#[test]
fn the_story_ends_as_it_should() {
    let output = Command::new(env!("CARGO_BIN_EXE_trireme")).args(["demo", "--once"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    for said in ["QuotaReserved", "WaitingForQuota", "InCohortReclamation", "by one plan"] {
        assert!(told.contains(said), "the story never said {said:?}:\n{told}");
    }
}
