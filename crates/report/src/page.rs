//! The page: one file, with its style, its script, and the document that it draws.
//!
//! Nothing of the document becomes markup. It lies in a data block as JSON, with every `<` written as an escape, so that no
//! name can end the block; the script puts it into the page as text, and the policy in the page's head lets no other
//! script or style run, and nothing be fetched.

use crate::doc::Document;
use presagio_page::Page;

const FRAME: &str = include_str!("page/report.html");
const STYLE: &str = include_str!("page/report.css");
const SCRIPT: &str = include_str!("page/report.js");

/// The page of a document.
pub fn page(document: &Document) -> Result<String, serde_json::Error> {
    let data = data(document)?;
    let page = Page::new(STYLE, SCRIPT);
    Ok(page.fill(FRAME, &page.policy(""), &[("{{DATA}}", &data)]))
}

/// The document as JSON that can stand in a page.
fn data(document: &Document) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(document)?;
    // Within JSON these occur in strings only, where escapes mean the same.
    Ok(json
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_sound() {
        assert_eq!(Page::new(STYLE, SCRIPT).fault(FRAME), None);
        assert!(FRAME.find("{{DATA}}") > FRAME.find("{{SCRIPT}}"));
    }
}
