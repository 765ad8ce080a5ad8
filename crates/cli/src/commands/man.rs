//! `farhaul man [VERB...]`: prints a man page on stdout, made from the definition of the options.

use clap::{Command, CommandFactory};
use farhaul::{Code, Error};

use crate::args::Cli;
use crate::ui::printer;

/// Prints the page of a verb, such as `cp` or `cap set`; without one, that of farhaul as a whole.
pub fn run(verb: &[String]) -> Result<(), Error> {
    printer::data(&page(&verb.join("-"))?)
}

fn page(verb: &str) -> Result<Vec<u8>, Error> {
    let mut command = Cli::command();
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
    fn verbs_of_verbs_have_pages() {
        fn look(command: &Command, above: &str) {
            for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
                let name = format!("{above}{}", verb.get_name());
                assert!(page(&name).is_ok(), "{name}");
                look(verb, &format!("{name}-"));
            }
        }
        look(&Cli::command(), "");
    }
}
