//! `farhaul man [VERB]`: a man page on stdout, made from the definition of the options.

use clap::CommandFactory;
use farhaul::{Code, Error};

use crate::args::Cli;
use crate::ui::printer;

pub fn run(verb: Option<&str>) -> Result<(), Error> {
    printer::data(&page(verb)?)
}

fn page(verb: Option<&str>) -> Result<Vec<u8>, Error> {
    let mut command = Cli::command();
    command.build();
    if let Some(verb) = verb {
        let known =
            command.get_subcommands().find(|command| command.get_name() == verb && !command.is_hide_set());
        let known = known.ok_or_else(|| {
            Error::new(Code::BadOption, format!("there is no verb '{verb}'; see farhaul --help"))
        })?;
        command = known.clone().version(env!("CARGO_PKG_VERSION"));
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut page);
    rendered.map_err(|source| Error::of_host("cannot make the man page", source))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_has_a_page() {
        for (verb, text) in [(None, "farhaul"), (Some("cp"), "overwrite"), (Some("serve"), "listen")] {
            let page = String::from_utf8(page(verb).unwrap()).unwrap();
            assert!(page.contains(".TH") && page.contains(text), "{verb:?}");
        }
        assert!(page(Some("endpoint")).is_err());
        assert!(page(Some("other")).is_err());
    }
}
