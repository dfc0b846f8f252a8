//! Intervals of sizes as people write them: `8K-64K:8K`.

use crate::size::Size;
use presagio_device::profile::Interval;

pub fn parse(text: &str) -> Result<Interval, String> {
    let form = || "write LEAST-MOST:STEP, such as 8K-64K:8K".to_owned();
    let (sizes, step) = text.split_once(':').ok_or_else(form)?;
    let (least, most) = sizes.split_once('-').ok_or_else(form)?;
    let size = |text: &str| {
        let size = text.trim().parse::<Size>();
        size.map(|size| size.0)
            .map_err(|error| format!("{text}: {error}"))
    };
    let (least, most, step) = (size(least)?, size(most)?, size(step)?);
    Interval::new(least, most, step).ok_or_else(|| {
        format!(
            "from {} to {} it is no whole number of steps of {}, or far too many",
            Size(least),
            Size(most),
            Size(step)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_read_as_people_write_it() {
        let interval = parse("8K-64K:8K").expect("an interval");
        assert_eq!(interval, Interval::published()[0]);
    }

    #[test]
    fn what_is_no_interval_is_explained() {
        let wrong = [
            ("8K-64K", "LEAST-MOST:STEP"),
            ("64K:8K", "LEAST-MOST:STEP"),
            ("8K-64X:8K", "no unit"),
            ("8K-60K:8K", "whole number of steps"),
            ("64K-8K:8K", "whole number of steps"),
        ];
        for (text, says) in wrong {
            let error = parse(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
