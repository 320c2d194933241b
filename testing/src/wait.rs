//! What a test waits for: it looks again and again, until its time is up.

use std::time::{Duration, Instant};

/// Looks until it finds something; the last answer if it does not in time.
pub fn found<T, E>(within: Duration, every: Duration, mut poll: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let until = Instant::now() + within;
    loop {
        match poll() {
            Err(_) if Instant::now() < until => std::thread::sleep(every),
            ended => return ended,
        }
    }
}

/// Whether it holds within its time.
pub fn eventually(within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    found(within, Duration::from_millis(10), || if holds() { Ok(()) } else { Err(()) }).is_ok()
}

/// The same as `found`, among other tasks.
pub async fn found_async<T, E>(
    within: Duration,
    every: Duration,
    mut poll: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let until = Instant::now() + within;
    loop {
        match poll().await {
            Err(_) if Instant::now() < until => tokio::time::sleep(every).await,
            ended => return ended,
        }
    }
}

/// The same as `eventually`, among other tasks.
pub async fn eventually_async(within: Duration, every: Duration, mut holds: impl AsyncFnMut() -> bool) -> bool {
    found_async(within, every, async || if holds().await { Ok(()) } else { Err(()) }).await.is_ok()
}
