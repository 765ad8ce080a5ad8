//! The terminal: takes it over, draws on it, restores it.
//!
//! Always true: the terminal is restored, whatever ends the program, except SIGKILL. `TerminalScreen`
//! restores it when it is dropped, a panic hook before the panic is printed; signals are inputs like keys.

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
    /// A thread of this program has panicked.
    Fault,
}

pub fn has_panicked() -> bool {
    PANICKED.load(Relaxed)
}

/// The screen while this program has the terminal.
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

    /// Restores the terminal and stops the process until it is continued.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        // SIGTSTP is only an input here, so the process stops itself by SIGSTOP.
        kill_process(getpid(), Signal::STOP)?;
        self.enter_again()
    }

    /// Takes the terminal again, whatever it shows now.
    pub fn enter_again(&mut self) -> io::Result<()> {
        // Another program may have changed the terminal's mode meanwhile.
        let _ = terminal::disable_raw_mode();
        take()?;
        execute!(io::stdout(), terminal::Clear(terminal::ClearType::All))?;
        // A new `Terminal` assumes nothing about what is on the screen. To clear the old one would ask the
        // terminal for the position of its cursor, and the answer would go to the thread that reads keys.
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

/// Restores the terminal. It can be called several times. Errors are ignored, as a terminal that is gone
/// cannot be restored.
fn leave() {
    let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
    let _ = io::stdout().flush();
    let _ = terminal::disable_raw_mode();
}

/// Starts the threads that turn keys and signals into inputs.
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
