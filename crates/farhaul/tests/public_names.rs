//! Lists the names that this crate shows to programs and to its sisters, so that each change of them is seen.

use std::path::Path;

/// The names in `lib.rs`, each behind the module that it is in. All of them stand in `pub use`.
fn public_names(source: &str) -> Vec<String> {
    let (mut names, mut module, mut rest) = (Vec::new(), String::new(), source);
    while let Some(line_end) = rest.find('\n') {
        let line = rest[..line_end].trim();
        if let Some(name) = line.strip_prefix("pub mod ").and_then(|line| line.strip_suffix(" {")) {
            module = format!("{name}::");
        } else if line == "}" {
            module.clear();
        } else if line.starts_with("pub use ") {
            let end = rest.find(';').expect("a use has an end");
            names.extend(names_of(&rest[..end]).iter().map(|name| format!("{module}{name}")));
            rest = &rest[end + 1..];
            continue;
        } else if line.starts_with("pub ") {
            panic!("this test does not know what {line:?} shows");
        }
        rest = &rest[line_end + 1..];
    }
    names.sort();
    names
}

/// The names that one `pub use` shows.
fn names_of(text: &str) -> Vec<&str> {
    let list = match text.split_once('{') {
        Some((_, list)) => list.trim_end().trim_end_matches('}'),
        None => text.rsplit("::").next().unwrap_or_default(),
    };
    list.split(',')
        .map(|name| name.rsplit(" as ").next().unwrap_or_default().trim())
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn the_public_names_are_those_of_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = public_names(&std::fs::read_to_string(folder.join("src/lib.rs")).unwrap());
    let of_sisters = names.iter().filter(|name| name.starts_with("sisters::")).count();
    let count = format!("{} for programs, {of_sisters} for sisters\n", names.len() - of_sisters);
    let list = names.into_iter().map(|name| name + "\n").collect::<String>();
    farhaul_vectors::compare_text(&folder.join("tests/public_names.txt"), &(count + &list));
}
