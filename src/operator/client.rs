//! The way to the API server, and what an object there can be called.

use kube::Client;

use super::error::Error;

/// A client of the cluster that this process runs in, or that KUBECONFIG names.
pub async fn client() -> Result<Client, Error> {
    let config = kube::Config::infer().await.map_err(|e| Error::Config(Box::new(e)))?;
    Client::try_from(config).map_err(|e| Error::Config(Box::new(e)))
}

/// CSI names are any text; what no object can be called has no PersistentVolume, and would be another path.
pub(in crate::operator) fn is_object_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csi_name_that_no_object_can_have_is_not_asked_for() {
        assert!(is_object_name("pvc-7c0e"));
        for name in ["", "../secrets", "a/b", "A", "ä", "-a", "a b"] {
            assert!(!is_object_name(name), "{name:?}");
        }
    }
}
