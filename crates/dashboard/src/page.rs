//! The page of the dashboard: one file that draws what `/events` tells.
//!
//! Nothing of a snapshot becomes markup: the script puts it into the page as text. The policy, in the page and before it, lets no
//! other script or style run, nothing be fetched but from the service itself, and no other page have it in a frame.

use crate::Response;
use presagio_page::Page;
use std::sync::OnceLock;

const FRAME: &str = include_str!("page/dashboard.html");
const STYLE: &str = include_str!("page/dashboard.css");
const SCRIPT: &str = include_str!("page/dashboard.js");

/// The page, with the headers that protect it.
pub fn page() -> Response {
    static PAGE: OnceLock<(String, String)> = OnceLock::new();
    let (text, policy) = PAGE.get_or_init(|| {
        let page = Page::new(STYLE, SCRIPT);
        let policy = page.policy("; connect-src 'self'");
        (page.fill(FRAME, &policy, &[]), policy)
    });
    Response::of("text/html; charset=utf-8", text.as_str())
        .with(
            "Content-Security-Policy",
            format!("{policy}; frame-ancestors 'none'"),
        )
        .with("Referrer-Policy", "no-referrer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_sound() {
        assert_eq!(Page::new(STYLE, SCRIPT).fault(FRAME), None);
    }
}
