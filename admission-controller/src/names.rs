//! The name of a job's Workload.

use sha1::{Digest, Sha1};

/// The longest name of an object (RFC 1123 subdomain).
const MAX_NAME: usize = 253;
/// A dash and five digits.
const SUFFIX: usize = 6;

/// Kueue's name for the Workload of a job (`pkg/controller/jobframework/workload_names.go`): kind and name, readable, and a
/// hash that also takes in group and uid.
pub fn workload_name(group: &str, kind: &str, name: &str, uid: &str) -> String {
    hashed((group, kind), name, uid, "")
}

/// The same of a slice of an elastic job, which is of one generation of it, and of what its controller made of it, if that is resized.
pub fn slice_name_of(
    group_kind: (&str, &str),
    name: &str,
    uid: &str,
    generation: i64,
    of_child: Option<i64>,
) -> String {
    let of_child = of_child.map_or(String::new(), |generation| format!("_{generation}"));
    hashed(group_kind, name, uid, &format!("\n{generation}{of_child}"))
}

fn hashed((group, kind): (&str, &str), name: &str, uid: &str, extra: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("{kind}\n{group}\n{name}\n{uid}{extra}"));
    let digest = hash.finalize();
    let hex: String = digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    let mut readable = format!("{}-{name}", kind.to_lowercase());
    let mut end = readable.len().min(MAX_NAME - SUFFIX);
    while !readable.is_char_boundary(end) {
        end -= 1;
    }
    readable.truncate(end);
    format!("{readable}-{}", &hex[..5])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_unique_and_never_too_long() {
        let name = workload_name("kubeflow.org", "PyTorchJob", "llama", "0f5a");
        assert!(name.starts_with("pytorchjob-llama-"));
        assert_eq!(name.len(), "pytorchjob-llama-".len() + 5);
        assert_ne!(name, workload_name("kubeflow.org", "PyTorchJob", "llama", "0f5b"));
        assert_eq!(workload_name("batch", "Job", &"x".repeat(253), "1").len(), MAX_NAME);
    }

    /// SHA-1 of "Job\nbatch\nsample\nuid-1" begins with these digits (computed with `sha1sum`).
    #[test]
    fn the_hash_is_kueues() {
        assert_eq!(workload_name("batch", "Job", "sample", "uid-1"), format!("job-sample-{}", SUM));
    }

    const SUM: &str = "4502e";
}
