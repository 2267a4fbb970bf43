//! Processes of one run: started with a log file, noted by id, ended with the run.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// A running process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    note: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a command with its output in `<work>/log/<name>.log`.
    pub fn start(work: &Path, name: &str, command: &mut Command) -> Result<Self> {
        let log = work.join("log").join(format!("{name}.log"));
        for folder in ["log", "pids"] {
            std::fs::create_dir_all(work.join(folder))?;
        }
        let file = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {name}: {command:?}"))?;
        let note = work.join("pids").join(child.id().to_string());
        std::fs::write(&note, name)?;
        Ok(Self { name: name.to_owned(), log, note, child })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, `libc::SIGSTOP` say.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // kill(1) instead of kill(2): the workspace has no unsafe code outside two files.
        let status =
            Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status()?;
        if !status.success() {
            bail!("signal {signal} to {}: {status}", self.name);
        }
        Ok(())
    }

    /// SIGKILL, and the end awaited.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
        let _gone = std::fs::remove_file(&self.note);
    }

    /// SIGTERM, and the end awaited for five seconds before SIGKILL.
    ///
    /// # Errors
    /// It does not end.
    pub async fn terminate(&mut self) -> Result<()> {
        self.end(libc::SIGTERM, Duration::from_secs(5)).await.map(drop)
    }

    /// SIGTERM, and an error unless it then ends with success, within five seconds.
    pub async fn stop(&mut self) -> Result<()> {
        let status = self.end(libc::SIGTERM, Duration::from_secs(5)).await?;
        self.succeeded(status)
    }

    /// SIGINT, and an error unless it then ends with success, in time.
    pub async fn interrupt(&mut self, limit: Duration) -> Result<()> {
        let status = self.end(libc::SIGINT, limit).await?;
        self.succeeded(status)
    }

    async fn end(&mut self, signal: i32, limit: Duration) -> Result<ExitStatus> {
        self.signal(signal)?;
        for _ in 0..limit.as_millis() / 50 {
            if let Some(status) = self.child.try_wait()? {
                let _gone = std::fs::remove_file(&self.note);
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.kill();
        bail!("{} did not end within {} s of signal {signal}", self.name, limit.as_secs())
    }

    fn succeeded(&self, status: ExitStatus) -> Result<()> {
        ensure!(status.success(), "{} ended with {status}:\n{}", self.name, self.log_end(15));
        Ok(())
    }

    /// An error with the end of the log when the process has ended by itself.
    pub fn alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended with {status}; the end of {}:\n{}",
                self.name,
                self.log.display(),
                self.log_end(15)
            ),
        }
    }

    /// The last lines of the log.
    pub fn log_end(&self, lines: usize) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let all: Vec<_> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Below the ports that Linux gives to connections (`net.ipv4.ip_local_port_range`, from 32768), and those of NodePorts.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// So many were looked at.
static LOOKED_AT: AtomicU16 = AtomicU16::new(0);

/// A TCP port that is free, and is given to nobody else here. No connection takes it before whoever is to listen there does, as
/// one of those that the kernel chooses may.
///
/// # Errors
/// None is free.
pub fn free_port() -> Result<u16> {
    let length = PORTS.end - PORTS.start;
    // Runs beside this one begin elsewhere.
    let begin = u16::try_from(std::process::id().wrapping_mul(131) % u32::from(length))?;
    for _ in 0..length {
        let next = LOOKED_AT.fetch_add(1, Ordering::Relaxed) % length;
        let port = PORTS.start + (begin + next) % length;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_not_while_somebody_listens() {
        let first = free_port().unwrap();
        let taken = TcpListener::bind(("127.0.0.1", first + 1));
        let others: Vec<u16> = (0..10).map(|_| free_port().unwrap()).collect();
        assert!(others.iter().all(|port| PORTS.contains(port) && *port != first));
        assert!(taken.is_err() || !others.contains(&(first + 1)));
    }
}
