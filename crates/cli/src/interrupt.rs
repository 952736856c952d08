//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process at once.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::driving::Ending;
use crate::session::Session;

/// Watches for signals from when it is made.
pub(crate) struct Interrupt {
    stop: watch::Receiver<bool>,
    grace: Duration,
}

impl Interrupt {
    /// Begins to watch. Calls that run when the first signal comes have `grace_ms` to end.
    pub(crate) fn watch(grace_ms: u64) -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        let (interrupt, terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let (told, stop) = watch::channel(false);
        let grace = Duration::from_millis(grace_ms);
        tokio::spawn(listen_to(interrupt, terminate, told, grace));
        Ok(Self { stop, grace })
    }

    /// True once it is time to stop.
    pub(crate) fn stop(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    /// Ends when it was time to stop for as long as running calls are waited for.
    pub(crate) async fn out_of_patience(&self) {
        let mut stop = self.stop();
        if stop.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.grace).await;
    }
}

async fn listen_to(
    mut interrupt: Signal,
    mut terminate: Signal,
    told: watch::Sender<bool>,
    grace: Duration,
) {
    let mut times = 0;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        times += 1;
        if times > 1 {
            std::process::exit(i32::from(Ending::Interrupted.exit_code()));
        }
        Session::note(&format!(
            "stopping: calls that are running have {} s to end; once more ends at once",
            grace.as_secs()
        ));
        if told.send(true).is_err() {
            return;
        }
    }
}
