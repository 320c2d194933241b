//! Which replica leads: the holder of a lease does the work, and releases the lease when it stops.

use std::future::Future;
use std::time::Duration;

use kube::Client;
use kube_lease_manager::LeaseManagerBuilder;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::host::chain;

/// How long the lease outlives its holder, and how long before its end it is renewed.
const LEASE_DURATION: u64 = 30;
const RENEW_BEFORE: u64 = 10;
/// How long to wait after a lease could not even be read.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
/// How long it may take to release the lease at a stop.
const RELEASE: Duration = Duration::from_secs(3);

/// Where the lease is, and who wants it.
#[derive(Clone, Debug)]
pub struct Lease {
    pub namespace: String,
    pub name: String,
    pub identity: String,
}

/// Holds the lease when it can, until `stopped`; sends to `leads` whether it does. Releases the lease.
pub async fn hold(client: Client, lease: Lease, leads: watch::Sender<bool>, stopped: impl Future<Output = ()>) {
    tokio::pin!(stopped);
    let mut is_logged = false;
    loop {
        let began = async {
            let manager = LeaseManagerBuilder::new(client.clone(), lease.name.as_str())
                .with_namespace(lease.namespace.as_str())
                .with_identity(lease.identity.as_str())
                .with_field_manager(format!("localpool-controller-{}", lease.identity))
                .with_duration(LEASE_DURATION)
                .with_grace(RENEW_BEFORE);
            Ok::<_, kube_lease_manager::LeaseManagerError>(manager.build().await?.watch().await)
        };
        tokio::select! {
            () = &mut stopped => return,
            began = began => match began {
                Ok((held, task)) => {
                    is_logged = false;
                    if follow(held, task, &leads, &mut stopped).await {
                        return;
                    }
                }
                Err(error) if !is_logged => {
                    is_logged = true;
                    tracing::warn!(lease = lease.name, "the lease cannot be read; trying again: {}", chain(&error));
                }
                Err(_) => {}
            },
        }
        tokio::select! {
            () = &mut stopped => return,
            () = tokio::time::sleep(RETRY_PERIOD) => {}
        }
    }
}

/// Whether the caller asked for the end.
async fn follow<T>(
    mut held: watch::Receiver<bool>,
    mut task: JoinHandle<T>,
    leads: &watch::Sender<bool>,
    stopped: impl Future<Output = ()>,
) -> bool {
    tokio::pin!(stopped);
    let is_stopped = loop {
        let now = *held.borrow_and_update();
        leads.send_if_modified(|before| std::mem::replace(before, now) != now);
        tokio::select! {
            () = &mut stopped => break true,
            _ = &mut task => break false,
            changed = held.changed() => if changed.is_err() { break false },
        }
    };
    leads.send_if_modified(|before| std::mem::replace(before, false));
    if is_stopped {
        // Without a listener the manager releases the lease and ends.
        drop(held);
        if tokio::time::timeout(RELEASE, task).await.is_err() {
            tracing::warn!("the lease was not released in time; the other replica takes over when it expires");
        }
    }
    is_stopped
}
