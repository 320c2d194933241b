//! The tiers of `make test`, by name.

use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Unit, property and crash tests, which need neither root nor another program.
    Unit,
    /// Loop devices and mounts; needs root.
    Loop,
    /// etcd, kube-apiserver and Helm from `make cluster-build`.
    Apiserver,
    /// The official csi-sanity suite; needs Go, and root for loop devices.
    Sanity,
}

impl Tier {
    pub const ALL: [Self; 4] = [Self::Unit, Self::Loop, Self::Apiserver, Self::Sanity];

    pub fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Loop => "loop",
            Self::Apiserver => "apiserver",
            Self::Sanity => "sanity",
        }
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|tier| tier.name() == text);
        let names = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("no tier is called '{text}'; they are {}", names()))
    }
}
