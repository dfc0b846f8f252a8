//! Which of several I/O nodes a client or a file belongs to.

use presagio_ninep::Address;

/// The nodes in the order in which `key` prefers them: indices of `nodes`.
///
/// Each node gets a weight from its address and the key, and the heaviest comes first (rendezvous hashing). So keys are
/// spread evenly, everybody comes to the same order without talking, whatever the order of the list, and when a node
/// leaves the list only those that preferred it move.
pub fn preference(nodes: &[Address], key: &[u8]) -> Vec<usize> {
    let weight = |node: &Address| {
        let address = node.to_string();
        mix(fnv(fnv(FNV_START, address.as_bytes()), key))
    };
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_cached_key(|index| std::cmp::Reverse(weight(&nodes[*index])));
    order
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: the same on every machine and in every version, which a rule that clients must agree on needs.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(start, step)
}

/// Spreads what FNV leaves in the low bits over all of them (the finaliser of splitmix64).
pub(crate) fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize) -> Vec<Address> {
        let address = |i| format!("tcp:node{i}:5640").parse().expect("an address");
        (0..count).map(address).collect()
    }

    #[test]
    fn clients_are_spread_evenly() {
        let nodes = nodes(4);
        let mut share = [0; 4];
        for client in 0u64..4000 {
            share[preference(&nodes, &client.to_le_bytes())[0]] += 1;
        }
        assert!(
            share.iter().all(|count| (850..1150).contains(count)),
            "{share:?}"
        );
    }

    #[test]
    fn a_node_that_leaves_moves_only_its_own_clients() {
        let (all, mut fewer) = (nodes(5), nodes(5));
        let gone = fewer.remove(2);
        for client in 0u64..500 {
            let before = &all[preference(&all, &client.to_le_bytes())[0]];
            let after = &fewer[preference(&fewer, &client.to_le_bytes())[0]];
            assert!(before == after || *before == gone);
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let (one, mut other) = (nodes(5), nodes(5));
        other.reverse();
        for client in 0u64..100 {
            let key = client.to_le_bytes();
            let named = |nodes: &[Address]| -> Vec<String> {
                let order = preference(nodes, &key).into_iter();
                order.map(|index| nodes[index].to_string()).collect()
            };
            assert_eq!(named(&one), named(&other));
        }
    }
}
