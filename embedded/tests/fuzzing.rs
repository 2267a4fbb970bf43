//! The fuzzer itself: the same seed gives the same writes in any process, and what it plays holds.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::process::Command;

fn fuzz(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_embedded")).arg("fuzz").args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// The lines that do not depend on how fast the machine is.
fn writes(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.contains("episodes/s")).collect()
}

#[test]
fn two_processes_given_one_seed_write_the_same_log() {
    for seed in ["3", "11"] {
        let (_, one) = fuzz(&["--seed", seed, "--seeds", "1", "--log"]);
        let (_, other) = fuzz(&["--seed", seed, "--seeds", "1", "--log"]);
        assert!(writes(&one).len() > 100, "seed {seed} wrote too little to compare:\n{one}");
        for (line, (first, second)) in writes(&one).iter().zip(writes(&other)).enumerate() {
            assert_eq!(*first, second, "seed {seed}: the logs part at line {line}");
        }
        assert_eq!(writes(&one).len(), writes(&other).len(), "seed {seed}");
    }
}

#[test]
fn a_few_seeds_hold() {
    let (held, report) = fuzz(&["--seed", "0", "--seeds", "20"]);
    assert!(held, "{report}");
    let said = report.lines().find_map(|line| line.split_once(" episodes, ")).unwrap();
    let writes: u64 = said.1.split(' ').next().unwrap().parse().unwrap();
    assert!(said.0 == "20" && writes > 20_000, "{report}");
}

/// The rules see something. `fuzz --planted` plays all deliberate bugs.
#[test]
fn a_deliberate_bug_is_found() {
    let (found, report) = fuzz(&["--planted", "--bug", "CountQuotaTwice", "--seed", "0"]);
    assert!(found && report.contains("1 of 1 planted bugs found"), "{report}");
}
