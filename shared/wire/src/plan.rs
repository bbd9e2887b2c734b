//! How NCCL carries out a collective, as its profiler plugin API reports it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Algorithm, protocol and channels of one collective, chosen by NCCL at launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Plan {
    pub algorithm: Algorithm,
    pub protocol: Protocol,
    pub channels: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    Tree,
    Ring,
    CollnetDirect,
    CollnetChain,
    Nvls,
    NvlsTree,
    Pat,
    /// One that this version does not know.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    Ll,
    Ll128,
    Simple,
    /// One that this version does not know.
    Other,
}

/// Implements an enum by NCCL's names, in NCCL's numbering.
macro_rules! by_nccl {
    ($type:ident, $count:literal: $($variant:ident = $name:literal),+) => {
        impl $type {
            /// NCCL's numbering.
            pub const ALL: [Self; $count] = [$(Self::$variant),+];

            pub fn from_nccl(number: u8) -> Self {
                Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Other)
            }

            pub fn named(name: &[u8]) -> Self {
                let is = |one: &Self| one.name().as_bytes() == name;
                Self::ALL.into_iter().find(is).unwrap_or(Self::Other)
            }

            /// NCCL's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Other => "UNKNOWN",
                }
            }
        }
    };
}

by_nccl! {
    Algorithm, 7:
    Tree = "TREE", Ring = "RING", CollnetDirect = "COLLNET_DIRECT", CollnetChain = "COLLNET_CHAIN", Nvls = "NVLS",
    NvlsTree = "NVLS_TREE", Pat = "PAT"
}

by_nccl! { Protocol, 3: Ll = "LL", Ll128 = "LL128", Simple = "SIMPLE" }

/// `RING/LL128 x24`
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{} x{}", self.algorithm.name(), self.protocol.name(), self.channels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_equal_nccls() {
        for (number, algorithm) in (0..).zip(Algorithm::ALL) {
            assert_eq!(Algorithm::from_nccl(number), algorithm);
            assert_eq!(Algorithm::named(algorithm.name().as_bytes()), algorithm);
        }
        for (number, protocol) in (0..).zip(Protocol::ALL) {
            assert_eq!(Protocol::from_nccl(number), protocol);
            assert_eq!(Protocol::named(protocol.name().as_bytes()), protocol);
        }
        assert_eq!((Algorithm::from_nccl(7), Protocol::named(b"LL256")), (Algorithm::Other, Protocol::Other));
        let plan = Plan { algorithm: Algorithm::Ring, protocol: Protocol::Ll128, channels: 24 };
        assert_eq!(plan.to_string(), "RING/LL128 x24");
    }
}
