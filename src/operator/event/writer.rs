//! Writes Events.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};

use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::event::EventNote;
use crate::volume::DRIVER_NAME;

/// Writes the Events of one part of a process. Those that repeat become one Event with a count.
pub struct EventWriter(Recorder);

impl EventWriter {
    /// `instance` is the name of the process.
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter { controller: DRIVER_NAME.to_owned(), instance: Some(instance.to_owned()) };
        Self(Recorder::new(client, reporter))
    }

    pub async fn write(&self, about: &ObjectReference, action: &str, note: &EventNote) -> Result<(), OperatorError> {
        within("writing an Event", self.0.publish(&note.event(action), about)).await
    }
}
