//! The pods of a headless Kubernetes service: its name resolves to one address per pod.

use std::{collections::BTreeSet, net::ToSocketAddrs as _};

use xpu_wire::endpoint::BasePort;

/// All addresses of a name, as a list for `--hosts`; or the error with its remedy. The name is looked up
/// once, so later pods are not included.
pub fn addresses(name: &str, base: BasePort) -> Result<String, String> {
    let found = (name, base.control()).to_socket_addrs().map_err(|error| {
        format!(
            "cannot find service {} ({error}): run this in the cluster, with the namespace if it is another one \
             (NAME.NAMESPACE), for a service with `clusterIP: None`",
            name.escape_default()
        )
    })?;
    let all: BTreeSet<_> = found.map(|address| address.ip()).collect();
    let text = |address: &std::net::IpAddr| {
        if address.is_ipv6() { format!("[{address}]") } else { address.to_string() }
    };
    Ok(all.iter().map(text).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_resolved_to_all_its_addresses() {
        let here = addresses("localhost", BasePort::DEFAULT).unwrap();
        assert!(here.split(',').any(|address| address == "127.0.0.1"), "{here}");
        let why = addresses("no-such-service.invalid", BasePort::DEFAULT).unwrap_err();
        assert!(why.contains("clusterIP: None"), "{why}");
    }
}
