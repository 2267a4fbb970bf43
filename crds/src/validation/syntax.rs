//! Names, as Kubernetes spells them (`apimachinery/pkg/util/validation`).

pub(super) use model::selector::is_label_value;

/// Longest DNS subdomain.
const SUBDOMAIN_LENGTH: usize = 253;

/// `[prefix/]name`: keys of labels and annotations, resources.
pub fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Lower-case labels with dots between them.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_LENGTH
        && text.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && has_alphanumeric_ends(label)
        })
}

/// `domain/path`: names of controllers.
pub fn is_domain_path(text: &str) -> bool {
    text.split_once('/').is_some_and(|(domain, path)| {
        is_dns_subdomain(domain)
            && !path.is_empty()
            && path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b))
    })
}

/// The reason of a condition.
pub(super) fn is_condition_reason(text: &str) -> bool {
    text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':'))
        && text.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn has_alphanumeric_ends(text: &str) -> bool {
    let alphanumeric = |b: Option<u8>| b.is_none_or(|b| b.is_ascii_alphanumeric());
    alphanumeric(text.bytes().next()) && alphanumeric(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names() {
        for good in ["cpu", "nvidia.com/gpu", "a", "A_b-c.d", "example.com/A_b"] {
            assert!(is_qualified_name(good), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "@cpu", "-a", "a-", "/a", "a/", "A.com/a", "a..b/c", "a/b/c", "é", long.as_str()] {
            assert!(!is_qualified_name(bad), "{bad}");
        }
    }

    #[test]
    fn reasons_of_conditions() {
        for good in ["A", "Admitted", "a_", "ReasonA,ReasonB", "A:b9"] {
            assert!(is_condition_reason(good), "{good}");
        }
        for bad in ["", "_a", "9a", "a,", "a:", "two words", "a-b"] {
            assert!(!is_condition_reason(bad), "{bad}");
        }
    }

    #[test]
    fn controllers() {
        assert!(is_domain_path("example.com/gate"));
        for bad in ["gate", "example.com/", "example.com/a gate", "Example.com/gate"] {
            assert!(!is_domain_path(bad), "{bad}");
        }
    }
}
