//! `farhaul completions SHELL`: the script on stdout.

use clap::CommandFactory;
use farhaul::Error;

use crate::args::Cli;
use crate::ui::printer;

pub fn run(shell: clap_complete::Shell) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "farhaul", &mut script);
    printer::data(&script)
}
