//! `tenure top`: what a server or a cluster does, in a terminal.
//!
//! A thread looks each second and asks for the curve of the selected tenant. Only what has changed is written to the
//! terminal, so a slow line is enough. What is shown is in `state`, how it looks in `screen`.

mod screen;
mod state;

use std::io::{IsTerminal, stdout};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use redis::ConnectionInfo;

use crate::nodes::{connect, is_of_connection};
use crate::plan::{Known, of_servers};
use crate::sampler::{Look, Sampler};
use state::State;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// How long a key press may wait to be seen, and a look to be shown.
const POLL: Duration = Duration::from_millis(100);

/// What the thread that looks has to tell.
enum News {
    Look(Look),
    Curve(Known),
}

/// Shows it until `q` is pressed.
///
/// # Errors
/// When standard output is no terminal, or can't be written.
pub fn run(address: ConnectionInfo) -> Result<()> {
    ensure!(stdout().is_terminal(), "top needs a terminal; `tenure status` prints the same once");
    let wanted = Arc::new(Mutex::new(None));
    let (tell, news) = channel();
    let selected = Arc::clone(&wanted);
    thread::Builder::new()
        .name("tenure-looks".to_owned())
        .spawn(move || look(&address, &selected, &tell))
        .context("no thread to look from")?;
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut terminal = ratatui::try_init().context("the terminal can't be set up")?;
    let result = show(&mut terminal, State::new(has_colour), &news, &wanted);
    ratatui::restore();
    result
}

/// Looks until nobody listens any more.
fn look(address: &ConnectionInfo, wanted: &Mutex<Option<String>>, tell: &Sender<News>) {
    let mut sampler = Sampler::new(address.clone());
    let mut nodes = Vec::new();
    loop {
        let began = Instant::now();
        if tell.send(News::Look(sampler.look())).is_err() {
            return;
        }
        let tenant = wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(tenant) = tenant {
            if nodes.is_empty() {
                nodes = connect(address.clone()).unwrap_or_default();
            }
            match of_servers(&mut nodes, Some(&tenant)) {
                Ok(known) => {
                    if tell.send(News::Curve(known)).is_err() {
                        return;
                    }
                }
                Err(error) if is_of_connection(&error) => nodes.clear(),
                // There is no curve yet.
                Err(_) => {}
            }
        }
        thread::sleep(EVERY.saturating_sub(began.elapsed()));
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    mut state: State,
    news: &Receiver<News>,
    wanted: &Mutex<Option<String>>,
) -> Result<()> {
    let mut has_changed = true;
    loop {
        if has_changed {
            terminal.draw(|frame| screen::draw(frame, &mut state)).context("the terminal can't be written")?;
            *wanted.lock().unwrap_or_else(PoisonError::into_inner) = state.selected().map(str::to_owned);
        }
        has_changed = false;
        if event::poll(POLL).context("the terminal can't be read")? {
            match event::read().context("the terminal can't be read")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if state.press(key).is_break() {
                        return Ok(());
                    }
                    has_changed = true;
                }
                Event::Resize(..) => has_changed = true,
                _ => {}
            }
        }
        for news in news.try_iter() {
            has_changed |= match news {
                News::Look(look) => state.look(look),
                News::Curve(known) => state.curve(known),
            };
        }
    }
}
