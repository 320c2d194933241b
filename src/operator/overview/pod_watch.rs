//! The pods of all namespaces that use claims, watched while somebody looks at the status page. They are most of a cluster's
//! objects, and nothing but the page needs them: so nobody asks for them before the first look, nor long after the last one.
//!
//! Takes in looks; gives out which pods use each claim, as far as that is known.

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::sleep;

use super::claim_pod::{ClaimPod, PodVolumes, by_claim};
use super::volumes::PodsOfPvc;
use crate::operator::api_server::store::Store;
use crate::operator::api_server::watch::keep_wanted;

/// So long after the last look they are watched: a page in a hidden tab asks nothing, and whoever comes back to it should not
/// make the API server list all pods again.
const AFTER_LOOK: Duration = Duration::from_secs(600);

/// What the page and the watch share.
#[derive(Clone)]
pub struct PodWatch {
    pub(super) pods: Store<ClaimPod>,
    looks: watch::Sender<()>,
}

impl Default for PodWatch {
    fn default() -> Self {
        Self { pods: ClaimPod::store(), looks: watch::channel(()).0 }
    }
}

impl PodWatch {
    /// Somebody looks at the page.
    pub fn look(&self) {
        self.looks.send_replace(());
    }

    /// `None`: not known.
    pub fn by_claim(&self) -> Option<PodsOfPvc> {
        self.pods.is_synced().then(|| by_claim(&self.pods))
    }

    /// Whether it is that of before: nobody answers for the API server.
    pub fn is_old(&self) -> bool {
        self.pods.is_old()
    }

    /// Another text after each change of what is known.
    pub fn tag(&self) -> String {
        format!("{}{}", self.pods.state().tag(), if self.is_old() { "!" } else { "" })
    }

    /// Watches while somebody looks, for ever. Looks count as soon as this returns.
    pub fn keep(self, client: Client) -> impl Future<Output = ()> + Send + 'static {
        let looks = self.looks.subscribe();
        async move {
            let pods = self.pods.clone();
            let begin = || {
                keep_wanted(&pods, PodVolumes::watched(client.clone()), PodVolumes::uses_claims, PodVolumes::trimmed)
            };
            self.while_looked_at(looks, begin, || sleep(AFTER_LOOK)).await;
        }
    }

    /// `begin` begins to watch; `wait` takes as long as the watch outlasts a look.
    async fn while_looked_at<B, W>(&self, mut looks: watch::Receiver<()>, begin: impl Fn() -> B, wait: impl Fn() -> W)
    where
        B: Future<Output = ()>,
        W: Future<Output = ()>,
    {
        while looks.changed().await.is_ok() {
            let over = async {
                loop {
                    tokio::select! {
                        biased;
                        looked = looks.changed() => if looked.is_err() { return },
                        () = wait() => return,
                    }
                }
            };
            tokio::select! {
                () = begin() => {}
                () = over => {}
            }
            self.forget();
        }
    }

    /// Nothing is known any more.
    fn forget(&self) {
        self.pods.set_old(false);
        self.pods.replace(Vec::new());
        self.pods.lose();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use serde_json::json;
    use tokio::sync::Notify;

    use super::*;

    fn pod() -> ClaimPod {
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
        let pod = json!({"metadata": {"name": "db-0", "namespace": "app"}, "spec": {"volumes": [claim]}});
        serde_json::from_value::<PodVolumes>(pod).expect("a pod").trimmed().ok().expect("it can be read")
    }

    /// Lets the other side of the test do all that it can.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn pods_are_watched_from_the_first_look_until_long_after_the_last_one_and_then_forgotten() {
        let shared = PodWatch::default();
        let (begun, waits, time) = (Cell::new(0), Cell::new(0), Notify::new());
        let begin = || async {
            begun.set(begun.get() + 1);
            shared.pods.replace(vec![Ok(pod())]);
            std::future::pending().await
        };
        let wait = || async {
            waits.set(waits.get() + 1);
            time.notified().await;
        };
        let tags = RefCell::new(Vec::new());
        let changed = || {
            let tag = shared.tag();
            assert!(!tags.borrow().contains(&tag), "nothing would have changed since {tag}: {tags:?}");
            tags.borrow_mut().push(tag);
        };
        let story = async {
            settle().await;
            assert_eq!((begun.get(), waits.get(), shared.by_claim()), (0, 0, None), "nobody has looked");
            changed();
            for session in 1..=2 {
                shared.look();
                settle().await;
                assert!(shared.by_claim().is_some_and(|known| known["app/data"].len() == 1));
                changed();
                let before = waits.get();
                for look in 1..=3 {
                    shared.look();
                    settle().await;
                    assert_eq!((begun.get(), waits.get()), (session, before + look), "each look begins the wait anew");
                }
                shared.pods.set_old(true);
                changed();
                time.notify_one();
                settle().await;
                assert_eq!((shared.by_claim(), shared.pods.all().len(), shared.is_old()), (None, 0, false));
                assert_eq!(begun.get(), session, "nobody looks");
                changed();
            }
        };
        tokio::select! {
            () = shared.while_looked_at(shared.looks.subscribe(), begin, wait) => panic!("it ended"),
            () = story => {}
        }
    }
}
