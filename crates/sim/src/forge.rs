//! Scenarios of FORGE, the I/O forwarding explorer (github.com/jeanbez/forge): its JSON configuration as one of ours.
//!
//! Its files have had two shapes. In the older one, the access pattern is beside the numbers of forwarders and threads, and
//! is written and then read. In the newer one there are `phases`, done one after the other, each of them so often as its
//! `repetitions` say; a phase has `patterns`, also in order, each of which opens, writes, reads or closes a file. Opening and
//! closing take no time here.
//!
//! FORGE is told the number of processes by `mpirun`, and runs on whatever file system its path is on: what its files do
//! not say has our defaults, which can be set (`app.processes`, `servers.count`, ...). `validation`, `path` and
//! `direct_io` mean nothing here.

use crate::read::ScenarioError;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

/// Processes, where nothing is said: what FORGE's authors ran most of their experiments with.
const PROCESSES: i64 = 128;

/// Writes and reads that phases may come to: more are a mistake, or a reason to write a scenario.
const APPS_MAX: usize = 1000;

/// The names of the older files, all that they have had.
const FLAT: [&str; 13] = [
    "forwarders",
    "handlers",
    "listeners",
    "dispatchers",
    "path",
    "number_of_files",
    "spatiality",
    "total_size",
    "request_size",
    "validation",
    "operations",
    "direct_io",
    "stone_wall",
];

/// Those of the newer files: outside, of a phase, of a pattern.
const PHASED: [&str; 5] = [
    "forwarders",
    "handlers",
    "listeners",
    "dispatchers",
    "phases",
];
const PHASE: [&str; 2] = ["repetitions", "patterns"];
const PATTERN: [&str; 9] = [
    "path",
    "operation",
    "number_of_files",
    "spatiality",
    "total_size",
    "request_size",
    "validation",
    "direct_io",
    "stone_wall",
];

/// Turns the text of a FORGE configuration into that of a scenario.
pub(crate) fn to_toml(text: &str) -> Result<String, ScenarioError> {
    let json: Json = serde_json::from_str(text).map_err(|e| ScenarioError {
        line: Some(e.line()),
        field: None,
        reason: e.to_string(),
    })?;
    let Json::Object(map) = json else {
        return Err(ScenarioError {
            line: None,
            field: None,
            reason: "a FORGE configuration is one JSON object".to_owned(),
        });
    };
    let fields = Fields {
        text,
        map: &map,
        before: &[],
    };
    let apps = match map.contains_key("phases") {
        true => phased(&fields)?,
        false => flat(&fields)?,
    };
    let mut scenario = Table::new();
    scenario.insert("title".into(), "FORGE".into());
    scenario.insert("ionodes".into(), Value::Table(nodes(&fields)?));
    scenario.insert("servers".into(), Value::Table(servers()));
    let apps = apps.into_iter().map(Value::Table);
    scenario.insert("app".into(), Value::Array(apps.collect()));
    Ok(toml_text(&scenario))
}

fn nodes(fields: &Fields) -> Result<Table, ScenarioError> {
    let mut nodes = Table::new();
    nodes.insert(
        "count".into(),
        fields.number("forwarders")?.unwrap_or(0).into(),
    );
    let handlers = fields.number("handlers")?;
    let handlers = handlers.or(fields.number("listeners")?);
    for (name, value) in [
        ("handlers", handlers),
        ("dispatchers", fields.number("dispatchers")?),
    ] {
        if let Some(value) = value {
            nodes.insert(name.into(), value.into());
        }
    }
    Ok(nodes)
}

/// Four, as in the papers of its authors.
fn servers() -> Table {
    let mut servers = Table::new();
    servers.insert("count".into(), 4.into());
    servers
}

/// The older shape: one application for each operation; where both are asked for, reading begins when all is written.
fn flat(fields: &Fields) -> Result<Vec<Table>, ScenarioError> {
    fields.only(&FLAT)?;
    let ops = [("write", "write"), ("read", "read"), ("both", "both")];
    let ops = match fields.word("operations", &ops)?.unwrap_or("both") {
        "both" => vec!["write", "read"],
        one => vec![one],
    };
    let app = access(fields)?;
    let mut apps = Vec::new();
    ops.iter().for_each(|op| add(&mut apps, app.clone(), op));
    Ok(apps)
}

/// The newer shape: one application for each write and each read, one after the other.
fn phased(fields: &Fields) -> Result<Vec<Table>, ScenarioError> {
    fields.only(&PHASED)?;
    let phases = fields.objects("phases")?;
    let mut apps = Vec::new();
    let (mut phases_before, mut patterns_before) = (vec![fields.map], vec![fields.map]);
    for map in phases {
        let phase = Fields {
            text: fields.text,
            map,
            before: &phases_before,
        };
        phase.only(&PHASE)?;
        let patterns = phase.objects("patterns")?;
        let mut once = Vec::new();
        for pattern in patterns {
            let of_pattern = Fields {
                text: fields.text,
                map: pattern,
                before: &patterns_before,
            };
            once.extend(done(&of_pattern)?);
            patterns_before.push(pattern);
        }
        let repetitions = phase.number("repetitions")?.unwrap_or(1) as usize;
        if repetitions.saturating_mul(once.len()) > APPS_MAX - apps.len() {
            let reason = format!("that is more than {APPS_MAX} writes and reads");
            return Err(phase.wrong("repetitions", &reason));
        }
        for _ in 0..repetitions {
            once.iter()
                .for_each(|(app, op)| add(&mut apps, app.clone(), op));
        }
        phases_before.push(map);
    }
    match apps.is_empty() {
        true => Err(fields.wrong("phases", "nothing is written or read in them")),
        false => Ok(apps),
    }
}

/// What a pattern writes or reads; nothing if it opens or closes.
fn done(pattern: &Fields) -> Result<Option<(Table, &'static str)>, ScenarioError> {
    pattern.only(&PATTERN)?;
    let ops = [
        ("open", "open"),
        ("write", "write"),
        ("read", "read"),
        ("close", "close"),
    ];
    match pattern.word("operation", &ops)? {
        Some("open" | "close") => Ok(None),
        Some(op) => Ok(Some((access(pattern)?, op))),
        None => Err(pattern.wrong("operation", "it is missing")),
    }
}

/// How files are accessed.
fn access(fields: &Fields) -> Result<Table, ScenarioError> {
    let mut app = Table::new();
    app.insert("processes".into(), PROCESSES.into());
    let files = [("shared", "shared"), ("individual", "per-process")];
    let files = fields.word("number_of_files", &files)?;
    let patterns = [("contiguous", "contiguous"), ("strided", "strided")];
    let pattern = fields.word("spatiality", &patterns)?;
    app.insert("files".into(), files.unwrap_or("shared").into());
    app.insert("pattern".into(), pattern.unwrap_or("contiguous").into());
    for (name, ours) in [("total_size", "total"), ("request_size", "request")] {
        let bytes = fields.number(name)?;
        let bytes = bytes.ok_or_else(|| fields.wrong(name, "it is missing"))?;
        app.insert(ours.into(), bytes.into());
    }
    if let Some(seconds) = fields.number("stone_wall")?.filter(|s| *s > 0) {
        app.insert("stonewall".into(), format!("{seconds}s").into());
    }
    Ok(app)
}

/// One more application, which begins when the one before it is done.
fn add(apps: &mut Vec<Table>, mut app: Table, op: &str) {
    let so_far = apps.iter().filter(|app| app["op"].as_str() == Some(op));
    let name = match so_far.count() {
        0 => op.to_owned(),
        count => format!("{op} {}", count + 1),
    };
    if let Some(last) = apps.last() {
        app.insert("after".into(), last["name"].clone());
    }
    app.insert("op".into(), op.into());
    app.insert("name".into(), name.into());
    apps.push(app);
}

/// The parameters of an object of the file, and those of the like that stand before it there: that tells which line one is on.
struct Fields<'a, 'b> {
    text: &'a str,
    map: &'a Map<String, Json>,
    before: &'b [&'a Map<String, Json>],
}

impl<'a> Fields<'a, '_> {
    /// An error if there are others than these.
    fn only(&self, known: &[&str]) -> Result<(), ScenarioError> {
        match self.map.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => {
                let known = format!("FORGE has no such parameter; it has {}", known.join(", "));
                Err(self.wrong(name, &known))
            }
            None => Ok(()),
        }
    }

    /// A number, which FORGE writes with or without quotes.
    fn number(&self, name: &str) -> Result<Option<i64>, ScenarioError> {
        let Some(value) = self.map.get(name) else {
            return Ok(None);
        };
        let number = match value {
            Json::Number(number) => number.as_i64(),
            Json::String(number) => number.trim().parse().ok(),
            _ => None,
        };
        match number.filter(|n| *n >= 0) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, "it must be a whole number, 0 or more")),
        }
    }

    fn word(
        &self,
        name: &str,
        words: &[(&str, &'static str)],
    ) -> Result<Option<&'static str>, ScenarioError> {
        let Some(value) = self.map.get(name) else {
            return Ok(None);
        };
        let known = words.iter().find(|(word, _)| value.as_str() == Some(word));
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        match known {
            Some((_, ours)) => Ok(Some(ours)),
            None => Err(self.wrong(name, &format!("it must be one of {}", all.join(", ")))),
        }
    }

    /// A list of objects.
    fn objects(&self, name: &str) -> Result<Vec<&'a Map<String, Json>>, ScenarioError> {
        let list = self.map.get(name).and_then(Json::as_array);
        let objects = list.and_then(|list| list.iter().map(Json::as_object).collect());
        objects.ok_or_else(|| self.wrong(name, "it must be a list of objects"))
    }

    fn wrong(&self, name: &str, reason: &str) -> ScenarioError {
        ScenarioError {
            line: self.map.get(name).and_then(|_| self.line(name)),
            field: Some(name.to_owned()),
            reason: reason.to_owned(),
        }
    }

    /// The line of a parameter: others before it may have the same name.
    fn line(&self, name: &str) -> Option<usize> {
        let quoted = format!("\"{name}\"");
        let earlier = self.before.iter().filter(|map| map.contains_key(name));
        let is_name = |at: &usize| self.text[at + quoted.len()..].trim_start().starts_with(':');
        let places = self.text.match_indices(&quoted).map(|(at, _)| at);
        let place = places.filter(is_name).nth(earlier.count())?;
        Some(1 + self.text[..place].matches('\n').count())
    }
}

/// The table as TOML: what is in it are numbers, words and tables of these.
fn toml_text(table: &Table) -> String {
    let lines = table
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use crate::{Files, Pattern, Sweep};

    #[test]
    fn a_configuration_of_forge_is_a_scenario() {
        let text = r#"{ "forwarders": "8", "listeners": "16", "dispatchers": 4, "path": "/pfs/test",
            "number_of_files": "individual", "spatiality": "contiguous", "total_size": 4294967296,
            "request_size": "32768", "validation": 0, "stone_wall": 60 }"#;
        let runs = Sweep::read(text)
            .and_then(|sweep| sweep.runs())
            .expect("FORGE");
        let scenario = &runs[0].scenario;
        assert_eq!(
            (
                scenario.ionodes.count,
                scenario.ionodes.handlers,
                scenario.ionodes.dispatchers
            ),
            (8, 16, 4)
        );
        assert_eq!(scenario.apps.len(), 2, "it writes, then it reads");
        assert_eq!(scenario.apps[1].after.as_deref(), Some("write"));
        assert_eq!(scenario.apps[0].files, Files::PerProcess);
        assert_eq!(scenario.apps[0].requests(), 1024);
        assert_eq!(scenario.apps[0].stonewall.0, 60_000_000_000);
    }

    /// As FORGE's own tests are: opened, written, closed, opened, read, closed.
    const PHASES: &str = r#"{
        "forwarders": 2,
        "handlers": 1,
        "dispatchers": 16,
        "phases": [
            { "repetitions": 1, "patterns": [
                { "path": "/pfs/a", "operation": "open", "number_of_files": "shared" }
            ] },
            { "repetitions": 3, "patterns": [
                { "path": "/pfs/a", "number_of_files": "shared", "spatiality": "strided", "total_size": 16777216,
                  "request_size": 32768, "validation": 0, "operation": "write", "direct_io": 0, "stone_wall": 60 }
            ] },
            { "repetitions": 1, "patterns": [
                { "path": "/pfs/a", "operation": "close", "number_of_files": "shared" },
                { "path": "/pfs/b", "operation": "open", "number_of_files": "individual" }
            ] },
            { "repetitions": 1, "patterns": [
                { "path": "/pfs/b", "number_of_files": "individual", "spatiality": "contiguous", "total_size": 8388608,
                  "request_size": 65536, "validation": 0, "operation": "read", "direct_io": 0, "stone_wall": 0 },
                { "path": "/pfs/b", "operation": "close", "number_of_files": "individual" }
            ] }
        ]
    }"#;

    #[test]
    fn phases_of_forge_are_applications_one_after_the_other() {
        let runs = Sweep::read(PHASES)
            .and_then(|sweep| sweep.runs())
            .expect("FORGE");
        let scenario = &runs[0].scenario;
        assert_eq!((scenario.ionodes.count, scenario.ionodes.handlers), (2, 1));
        let names: Vec<&str> = scenario.apps.iter().map(|app| app.name.as_str()).collect();
        assert_eq!(names, ["write", "write 2", "write 3", "read"]);
        let after: Vec<Option<&str>> = scenario.apps.iter().map(|a| a.after.as_deref()).collect();
        assert_eq!(
            after,
            [None, Some("write"), Some("write 2"), Some("write 3")]
        );
        let (write, read) = (&scenario.apps[0], &scenario.apps[3]);
        assert_eq!(
            (write.files, write.pattern),
            (Files::Shared, Pattern::Strided)
        );
        assert_eq!(
            (read.files, read.pattern),
            (Files::PerProcess, Pattern::Contiguous)
        );
        assert_eq!((write.requests(), read.requests()), (4, 1));
        assert_eq!((write.stonewall.0, read.stonewall.0), (60_000_000_000, 0));
    }

    #[test]
    fn what_is_wrong_in_a_phase_is_said_with_its_own_line() {
        for (from, to, line, field) in [
            ("65536", "-1", Some(19), "request_size"),
            ("\"read\"", "\"rewrite\"", Some(19), "operation"),
            ("\"operation\": \"read\",", "", None, "operation"),
            ("8388608", "{}", Some(18), "total_size"),
            ("3", "1000000000000", Some(9), "repetitions"),
            (
                "\"path\": \"/pfs/b\", \"operation\": \"close\"",
                "\"flush\": 1",
                Some(20),
                "flush",
            ),
            (
                "\"direct_io\": 0, \"stone_wall\": 0",
                "\"handlers\": 1",
                Some(19),
                "handlers",
            ),
        ] {
            let error = Sweep::read(&PHASES.replacen(from, to, 1)).expect_err(to);
            assert_eq!(
                (error.line, error.field.as_deref()),
                (line, Some(field)),
                "{error}"
            );
        }
        let nothing = "{ \"forwarders\": 1, \"phases\": [] }";
        let error = Sweep::read(nothing).expect_err("nothing to do");
        assert!(error.to_string().contains("nothing is written"), "{error}");
    }

    #[test]
    fn what_forge_would_not_take_is_said_with_line_and_field() {
        let good = "{\n\"forwarders\": 1,\n\"total_size\": 65536,\n\"request_size\": 512\n}";
        assert!(Sweep::read(good).is_ok());
        for (from, to, line, field) in [
            ("1,", "\"one\",", Some(2), "forwarders"),
            ("total_size", "size", Some(3), "size"),
            ("512", "-5", Some(4), "request_size"),
            ("512", "512,", Some(5), ""),
        ] {
            let error = Sweep::read(&good.replacen(from, to, 1)).expect_err(to);
            assert_eq!(error.line, line, "{error}");
            assert_eq!(error.field.as_deref().unwrap_or(""), field, "{error}");
        }
        let error = Sweep::read(&good.replacen("65536", "5", 1)).expect_err("too little");
        assert!(
            error.to_string().contains("less than one request"),
            "{error}"
        );
    }
}
