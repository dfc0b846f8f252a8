//! Asking for a snapshot.

use crate::ionode::control;
use presagio_dashboard::{COUNCIL_ADDRESS, FORMAT, NODE_ADDRESS, Snapshot};
use presagio_door::Address;
use presagio_page::readable;
use serde_json::Value;

/// A snapshot, or why there is none.
pub type Heard = Result<Snapshot, String>;

/// Where to ask: where somebody said, or where dashboards are if nobody says where.
pub fn addresses(said: Option<&Address>) -> Vec<Address> {
    match said {
        Some(address) => vec![address.clone()],
        None => [COUNCIL_ADDRESS, NODE_ADDRESS]
            .iter()
            .map(|text| text.parse().expect("an address of ours"))
            .collect(),
    }
}

/// The first that answers; else what all of them said.
pub fn first(addresses: &[Address]) -> Heard {
    let mut whys = Vec::new();
    for address in addresses {
        match ask(address) {
            Ok(snapshot) => return Ok(snapshot),
            Err(why) => whys.push(format!("{address}: {why}")),
        }
    }
    Err(whys.join("; "))
}

fn ask(address: &Address) -> Heard {
    let (status, body) =
        control::ask(address, "GET", "/snapshot").map_err(|error| error.to_string())?;
    match status {
        200 => read(&body),
        _ => Err(format!("no dashboard is there ({status})")),
    }
}

/// A snapshot in which no text can do anything to a terminal, whoever wrote it.
fn read(body: &str) -> Heard {
    let no_snapshot = |error: serde_json::Error| format!("it answers with something else: {error}");
    let mut value: Value = serde_json::from_str(body).map_err(no_snapshot)?;
    clean(&mut value);
    let snapshot: Snapshot = serde_json::from_value(value).map_err(no_snapshot)?;
    match snapshot.format == FORMAT {
        true => Ok(snapshot),
        false => Err(format!(
            "it is of another version of Presagio ({})",
            snapshot.presagio
        )),
    }
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = readable::without_controls(text),
        Value::Array(list) => list.iter_mut().for_each(clean),
        Value::Object(fields) => {
            let cleaned = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                clean(&mut value);
                (readable::without_controls(&key), value)
            });
            *fields = cleaned.collect();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_harmless_wherever_they_are() {
        let mut hostile = Snapshot {
            format: FORMAT.to_owned(),
            name: "a\u{1b}[2J".to_owned(),
            ..Snapshot::default()
        };
        let mut decision = presagio_dashboard::Decision::default();
        decision
            .evidence
            .insert("b\u{9b}".to_owned(), "c\u{7}".into());
        decision.votes.push(("d\n".to_owned(), 1.0));
        hostile.decisions.push(decision);
        let read = read(&serde_json::to_string(&hostile).unwrap()).unwrap();
        let text = format!("{read:?}");
        assert!(
            !text.contains("\\u{1b}") && !text.contains("\\u{9b}") && !text.contains("\\u{7}"),
            "{text}"
        );
        assert_eq!(read.name, "a\u{fffd}[2J");
        assert_eq!(read.decisions[0].votes[0].0, "d\u{fffd}");
        assert!(super::read("{}").is_err());
        assert!(super::read("[1]").is_err());
    }
}
