//! The options that choose what of the sources is taken. Rules keep the order in which they were given, across their options.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args as Group, Command, FromArgMatches};

use crate::values;

const SELECT: &str = "Selection";

#[derive(Group, Debug, Default)]
pub struct SelectArgs {
    #[command(flatten)]
    pub rules: OrderedRules,
    /// Take only the names in this file, one a line, of what is in SOURCE; - is stdin
    #[arg(long, value_name = "FILE", help_heading = SELECT)]
    pub files_from: Option<PathBuf>,
    /// The lines of all these files end with a zero byte
    #[arg(short = '0', long, help_heading = SELECT)]
    pub from0: bool,
    /// Take only what failed in an earlier run of the same command, by its --json report or its --manifest
    #[arg(long, value_name = "FILE", conflicts_with = "files_from", help_heading = SELECT)]
    pub retry_failed: Option<PathBuf>,
    /// Stay on the file system of each source: what is mounted below it arrives as an empty directory
    #[arg(short = 'x', long, help_heading = SELECT)]
    pub one_file_system: bool,
    /// Leave out smaller files, such as 1K
    #[arg(long, value_name = "SIZE", value_parser = values::size_or_none, help_heading = SELECT)]
    pub min_size: Option<u64>,
    /// Leave out larger files, such as 10G
    #[arg(long, value_name = "SIZE", value_parser = values::size_or_none, help_heading = SELECT)]
    pub max_size: Option<u64>,
    /// Leave out files changed since, such as 30m, 12h, 7d or 2w
    #[arg(long, value_name = "AGE", value_parser = values::age, help_heading = SELECT)]
    pub min_age: Option<u64>,
    /// Leave out files not changed since
    #[arg(long, value_name = "AGE", value_parser = values::age, help_heading = SELECT)]
    pub max_age: Option<u64>,
}

/// What a rule was given with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOption {
    Include,
    Exclude,
    Filter,
    IncludeFrom,
    ExcludeFrom,
}

/// Rules in the order of the command line.
#[derive(Debug, Clone, Default)]
pub struct OrderedRules(pub Vec<(RuleOption, OsString)>);

const ORIGINS: [(RuleOption, &str, &str, &str); 5] = [
    (
        RuleOption::Include,
        "include",
        "PATTERN",
        "Take what matches; the first rule that matches decides, as in rsync",
    ),
    (
        RuleOption::Exclude,
        "exclude",
        "PATTERN",
        "Leave out what matches; a directory that is left out is not entered",
    ),
    (RuleOption::Filter, "filter", "RULE", "A rule such as '+ *.c', '- *.o', 'merge FILE' or '!'"),
    (RuleOption::IncludeFrom, "include-from", "FILE", "Patterns to take, one a line; - is stdin"),
    (RuleOption::ExcludeFrom, "exclude-from", "FILE", "Patterns to leave out, one a line; - is stdin"),
];

impl Group for OrderedRules {
    fn augment_args(command: Command) -> Command {
        ORIGINS.iter().fold(command, |command, &(_, name, value, help)| {
            let option = Arg::new(name).long(name).value_name(value).help(help).help_heading(SELECT);
            // A rule begins with a minus sign more often than not.
            let option = option.allow_hyphen_values(true).action(ArgAction::Append);
            command.arg(option.value_parser(ValueParser::os_string()))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        OrderedRules::augment_args(command)
    }
}

impl FromArgMatches for OrderedRules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<OrderedRules, clap::Error> {
        let mut found = Vec::new();
        for (origin, name, _, _) in ORIGINS {
            let values = matches.get_many::<OsString>(name).into_iter().flatten();
            let places = matches.indices_of(name).into_iter().flatten();
            found.extend(places.zip(values).map(|(place, value)| (place, origin, value.clone())));
        }
        found.sort_by_key(|&(place, ..)| place);
        Ok(OrderedRules(found.into_iter().map(|(_, origin, value)| (origin, value)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = OrderedRules::from_arg_matches(matches)?;
        Ok(())
    }
}
