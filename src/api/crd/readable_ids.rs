//! Ids in an object that a person may have written. One that cannot be read is left out, and the object is read all the
//! same.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

pub fn id<'de, D: Deserializer<'de>, T: FromStr>(from: D) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

pub fn ids<'de, D: Deserializer<'de>, T: FromStr>(from: D) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::api::crd::{BenchmarkRequest, NamedDiskStatus, PoolQuestion};

    const ID: &str = "6ba7b810-9dad-51d1-80b4-00c04fd430c8";

    #[test]
    fn ids_are_written_as_their_texts_and_what_is_none_is_left_out() {
        let request = json!({"disk": "gpt-1", "requested": "2026-01-01T00:00:00Z", "volumes": [ID]});
        let read: BenchmarkRequest = serde_json::from_value(request.clone()).expect("a request");
        assert_eq!(serde_json::to_value(&read).expect("written"), request);
        let question = json!({"token": "t", "promises": true, "volumes": [ID]});
        let read: PoolQuestion = serde_json::from_value(question.clone()).expect("a question");
        assert_eq!(serde_json::to_value(&read).expect("written"), question);
        let status = json!({"path": "/mnt/a", "diskUUID": ID});
        let read: NamedDiskStatus = serde_json::from_value(status.clone()).expect("a status");
        assert_eq!(serde_json::to_value(&read).expect("written"), status);
        let mut odd = question;
        odd["volumes"] = json!(["of-a-person", ID.to_uppercase(), ID]);
        let read: PoolQuestion = serde_json::from_value(odd).expect("a question");
        assert_eq!(read.volumes.iter().map(ToString::to_string).collect::<Vec<_>>(), [ID]);
        let read: NamedDiskStatus =
            serde_json::from_value(json!({"path": "/mnt/a", "diskUUID": "of-a-person"})).expect("a status");
        assert_eq!(read.disk_uuid, None);
    }
}
