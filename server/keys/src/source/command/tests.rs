use super::*;

/// A limit that no test reaches.
const LONG: Duration = Duration::from_secs(600);

fn shell(script: &str, limit: Duration) -> Result<SecretBytes, CommandError> {
    run(&["sh", "-c", script].map(str::to_owned), limit)
}

#[test]
fn what_a_command_prints_is_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a secret; with $(characters)");
    std::fs::write(&path, "  correct horse \r\n").unwrap();
    let words = ["cat".to_owned(), path.to_str().unwrap().to_owned()];
    assert_eq!(run(&words, LONG).unwrap().expose(), b"correct horse");
    assert_eq!(
        shell("head -c 4096 /dev/zero | tr '\\0' x", LONG).unwrap().expose(),
        [b'x'; OUTPUT_MAX_BYTES]
    );
    // Its input is empty, and standard error is not part of the secret.
    assert_eq!(shell("cat; echo warning >&2; echo fine", LONG).unwrap().expose(), b"fine");
}

#[test]
fn a_command_that_fails_is_quoted() {
    let error =
        shell("echo secret; echo 'no such   key' >&2; echo in the vault >&2; exit 3", LONG).unwrap_err();
    assert!(matches!(&error, CommandError::Failed { status, .. } if status.code() == Some(3)));
    let text = error.to_string();
    assert!(text.contains("no such key in the vault") && !text.contains("secret"), "{text}");
    assert!(matches!(shell("kill -9 $$", LONG), Err(CommandError::Failed { .. })));
    let much = shell("head -c 1000000 /dev/zero | tr '\\0' y >&2; exit 1", LONG).unwrap_err();
    assert!(much.to_string().len() < 2000);
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let words = ["/nonexistent/holdfast-key".to_owned()];
    let error = run(&words, LONG).unwrap_err();
    assert!(matches!(error, CommandError::Run { .. }));
    assert!(error.to_string().contains("/nonexistent/holdfast-key"));
    assert!(matches!(run(&[], LONG), Err(CommandError::Empty)));
}

/// Errors do not name the shell, nor any part of the line that may be secret.
#[test]
fn errors_name_the_program_of_a_line() {
    assert_eq!(run_line("echo fine | cat", LONG).unwrap().expose(), b"fine");
    for (line, name) in [
        ("vault kv get -token=hidden x", "\"vault\""),
        ("VAULT_TOKEN=hidden /opt/vault hidden", "\"/opt/vault\""),
    ] {
        let text = run_line(line, LONG).unwrap_err().to_string();
        assert!(text.starts_with(&format!("the key command {name} failed")), "{text}");
        assert!(!text.contains("hidden") && !text.contains("/bin/sh\""), "{text}");
    }
    assert!(matches!(run_line("  ", LONG), Err(CommandError::Empty)));
}

#[test]
fn nothing_several_lines_and_too_much_are_no_secret() {
    assert!(
        matches!(shell("echo; echo locked >&2", LONG), Err(CommandError::Nothing { said, .. }) if said == "locked")
    );
    assert!(matches!(shell("echo one; echo two", LONG), Err(CommandError::Lines { lines: 2, .. })));
    // The second would never end.
    assert!(matches!(shell("head -c 4097 /dev/zero", LONG), Err(CommandError::TooMuch { .. })));
    assert!(matches!(shell("cat /dev/zero", LONG), Err(CommandError::TooMuch { .. })));
}

/// Any way to hang: with its output open, closed, or held open by a child.
#[test]
fn a_command_that_hangs_is_ended_with_all_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("number");
    let note = format!("echo $! >{}", path.display());
    for script in [
        format!("sleep 1000 & {note}; wait"),
        format!("exec >&-; sleep 1000 & {note}; wait"),
        format!("sleep 1000 & {note}; trap '' TERM; wait; wait"),
    ] {
        let _ = std::fs::remove_file(&path);
        // Even the shortest limit: as long as the shell takes to write its child's id.
        let mut limit = Duration::from_millis(200);
        let started = loop {
            assert!(matches!(shell(&script, limit), Err(CommandError::Late { .. })), "{script}");
            match std::fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => break text,
                _ => limit *= 2,
            }
        };
        assert!(has_ended(started.trim()), "{script}");
    }
}

/// Returns true once a process is gone, or dead and not reaped; waits for that.
fn has_ended(number: &str) -> bool {
    let is_gone = || match std::fs::read_to_string(format!("/proc/{number}/stat")) {
        Ok(text) => text.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(_) => true,
    };
    (0..6000).any(|_| {
        let gone = is_gone();
        if !gone {
            thread::sleep(Duration::from_millis(10));
        }
        gone
    })
}
