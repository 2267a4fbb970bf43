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

#[test]
fn the_story_has_its_own_nodes() {
    // It is about three nodes of eight A100s: on others it would wait for GPUs that never come.
    for flag in [["--nodes", "2"], ["--profile", "4xL40S"]] {
        let run = Command::new(env!("CARGO_BIN_EXE_trireme")).arg("demo").args(flag).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{flag:?}: {}", String::from_utf8_lossy(&run.stderr));
    }
}
