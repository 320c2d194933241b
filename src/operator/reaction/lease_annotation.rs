//! Keeps what the leader leaves to the next one in an annotation of its Lease, which only the leader writes.
//!
//! A write names the resourceVersion of a Lease that says that this process leads, and that has the text that it wrote
//! before. So a leader that was stopped and continues writes nothing over the text of another one, and learns that it
//! was away.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease as KubeLease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::handover::{Handover, is_young};
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::Write;
use crate::operator::leader::lease::Lease;

const HANDOVER: &str = "localpool.dev/reaction-handover";
/// By this name `managedFields` say when the annotation was written, by the clock of the API server.
const FIELD_MANAGER: &str = "localpool-reaction";
/// How often a write is sent if the lease is renewed meanwhile.
const TRIES: usize = 2;

pub struct LeaseAnnotation {
    api: Api<KubeLease>,
    lease: Lease,
    /// The shortest time between two writes, unless something has ended of what was left.
    every: Duration,
    /// The handover that was left last, and the monotonic time of that.
    left: Option<(Handover, Duration)>,
    has_begun: bool,
    known: Option<KnownLease>,
}

/// The Lease as this leader has left it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownLease {
    /// Another leader has another time.
    acquired: Option<MicroTime>,
    text: Option<String>,
    /// A text that was sent, and of which nobody knows whether it arrived.
    sent: Option<Option<String>>,
}

/// The holder of the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// Nobody else has led since this leader began, as far as is known.
    Ours,
    /// Another one leads, or has led meanwhile.
    Lost,
}

/// The Lease as it was read.
enum FoundLease {
    /// As this leader has left it.
    Ours(Box<KubeLease>),
    None,
    /// Another one leads, or has led meanwhile.
    Other,
}

impl KnownLease {
    fn of(found: &KubeLease) -> Self {
        let acquired = found.spec.as_ref().and_then(|spec| spec.acquire_time.clone());
        Self { acquired, text: found.annotations().get(HANDOVER).cloned(), sent: None }
    }

    /// Whether a Lease is as this leader has left it.
    fn is(&self, found: &Self) -> bool {
        self.acquired == found.acquired && (self.text == found.text || self.sent.as_ref() == Some(&found.text))
    }
}

impl LeaseAnnotation {
    pub fn new(client: Client, lease: Lease, every: Duration) -> Self {
        let api = Api::namespaced(client, &lease.namespace);
        Self { api, lease, every, left: None, has_begun: false, known: None }
    }

    /// The handover of the leader before, once: it is emptied, so that nobody takes it over twice. `None`: nothing that
    /// counts.
    pub async fn take(&mut self) -> Result<Option<Handover>, OperatorError> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(None);
        }
        let Some(found) = self.get().await?.filter(|found| self.holds(found)) else { return Ok(None) };
        self.known = Some(KnownLease::of(&found));
        let Some(left) = found.annotations().get(HANDOVER).and_then(|text| Handover::read(text)) else {
            return Ok(None);
        };
        let empty = Handover::empty(Timestamp::now()).text();
        let Write::Done(emptied) = self.send(&found, Some(empty)).await? else { return Ok(None) };
        let renewed = found.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let by_server = server_time(&emptied).zip(server_time(&found));
        let counts = renewed.is_some_and(|renewed| left.is_of_time(renewed.0))
            && by_server.is_some_and(|(now, written)| is_young(now.duration_since(written)));
        Ok(counts.then_some(left))
    }

    /// Leaves this, if it is time to; `None`: nothing is left, and what is there goes. `now` is a monotonic time.
    pub async fn leave(&mut self, handover: Option<Handover>, now: Duration) -> Result<Tenure, OperatorError> {
        let is_due = match &handover {
            Some(handover) => self.left.as_ref().is_none_or(|(before, written)| {
                now.saturating_sub(*written) >= self.every || !handover.goes_on_from(before)
            }),
            None => self.known.as_ref().is_some_and(|known| known.text.is_some() || known.sent.is_some()),
        };
        if !is_due {
            return Ok(Tenure::Ours);
        }
        for _ in 0..TRIES {
            let found = match self.look().await? {
                FoundLease::Ours(found) => found,
                // Nothing is handed over.
                FoundLease::None => break,
                FoundLease::Other => return Ok(Tenure::Lost),
            };
            if let Write::Done(_) = self.send(&found, handover.as_ref().map(Handover::text)).await? {
                self.left = handover.map(|handover| (handover, now));
                break;
            }
        }
        Ok(Tenure::Ours)
    }

    /// The holder of the Lease, as the API server has it now. Asked before anything is done: a clock that went back, or
    /// a process that was stopped, leads on although its lease has ended.
    pub async fn tenure(&mut self) -> Result<Tenure, OperatorError> {
        Ok(match self.look().await? {
            // Without a Lease nobody else leads.
            FoundLease::Ours(_) | FoundLease::None => Tenure::Ours,
            FoundLease::Other => Tenure::Lost,
        })
    }

    async fn look(&mut self) -> Result<FoundLease, OperatorError> {
        let Some(found) = self.get().await? else { return Ok(FoundLease::None) };
        if !self.holds(&found) {
            return Ok(FoundLease::Other);
        }
        let seen = KnownLease::of(&found);
        let is_ours = self.known.as_ref().is_none_or(|known| known.is(&seen));
        self.known = Some(seen);
        Ok(if is_ours { FoundLease::Ours(Box::new(found)) } else { FoundLease::Other })
    }

    fn holds(&self, found: &KubeLease) -> bool {
        let holder = found.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref());
        holder == Some(&self.lease.identity)
    }

    async fn get(&self) -> Result<Option<KubeLease>, OperatorError> {
        within(&format!("reading Lease {}", self.lease.name), self.api.get_opt(&self.lease.name)).await
    }

    async fn send(&mut self, found: &KubeLease, text: Option<String>) -> Result<Write<KubeLease>, OperatorError> {
        if let Some(known) = &mut self.known {
            known.sent = Some(text.clone());
        }
        let exactly = json!({"uid": found.uid(), "resourceVersion": found.resource_version()});
        let mut change = json!({"metadata": exactly});
        change["metadata"]["annotations"] = json!({HANDOVER: text});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let what = format!("writing what the reaction has watched into Lease {}", self.lease.name);
        let name = &self.lease.name;
        let written = Write::of(within(&what, self.api.patch(name, &params, &Patch::Merge(change))).await)?;
        if let Some(known) = &mut self.known {
            known.sent = None;
            if let Write::Done(written) = &written {
                // A webhook may have changed it.
                known.text = written.annotations().get(HANDOVER).cloned();
            }
        }
        Ok(written)
    }
}

/// When the annotation was written, by the API server's clock.
fn server_time(lease: &KubeLease) -> Option<Timestamp> {
    let mut entries = lease.managed_fields().iter();
    let entry = entries.find(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))?;
    entry.time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests;
