//! The wire contract as Rust: what build.rs makes of proto/csi.proto, and of proto/agent.proto in `agent`.
//!
//! Requests that carry secrets print without them (`{:?}` ends in `..`), so a request may be logged.

pub use generated::csi::*;
pub use generated::{agent, registration};

#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "prost and tonic wrote it"
)]
mod generated {
    /// The Container Storage Interface.
    pub mod csi {
        include!(concat!(env!("OUT_DIR"), "/csi.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/csi.v1.debug.rs"));
    }

    /// The node agent's own service.
    pub mod agent {
        include!(concat!(env!("OUT_DIR"), "/localpool.agent.v1.rs"));
    }

    /// kubelet's plugin registration.
    pub mod registration {
        include!(concat!(env!("OUT_DIR"), "/pluginregistration.rs"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fmt::Debug;

    use super::*;

    fn secrets() -> HashMap<String, String> {
        HashMap::from([("passphrase-key".to_owned(), "hunter2".to_owned())])
    }

    fn assert_hides_secrets(request: &dyn Debug, shown: &str) {
        for text in [format!("{request:?}"), format!("{request:#?}")] {
            assert!(!text.contains("hunter2") && !text.contains("passphrase-key"), "secret in {text}");
            assert!(text.contains(shown), "{shown} not in {text}");
        }
    }

    #[test]
    fn a_request_prints_without_its_secrets_and_with_everything_else() {
        let create = CreateVolumeRequest {
            name: "pvc-1".to_owned(),
            parameters: HashMap::from([("class".to_owned(), "fast".to_owned())]),
            secrets: secrets(),
            ..Default::default()
        };
        assert_hides_secrets(&create, "pvc-1");
        assert_hides_secrets(&create, "fast");
        let expand =
            NodeExpandVolumeRequest { volume_path: "/mnt/a".to_owned(), secrets: secrets(), ..Default::default() };
        assert_hides_secrets(&expand, "/mnt/a");
        let publish =
            NodePublishVolumeRequest { target_path: "/mnt/b".to_owned(), secrets: secrets(), ..Default::default() };
        assert_hides_secrets(&publish, "/mnt/b");
        assert_hides_secrets(&tonic::Request::new(create), "pvc-1");
    }

    #[test]
    fn every_secrets_field_is_in_a_message_that_hides_it() {
        // Counted by name in the text, which depends neither on the descriptor that build.rs reads nor on the mark.
        let secrets = include_str!("../../proto/csi.proto").matches("> secrets = ").count();
        assert!(secrets > 0);
        assert_eq!(generated::csi::MESSAGES_WITH_SECRETS.len(), secrets);
    }

    #[test]
    fn the_health_bit_of_older_kubelets_travels_as_field_2() {
        use prost::Message;
        let stats = NodeGetVolumeStatsResponse {
            usage: vec![],
            volume_condition: Some(VolumeCondition { abnormal: true, message: "gone".to_owned() }),
        };
        assert_eq!(stats.encode_to_vec(), b"\x12\x08\x08\x01\x12\x04gone");
        assert_eq!(node_service_capability::rpc::Type::VolumeCondition as i32, 4);
        assert_eq!(controller_service_capability::rpc::Type::VolumeCondition as i32, 11);
    }
}
