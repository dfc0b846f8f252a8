//! What a person has chosen to see, and what keys do about it.

use super::fetch::Heard;
use presagio_dashboard::Snapshot;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Press {
    /// Go on.
    Stay,
    /// It is enough.
    Quit,
}

/// What is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    #[default]
    Nodes,
    Situations,
    Decisions,
    Patterns,
}

impl Tab {
    pub const ALL: [Tab; 4] = [Tab::Nodes, Tab::Situations, Tab::Decisions, Tab::Patterns];

    pub fn name(self) -> &'static str {
        match self {
            Tab::Nodes => "Nodes",
            Tab::Situations => "Situations",
            Tab::Decisions => "Decisions",
            Tab::Patterns => "Patterns",
        }
    }
}

/// What is on the screen.
#[derive(Default)]
pub struct View {
    /// What was heard last, if anything was.
    pub snapshot: Option<Snapshot>,
    /// Why nothing is heard now.
    pub trouble: Option<String>,
    pub tab: Tab,
    /// The row that is chosen, of each tab.
    chosen: [usize; Tab::ALL.len()],
    /// Whether what there is to say about it has the whole screen, and from which line on.
    pub unfolded: bool,
    pub scrolled: u16,
    pub helps: bool,
}

impl View {
    /// Something was heard.
    pub fn hear(&mut self, heard: Heard) {
        match heard {
            Ok(snapshot) => {
                self.follow(&snapshot);
                (self.snapshot, self.trouble) = (Some(snapshot), None);
            }
            Err(why) => self.trouble = Some(why),
        }
    }

    /// A decision that is chosen stays so when newer ones come above it.
    fn follow(&mut self, next: &Snapshot) {
        // A service that was started anew numbers from the beginning.
        let before = self.snapshot.as_ref().filter(|it| it.life == next.life);
        let before = before.map(|it| &it.decisions);
        let chosen = &mut self.chosen[Tab::Decisions as usize];
        let id = before.and_then(|list| list.get(*chosen)).map(|it| it.id);
        // At the top one stays at the top.
        if let Some(id) = id.filter(|_| *chosen > 0 || self.unfolded)
            && let Some(place) = next.decisions.iter().position(|it| it.id == id)
        {
            *chosen = place;
        }
    }

    fn rows(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |it| match self.tab {
            Tab::Nodes => it.nodes.len(),
            Tab::Situations => it.contexts.len(),
            Tab::Decisions => it.decisions.len(),
            Tab::Patterns => it.patterns.as_ref().map_or(0, |it| it.list.len()),
        })
    }

    /// The row that is chosen, if there is one.
    pub fn chosen(&self) -> Option<usize> {
        let rows = self.rows();
        (rows > 0).then(|| self.chosen[self.tab as usize].min(rows - 1))
    }

    pub fn press(&mut self, key: KeyEvent) -> Press {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Press::Quit,
            KeyCode::Char('q') => return Press::Quit,
            _ if self.helps => self.helps = false,
            KeyCode::Char('?') | KeyCode::Char('h') => self.helps = true,
            KeyCode::Esc if self.unfolded => self.unfolded = false,
            KeyCode::Esc => return Press::Quit,
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(Tab::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='4') => self.go(Tab::ALL[digit as usize - '1' as usize]),
            KeyCode::Enter => (self.unfolded, self.scrolled) = (!self.unfolded, 0),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(10),
            KeyCode::PageUp => self.step(-10),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX / 2),
            _ => {}
        }
        Press::Stay
    }

    fn turn(&mut self, by: usize) {
        self.go(Tab::ALL[(self.tab as usize + by) % Tab::ALL.len()]);
    }

    fn go(&mut self, tab: Tab) {
        (self.tab, self.unfolded, self.scrolled) = (tab, false, 0);
    }

    /// Down the rows, or what is unfolded.
    fn step(&mut self, by: isize) {
        if self.unfolded {
            let line = (self.scrolled as isize).saturating_add(by);
            self.scrolled = line.clamp(0, 1000) as u16;
            return;
        }
        let Some(chosen) = self.chosen() else { return };
        let row = (chosen as isize).saturating_add(by);
        let last = self.rows().saturating_sub(1) as isize;
        self.chosen[self.tab as usize] = row.clamp(0, last) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_dashboard::{Decision, Node};

    fn press(view: &mut View, code: KeyCode) -> Press {
        view.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn snapshot(ids: &[u64]) -> Snapshot {
        let decision = |id: &u64| Decision {
            id: *id,
            ..Decision::default()
        };
        Snapshot {
            nodes: vec![Node::default(); 3],
            decisions: ids.iter().map(decision).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn keys_choose_what_is_seen() {
        let mut view = View::default();
        assert_eq!(press(&mut view, KeyCode::Down), Press::Stay);
        assert_eq!(view.chosen(), None);
        view.hear(Ok(snapshot(&[9])));
        for _ in 0..9 {
            press(&mut view, KeyCode::Down);
        }
        assert_eq!(view.chosen(), Some(2));
        press(&mut view, KeyCode::Home);
        assert_eq!(view.chosen(), Some(0));
        press(&mut view, KeyCode::BackTab);
        assert_eq!(view.tab, Tab::Patterns);
        assert_eq!(view.chosen(), None, "no patterns are known");
        press(&mut view, KeyCode::Char('?'));
        assert!(view.helps);
        press(&mut view, KeyCode::Char('x'));
        assert!(!view.helps);
        press(&mut view, KeyCode::Enter);
        assert!(view.unfolded);
        assert_eq!(press(&mut view, KeyCode::Esc), Press::Stay);
        assert_eq!(press(&mut view, KeyCode::Esc), Press::Quit);
        assert_eq!(press(&mut view, KeyCode::Char('q')), Press::Quit);
    }

    #[test]
    fn a_chosen_decision_stays_chosen_when_others_come() {
        let mut view = View::default();
        view.hear(Ok(snapshot(&[3, 2, 1])));
        press(&mut view, KeyCode::Char('3'));
        view.hear(Ok(snapshot(&[4, 3, 2, 1])));
        assert_eq!(view.chosen(), Some(0), "at the top one sees the newest");
        press(&mut view, KeyCode::Down);
        view.hear(Ok(snapshot(&[6, 5, 4, 3, 2, 1])));
        assert_eq!(view.chosen(), Some(3));
        view.hear(Err("away".to_owned()));
        assert_eq!(
            (view.chosen(), view.trouble.as_deref()),
            (Some(3), Some("away"))
        );
        view.hear(Ok(snapshot(&[7])));
        assert_eq!((view.chosen(), view.trouble.take()), (Some(0), None));
        view.hear(Ok(snapshot(&[9, 8, 7])));
        press(&mut view, KeyCode::Home);
        press(&mut view, KeyCode::Down);
        let anew = Snapshot {
            life: "another".to_owned(),
            ..snapshot(&[10, 9, 8, 7])
        };
        view.hear(Ok(anew));
        assert_eq!(view.chosen(), Some(1), "its 8 is not the 8 of before");
    }
}
