//! The commands shown in the documents, extracted from their Markdown.
//!
//! A line of a fenced shell block is *shown*: a reader will paste it. A command in backticks within a sentence is
//! *mentioned*: often only its beginning. A Holdfast program in a service's unit is mentioned, too.

use std::path::{Path, PathBuf};

/// Programs whose commands are extracted.
const PROGRAMS: [&str; 3] = ["holdfast", "holdfast-server", "cargo xtask"];

/// Languages of fenced blocks for a shell. Includes blocks without a language: diagrams have no line that begins
/// with a program.
const SHELLS: [&str; 4] = ["", "sh", "bash", "console"];

/// A command in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The document, relative to the repository's root, and the line number.
    pub place: String,
    /// `holdfast`, `holdfast-server`, `cargo xtask`, `curl` or `systemctl`.
    pub program: String,
    /// Its arguments, without quotes, comments and redirections.
    pub args: Vec<String>,
    /// Number of its block, whose commands run in order; `None`: only mentioned.
    pub block: Option<usize>,
}

impl Command {
    /// The command approximately as in the document.
    pub fn line(&self) -> String {
        format!("{} {}", self.program, self.args.join(" "))
    }

    /// Returns true if the document abridges it (`…`).
    pub fn is_abridged(&self) -> bool {
        self.args.iter().any(|arg| arg.contains('…'))
    }
}

/// The repository's root.
///
/// # Panics
/// Never: this crate is in a folder of it.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository")
}

/// All commands of `*.md` in the root, in `docs/` and in `docs/operations/`, in order. The changelog is left out: it
/// may name commands that were removed.
///
/// # Panics
/// When they cannot be read.
pub fn commands() -> Vec<Command> {
    let mut files: Vec<PathBuf> = [root().to_owned(), root().join("docs"), root().join("docs/operations")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("documents are readable"))
        .map(|entry| entry.expect("documents are readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .filter(|path| !path.ends_with("CHANGELOG.md"))
        .collect();
    files.sort();
    let mut found = Vec::new();
    let mut blocks = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("documents are readable");
        let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        found.extend(commands_of(&name, &text, &mut blocks));
    }
    found
}

/// All commands of one document; `blocks` counts fenced blocks across documents.
pub fn commands_of(name: &str, text: &str, blocks: &mut usize) -> Vec<Command> {
    let mut found = Vec::new();
    let mut fence: Option<String> = None;
    let mut prose = Prose::default();
    let mut begun: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let mut add = |number: usize, line: &str, block| {
            let place = format!("{name}:{number}");
            found.extend(split(line).iter().filter_map(|words| command(&place, words, block)));
        };
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_none() { Some(language.trim().to_owned()) } else { None };
            *blocks += 1;
            prose = Prose::default();
        } else if let Some(language) = &fence {
            if let Some(run) = line.trim().strip_prefix("ExecStart=") {
                add(number, run, None);
            } else if SHELLS.contains(&language.as_str()) {
                let (first, before) = begun.take().unwrap_or((number, String::new()));
                match line.strip_suffix('\\') {
                    Some(part) => begun = Some((first, before + part)),
                    None => add(first, &(before + line), Some(*blocks)),
                }
            }
        } else {
            prose.spans(line).iter().for_each(|span| add(number, span, None));
        }
    }
    found
}

/// Finds code spans in paragraphs; they may continue on the next line.
#[derive(Debug, Default)]
struct Prose {
    open: Option<String>,
}

impl Prose {
    fn spans(&mut self, line: &str) -> Vec<String> {
        if line.trim().is_empty() {
            self.open = None;
        }
        let mut whole = Vec::new();
        let mut parts = line.split('`');
        let first = parts.next().unwrap_or_default();
        if let Some(open) = &mut self.open {
            open.push(' ');
            open.push_str(first.trim_start());
        }
        for part in parts {
            match self.open.take() {
                Some(span) => whole.push(span),
                None => self.open = Some(part.to_owned()),
            }
        }
        whole
    }
}

/// Parses the words as a command of one of the programs.
fn command(place: &str, words: &[String], block: Option<usize>) -> Option<Command> {
    // A container's program follows the container's name, which may also be the name of a program.
    let inside = match words.first().map(String::as_str) {
        Some("docker") => words.iter().rposition(|word| word == "holdfast-server")?,
        _ => words.iter().position(|word| !word.contains('='))?,
    };
    let words = words.get(inside..)?;
    let (first, rest) = words.split_first()?;
    let base = first.rsplit('/').next().unwrap_or(first);
    let (program, args) = match rest.split_first() {
        Some((second, rest)) if base == "cargo" => (format!("cargo {second}"), rest),
        _ => (base.to_owned(), rest),
    };
    // Of the system's own programs only those used in runbooks.
    let is_runbooks = match program.as_str() {
        "curl" => true,
        "systemctl" => args.first().is_some_and(|verb| verb == "start" || verb == "stop"),
        _ => false,
    };
    let known = PROGRAMS.contains(&program.as_str()) || is_runbooks && block.is_some();
    // Keys and labels begin with the same word, but have no subcommand or option after it.
    let begins =
        |arg: &String| arg.starts_with(|c: char| c.is_ascii_lowercase() || c == '-' || c == '\u{2026}');
    (known && args.first().is_some_and(begins)).then(|| Command {
        place: place.to_owned(),
        program,
        args: args.to_vec(),
        block,
    })
}

/// Splits a line into commands of words, as a shell does. Comments are left out; the words after a redirection form a
/// command that is ignored.
fn split(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for character in line.trim_start().trim_start_matches("$ ").chars() {
        match (quote, character) {
            (Some(end), _) if character == end => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | '&' | ';' | '>' | '(' | ')') => {
                end_word(&mut commands, &mut word);
                commands.push(if character == '>' { vec![">".to_owned()] } else { Vec::new() });
            }
            (None, _) if character.is_whitespace() => end_word(&mut commands, &mut word),
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    end_word(&mut commands, &mut word);
    commands
}

fn end_word(commands: &mut [Vec<String>], word: &mut Option<String>) {
    if let Some(words) = commands.last_mut() {
        words.extend(word.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let found = commands_of("x.md", text, &mut 0);
        let shown = |command: &Command| if command.block.is_some() { "shown" } else { "mentioned" };
        found
            .iter()
            .map(|command| format!("{} {}: {}", command.place, shown(command), command.line()))
            .collect()
    }

    #[test]
    fn commands_of_shell_blocks_are_shown() {
        let text = "```\n$ holdfast list --vm 'web 1' | less   # all of them\nexport A=b && holdfast report > x.tsv\n\
                    A=b holdfast backup --vm web \\\n  /dev/sda\ngit clone x\n```\n";
        assert_eq!(
            lines(text),
            [
                "x.md:2 shown: holdfast list --vm web 1",
                "x.md:3 shown: holdfast report",
                "x.md:4 shown: holdfast backup --vm web /dev/sda",
            ]
        );
        assert_eq!(lines("The context `holdfast 2025-11-21 token v1`."), Vec::<String>::new());
        assert_eq!(lines("```rust\nholdfast list --vm web\n```\n"), Vec::<String>::new());
        assert_eq!(
            lines(
                "```sh\ndocker compose exec holdfast holdfast-server token list\ndocker compose exec holdfast cat x\n```"
            ),
            ["x.md:2 shown: holdfast-server token list"]
        );
        assert_eq!(
            lines("```\ncurl --cacert x 'https://h/api/v1/vms?a=b&c=d'\n```"),
            ["x.md:2 shown: curl --cacert x https://h/api/v1/vms?a=b&c=d"]
        );
    }

    #[test]
    fn commands_in_sentences_are_mentioned() {
        assert_eq!(
            lines(
                "Run `holdfast verify BACKUP` and `cargo xtask\nbench index --entries N`, not `holdfast` or `ls`.\n"
            ),
            [
                "x.md:1 mentioned: holdfast verify BACKUP",
                "x.md:2 mentioned: cargo xtask bench index --entries N",
            ]
        );
        assert_eq!(
            lines("```ini\nExecStart=/usr/local/bin/holdfast-server serve --config x\n```"),
            ["x.md:2 mentioned: holdfast-server serve --config x"]
        );
        let abridged = &commands_of("x.md", "`holdfast backup --take-over …`", &mut 0)[0];
        assert!(abridged.is_abridged());
    }

    #[test]
    fn the_documents_have_commands() {
        let all = commands();
        for program in PROGRAMS {
            let of_it = all.iter().filter(|command| command.program == program);
            assert!(of_it.count() > 5, "{program}");
        }
    }
}
