//! CephFS: the attribute `ceph.file.layout`, `stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cephfs_data`.
//!
//! As Ceph's manual says under "file layouts" and "file striping": stripe units are dealt to `stripe_count` objects in
//! turn until each is `object_size` large, then to the next set of objects. Which server an object is on follows from
//! the pool's placement rules and the cluster's map, which a mounted file system does not show: the objects are dealt
//! to queues by a hash.

use super::configured::words;
use super::{Layout, LayoutError, STRIPE_MIN, Servers};

/// The value of the attribute.
pub fn parse(value: &[u8]) -> Result<Layout<String>, LayoutError> {
    let text = value.strip_suffix(&[0]).unwrap_or(value);
    let text = std::str::from_utf8(text)
        .map_err(|error| LayoutError::new(error.valid_up_to(), "is not text"))?;
    let (mut unit, mut count, mut object) = (None, None, None);
    for word in words(text) {
        match word.key {
            "stripe_unit" => word.set(&mut unit, word.number()?)?,
            "stripe_count" => word.set(&mut count, word.number()?)?,
            "object_size" => word.set(&mut object, word.number()?)?,
            // The pool and its namespace: the same for all objects of the file.
            _ => {}
        }
    }
    let wrong = |what: &str| LayoutError::new(0, what);
    let stripe = unit.ok_or_else(|| wrong("has no stripe_unit"))?;
    let count = count.ok_or_else(|| wrong("has no stripe_count"))?;
    let object = object.ok_or_else(|| wrong("has no object_size"))?;
    if stripe < STRIPE_MIN || count == 0 || object < stripe || object % stripe != 0 {
        return Err(wrong(
            "stripe_unit must be 4096 or more, stripe_count 1 or more, object_size a multiple of stripe_unit",
        ));
    }
    let stripes = object / stripe;
    Ok(Layout::whole(Servers::Objects {
        stripe,
        count,
        stripes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_form_is_understood() {
        let text = b"stripe_unit=65536 stripe_count=3 object_size=4194304 pool=cephfs_data";
        let (stripe, count, stripes) = (65536, 3, 64);
        let expected = Layout::whole(Servers::Objects {
            stripe,
            count,
            stripes,
        });
        assert_eq!(parse(text), Ok(expected.clone()));
        let mut namespaced = text.to_vec();
        namespaced.extend(b" pool_namespace=a\0");
        assert_eq!(parse(&namespaced), Ok(expected));
    }

    #[test]
    fn what_no_layout_has_is_refused() {
        let wrong: [&[u8]; 6] = [
            b"",
            b"\xFF",
            b"stripe_unit=65536 stripe_count=1",
            b"stripe_unit=65536 stripe_count=0 object_size=65536",
            b"stripe_unit=65536 stripe_count=1 object_size=65537",
            b"stripe_unit=much stripe_count=1 object_size=65536",
        ];
        for value in wrong {
            assert!(parse(value).is_err(), "{}", value.escape_ascii());
        }
    }
}
