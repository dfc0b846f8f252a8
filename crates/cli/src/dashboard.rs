//! Where a live dashboard is, and who can see it there.

use crate::failure::failure;
use presagio_dashboard::is_loopback;
use presagio_door::Address;

/// Whether a dashboard may be at this address; warns if others can see it.
pub fn check(address: &Address, takes_orders: bool) -> anyhow::Result<()> {
    match (is_loopback(address), takes_orders) {
        (true, _) => Ok(()),
        (false, true) => Err(failure(
            format!("--dashboard {address} with a token"),
            "the token would go over the network for all to read",
            "use an address of this machine alone, and come through ssh -L",
        )),
        (false, false) => {
            tracing::warn!("whoever reaches {address} can see the dashboard");
            Ok(())
        }
    }
}

/// What to tell a person: an address for a browser, if a browser can go there.
pub fn where_it_is(address: &Address) -> String {
    match address {
        Address::Tcp(host) => format!("dashboard on http://{host}/"),
        Address::Unix(_) => format!("dashboard on {address}, for presagio top"),
    }
}
