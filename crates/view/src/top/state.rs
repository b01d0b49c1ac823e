//! What `tenure top` shows and what keys change of it: looks of the last ten seconds, the order, who is selected.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::plan::Known;
use crate::sampler::Look;
use crate::summary::{Row, Summary};

/// Rates are over so many looks: one is too few to read.
const LOOKS_MAX: usize = 11;

/// A column of the table.
pub(super) struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// The figure by its name; empty for the tenant's name.
    pub figure: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// Characters it takes.
    pub width: u16,
}

/// How a figure is written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Name,
    Bytes,
    Rate,
    Share,
    Micros,
}

/// The columns, the most important first: what there is no room for is left out from the right.
pub(super) const COLUMNS: [Column; 13] = [
    Column { title: "TENANT", figure: "", kind: Kind::Name, width: 13 },
    Column { title: "USED", figure: "used_bytes", kind: Kind::Bytes, width: 7 },
    Column { title: "TARGET", figure: "target_bytes", kind: Kind::Bytes, width: 7 },
    Column { title: "MIN", figure: "bytes_min", kind: Kind::Bytes, width: 7 },
    Column { title: "MAX", figure: "bytes_max", kind: Kind::Bytes, width: 7 },
    Column { title: "READS/s", figure: "reads_per_s", kind: Kind::Rate, width: 8 },
    Column { title: "MISS", figure: "miss_ratio_now", kind: Kind::Share, width: 6 },
    Column { title: "LOST/s", figure: "lost_us_per_s", kind: Kind::Micros, width: 8 },
    Column { title: "EVICT/s", figure: "evictions_per_s", kind: Kind::Rate, width: 8 },
    Column { title: "REGRET/s", figure: "regret_us_per_s", kind: Kind::Micros, width: 8 },
    Column { title: "PENALTY", figure: "penalty_us_mean", kind: Kind::Micros, width: 8 },
    Column { title: "KEYS", figure: "keys", kind: Kind::Rate, width: 10 },
    Column { title: "ASLEEP", figure: "sleeping_keys", kind: Kind::Rate, width: 8 },
];
/// By which the table is sorted at first: time lost.
const SORT: usize = 7;

/// All of it.
pub(super) struct State {
    looks: VecDeque<Look>,
    /// Of one server alone, by its place; all together otherwise.
    node: Option<usize>,
    /// What is shown.
    pub summary: Summary,
    /// What is known of the selected tenant's curve.
    pub known: Option<Known>,
    /// A column, and whether the largest comes first.
    pub sort: (usize, bool),
    selected: Option<String>,
    /// Nothing new is shown meanwhile.
    pub is_paused: bool,
    /// The help is open.
    pub is_help: bool,
    /// False with `NO_COLOR`.
    pub has_colour: bool,
}

impl State {
    pub fn new(has_colour: bool) -> State {
        State {
            looks: VecDeque::new(),
            node: None,
            summary: Summary::default(),
            known: None,
            sort: (SORT, true),
            selected: None,
            is_paused: false,
            is_help: false,
            has_colour,
        }
    }

    /// Whose curve is wanted.
    pub fn selected(&self) -> Option<&str> {
        self.selected.as_deref()
    }

    /// Where the selected tenant stands in the table.
    pub fn place(&self) -> Option<usize> {
        self.summary.tenants.iter().position(|row| Some(row.name.as_str()) == self.selected())
    }

    /// Which server is shown, where one alone is.
    pub fn node(&self) -> Option<usize> {
        self.node
    }

    /// Takes a look; false while nothing new is shown.
    pub fn look(&mut self, look: Look) -> bool {
        if self.is_paused {
            return false;
        }
        if self.looks.len() == LOOKS_MAX {
            self.looks.pop_front();
        }
        self.looks.push_back(look);
        self.sum_up();
        true
    }

    /// Takes what is known of a tenant's curve; false where that is not the selected one any more.
    pub fn curve(&mut self, known: Known) -> bool {
        let is_wanted = !self.is_paused && Some(known.tenant.as_str()) == self.selected();
        if is_wanted {
            self.known = Some(known);
        }
        is_wanted
    }

    fn sum_up(&mut self) {
        let Some(now) = self.looks.back() else { return };
        if self.node.is_some_and(|node| node >= now.nodes.len()) {
            self.node = None;
        }
        let of = |look: &Look| self.node.map_or_else(|| look.clone(), |node| look.only(node));
        let first = (self.looks.len() > 1).then(|| of(&self.looks[0]));
        self.summary = Summary::of(first.as_ref(), &of(now));
        self.sort_rows();
        // With the second look there are rates, and with them an order.
        if self.place().is_none() || self.looks.len() == 2 {
            self.selected = self.summary.tenants.first().map(|row| row.name.clone());
        }
    }

    fn sort_rows(&mut self) {
        let (column, is_descending) = self.sort;
        let figure = COLUMNS[column].figure;
        let by = |a: &Row, b: &Row| {
            let value = |row: &Row| row.figure(figure).unwrap_or(f64::NEG_INFINITY);
            let order = if figure.is_empty() { a.name.cmp(&b.name) } else { value(a).total_cmp(&value(b)) };
            if is_descending { order.reverse() } else { order }.then_with(|| a.name.cmp(&b.name))
        };
        self.summary.tenants.sort_by(by);
    }

    fn select(&mut self, by: isize) {
        let n = self.summary.tenants.len();
        let place = self.place().unwrap_or(0).saturating_add_signed(by).min(n.saturating_sub(1));
        self.selected = self.summary.tenants.get(place).map(|row| row.name.clone());
        if self.known.as_ref().is_some_and(|known| Some(known.tenant.as_str()) != self.selected()) {
            self.known = None;
        }
    }

    fn sort_by(&mut self, column: usize) {
        self.sort = (column, COLUMNS[column].kind != Kind::Name);
        self.sort_rows();
    }

    /// All servers, then each alone.
    fn next_node(&mut self) {
        let n = self.looks.back().map_or(0, |look| look.nodes.len());
        self.node = match self.node {
            None if n > 1 => Some(0),
            Some(node) if node + 1 < n => Some(node + 1),
            _ => None,
        };
        self.sum_up();
    }

    /// Does what a key asks for; breaks when that is to end.
    pub fn press(&mut self, key: KeyEvent) -> ControlFlow<()> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if self.is_help && !(is_control && key.code == KeyCode::Char('c')) {
            self.is_help = false;
            return ControlFlow::Continue(());
        }
        match key.code {
            KeyCode::Char('c') if is_control => return ControlFlow::Break(()),
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Char('?' | 'h') => self.is_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('n') => self.next_node(),
            KeyCode::Char('r') => {
                self.sort.1 = !self.sort.1;
                self.sort_rows();
            }
            KeyCode::Right | KeyCode::Char('>') => self.sort_by((self.sort.0 + 1) % COLUMNS.len()),
            KeyCode::Left | KeyCode::Char('<') => self.sort_by((self.sort.0 + COLUMNS.len() - 1) % COLUMNS.len()),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(10),
            KeyCode::PageUp => self.select(-10),
            KeyCode::Home => self.select(isize::MIN / 2),
            KeyCode::End => self.select(isize::MAX / 2),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
