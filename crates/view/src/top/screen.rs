//! How `tenure top` looks: a head of three lines, the table, the selected tenant's curve, a line of keys; 80 × 24 and
//! up.
//!
//! What matters is in words and numbers, and what is selected is reversed: without colour nothing is lost.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis, Block, Borders, Cell, Chart, Clear, Dataset, GraphType, Paragraph, Row as Cells, Table, TableState,
};

use crate::reading::CAUSES;
use crate::summary::{Row, ServerRow};
use crate::top::state::{COLUMNS, Column, Kind, State};

/// Lines of the curve and of what stands beside it; on a low terminal there is no room for them.
const CURVE_HEIGHT: u16 = 9;
const HEIGHT_FOR_CURVE: u16 = 20;
/// Columns of what stands beside the curve.
const DETAIL_WIDTH: u16 = 31;

const HELP: &str = "\
 q, Esc      quit
 Up, Down    select a tenant (also k and j, PgUp, PgDn)
 Left, Right sort by another column (also < and >)
 r           turn the order around
 p, space    pause, and go on
 n           one server of a cluster after the other, then all
 ?           this

 busy        how busy the server's main thread is, and Tenure's part of it
 LOST/s      time lost to misses in each second: misses x penalty
 TARGET      memory by the plan; none under policies that rank keys
 REGRET/s    of that, to keys that were evicted shortly before
 Rates are over the last ten seconds. Any key closes this.";

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame, state: &mut State) {
    let has_curve = frame.area().height >= HEIGHT_FOR_CURVE;
    let curve_height = if has_curve { CURVE_HEIGHT } else { 0 };
    let parts = [Constraint::Length(3), Constraint::Min(3), Constraint::Length(curve_height), Constraint::Length(1)];
    let [head, table, curve, foot] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(state)), head);
    draw_table(frame, state, table);
    if has_curve {
        draw_curve(frame, state, curve);
    }
    frame.render_widget(Paragraph::new(foot_line(state)), foot);
    if state.is_help {
        draw_help(frame);
    }
}

impl State {
    /// A colour, where there may be any.
    fn colour(&self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn bad(&self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }
}

fn head_lines(state: &State) -> Vec<Line<'static>> {
    let summary = &state.summary;
    let total = |name: &str| summary.total.figure(name);
    let bytes = |name: &str| summary.figure(name).map_or("-".to_owned(), bytes);
    let (standing, is_bad) = standing(&summary.servers);
    let style = if is_bad { state.bad() } else { Style::new() };
    let mut first = vec![Span::raw("tenure top  ")];
    if state.is_paused {
        first.extend([Span::styled("PAUSED", Style::new().add_modifier(Modifier::REVERSED)), Span::raw("  ")]);
    }
    first.extend([Span::raw(format!("{}  ", servers(state))), Span::styled(standing, style)]);
    let limit = summary.figure("maxmemory").filter(|&limit| limit > 0.0);
    let share = limit
        .zip(summary.figure("used_memory"))
        .map_or(String::new(), |(limit, used)| format!(" of {} ({:.0} %)", self::bytes(limit), 100.0 * used / limit));
    let second = format!(
        "memory {}{share}  reads {}/s  miss ratio {}  lost {}/s",
        bytes("used_memory"),
        rate(total("reads_per_s")),
        percent(total("miss_ratio_now")),
        micros(total("lost_us_per_s")),
    );
    let mut third = format!(
        "evictions {}/s, by server {}/s  busy {}, Tenure takes {} and {}",
        rate(total("evictions_per_s")),
        rate(summary.figure("evictions_by_server_per_s")),
        percent(summary.figure("main_thread_busy")),
        percent(summary.figure("main_thread_us_per_s").map(|us| us / 1e6)),
        bytes("memory_bytes"),
    );
    if let Some(regret) = total("regret_us_per_s") {
        third = format!("{third}  regret {}/s", micros(Some(regret)));
    }
    vec![Line::from(first), Line::from(second), Line::from(third)]
}

fn servers(state: &State) -> String {
    match (&state.summary.servers[..], state.node()) {
        ([], _) => String::new(),
        ([only], None) => only.address.clone(),
        ([only], Some(node)) => format!("{} (server {}; n: next)", only.address, node + 1),
        (servers, _) => format!("{} servers (n: one by one)", servers.len()),
    }
}

/// In a few words, and whether somebody should look.
fn standing(servers: &[ServerRow]) -> (String, bool) {
    let text = |server: &ServerRow, name: &str| {
        server.texts.iter().find(|(held, _)| *held == name).map(|(_, text)| text.clone()).unwrap_or_default()
    };
    let silent: Vec<&ServerRow> = servers.iter().filter(|server| server.error.is_some()).collect();
    if let [first, ..] = &silent[..] {
        return (format!("no answer from {}: {}", first.address, first.error.clone().unwrap_or_default()), true);
    }
    let Some(odd) = servers.iter().find(|server| text(server, "eviction") != "ready").or(servers.first()) else {
        return ("looking ...".to_owned(), false);
    };
    let state = text(odd, "state");
    match state.as_str() {
        "running" => {
            (format!("{} {}, eviction {}", text(odd, "policy"), text(odd, "role"), text(odd, "eviction")), false)
        }
        _ => (format!("Tenure is {state} on {}", odd.address), true),
    }
}

fn foot_line(state: &State) -> Line<'static> {
    let (column, is_descending) = state.sort;
    let order = if is_descending { "largest first" } else { "smallest first" };
    let sorted = COLUMNS[column].title;
    let keys = format!("q quit  arrows select, sort ({sorted}, {order})  r turn  p pause  ? help");
    Line::from(keys).style(Style::new().add_modifier(Modifier::REVERSED))
}

fn draw_table(frame: &mut Frame, state: &mut State, area: Rect) {
    let rows = &state.summary.tenants;
    // A column that no server tells anything for isn't there.
    let is_told =
        |column: &Column| column.kind == Kind::Name || rows.iter().any(|row| row.figure(column.figure).is_some());
    let mut room = area.width;
    let mut shown: Vec<usize> = Vec::new();
    for (i, column) in COLUMNS.iter().enumerate().filter(|(_, column)| is_told(column) || column.width <= 7) {
        if room < column.width {
            break;
        }
        room -= (column.width + 1).min(room);
        shown.push(i);
    }
    let head = shown.iter().map(|&i| {
        let style = if i == state.sort.0 { Style::new().add_modifier(Modifier::UNDERLINED) } else { Style::new() };
        Cell::from(aligned(COLUMNS[i].title.to_owned(), COLUMNS[i].kind)).style(style.add_modifier(Modifier::BOLD))
    });
    let cells = |row: &Row| {
        Cells::new(
            shown.iter().map(|&i| Cell::from(aligned(written(row, &COLUMNS[i]), COLUMNS[i].kind))).collect::<Vec<_>>(),
        )
    };
    let widths = shown.iter().map(|&i| match COLUMNS[i].kind {
        Kind::Name => Constraint::Min(COLUMNS[i].width),
        _ => Constraint::Length(COLUMNS[i].width),
    });
    let table = Table::new(rows.iter().map(cells), widths)
        .header(Cells::new(head).style(state.colour(Color::Cyan)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut place = TableState::new().with_selected(state.place());
    frame.render_stateful_widget(table, area, &mut place);
}

fn aligned(text: String, kind: Kind) -> Line<'static> {
    Line::from(text).alignment(if kind == Kind::Name { Alignment::Left } else { Alignment::Right })
}

fn written(row: &Row, column: &Column) -> String {
    let value = row.figure(column.figure);
    match column.kind {
        Kind::Name => row.name.clone(),
        Kind::Bytes => value.filter(|&n| n > 0.0).map_or("-".to_owned(), bytes),
        Kind::Rate => rate(value),
        Kind::Share => percent(value),
        Kind::Micros => micros(value),
    }
}

fn draw_curve(frame: &mut Frame, state: &State, area: Rect) {
    let [left, right] = Layout::horizontal([Constraint::Min(30), Constraint::Length(DETAIL_WIDTH)]).areas(area);
    let Some(row) = state.place().map(|place| &state.summary.tenants[place]) else { return };
    frame.render_widget(Paragraph::new(details(state, row)).block(Block::new().borders(Borders::TOP)), right);
    let title = format!("{}: miss ratio by memory ", row.name);
    let block = Block::new().borders(Borders::TOP).title(title);
    let Some(known) = &state.known else {
        frame.render_widget(Paragraph::new("No curve is known yet.").block(block), left);
        return;
    };
    let used = row.figure("used_bytes").unwrap_or(0.0);
    let last = known.curve.points().last().map_or(1.0, |point| point.bytes as f64).max(1.25 * used);
    let mut points = vec![(0.0, 1.0)];
    points.extend(known.curve.points().iter().map(|point| (point.bytes as f64, point.miss_ratio)));
    points.push((last, known.curve.miss_ratio_at(last as u64)));
    let here = [(used, known.curve.miss_ratio_at(used as u64))];
    let line = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).data(&points);
    let point = Dataset::default().marker(Marker::Block).graph_type(GraphType::Scatter).data(&here);
    let chart = Chart::new(vec![line.style(state.colour(Color::Cyan)), point.style(state.colour(Color::Yellow))])
        .block(block)
        .x_axis(Axis::default().bounds([0.0, last]).labels(["0".to_owned(), bytes(last / 2.0), bytes(last)]))
        .y_axis(Axis::default().bounds([0.0, 1.0]).labels(["0 %", "50 %", "100 %"]));
    frame.render_widget(chart, left);
}

fn details(state: &State, row: &Row) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::from(format!(
            "keys {}, a miss costs {}",
            rate(row.figure("keys")),
            micros(row.figure("penalty_us_mean"))
        )),
        Line::from(format!("{} evicted, {} missed", rate(row.figure("evictions")), rate(row.figure("misses")))),
    ];
    if let Some(known) = state.known.as_ref().filter(|known| known.tenant == row.name) {
        let used = row.figure("used_bytes").unwrap_or(0.0);
        for (factor, what) in [(0.5, "half"), (1.0, "here"), (2.0, "twice")] {
            let at = used * factor;
            let miss_ratio = percent(Some(known.curve.miss_ratio_at(at as u64)));
            lines.push(Line::from(format!("{what:<6}{:>7}{miss_ratio:>8} miss", bytes(at))));
        }
    }
    let of_all = row.figure("misses").filter(|&misses| misses > 0.0);
    for pair in CAUSES.chunks(2) {
        let told = pair.iter().filter_map(|cause| {
            let share = row.figure(&format!("misses_{cause}"))? / of_all?;
            Some(format!("{cause} {}", percent(Some(share))))
        });
        let told: Vec<String> = told.collect();
        if !told.is_empty() {
            lines.push(Line::from(told.join(", ")));
        }
    }
    lines
}

fn draw_help(frame: &mut Frame) {
    let area = frame.area();
    let (width, height) = (66.min(area.width), (HELP.lines().count() as u16 + 2).min(area.height));
    let at = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, at);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" Keys and words ")), at);
}

/// `14.9M`: five characters at the most.
fn bytes(n: f64) -> String {
    let mut n = n;
    for unit in ["", "K", "M", "G", "T"] {
        if n < 1000.0 || unit == "T" {
            return if n >= 100.0 || unit.is_empty() { format!("{n:.0}{unit}") } else { format!("{n:.1}{unit}") };
        }
        n /= 1024.0;
    }
    unreachable!("the last unit has been written")
}

fn rate(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(n) if n >= 1e7 => format!("{:.1}M", n / 1e6),
        Some(n) if n >= 1e5 => format!("{:.0}k", n / 1e3),
        Some(n) if n >= 10.0 || n.fract() == 0.0 => format!("{n:.0}"),
        Some(n) => format!("{n:.1}"),
    }
}

fn percent(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(x) if x >= 0.1 => format!("{:.1}%", 100.0 * x),
        Some(x) => format!("{:.2}%", 100.0 * x),
    }
}

fn micros(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(us) if us >= 1e6 => format!("{:.2}s", us / 1e6),
        Some(us) if us >= 1e3 => format!("{:.1}ms", us / 1e3),
        Some(us) => format!("{us:.0}us"),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};
    use tenure_core::curve::{CurvePoint, MissRatioCurve};

    use super::*;
    use crate::nodes::Fields;
    use crate::plan::Known;
    use crate::reading::Reading;
    use crate::sampler::{Look, NodeLook};

    fn look(at_ms: u64, n: u32, more: &str) -> Look {
        let tenant = |name: &str, factor: u32| {
            let (reads, misses) = (1000 * n * factor, 100 * n * factor);
            let line = format!(
                "keys=5,used_bytes={},bytes_min=1048576,hits={},misses={misses},penalty_us_mean=100,\
                 evictions={n}{more}",
                3_000_000 * factor,
                reads - misses
            );
            format!("tenure_tenant_{name}:{line}\ntenure_partition_{name}:reads={reads},misses={misses}\n")
        };
        let text = format!(
            "used_memory:9000000\nmaxmemory:10000000\nrole:master\ntenure_state:running\ntenure_eviction:ready\n\
             tenure_memory_bytes:1000000\n{}{}",
            tenant("shop", 1),
            tenant("session", 2)
        );
        let node = |i: u32| NodeLook {
            address: format!("127.0.0.1:{}", 7000 + i),
            reading: Ok(Reading::parse(&text)),
            status: Fields::from([("policy".to_owned(), "density".to_owned())]),
        };
        Look { at_ms, nodes: (0..2).map(node).collect() }
    }

    fn shown(state: &mut State, width: u16, height: u16) -> (Vec<String>, bool) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let is_coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        ((0..height).map(line).collect(), is_coloured)
    }

    fn state(more: &str) -> State {
        let mut state = State::new(false);
        state.look(look(1000, 1, more));
        state.look(look(2000, 2, more));
        for _ in 0..2 {
            assert!(state.press(KeyEvent::from(KeyCode::Left)).is_continue());
        }
        state
    }

    #[test]
    fn eighty_by_twenty_four_without_colour_has_all_that_matters() {
        let mut state = state("");
        let points = vec![CurvePoint { bytes: 10_000_000, miss_ratio: 0.2 }];
        let tenant = state.selected().unwrap().to_owned();
        assert!(state.curve(Known {
            tenant,
            curve: MissRatioCurve::new(points),
            present_bytes: 1,
            penalty_us: None,
            nodes: Vec::new()
        }));
        let (lines, is_coloured) = shown(&mut state, 80, 24);
        let text = lines.join("\n");
        assert!(!is_coloured, "{text}");
        for word in [
            "2 servers",
            "density master, eviction ready",
            "memory 17.2M of 19.1M (90 %)",
            "miss ratio 10.0%",
            "? help",
            "TENANT",
            "EVICT/s",
            "100 %",
        ] {
            assert!(text.contains(word), "no '{word}' in\n{text}");
        }
        let row = |name: &str| lines.iter().position(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        assert!(row("session") < row("shop"), "who is read more comes first:\n{text}");
        assert!(lines[row("shop")].contains("2000"), "reads a second of both servers:\n{text}");
        assert!(!text.contains("REGRET") && !text.contains("evicted 5"), "what isn't told isn't there:\n{text}");
    }

    #[test]
    fn keys_sort_select_pause_and_choose_a_server() {
        let mut state = state(",misses_first=50,misses_evicted=50,regret_us=500");
        let press = |state: &mut State, code| state.press(KeyEvent::from(code)).is_break();
        press(&mut state, KeyCode::Char('r'));
        assert_eq!(state.summary.tenants[0].name, "shop");
        press(&mut state, KeyCode::Home);
        assert_eq!(state.selected(), Some("shop"));
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected(), Some("session"));
        press(&mut state, KeyCode::Char('n'));
        let text = shown(&mut state, 140, 24).0.join("\n");
        assert!(
            text.contains("127.0.0.1:7000 (server 1") && text.contains("REGRET/s") && text.contains("evicted 25.0%"),
            "{text}"
        );
        press(&mut state, KeyCode::Char('p'));
        assert!(!state.look(look(9000, 9, "")));
        assert!(shown(&mut state, 80, 24).0[0].contains("PAUSED"));
        press(&mut state, KeyCode::Char('?'));
        assert!(shown(&mut state, 80, 24).0.join("\n").contains("Keys and words"));
        assert!(!press(&mut state, KeyCode::Char('q')), "it closes the help");
        assert!(press(&mut state, KeyCode::Char('q')));
    }

    #[test]
    fn a_small_terminal_and_a_silent_server_are_no_trouble() {
        let mut state = State::new(true);
        for (width, height) in [(20, 5), (80, 24), (1, 1)] {
            shown(&mut state, width, height);
        }
        let silent = NodeLook { address: "h:1".to_owned(), reading: Err("refused".to_owned()), status: Fields::new() };
        state.look(Look { at_ms: 1, nodes: vec![silent] });
        assert!(shown(&mut state, 80, 24).0[0].contains("no answer from h:1: refused"));
    }

    #[test]
    fn numbers_are_short() {
        let written = [0.0, 999.0, 1023.0, 15_600_000.0, 1e15].map(bytes);
        assert_eq!(written, ["0", "999", "1.0K", "14.9M", "909T"].map(str::to_owned));
        assert_eq!([Some(12.3), Some(4500.0), None].map(micros), ["12us", "4.5ms", "-"].map(str::to_owned));
        assert_eq!([Some(0.5), Some(123_456.0), Some(25.4e6)].map(rate), ["0.5", "123k", "25.4M"].map(str::to_owned));
    }
}
