//! Bytes that nothing recognises: a set with `blankness: Zeros` takes no disk that has some.
use localpool_testing::MIB;

use crate::driver::{CARVED, Start, set};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_disk_with_bytes_that_nothing_recognises_is_left_by_a_set_that_asks_for_zeros_and_taken_by_another() {
    let lab = crate::lab!();
    let (written, blank) = (lab.disk("pool-written", 96 * MIB), lab.disk("pool-blank", 96 * MIB));
    // In the last 4 MiB, where no signature is.
    written.write(94 * MIB, &[0x5a; 4096]);
    let strict = set(&lab, "set", "pool-*.img", &format!("blankness: Zeros\n  {CARVED}"));
    let (driver, _client) = Start::named(&lab, "strict", &strict).ready_at_once().await;
    driver.await_verdict(&blank.node, "Ours", "in pool");
    let why = "set default/set: it holds unrecognised data, first seen at byte 98566144";
    driver.await_verdict(&written.node, "Unclaimed", why);
    assert_eq!(written.writes(), 0);
    // After an event it is read again.
    written.write(94 * MIB, &[0; 4096]);
    written.announce();
    driver.await_verdict(&written.node, "Ours", "in pool");
    driver.stop();
    let other = lab.disk("other", 96 * MIB);
    other.write(94 * MIB, &[0x5a; 4096]);
    let (driver, _client) = Start::named(&lab, "lax", &set(&lab, "lax", "other.img", CARVED)).ready_at_once().await;
    driver.await_verdict(&other.node, "Ours", "in pool");
}
