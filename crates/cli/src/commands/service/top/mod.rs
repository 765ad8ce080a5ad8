//! `farhaul top`: shows the jobs of a service on one screen, as they are now.
//!
//! How to read it: `model.rs` has what is known and what keys mean, without a terminal or a service; `job.rs`
//! is one job of it. `screen.rs` draws a model, `detail.rs` the lower part of the screen, `paint.rs` bars,
//! curves and numbers. `feed.rs` has the threads that talk to the service. `terminal.rs` takes the terminal
//! and restores it when the program ends.

mod detail;
mod feed;
mod job;
mod model;
mod paint;
mod screen;
mod terminal;

use std::io::IsTerminal as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::errors::{Code, ExitCode};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::client;
use crate::args::service::TopArgs;
use crate::ui::printer;

use model::{Input, Inquiry, TopModel};
use paint::TerminalAbility;
use terminal::{TerminalScreen, TopEnd};

/// The shortest time between two drawings of the screen.
const DRAW_EVERY: Duration = Duration::from_millis(50);
/// How often the selected job is looked at again and old notices go.
const TICK: Duration = Duration::from_secs(1);

pub fn top(args: &TopArgs) -> Result<ExitCode, Error> {
    if !args.once {
        check_terminal()?;
    }
    let client = client(&args.api)?;
    let look = TerminalAbility::of_environment();
    let first = feed::load(&client)?;
    let place = client.address().to_string();
    let mut model = TopModel::new(&place);
    let wishes = model.take(Input::Loaded(first));
    if args.once {
        for wish in wishes {
            if let Inquiry::Look(id) = wish
                && let Some(looked) = feed::LogPosition::default().look(&client, &id)
            {
                model.take(Input::Looked(Box::new(looked)));
            }
        }
        model.take(Input::Up);
        return once(&model, look).map(|()| ExitCode::Ok);
    }
    let (to_loop, inputs) = mpsc::channel();
    let worker = feed::start(client, &args.api, to_loop.clone())?;
    terminal::listen(to_loop)?;
    let mut screen = TerminalScreen::enter(look)?;
    for wish in wishes {
        let _ = worker.send(wish);
    }
    let ending = run(&mut screen, &mut model, &inputs, &worker);
    drop(screen);
    match ending {
        Ok(TopEnd::Quit) => Ok(ExitCode::Ok),
        Ok(TopEnd::Signal) => Ok(ExitCode::Interrupted),
        Ok(TopEnd::Fault) => Err(Error::bug("farhaul top")),
        Err(error) => Err(Error::with_source(Code::OutputLost, "cannot draw on the terminal", error)),
    }
}

/// Returns an error if this is not a terminal that the screen can be drawn on.
fn check_terminal() -> Result<(), Error> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let what = "farhaul top needs a terminal for input and output";
        return Err(Error::new(Code::BadOption, what).with_hint(
            "use farhaul top --once to print the screen as text, or farhaul jobs --json for programs",
        ));
    }
    if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
        let what = "farhaul top needs a terminal with cursor control, but TERM is dumb";
        return Err(
            Error::new(Code::BadOption, what).with_hint("use farhaul top --once to print the screen as text")
        );
    }
    Ok(())
}

/// Takes inputs and draws, until the user quits.
fn run(
    screen: &mut TerminalScreen,
    model: &mut TopModel,
    inputs: &mpsc::Receiver<Input>,
    worker: &mpsc::Sender<Inquiry>,
) -> std::io::Result<TopEnd> {
    let mut ticked = Instant::now();
    loop {
        if terminal::has_panicked() {
            return Ok(TopEnd::Fault);
        }
        screen.draw(|look, buffer| screen::draw(model, look, buffer))?;
        let mut next = match inputs.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(TopEnd::Fault),
        };
        // Inputs that come within `DRAW_EVERY` are drawn together.
        let drawn = Instant::now();
        loop {
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                for wish in model.take(Input::Tick) {
                    let _ = worker.send(wish);
                }
            }
            let Some(input) = next.take() else { break };
            for wish in model.take(input) {
                match wish {
                    Inquiry::Quit => return Ok(TopEnd::Quit),
                    Inquiry::Interrupt => return Ok(TopEnd::Signal),
                    Inquiry::Suspend => screen.suspend()?,
                    Inquiry::Redraw => screen.enter_again()?,
                    wish => {
                        // The worker ends early only by a panic, which `has_panicked` notices above.
                        let _ = worker.send(wish);
                    }
                }
            }
            next = inputs.recv_timeout(DRAW_EVERY.saturating_sub(drawn.elapsed())).ok();
        }
    }
}

/// Prints one screen as plain text, as wide as the terminal.
fn once(model: &TopModel, look: TerminalAbility) -> Result<(), Error> {
    const WIDTH: u16 = 100;
    const HEIGHT: u16 = 40;
    let (width, height) = match std::io::stdout().is_terminal() {
        true => crossterm::terminal::size().unwrap_or((WIDTH, HEIGHT)),
        false => (WIDTH, HEIGHT),
    };
    let mut buffer = Buffer::empty(Rect::new(0, 0, width.max(20), height.clamp(10, 60)));
    screen::draw(model, TerminalAbility { colours: false, keys: false, ..look }, &mut buffer);
    printer::data(paint::text(&buffer).as_bytes())
}

#[cfg(test)]
mod tests;
