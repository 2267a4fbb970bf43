//! The common name of a certificate's subject (X.690, RFC 5280 section 4.1).

/// Object identifier 2.5.4.3, with its tag and length.
const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
/// The optional first field of what is signed: the version.
const VERSION: u8 = 0xa0;

/// The last common name of the subject, if there is one that is text.
pub(super) fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    let (_, mut subject, _) = element(fields)?;
    let mut found = None;
    while let Some((_, mut attributes, rest)) = element(subject) {
        subject = rest;
        while let Some((_, attribute, rest)) = element(attributes) {
            attributes = rest;
            if let Some(value) = attribute.strip_prefix(COMMON_NAME) {
                found = element(value).and_then(|(_, text, _)| String::from_utf8(text.to_vec()).ok());
            }
        }
    }
    found
}

/// The first element: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The length follows in that many bytes; a certificate is shorter than 4 GiB.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_short_has_no_name() {
        let params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let bytes = certificate.der().to_vec();
        assert_eq!(common_name(&bytes).as_deref(), Some("rcgen self signed cert"));
        for length in 0..bytes.len() {
            assert_eq!(common_name(&bytes[..length]), None);
        }
    }
}
