//! What the shell of a far end runs until a farhaul runs there. It is one line for any POSIX shell, with no
//! sign in it that a login shell of another kind (csh, fish) would take for its own.
//!
//! Its words to this end, each a line that begins with [`MARK`]:
//!  - `is MACHINE SYSTEM KEPT GZIP OWN`: what the host is, whether this very program is kept there, whether
//!    gzip is there (`yes` or `no`), and the version of its own farhaul (`-` if it has none).
//!  - `no REASON WORDS`: why it cannot be done.
//!
//! This end answers `own`, `kept`, `stop`, or `take LEN plain|gzip` with that many bytes behind the line.
//!
//! Always true: the folder, and each above it up to the home, belongs to the user, and nobody else may write
//! there. No file is written before that was seen. Where there is `sha256sum`, nothing is started before its
//! digest was seen; and nothing has the final name before.

/// How each line of the script and of the brought program begins.
pub(super) const MARK: &str = "farhaul-bring";

/// Where programs are kept, below the home.
pub(super) const FOLDER: &str = ".cache/farhaul";

/// The folder of this version below [`FOLDER`].
pub(super) fn version_folder() -> String {
    format!("{}-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS)
}

/// The command for the far end's login shell.
pub(super) fn command(digest: &str, remote_program: &str, verb: &str) -> String {
    let script = SCRIPT
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ")
        .replace("@MARK", MARK)
        .replace("@FOLDER", &format!("{FOLDER}/{}", version_folder()))
        .replace("@NAME", &kept_name(digest))
        .replace("@DIGEST", digest)
        .replace("@VERB", verb);
    debug_assert!(!script.contains(['\'', '!', '\n']), "the login shell would read these signs");
    // The shell there expands `~` in the name of its own program, as without bringing.
    format!("sh -c '{}' sh {remote_program}", script.trim())
}

/// The name under which a program with this digest is kept.
pub(super) fn kept_name(digest: &str) -> String {
    format!("farhaul-{}", digest.get(..16).unwrap_or(digest))
}

const SCRIPT: &str = r#"
m=$(umask); umask 077; r=$*;
no() { echo "@MARK no $*"; exit 0; };
own=$($r --version 2>/dev/null) || own=;
case $own in "farhaul "[0-9]*) own=${own#farhaul }; own=${own%% *};; *) own=-;; esac;
[ -d "$HOME" ] || no home "$HOME";
d=$HOME/@FOLDER; kept=no; gzip=no;
[ -f "$d/@NAME" ] && kept=yes;
command -v gzip >/dev/null 2>&1 && gzip=yes;
echo "@MARK is $(uname -m) $(uname -s) $kept $gzip $own";
read -r word len form || exit 0;
[ "$word" = own ] && { umask $m; exec $r @VERB; };
[ "$word" = stop ] && exit 0;
mkdir -p "$d" 2>/dev/null || no folder "$d";
p=$(cd -P "$d" 2>/dev/null && pwd) || no folder "$d";
h=$(cd -P "$HOME" && pwd); u=$(id -u); d=$p;
case $p in "$h"/*) ;; *) no elsewhere "$p";; esac;
while :; do
set -- $(ls -ldn "$p");
[ "$3" = "$u" ] || no owner "$p";
case $1 in d????-??-*) ;; *) no writable "$p";; esac;
[ "$p" = "$h" ] && break; p=${p%/*};
done;
t=$d/@NAME;
if [ "$word" = take ]; then
t=$d/.new-@NAME-$$-$(date +%s);
{ : >"$t"; } 2>/dev/null || no write "$d";
chmod 700 "$t"; [ -x "$t" ] || { rm -f "$t"; no noexec "$d"; };
if [ "$form" = gzip ]; then head -c "$len" | gzip -dc >"$t" 2>/dev/null; else head -c "$len" >"$t" 2>/dev/null; fi || { rm -f "$t"; no full "$d"; };
fi;
if command -v sha256sum >/dev/null 2>&1; then set -- $(sha256sum "$t");
[ "$1" = @DIGEST ] || { rm -f "$t"; no damaged "$d"; }; fi;
umask $m; exec "$t" brought @DIGEST @VERB;
"#;
