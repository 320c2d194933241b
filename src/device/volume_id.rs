//! The one name of a volume: CSI volume id, partition GUID, filesystem UUID, object name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// UUIDv5 of this namespace and the CSI volume name is the volume's id. Never changes: it is on people's disks.
const NAMESPACE: Uuid = Uuid::from_u128(0x3c1e_6e0e_6f5b_4f0c_9d3a_6c6f_6361_6c70);

/// A volume's id, printed as 36 lower-case characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeId(Uuid);

/// A text that is not one of our ids.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a volume id: ids are UUIDs in lower case, such as 6ba7b810-9dad-51d1-80b4-00c04fd430c8")]
pub struct NotAnId(String);

impl VolumeId {
    /// The id of the volume of that name.
    pub fn of_name(csi_name: &str) -> Self {
        Self(Uuid::new_v5(&NAMESPACE, csi_name.as_bytes()))
    }

    /// A made-up id.
    #[cfg(any(test, feature = "testing"))]
    pub const fn from_u128(number: u128) -> Self {
        Self(Uuid::from_u128(number))
    }

    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for VolumeId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.hyphenated())
    }
}

/// Prints as a plain text.
impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for VolumeId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let not_an_id = || NotAnId(text.chars().take(64).collect());
        let uuid = Uuid::try_parse(text).map_err(|_| not_an_id())?;
        // Only one spelling is valid: other code compares ids as text.
        match uuid.hyphenated().to_string() == text {
            true => Ok(Self(uuid)),
            false => Err(not_an_id()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_has_one_id_for_ever() {
        assert_eq!(VolumeId::of_name("pvc-1").to_string(), "624b1db0-d434-5682-a238-d4101527812d");
        assert_ne!(VolumeId::of_name("pvc-1"), VolumeId::of_name("pvc-2"));
    }

    #[test]
    fn other_spellings_of_a_uuid_are_not_ids() {
        let id = VolumeId::of_name("pvc-1").to_string();
        assert!(id.parse::<VolumeId>().is_ok());
        for bad in
            [id.to_uppercase(), format!("{{{id}}}"), format!("urn:uuid:{id}"), id.replace('-', ""), String::new()]
        {
            assert!(bad.parse::<VolumeId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_id_survives_its_text(name in ".*") {
            let id = VolumeId::of_name(&name);
            prop_assert_eq!(id.to_string().parse::<VolumeId>(), Ok(id));
            prop_assert_eq!(id.to_string().len(), 36);
        }
    }
}
