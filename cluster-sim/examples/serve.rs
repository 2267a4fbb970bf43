//! Serves an empty simulated cluster on loopback and writes a kubeconfig to the path given: `serve KUBECONFIG`.

use cluster_sim::{Cluster, SimConfig};
use kit::{Clock, Rng, ServiceTable, Tasks};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve KUBECONFIG")?;
    let tasks = Tasks::new();
    let cluster =
        Cluster::new(SimConfig::new(Clock::System, tasks.clone(), Rng::from_entropy(), ServiceTable::new()));
    let served = cluster.listen("127.0.0.1:0".parse()?).await?;
    std::fs::write(&path, served.kubeconfig())?;
    println!("serving on {}; KUBECONFIG={path}", served.url());
    tokio::signal::ctrl_c().await?;
    tasks.stop();
    Ok(())
}
