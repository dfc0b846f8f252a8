//! A snapshot on a screen: a headline, a list, and what there is to say about the row that is chosen.
//!
//! It fits into 80 columns and 24 lines; with more, more is shown. Colours are the terminal's own sixteen, so that its theme holds.

use super::keys::{Tab, View};
use super::plain::{
    ago, arm, by, change, followers, headline, pattern_name, rate, shape, sparkline, totals,
};
use presagio_dashboard::{Arm, Context, Decision, Node, NodeState, Pattern, Patterns, Snapshot};
use presagio_page::readable;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, TableState, Wrap};

const QUIET: Style = Style::new().fg(Color::DarkGray);
const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red);
const NAMED: Style = Style::new().fg(Color::Cyan);
const TRIED: Style = Style::new().fg(Color::Yellow);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Lines below the list.
const DETAILS: u16 = 8;

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let [top, tabs, body, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(view, top.width), top);
    frame.render_widget(tab_line(view), tabs);
    frame.render_widget(key_line(), keys);
    match (&view.snapshot, &view.trouble) {
        (None, trouble) => frame.render_widget(nothing(trouble.as_deref()), body),
        (Some(snapshot), _) => draw_body(frame, view, snapshot, body),
    }
    if view.helps {
        help(frame);
    }
}

fn heading(view: &View, width: u16) -> Paragraph<'static> {
    let state = match (&view.snapshot, &view.trouble) {
        (_, Some(_)) => Span::styled("● no answer ", BAD),
        (Some(_), None) => Span::styled("● live ", GOOD),
        (None, None) => Span::styled("● asking ", QUIET),
    };
    let Some(snapshot) = &view.snapshot else {
        return Paragraph::new(Line::from(vec![state, Span::styled("presagio top", BOLD)]));
    };
    let second = match &view.trouble {
        Some(why) => Line::styled(
            format!(
                "as it was {} ago; trying again. {why}",
                ago(presagio_council::unix_ms(), snapshot.at_ms)
            ),
            BAD,
        ),
        None => Line::raw(totals(snapshot)),
    };
    let room = usize::from(width).saturating_sub(state.width());
    let first: String = headline(snapshot).chars().take(room).collect();
    Paragraph::new(vec![
        Line::from(vec![state, Span::styled(first, BOLD)]),
        second,
    ])
}

fn tab_line(view: &View) -> Line<'static> {
    let snapshot = view.snapshot.as_ref();
    let count = |tab| match tab {
        Tab::Nodes => snapshot.map(|it| it.nodes.len()),
        Tab::Situations => snapshot.map(|it| it.contexts.len()),
        Tab::Decisions => snapshot.map(|it| it.decisions.len()),
        Tab::Patterns => snapshot.and_then(|it| Some(it.patterns.as_ref()?.known as usize)),
    };
    let spans = Tab::ALL.into_iter().enumerate().flat_map(|(number, tab)| {
        let style = match tab == view.tab {
            true => BOLD.add_modifier(Modifier::REVERSED),
            false => QUIET,
        };
        let count = count(tab).map_or_else(String::new, |count| format!(" ({count})"));
        let name = format!(" {} {}{count} ", number + 1, tab.name());
        [Span::styled(name, style), Span::raw(" ")]
    });
    Line::from(spans.collect::<Vec<_>>())
}

fn key_line() -> Line<'static> {
    Line::styled(
        " q quit   tab, 1-4 lists   ↑↓ rows   enter unfold   ? help",
        QUIET,
    )
}

fn nothing(trouble: Option<&str>) -> Paragraph<'static> {
    let lines = match trouble {
        None => vec![Line::raw(""), Line::styled("  Asking...", QUIET)],
        Some(why) => vec![
            Line::raw(""),
            Line::styled("  Nothing answers.", BAD),
            Line::raw(format!("  {why}")),
            Line::raw(""),
            Line::raw(
                "  Start a council or an I/O node with --dashboard, or name its control socket:",
            ),
            Line::raw("  presagio top unix:/run/council.sock.control"),
            Line::raw(""),
            Line::styled("  It is asked again every second.", QUIET),
        ],
    };
    Paragraph::new(lines).wrap(Wrap { trim: false })
}

fn draw_body(frame: &mut Frame<'_>, view: &View, snapshot: &Snapshot, area: Rect) {
    let details = details(view, snapshot);
    if view.unfolded {
        let details = Paragraph::new(details).wrap(Wrap { trim: false });
        let block = Block::new().borders(Borders::TOP).border_style(QUIET);
        return frame.render_widget(details.block(block).scroll((view.scrolled, 0)), area);
    }
    let below = DETAILS.min(area.height / 2);
    let [list, rest] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(area);
    let table = match view.tab {
        Tab::Nodes => nodes(snapshot, list.width),
        Tab::Situations => situations(snapshot),
        Tab::Decisions => decisions(snapshot),
        Tab::Patterns => patterns(snapshot),
    };
    let dims = view.trouble.is_some();
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let table = if dims { table.style(QUIET) } else { table };
    let mut state = TableState::default().with_selected(view.chosen());
    frame.render_stateful_widget(table, list, &mut state);
    let block = Block::new().borders(Borders::TOP).border_style(QUIET);
    let details = Paragraph::new(details)
        .wrap(Wrap { trim: false })
        .block(block);
    frame.render_widget(details, rest);
}

fn header(names: &[&'static str]) -> Row<'static> {
    Row::new(names.iter().map(|name| Cell::from(*name))).style(QUIET)
}

// ── Lists ────────────────────────────────────────────────────────────────────────────────────────────────────────────

fn nodes(snapshot: &Snapshot, width: u16) -> Table<'static> {
    // What is left of the width shows the last minutes.
    let spark = usize::from(width.saturating_sub(66)).clamp(10, 180);
    let row = |node: &Node| {
        let now = node.now.unwrap_or_default();
        let all = now.read_bytes_per_s + now.write_bytes_per_s;
        let style = match node.state {
            NodeState::Gone => QUIET,
            NodeState::Silent => TRIED,
            NodeState::Here => Style::new(),
        };
        let policy = match (node.state, node.explores) {
            (NodeState::Here, true) => TRIED,
            (NodeState::Here, false) => NAMED,
            _ => style,
        };
        let times = [now.queue_ns_p99, now.service_ns_p99];
        let [queue, service] = times.map(|ns| ns.map_or_else(|| "-".to_owned(), readable::span));
        let both = |it: &presagio_dashboard::Sample| it.read_bytes_per_s + it.write_bytes_per_s;
        Row::new(vec![
            Cell::from(node.name.clone()),
            Cell::from(match node.state {
                NodeState::Gone => "gone".to_owned(),
                _ => arm(node),
            })
            .style(policy),
            Cell::from(rate(all)),
            Cell::from(sparkline(&node.recent, spark, both)).style(GOOD),
            Cell::from(queue),
            Cell::from(service),
            Cell::from(format!("{}+{}", now.queued, now.in_flight)),
        ])
        .style(style)
    };
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(13),
        Constraint::Length(12),
        Constraint::Length(spark as u16),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(7),
    ];
    let names = [
        "node",
        "policy",
        "throughput",
        "last minutes",
        "queue99",
        "serv.99",
        "waiting",
    ];
    Table::new(snapshot.nodes.iter().map(row), widths).header(header(&names))
}

fn situations(snapshot: &Snapshot) -> Table<'static> {
    let row = |it: &Context| {
        let style = match it.last_ms {
            Some(_) => Style::new(),
            None => QUIET,
        };
        Row::new(vec![
            Cell::from(it.choice.clone().unwrap_or_else(|| "-".to_owned())).style(NAMED),
            Cell::from(it.tries.to_string()),
            Cell::from(rate(it.best_bytes_per_busy_s)),
            Cell::from(it.nodes.len().to_string()),
            Cell::from(it.context.clone()),
        ])
        .style(style)
    };
    let widths = [
        Constraint::Length(13),
        Constraint::Length(6),
        Constraint::Length(12),
        Constraint::Length(5),
        Constraint::Fill(1),
    ];
    let names = ["choice", "tries", "best, busy", "nodes", "situation"];
    Table::new(snapshot.contexts.iter().map(row), widths).header(header(&names))
}

fn decisions(snapshot: &Snapshot) -> Table<'static> {
    let row = |it: &Decision| {
        let style = match it.explores {
            true => TRIED,
            false => NAMED,
        };
        Row::new(vec![
            Cell::from(ago(snapshot.at_ms, it.at_ms)),
            Cell::from(it.times.to_string()),
            Cell::from(it.node.clone()),
            Cell::from(change(it)).style(style),
            Cell::from(it.why.clone()),
        ])
    };
    let widths = [
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Max(14),
        Constraint::Length(27),
        Constraint::Fill(1),
    ];
    let names = ["ago", "times", "node", "chosen", "why"];
    Table::new(snapshot.decisions.iter().map(row), widths).header(header(&names))
}

fn patterns(snapshot: &Snapshot) -> Table<'static> {
    let none = Patterns::default();
    let known = snapshot.patterns.as_ref().unwrap_or(&none);
    let row = |it: &Pattern| {
        let mut after = followers(&known.chain, &pattern_name(it)).into_iter();
        Row::new(vec![
            Cell::from(pattern_name(it)).style(NAMED),
            Cell::from(it.times.to_string()),
            Cell::from(it.requests.to_string()),
            Cell::from(shape(it)).style(GOOD),
            Cell::from(after.next().unwrap_or_default()),
        ])
    };
    let widths = [
        Constraint::Length(12),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Fill(1),
        Constraint::Length(30),
    ];
    let names = [
        "pattern",
        "times",
        "requests",
        "requests over a period",
        "most often followed by",
    ];
    Table::new(known.list.iter().map(row), widths).header(header(&names))
}

// ── What there is to say about a row ─────────────────────────────────────────────────────────────────────────────────

fn details(view: &View, snapshot: &Snapshot) -> Vec<Line<'static>> {
    let Some(row) = view.chosen() else {
        let none = match view.tab {
            Tab::Nodes => "No node is here yet.",
            Tab::Situations => "Nothing is known yet, or the policy is given.",
            Tab::Decisions => "Nothing was decided yet, or the policy is given.",
            Tab::Patterns => "No patterns: none is known yet, or situations are told by counts.",
        };
        return vec![Line::styled(none, QUIET)];
    };
    match view.tab {
        Tab::Nodes => of_node(&snapshot.nodes[row], snapshot),
        Tab::Situations => of_situation(&snapshot.contexts[row], snapshot),
        Tab::Decisions => of_decision(&snapshot.decisions[row]),
        Tab::Patterns => snapshot
            .patterns
            .as_ref()
            .map_or_else(Vec::new, |known| of_pattern(&known.list[row], known)),
    }
}

fn pair(name: &'static str, value: impl Into<String>) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("{name:<11}"), QUIET),
        Span::raw(value.into()),
    ])
}

fn of_node(node: &Node, snapshot: &Snapshot) -> Vec<Line<'static>> {
    let now = node.now.unwrap_or_default();
    let missing = || "-".to_owned();
    let span = |ns: Option<u64>| ns.map_or_else(missing, readable::span);
    let since = ago(snapshot.at_ms, node.since_ms);
    let is = if node.state == NodeState::Gone {
        "gone"
    } else {
        "here"
    };
    vec![
        Line::from(vec![
            Span::styled(node.name.clone(), BOLD),
            Span::raw(format!("  {} by {}; {is} for {since}", arm(node), by(node))),
        ]),
        pair("situation", node.context.clone().unwrap_or_else(missing)),
        pair("why", node.why.clone().unwrap_or_else(missing)),
        pair(
            "throughput",
            format!(
                "read {}, write {}, {:.0} requests/s, {} connections",
                rate(now.read_bytes_per_s),
                rate(now.write_bytes_per_s),
                now.requests_per_s,
                node.connections.unwrap_or(0)
            ),
        ),
        pair(
            "latency",
            format!(
                "in the queue {} (99 %: {}), in service {} (99 %: {})",
                span(now.queue_ns_p50),
                span(now.queue_ns_p99),
                span(now.service_ns_p50),
                span(now.service_ns_p99)
            ),
        ),
    ]
}

fn of_situation(context: &Context, snapshot: &Snapshot) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(context.context.clone(), BOLD)];
    if let Some(why) = &context.why {
        let choice = context.choice.clone().unwrap_or_default();
        lines.push(pair("why", format!("{choice}: {why}")));
    }
    lines.extend(arms(&context.arms, context.choice.as_deref()));
    lines.extend(followed(followers(&snapshot.chain, &context.context)));
    lines
}

/// The chain, from one on.
fn followed(by: Vec<String>) -> Vec<Line<'static>> {
    if by.is_empty() {
        return Vec::new();
    }
    let title = Line::styled("followed by", QUIET);
    let rest = by.into_iter().map(|it| Line::raw(format!("  {it}")));
    [title].into_iter().chain(rest).collect()
}

fn of_pattern(pattern: &Pattern, known: &Patterns) -> Vec<Line<'static>> {
    let name = pattern_name(pattern);
    let mut lines = vec![
        Line::from(vec![
            Span::styled(name.clone(), BOLD),
            Span::raw(format!(
                "  came {}, {} requests in a period; {} patterns are known",
                crate::terminal::counted(pattern.times, "time"),
                pattern.requests,
                known.known
            )),
        ]),
        pair("shape", shape(pattern)),
    ];
    if let Some((id, share)) = known.next {
        let share = readable::percent(share);
        lines.push(pair("next", format!("most likely pattern {id} ({share})")));
    }
    lines.extend(followed(followers(&known.chain, &name)));
    lines
}

/// Arms, the best first, with a bar as long as their share.
fn arms(arms: &[Arm], chosen: Option<&str>) -> Vec<Line<'static>> {
    let mut arms: Vec<&Arm> = arms.iter().collect();
    arms.sort_by(|a, b| b.value.unwrap_or(-1.0).total_cmp(&a.value.unwrap_or(-1.0)));
    let line = |it: &&Arm| bar(&it.arm, it.value, it.tries, it.barred, chosen);
    arms.iter().map(line).collect()
}

fn bar(
    arm: &str,
    value: Option<f64>,
    tries: u64,
    barred: bool,
    chosen: Option<&str>,
) -> Line<'static> {
    let share = value.map_or_else(|| "not tried".to_owned(), readable::percent);
    let style = match (barred, chosen == Some(arm)) {
        (true, _) => BAD,
        (_, true) => GOOD,
        _ => Style::new(),
    };
    let bar = crate::table::drawn(value.unwrap_or(0.0), 24);
    let note = match (barred, chosen == Some(arm)) {
        (true, _) => " barred",
        (_, true) => " chosen",
        _ => "",
    };
    Line::from(vec![
        Span::styled(format!("{arm:<14}"), style),
        Span::styled(format!("{bar:<24} "), style),
        Span::raw(format!("{share:>9}  {tries:>5} tries")),
        Span::styled(note, style),
    ])
}

fn of_decision(decision: &Decision) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::from(vec![
            Span::styled(change(decision), BOLD),
            Span::raw(format!(" for {}, by {}", decision.node, decision.by)),
        ]),
        pair("why", decision.why.clone()),
        pair(
            "situation",
            decision
                .context
                .clone()
                .unwrap_or_else(|| "too little arrived to tell".to_owned()),
        ),
    ];
    let seen: Vec<String> = decision
        .evidence
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| match value.as_str() {
            Some(text) => format!("{key} {text}"),
            None => format!("{key} {}", number(value)),
        })
        .collect();
    if !seen.is_empty() {
        lines.push(pair("seen", seen.join(", ")));
    }
    let votes: Vec<String> = decision
        .votes
        .iter()
        .map(|(arm, weight)| format!("{arm} {weight:.0}"))
        .collect();
    if !votes.is_empty() {
        lines.push(pair("votes", votes.join(", ")));
    }
    let own = decision.own.as_deref().unwrap_or(&decision.chosen);
    let line =
        |it: &presagio_dashboard::Candidate| bar(&it.arm, it.value, it.tries, it.barred, Some(own));
    lines.extend(decision.candidates.iter().map(line));
    lines
}

/// A figure in as many digits as a person reads.
fn number(value: &serde_json::Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (None, Some(number)) if number.fract() == 0.0 => format!("{number:.0}"),
        (None, Some(number)) => format!("{number:.3}"),
        _ => value.to_string(),
    }
}

fn help(frame: &mut Frame<'_>) {
    let lines = [
        "q, ctrl-c     quit",
        "tab, ← →      the next list; 1 2 3 4 go there",
        "↑ ↓, j k      a row; page keys, home and end too",
        "enter         unfold what is below, or fold it; arrows scroll",
        "esc           fold, or quit",
        "",
        "queue99, serv.99   99 % of requests waited, were served, in less",
        "waiting            in the scheduler + at the storage",
        "yellow             a trial: to learn, not because it is best",
    ];
    let area = frame.area();
    let (width, height) = (66.min(area.width), 11.min(area.height));
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let text: Vec<Line<'_>> = lines.iter().map(|line| Line::raw(*line)).collect();
    let block = Block::bordered().title(" presagio top: any key goes back ");
    frame.render_widget(Paragraph::new(text).block(block), place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_dashboard::{Candidate, Link, Sample, Totals};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    fn snapshot() -> Snapshot {
        let sample = |at_ms: u64| Sample {
            at_ms,
            read_bytes_per_s: at_ms as f64 * 1e6,
            queue_ns_p99: Some(1_500_000),
            queued: 12,
            in_flight: 4,
            ..Sample::default()
        };
        let node = |name: &str, state| Node {
            name: name.to_owned(),
            state,
            policy: Some("TWINS".to_owned()),
            window_us: Some(500.0),
            by: "council".to_owned(),
            why: Some("because it is best here".to_owned()),
            now: Some(sample(9)),
            recent: (0..10).map(sample).collect(),
            ..Node::default()
        };
        let context = Context {
            context: "shared-strided read of 32768 B".to_owned(),
            tries: 77,
            choice: Some("SJF".to_owned()),
            arms: vec![Arm {
                arm: "SJF".to_owned(),
                value: Some(1.0),
                tries: 70,
                ..Arm::default()
            }],
            ..Context::default()
        };
        let decision = Decision {
            id: 1,
            times: 3,
            node: "io1".to_owned(),
            by: "council".to_owned(),
            before: Some("NOOP".to_owned()),
            chosen: "SJF".to_owned(),
            why: "SJF by majority with 2 of 3 votes".to_owned(),
            candidates: vec![Candidate {
                arm: "aIOLi".to_owned(),
                value: Some(0.25),
                tries: 4,
                barred: true,
            }],
            evidence: [("requests".to_owned(), 321.into())].into_iter().collect(),
            ..Decision::default()
        };
        Snapshot {
            service: "council".to_owned(),
            name: "head".to_owned(),
            totals: Totals {
                nodes_here: 1,
                nodes_gone: 1,
                ..Totals::default()
            },
            nodes: vec![node("io1", NodeState::Here), node("io2", NodeState::Gone)],
            contexts: vec![context],
            decisions: vec![decision],
            patterns: Some(patterns()),
            ..Snapshot::default()
        }
    }

    fn patterns() -> Patterns {
        let pattern = |id: u64, shape: &[f64]| Pattern {
            id,
            times: 41,
            requests: 640,
            shape: shape.to_vec(),
        };
        let link = |to: &str, times| ("pattern 7".to_owned(), to.to_owned(), times);
        let links = [link("pattern 8", 10), link("pattern 7", 30)];
        Patterns {
            known: 5,
            next: Some((8, 0.25)),
            list: vec![pattern(7, &[0.0, 0.5, 1.0]), pattern(8, &[1.0, 0.0])],
            chain: Link::all(links.into_iter()),
        }
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = (0..height).map(|y| {
            let cells = (0..width).map(|x| buffer[(x, y)].symbol());
            cells.collect::<String>().trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn press(view: &mut View, code: KeyCode) {
        view.press(KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn nodes_situations_and_decisions_fit_into_80_by_24() {
        let mut view = View::default();
        view.hear(Ok(snapshot()));
        let nodes = drawn(&mut view, 80, 24);
        for word in [
            "● live",
            "Council on head",
            "1 node, 1 gone",
            "io1",
            "TWINS:0.5ms",
            "8.58 MiB/s",
            "▁",
            "█",
            "1.5 ms",
            "12+4",
            "gone",
            "because it is best here",
        ] {
            assert!(nodes.contains(word), "{word} is missing in\n{nodes}");
        }
        press(&mut view, KeyCode::Tab);
        let situations = drawn(&mut view, 80, 24);
        for word in ["shared-strided read", "77", "SJF", "100 %", "70 tries"] {
            assert!(
                situations.contains(word),
                "{word} is missing in\n{situations}"
            );
        }
        press(&mut view, KeyCode::Tab);
        let decisions = drawn(&mut view, 80, 24);
        for word in [
            "NOOP → SJF",
            "by majority",
            "requests 321",
            "aIOLi",
            "barred",
        ] {
            assert!(
                decisions.contains(word),
                "{word} is missing in\n{decisions}"
            );
        }
        press(&mut view, KeyCode::Tab);
        let patterns = drawn(&mut view, 80, 24);
        for word in [
            "Patterns (5)",
            "pattern 7",
            "41",
            "640",
            "▁▅█",
            "75 % pattern 7 (30 times)",
            "25 % pattern 8 (10 times)",
            "most likely pattern 8 (25 %)",
        ] {
            assert!(patterns.contains(word), "{word} is missing in\n{patterns}");
        }
    }

    #[test]
    fn it_says_so_when_nothing_answers_and_when_that_is_over() {
        let mut view = View::default();
        view.hear(Err("unix:/x: connection refused".to_owned()));
        let text = drawn(&mut view, 80, 24);
        assert!(
            text.contains("Nothing answers") && text.contains("connection refused"),
            "{text}"
        );
        view.hear(Ok(snapshot()));
        assert!(drawn(&mut view, 80, 24).contains("● live"));
        view.hear(Err("gone".to_owned()));
        let stale = drawn(&mut view, 80, 24);
        assert!(
            stale.contains("● no answer")
                && stale.contains("trying again")
                && stale.contains("io1"),
            "{stale}"
        );
    }

    #[test]
    fn every_size_and_every_key_can_be_drawn() {
        let keys = [
            KeyCode::Tab,
            KeyCode::Down,
            KeyCode::Enter,
            KeyCode::Down,
            KeyCode::Char('?'),
            KeyCode::End,
            KeyCode::Enter,
        ];
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 90)] {
            let mut view = View::default();
            drawn(&mut view, width, height);
            view.hear(Ok(snapshot()));
            for key in keys.iter().cycle().take(21) {
                press(&mut view, *key);
                drawn(&mut view, width, height);
            }
        }
    }
}
