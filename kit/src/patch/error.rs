//! What a failed write means for the one who decided it.

use std::time::Duration;

use kube::core::Status;
use kube::core::response::reason;

/// Why a write was not done, by what to do next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The object is not there any more, or the name belongs to another uid: forget the decision.
    #[error("the object is gone")]
    Gone,
    /// The object is not in the state the decision rested on, or, for a creation, the name is taken: wait for the watch
    /// or read again, then decide again.
    #[error("the object has changed meanwhile: {0}")]
    Conflict(Box<str>),
    /// The server will answer the same however often it is asked: tell the object's owner.
    #[error("the server refuses: {} ({})", .0.message, .0.code)]
    Refused(Box<Status>),
    /// The server could not, or did not say: try again later. Carrying uid and resourceVersion, a repeated write does
    /// no harm, it ends as [`Conflict`](Self::Conflict) if the first was applied.
    #[error("the server did not do it: {cause}")]
    Unavailable {
        /// Whether the write may have been applied all the same; false only when that is certain.
        may_have_applied: bool,
        /// The server's wish (`Retry-After`).
        retry_after: Option<Duration>,
        /// What happened, for the log.
        cause: Box<str>,
    },
}

impl WriteError {
    /// The request cannot even be built.
    pub(super) fn unsendable(error: &dyn std::fmt::Display) -> Self {
        Self::Refused(
            Status::failure(&format!("the request cannot be sent: {error}"), reason::BAD_REQUEST)
                .with_code(400)
                .boxed(),
        )
    }

    /// No answer came in time.
    pub fn timed_out(after: Duration) -> Self {
        Self::Unavailable {
            may_have_applied: true,
            retry_after: None,
            cause: format!("no answer within {} ms", after.as_millis()).into(),
        }
    }

    /// Whether the same write may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => from_status(status),
            kube::Error::BuildRequest(error) => Self::unsendable(&error),
            kube::Error::HttpError(error) => Self::unsendable(&error),
            kube::Error::Service(error) => {
                let never_sent = error
                    .downcast_ref::<hyper_util::client::legacy::Error>()
                    .is_some_and(hyper_util::client::legacy::Error::is_connect);
                unavailable(!never_sent, None, with_sources(error.as_ref()))
            }
            // Credentials are fetched before anything is sent.
            kube::Error::Auth(error) => unavailable(false, None, error.to_string()),
            // An answer that does not decode comes after the write was done.
            other => unavailable(true, None, with_sources(&other)),
        }
    }
}

fn from_status(status: Box<Status>) -> WriteError {
    let retry_after = status
        .details
        .as_ref()
        .map(|details| details.retry_after_seconds)
        .filter(|seconds| *seconds > 0)
        .map(|seconds| Duration::from_secs(seconds.into()));
    match status.code {
        404 => WriteError::Gone,
        409 if names_another_uid(&status.message) => WriteError::Gone,
        409 => WriteError::Conflict(status.message.clone().into()),
        422 if concerns_uid(&status) => WriteError::Gone,
        // Turned away before it was handled: by authentication, by priority and fairness, by a disruption budget.
        401 | 429 => unavailable(false, retry_after, status.message.clone()),
        // The request ran out of the server's time.
        408 => unavailable(true, retry_after, status.message.clone()),
        400..500 => WriteError::Refused(status),
        // It will be as large the next time. The API server passes on what etcd says.
        500 if is_too_large(&status.message) => WriteError::Refused(status),
        // Etcd may have taken what the server did not see confirmed.
        _ => unavailable(true, retry_after, format!("{} ({})", status.message, status.code)),
    }
}

/// What etcd says of a request that is larger than it takes, and what its client does.
fn is_too_large(message: &str) -> bool {
    message.contains("request is too large") || message.contains("message larger than max")
}

fn unavailable(may_have_applied: bool, retry_after: Option<Duration>, cause: String) -> WriteError {
    WriteError::Unavailable { may_have_applied, retry_after, cause: cause.into() }
}

/// The API server has no reason of its own for a failed uid precondition; these are its sentences in deletion
/// (`rest.BeforeDelete`) and everywhere else (`storage.Preconditions.Check`).
fn names_another_uid(message: &str) -> bool {
    message.contains("UID in precondition") || message.contains("UID in the precondition")
}

/// A merge patch with another uid is an attempt to change an immutable field.
fn concerns_uid(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"))
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = inner.source();
    }
    text
}
