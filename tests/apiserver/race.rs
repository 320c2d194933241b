//! The moment that decides: an agent accepts while the controller gives up.

use std::cell::Cell;
use std::time::Duration;

use localpool::volume::{Error, VolumeId, Volumes as _};
use localpool_testing::GIB;
use serde_json::json;

use crate::agent::{Stage, TIMEOUT, on, unique, wanted};
use crate::cluster;

/// The agent is about as fast as the controller is patient. It does not see what was withdrawn before it looked.
struct Moment {
    timeout: Duration,
    delay: Duration,
}

impl Moment {
    /// It comes nearer to the one that decides, on a machine of any speed.
    fn after(self, is_accepted: bool) -> Self {
        let Self { timeout, delay } = self;
        let step = timeout / 50;
        match is_accepted {
            true => Self { timeout, delay: (delay + step).min(timeout) },
            false if delay < timeout / 4 => Self { timeout: timeout * 2, delay: timeout * 3 / 2 },
            false => Self { timeout, delay: delay - 2 * step },
        }
    }
}

/// Never both: a volume that an agent makes, and a caller that was sent elsewhere.
#[tokio::test]
async fn an_acceptance_and_a_withdrawal_are_never_both_believed() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let node = unique("n");
    stage.node(&node).await;
    let (mut accepted, mut withdrawn) = (0, 0);
    // After three quarters of it, the controller withdraws.
    let mut moment = Moment { timeout: Duration::from_millis(400), delay: Duration::from_millis(300) };
    while accepted + withdrawn < 20 || accepted == 0 || withdrawn == 0 {
        assert!(accepted + withdrawn < 100, "no race: {accepted} accepted, {withdrawn} withdrawn");
        let name = unique("pvc");
        let id = VolumeId::of_name(&name);
        let mut asked = wanted(&name, on(&node));
        asked.timeout = moment.timeout;
        let (began, is_answered) = (tokio::time::Instant::now(), Cell::new(false));
        let controller = async {
            let answer = stage.volumes.create(asked.clone()).await;
            is_answered.set(true);
            answer
        };
        let agent = async {
            let seen = loop {
                match stage.objects.get_opt(&id.to_string()).await.expect("an answer") {
                    Some(seen) => break seen,
                    None if is_answered.get() => return None,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            tokio::time::sleep_until(began + moment.delay).await;
            let accepted = stage.say(&seen, json!({"phase": "Accepted"})).await?;
            // From here on it writes to a disk, whatever happens to the object.
            Some(stage.say(&accepted, json!({"phase": "Ready", "size": GIB, "fsType": "ext4"})).await)
        };
        let (answer, made) = tokio::join!(controller, agent);
        let after = moment.delay;
        let is_accepted = match (answer, made) {
            (Err(Error::Exhausted(_)), None) => {
                withdrawn += 1;
                assert!(stage.is_gone(id).await, "an object is left after {after:?}");
                false
            }
            (Ok(_) | Err(Error::Aborted(_)), Some(Some(_))) => {
                accepted += 1;
                asked.timeout = TIMEOUT;
                stage.volumes.create(asked).await.expect("what was made is found");
                true
            }
            (answer, made) => {
                panic!("after {after:?}: {answer:?}, and the agent made it: {}", made.is_some());
            }
        };
        moment = moment.after(is_accepted);
    }
}
