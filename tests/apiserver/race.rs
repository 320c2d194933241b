//! The moment that decides: an agent accepts while the controller gives up.

use std::time::Duration;

use localpool::volume::{Error, VolumeId, Volumes as _};
use localpool_testing::GIB;
use serde_json::json;

use crate::agent::{Stage, on, unique, wanted};
use crate::cluster;

/// Never both: a volume that an agent makes, and a caller that was sent elsewhere.
#[tokio::test]
async fn an_acceptance_and_a_withdrawal_are_never_both_believed() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let node = unique("n");
    stage.node(&node).await;
    let (mut accepted, mut withdrawn) = (0, 0);
    // Three quarters of 400 ms are 300: the agent answers around that moment, a little later each time.
    for delay in (270..330).step_by(3) {
        let name = unique("pvc");
        let id = VolumeId::of_name(&name);
        let mut asked = wanted(&name, on(&node));
        asked.timeout = Duration::from_millis(400);
        let began = tokio::time::Instant::now();
        let agent = async {
            let seen = stage.asked(id).await;
            tokio::time::sleep_until(began + Duration::from_millis(delay)).await;
            let accepted = stage.say(&seen, json!({"phase": "Accepted"})).await?;
            // From here on it writes to a disk, whatever happens to the object.
            Some(stage.say(&accepted, json!({"phase": "Ready", "size": GIB, "fsType": "ext4"})).await)
        };
        let (answer, made) = tokio::join!(stage.volumes.create(asked.clone()), agent);
        match (answer, made) {
            (Err(Error::Exhausted(_)), None) => {
                withdrawn += 1;
                assert!(stage.is_gone(id).await, "an object is left after {delay} ms");
            }
            (Ok(_) | Err(Error::Aborted(_)), Some(Some(_))) => {
                accepted += 1;
                stage.volumes.create(asked).await.expect("what was made is found");
            }
            (answer, made) => {
                panic!("after {delay} ms: {answer:?}, and the agent made it: {}", made.is_some());
            }
        }
    }
    assert!(accepted > 0 && withdrawn > 0, "no race: {accepted} accepted, {withdrawn} withdrawn");
}
