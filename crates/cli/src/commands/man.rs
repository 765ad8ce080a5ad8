//! `farhaul man [VERB...]`: prints a man page on stdout, made from the definition of the options.

use clap::{Command, CommandFactory};
use farhaul::Error;
use farhaul::errors::Code;

use crate::args::Cli;
use crate::ui::printer;

/// Prints the page of a verb, such as `cp` or `cap set`; without one, that of farhaul as a whole.
pub fn run(verb: &[String]) -> Result<(), Error> {
    printer::data(&page(&verb.join("-"))?)
}

fn page(verb: &str) -> Result<Vec<u8>, Error> {
    let mut command = without_help(Cli::command());
    command.build();
    if !verb.is_empty() {
        let known = find(&command, verb).ok_or_else(|| {
            Error::new(Code::BadOption, format!("there is no verb '{verb}'; see farhaul --help"))
        })?;
        command = known.clone().version(env!("CARGO_PKG_VERSION"));
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut page);
    rendered.map_err(|source| Error::of_host("cannot make the man page", source))?;
    Ok(page)
}

/// The command without its verb `help`, which has no page of its own and would be listed.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// The verb of this name; `cap-set` is `set` of `cap`, as pages refer to it.
fn find<'a>(command: &'a Command, verb: &str) -> Option<&'a Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set()).find_map(|command| {
        let rest = verb.strip_prefix(command.get_name())?;
        if rest.is_empty() { Some(command) } else { find(command, rest.strip_prefix('-')?) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_has_a_page() {
        for (verb, text) in
            [("", "farhaul"), ("cp", "overwrite"), ("serve", "listen"), ("cap-set", "schedule")]
        {
            let page = String::from_utf8(page(verb).unwrap()).unwrap();
            assert!(page.contains(".TH") && page.contains(text), "{verb:?}");
        }
        for verb in ["endpoint", "other", "cap-", "cap-other", "cp-set"] {
            assert!(page(verb).is_err(), "{verb}");
        }
    }

    /// Each page that another one refers to can be printed.
    #[test]
    fn pages_that_are_referred_to_exist() {
        fn look(verb: &str) -> usize {
            let text = String::from_utf8(page(verb).unwrap()).unwrap().replace("\\-", "-");
            let names = text.lines().filter_map(|line| line.strip_prefix("farhaul-")?.strip_suffix("(1)"));
            names.map(|name| 1 + look(name)).sum()
        }
        assert!(look("") > 50);
    }
}
