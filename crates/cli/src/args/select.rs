//! The options that choose which entries of the sources are taken. Rules of all options keep the order in
//! which they were given.

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
    /// Take only the names in this file, one a line, relative to the source; - is stdin
    #[arg(long, value_name = "FILE", help_heading = SELECT)]
    pub files_from: Option<PathBuf>,
    /// In the files of --files-from, --include-from and --exclude-from, names end with a zero byte instead of
    /// a newline
    #[arg(short = '0', long, help_heading = SELECT)]
    pub from0: bool,
    /// Take only what failed in an earlier run of the same command; FILE is its --json report or its
    /// --manifest
    #[arg(long, value_name = "FILE", conflicts_with = "files_from", help_heading = SELECT)]
    pub retry_failed: Option<PathBuf>,
    /// Stay on the file system of each source; a directory on which something is mounted arrives empty
    #[arg(short = 'x', long, help_heading = SELECT)]
    pub one_file_system: bool,
    /// Do nothing unless the source has this entry, such as a file that marks a disk as mounted; a path below
    /// the source. May be repeated
    #[arg(long, value_name = "FILE", help_heading = SELECT)]
    pub require: Vec<OsString>,
    /// Leave out files smaller than this, such as 1K
    #[arg(long, value_name = "SIZE", value_parser = values::size_or_none, help_heading = SELECT)]
    pub min_size: Option<u64>,
    /// Leave out files larger than this, such as 10G
    #[arg(long, value_name = "SIZE", value_parser = values::size_or_none, help_heading = SELECT)]
    pub max_size: Option<u64>,
    /// Leave out files changed less than this long ago, such as 30m, 12h, 7d or 2w
    #[arg(long, value_name = "AGE", value_parser = values::age, help_heading = SELECT)]
    pub min_age: Option<u64>,
    /// Leave out files changed longer ago than this
    #[arg(long, value_name = "AGE", value_parser = values::age, help_heading = SELECT)]
    pub max_age: Option<u64>,
}

/// The option with which a rule was given.
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

/// Each option for rules, with its name, the name of its value, and its help.
const RULE_OPTIONS: [(RuleOption, &str, &str, &str); 5] = [
    (
        RuleOption::Include,
        "include",
        "PATTERN",
        "Take what matches; as in rsync, the first rule that matches decides",
    ),
    (
        RuleOption::Exclude,
        "exclude",
        "PATTERN",
        "Leave out what matches; nothing below a directory that is left out is looked at",
    ),
    (
        RuleOption::Filter,
        "filter",
        "RULE",
        "A filter rule as in rsync, such as '+ *.c', '- *.o', 'merge FILE' or '!'",
    ),
    (RuleOption::IncludeFrom, "include-from", "FILE", "Patterns to take, one a line; - is stdin"),
    (RuleOption::ExcludeFrom, "exclude-from", "FILE", "Patterns to leave out, one a line; - is stdin"),
];

impl Group for OrderedRules {
    fn augment_args(command: Command) -> Command {
        RULE_OPTIONS.iter().fold(command, |command, &(_, name, value, help)| {
            let arg = Arg::new(name).long(name).value_name(value).help(help).help_heading(SELECT);
            // Most rules begin with a minus sign.
            let arg = arg.allow_hyphen_values(true).action(ArgAction::Append);
            command.arg(arg.value_parser(ValueParser::os_string()))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        OrderedRules::augment_args(command)
    }
}

impl FromArgMatches for OrderedRules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<OrderedRules, clap::Error> {
        let mut found = Vec::new();
        for (option, name, _, _) in RULE_OPTIONS {
            let values = matches.get_many::<OsString>(name).into_iter().flatten();
            let indices = matches.indices_of(name).into_iter().flatten();
            found.extend(indices.zip(values).map(|(index, value)| (index, option, value.clone())));
        }
        found.sort_by_key(|&(index, ..)| index);
        Ok(OrderedRules(found.into_iter().map(|(_, option, value)| (option, value)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = OrderedRules::from_arg_matches(matches)?;
        Ok(())
    }
}
