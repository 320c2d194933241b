//! machine-id(5): distinguishes this machine from all others, even from one of the same name. Takes in the path of the
//! file; gives out an id derived from it, as the id in the file is confidential.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use uuid::Uuid;

use super::error::HostError;

pub const MACHINE_ID: &str = "/etc/machine-id";
/// The key with which ids of machines are derived, so that nobody else derives the same one.
const OURS: Uuid = Uuid::from_u128(0x5b0c_37f2_9a1e_4d6b_8c44_1f0e_63a2_d7b9);

/// `None` if a machine has no id: there is no file, or nothing was written into it yet, as in images of containers.
pub fn derived(path: &Path) -> Result<Option<Uuid>, HostError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(HostError::Io { what: "read", object: path.display().to_string(), source });
        }
    };
    let id = text.trim();
    let is_id =
        id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && id.bytes().any(|byte| byte != b'0');
    Ok(is_id.then(|| Uuid::new_v5(&OURS, id.to_ascii_lowercase().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_an_id_that_stays_and_does_not_show_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("machine-id");
        let derived = |text: &str| {
            fs::write(&file, text).expect("written");
            super::derived(&file).expect("read")
        };
        let (one, other) = ("0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdee");
        let of_one = derived(&format!("{one}\n")).expect("an id");
        assert_eq!(derived(one), Some(of_one));
        assert_ne!(derived(other), Some(of_one));
        assert_ne!(of_one.simple().to_string(), one);
        for none in ["", "uninitialized\n", "00000000000000000000000000000000", "0123"] {
            assert_eq!(derived(none), None, "{none:?}");
        }
        assert_eq!(super::derived(&dir.path().join("none")).expect("no file"), None);
    }
}
