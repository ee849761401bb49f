//! Manual pages, completion scripts and `perigee help`.

use crate::common::TestDir;
use std::fs;
use std::process::Command;

#[test]
fn help_of_a_command_is_the_same_both_ways() {
    let dir = TestDir::new();
    let long = dir.run(&["help", "backup", "create"]);
    assert_eq!(long.code, 0, "{}", long.stderr);
    assert_eq!(long.stdout, dir.run(&["backup", "create", "--help"]).stdout);
    let unknown = dir.run(&["help", "bakcup"]);
    assert_eq!(unknown.code, 2);
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = TestDir::new();
    let written = dir.run(&["manuals", "share"]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    let pages = dir.path("share/man/man1");
    let text = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    for (page, expected) in [
        ("perigee.1", "perigee\\-scan(1)"),
        ("perigee-scan.1", "\\-\\-prefix"),
        ("perigee-backup-create.1", ".SH SYNOPSIS"),
    ] {
        assert!(text(page).contains(expected), "{page}:\n{}", text(page));
    }
    assert!(!pages.join("perigee-manuals.1").exists() && !pages.join("perigee-help.1").exists());
    assert!(fs::read_dir(&pages).unwrap().count() > 30);
    // groff reports mistakes in a page, if it is installed.
    let groff = ["-man", "-ww", "-z", "-Tutf8"];
    if let Ok(out) = Command::new("groff").args(groff).arg(pages.join("perigee-scan.1")).output() {
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    }
}

#[test]
fn completion_scripts_name_the_commands() {
    let dir = TestDir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = dir.run(&["completions", shell]);
        assert_eq!(script.code, 0);
        let text = String::from_utf8(script.stdout).unwrap();
        assert!(text.contains("compaction-sim") && text.contains("prefix"), "{shell}");
    }
    assert_eq!(dir.run(&["completions", "tcsh"]).code, 2);
    let json = dir.run(&["completions", "bash", "--json"]);
    assert!(String::from_utf8(json.stdout).unwrap().starts_with("{\"shell\":\"bash\",\"script\":"));
    // bash itself completes a prefix of a command.
    dir.run(&["manuals", "share"]);
    let script = "source share/bash-completion/completions/perigee; COMP_WORDS=(perigee compa); \
                  COMP_CWORD=1; _perigee perigee compa perigee; echo ${COMPREPLY[@]}";
    let mut bash = Command::new("bash");
    bash.current_dir(dir.path(".")).args(["-c", script]);
    if let Ok(out) = bash.output() {
        let words = String::from_utf8(out.stdout).unwrap();
        assert_eq!(
            words.trim(),
            "compact compaction-sim",
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}
