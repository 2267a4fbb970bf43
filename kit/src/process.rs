//! From `main` to a program's `run`: arguments, logs, connections, signals, exit codes.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::telemetry::{self, LogFormat};
use crate::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks, client};

/// How long a program may take to finish what it has begun: Kubernetes' default grace period, after which SIGKILL
/// comes.
const GRACE: Duration = Duration::from_secs(30);
/// The exit code after a panic, as Rust's own.
const PANICKED: i32 = 101;

/// The flags every program has; flatten them into the program's own with `#[command(flatten)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Kubeconfig file to connect by. Without it the program uses its pod's service account.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, if not its current one.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Which log lines to write: a level (error, warn, info, debug, trace), or levels by module, as in `info,kit=debug`.
    #[arg(long, env = "TRIREME_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// Runs a program to its end and says how it went: the whole `main` of each.
///
/// SIGTERM and SIGINT stop the context's tasks; what has not ended 30 s later is dropped, and a second signal drops it
/// at once. A panic anywhere is logged and ends the process: half a program is worse than a restart.
///
/// Exit codes: 0 after a stop, 1 when `run` failed or there is no connection, 2 for wrong arguments, 101 after a panic.
pub fn run<F, Fut, E>(program: &'static str, args: &Args, run: F) -> ExitCode
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    if let Err(error) = telemetry::init(&args.log, args.log_format) {
        eprintln!("{program}: --log: {error}");
        return ExitCode::from(2);
    }
    exit_on_panic();
    // kube builds its TLS without naming a provider, so the process needs a default one.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be started");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        match client::connect(args.kubeconfig.as_deref(), args.context.as_deref(), program).await {
            Ok(clients) => supervise(run, context(clients)).await,
            Err(error) => {
                tracing::error!(%error, "no connection to the API server");
                ExitCode::FAILURE
            }
        }
    });
    // Blocking calls that hang must not hold the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

fn context(clients: Clients) -> Context {
    let rng = Rng::from_entropy();
    let identity = Identity::new(format!("{}_{}", host(), rng.suffix(8)));
    Context {
        clients,
        clock: Clock::System,
        rng,
        tasks: Tasks::new(),
        identity,
        services: ServiceTable::new(),
    }
}

/// The pod's name: Kubernetes makes it the host name too.
fn host() -> String {
    std::env::var("POD_NAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

fn exit_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(%info, %backtrace, "panic; the process ends");
        std::process::exit(PANICKED);
    }));
}

async fn supervise<F, Fut, E>(run: F, ctx: Context) -> ExitCode
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be handled");
        return ExitCode::FAILURE;
    };
    let mut program = ctx.tasks.spawn(run(ctx.clone()));
    let result = tokio::select! {
        biased;
        _ = term.recv() => None,
        _ = int.recv() => None,
        result = &mut program => Some(result),
    };
    ctx.tasks.stop();
    let (result, asked) = match result {
        Some(result) => (Some(result), false),
        None => {
            tracing::info!("stopping");
            let ended = tokio::select! {
                biased;
                _ = term.recv() => None,
                _ = int.recv() => None,
                result = tokio::time::timeout(GRACE, program) => result.ok(),
            };
            (ended, true)
        }
    };
    let all_ended =
        result.is_some() && tokio::time::timeout(Duration::from_secs(5), ctx.tasks.ended()).await.is_ok();
    if !all_ended {
        tracing::warn!("not everything ended in time; dropping the rest");
        ctx.tasks.kill();
    }
    match result {
        Some(Ok(Some(Err(error)))) => {
            tracing::error!(%error, "the program failed");
            ExitCode::FAILURE
        }
        Some(Ok(Some(Ok(())))) => ExitCode::SUCCESS,
        _ if asked => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::context;

    fn same(left: ExitCode, right: ExitCode) -> bool {
        // ExitCode cannot be compared otherwise.
        format!("{left:?}") == format!("{right:?}")
    }

    #[tokio::test]
    async fn the_exit_code_tells_how_it_went() {
        let ended = supervise(|_ctx| async { Ok::<_, String>(()) }, context()).await;
        assert!(same(ended, ExitCode::SUCCESS));
        let failed = supervise(|_ctx| async { Err("broken") }, context()).await;
        assert!(same(failed, ExitCode::FAILURE));
    }

    #[tokio::test]
    async fn a_signal_stops_the_tasks_and_what_they_began_is_finished() {
        let ctx = context();
        let tasks = ctx.tasks.clone();
        let finished = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let note = finished.clone();
        let code = supervise(
            |ctx: Context| async move {
                // The handlers are in place by now: the test's process survives its own signal.
                let sent = std::process::Command::new("sh").args(["-c", "kill -TERM $PPID"]).status();
                assert!(sent.is_ok_and(|status| status.success()));
                ctx.tasks.stopping().await;
                note.store(true, std::sync::atomic::Ordering::SeqCst);
                Ok::<_, String>(())
            },
            ctx,
        )
        .await;
        assert!(same(code, ExitCode::SUCCESS) && tasks.is_stopping());
        assert!(finished.load(std::sync::atomic::Ordering::SeqCst));
    }
}
