//! Logs.

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line, for collectors.
    #[default]
    Json,
    /// Plain text, for people.
    Text,
}

/// Writes this process's logs to standard error, filtered as `tracing_subscriber::EnvFilter` describes, for instance
/// `info,kit=debug`. Call it once, from a `main`: libraries and simulations never do. A second call does nothing.
///
/// # Errors
/// When the filter cannot be understood.
pub fn init(filter: &str, format: LogFormat) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = EnvFilter::builder().parse(filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _already = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(false).try_init(),
    };
    Ok(())
}
