//! The authorities and leaves there are, and when which is made and served.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

/// How long a leaf is valid.
const LIFETIME_S: i64 = 90 * 86_400;
/// When it is replaced: after two thirds, which leaves a month for whatever goes wrong.
const ROTATE_AFTER_S: i64 = LIFETIME_S * 2 / 3;
/// From storing a leaf to serving it: time for the leader to tell every API server of its authority.
const OVERLAP_S: i64 = 3_600;
/// Other clocks may be behind ours.
const SKEW_S: i64 = 5 * 60;

/// One authority and its only leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Generation {
    /// The authority's certificate, PEM.
    pub(super) ca: String,
    /// The leaf's certificate, PEM.
    pub(super) cert: String,
    /// The leaf's key, PEM.
    pub(super) key: String,
    /// The names the leaf is for.
    pub(super) names: Vec<String>,
    /// When it was made, in Unix seconds.
    pub(super) made: i64,
    /// From when it is served, in Unix seconds.
    pub(super) serve_from: i64,
}

impl Generation {
    fn make(names: &[String], now: i64, serve_from: i64) -> Result<Self, rcgen::Error> {
        let mut ca = CertificateParams::new(Vec::<String>::new())?;
        ca.distinguished_name.push(DnType::CommonName, format!("trireme authority {now}"));
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        valid(&mut ca, now);
        let ca_key = KeyPair::generate()?;
        let ca_cert = ca.self_signed(&ca_key)?;
        let mut leaf = CertificateParams::new(names.to_vec())?;
        let name = names.first().cloned().unwrap_or_default();
        leaf.distinguished_name.push(DnType::CommonName, name.get(..64).unwrap_or(&name));
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        valid(&mut leaf, now);
        let key = KeyPair::generate()?;
        let cert = leaf.signed_by(&key, &Issuer::new(ca, ca_key))?;
        Ok(Self {
            ca: ca_cert.pem(),
            cert: cert.pem(),
            key: key.serialize_pem(),
            names: names.to_vec(),
            made: now,
            serve_from,
        })
    }

    fn expired(&self, now: i64) -> bool {
        now >= self.made + LIFETIME_S
    }
}

fn valid(params: &mut CertificateParams, now: i64) {
    let at = |second: i64| {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        epoch + Duration::from_secs(second.try_into().unwrap_or_default())
    };
    params.not_before = at(now - SKEW_S);
    params.not_after = at(now + LIFETIME_S);
}

/// All there are, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Generations(Vec<Generation>);

impl Generations {
    /// Makes a new one if there is none for these names, or the newest is due; drops what is not needed any more.
    /// True if anything changed and has to be stored.
    pub(super) fn rotate(&mut self, now: i64, names: &[String]) -> Result<bool, rcgen::Error> {
        let newest_will_do =
            self.0.last().is_some_and(|newest| newest.names == names && now < newest.made + ROTATE_AFTER_S);
        if newest_will_do {
            return Ok(false);
        }
        let serving =
            self.serving(now).filter(|serving| serving.names == names && !serving.expired(now)).cloned();
        let serve_from = if serving.is_some() { now + OVERLAP_S } else { now };
        self.0 = serving.into_iter().collect();
        self.0.push(Generation::make(names, now, serve_from)?);
        Ok(true)
    }

    /// The one to serve.
    pub(super) fn serving(&self, now: i64) -> Option<&Generation> {
        self.0.iter().rev().find(|generation| generation.serve_from <= now).or(self.0.first())
    }

    /// All authorities, PEM.
    pub(super) fn ca_bundle(&self) -> String {
        self.0.iter().map(|generation| generation.ca.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn a_rotation_overlaps() {
        let names = ["s.ns.svc".to_owned()];
        let mut all = Generations::default();
        assert!(all.rotate(0, &names).unwrap());
        let first = all.serving(0).unwrap().clone();
        assert!(!all.rotate(59 * DAY, &names).unwrap());
        assert!(all.rotate(60 * DAY, &names).unwrap());
        assert_eq!(all.serving(60 * DAY), Some(&first), "the new one is not served before it is trusted");
        assert_eq!(all.ca_bundle().matches("BEGIN CERTIFICATE").count(), 2);
        assert!(!all.rotate(60 * DAY + 1, &names).unwrap());
        let second = all.serving(60 * DAY + OVERLAP_S).unwrap().clone();
        assert_ne!(second, first);
        assert!(all.rotate(120 * DAY, &names).unwrap());
        assert_eq!(all.ca_bundle().matches("BEGIN CERTIFICATE").count(), 2);
        assert!(!all.ca_bundle().contains(&first.ca));
        assert_eq!(all.serving(120 * DAY), Some(&second));
    }

    #[test]
    fn an_expired_or_misnamed_leaf_is_replaced_at_once() {
        let mut all = Generations::default();
        all.rotate(0, &["a".to_owned()]).unwrap();
        assert!(all.rotate(91 * DAY, &["a".to_owned()]).unwrap());
        assert_eq!(all.serving(91 * DAY).unwrap().made, 91 * DAY);
        assert!(all.rotate(91 * DAY, &["b".to_owned()]).unwrap());
        assert_eq!(all.serving(91 * DAY).unwrap().names, ["b"]);
    }
}
