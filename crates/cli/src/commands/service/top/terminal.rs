//! The terminal: taken, drawn on, given back.
//!
//! Always true: whatever ends the program but SIGKILL, the terminal is as it was: the guard gives it back when it is dropped, a panic's
//! hook before the panic is told, signals are inputs like keys.

use std::io::{self, Stdout, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;

use crossterm::{cursor, event, execute, terminal};
use farhaul::Error;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::SignalKind;

use super::model::Input;
use super::paint::TerminalAbility;
use crate::signals;

static PANICKED: AtomicBool = AtomicBool::new(false);

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopEnd {
    Quit,
    Signal,
    /// A thread of its own has panicked.
    Fault,
}

pub fn has_panicked() -> bool {
    PANICKED.load(Relaxed)
}

/// The screen while it is ours.
pub struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    look: TerminalAbility,
}

impl TerminalScreen {
    pub fn enter(look: TerminalAbility) -> Result<TerminalScreen, Error> {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICKED.store(true, Relaxed);
            leave();
            earlier(panic);
        }));
        let cannot = |error| Error::of_host("cannot take the terminal", error);
        let entered = take().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match entered {
            Ok(terminal) => Ok(TerminalScreen { terminal, look }),
            Err(error) => {
                leave();
                Err(cannot(error))
            }
        }
    }

    pub fn draw(&mut self, paint: impl FnOnce(TerminalAbility, &mut Buffer)) -> io::Result<()> {
        let look = self.look;
        self.terminal.draw(|frame| paint(look, frame.buffer_mut())).map(|_| ())
    }

    /// Gives the terminal back and stops, until somebody lets the process go on.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        // SIGTSTP is an input here; SIGSTOP is what stops.
        kill_process(getpid(), Signal::STOP)?;
        self.enter_again()
    }

    /// Whatever the terminal shows now.
    pub fn enter_again(&mut self) -> io::Result<()> {
        // What it was meanwhile is not known: another program may have set it.
        let _ = terminal::disable_raw_mode();
        take()?;
        execute!(io::stdout(), terminal::Clear(terminal::ClearType::All))?;
        // A new one knows nothing of what was on the screen. Asking the old one to forget asks the terminal where its cursor is, and
        // the answer would go to the thread that reads keys.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        leave();
        if !std::thread::panicking() {
            let _ = std::panic::take_hook();
        }
    }
}

fn take() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)
}

/// As often as anybody likes. A terminal that is gone cannot be given back.
fn leave() {
    let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
    let _ = io::stdout().flush();
    let _ = terminal::disable_raw_mode();
}

/// Keys and signals become inputs from now on.
pub fn listen(inputs: Sender<Input>) -> Result<(), Error> {
    let keys = inputs.clone();
    let read = move || {
        loop {
            let input = match event::read() {
                Ok(event::Event::Key(key)) => Input::Key(key),
                Ok(event::Event::Resize(..)) => Input::Resized,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => Input::End,
            };
            let is_over = matches!(input, Input::End);
            if keys.send(input).is_err() || is_over {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keys".into()).spawn(read).map_err(Error::no_thread)?;
    let stop = SignalKind::from_raw(Signal::TSTP.as_raw());
    let go_on = SignalKind::from_raw(Signal::CONT.as_raw());
    let kinds = vec![SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), stop, go_on];
    let hear = move |kind: SignalKind| {
        let input = match kind {
            kind if kind == stop => Input::Stop,
            kind if kind == go_on => Input::Continued,
            _ => Input::End,
        };
        inputs.send(input).is_ok()
    };
    signals::watch(kinds, hear).map_err(Error::io("cannot watch for signals"))
}
