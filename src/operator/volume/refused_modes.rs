//! The modes that nodes refused: for a while the room of such a node is reported for that mode only.
//!
//! The scheduler asks for room without a mode, so it would choose the node again. Takes in a refusal; gives out the
//! mode to report the room for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::device::NodeName;
use crate::volume::{Selector, WantedUsage};

/// The provisioner asks for room again as soon as a claim failed, and the scheduler tries the pod again within seconds.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);
/// How long after a refusal the next one may start this again. Meanwhile pods of the other mode see no room there
/// either: however many claims come in vain, the provisioner, which asks once a minute, mostly gets the room for both
/// modes.
const PAUSE: Duration = Duration::from_secs(120);

#[derive(Clone, Default)]
pub struct RefusedModes(Arc<Mutex<Vec<Asked>>>);

struct Asked {
    selector: Selector,
    node: NodeName,
    usage: WantedUsage,
    at: Instant,
}

impl RefusedModes {
    pub fn note(&self, selector: &Selector, node: &NodeName, usage: WantedUsage, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|asked| now < asked.at + PAUSE);
        if !all.iter().any(|asked| asked.is_about(selector, node)) {
            all.push(Asked { selector: selector.clone(), node: node.clone(), usage, at: now });
        }
    }

    pub fn of(&self, selector: &Selector, node: &NodeName, now: Instant) -> Option<WantedUsage> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = all.iter().find(|asked| now < asked.at + REPEAT_INTERVAL && asked.is_about(selector, node));
        asked.map(|asked| asked.usage)
    }
}

impl Asked {
    fn is_about(&self, selector: &Selector, node: &NodeName) -> bool {
        self.selector == *selector && self.node == *node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_in_vain_is_remembered_for_a_while_of_its_node_and_class_only_and_not_all_the_time() {
        let (asked, began) = (RefusedModes::default(), Instant::now());
        let [a, b] = ["a", "b"].map(NodeName::from);
        let class = |name: &str| Selector { class: Some(name.to_owned()), set: None };
        let mut shown = Duration::ZERO;
        for second in (0..600).map(Duration::from_secs) {
            let now = began + second;
            asked.note(&class("fast"), &a, WantedUsage::Block, now);
            match asked.of(&class("fast"), &a, now) {
                Some(usage) => assert_eq!(usage, WantedUsage::Block),
                None => shown += Duration::from_secs(1),
            }
            assert_eq!((asked.of(&class("fast"), &b, now), asked.of(&class("slow"), &a, now)), (None, None));
        }
        assert_eq!(shown, 5 * (PAUSE - REPEAT_INTERVAL));
        asked.note(&class("slow"), &b, WantedUsage::Block, began + 9 * PAUSE);
        assert_eq!(asked.0.lock().expect("nobody else").len(), 1, "what is over is forgotten");
    }
}
