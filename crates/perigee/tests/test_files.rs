//! Crates whose test files are modules of one program: a file that is not listed would not be
//! compiled.

use std::fs;
use std::path::Path;

#[test]
fn every_test_file_is_compiled() {
    let mut checked = 0;
    for manifest in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .unwrap()
        .map(|e| e.unwrap().path())
    {
        let Ok(manifest_text) = fs::read_to_string(manifest.join("Cargo.toml")) else { continue };
        if !manifest_text.contains("autotests = false") {
            continue;
        }
        let main = fs::read_to_string(manifest.join("tests/main.rs")).unwrap();
        for file in fs::read_dir(manifest.join("tests")).unwrap().map(|e| e.unwrap().path()) {
            if file.extension().is_none_or(|e| e != "rs") {
                continue;
            }
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let is_module = main.contains(&format!("\nmod {name};"));
            let is_program = manifest_text.contains(&format!("[[test]]\nname = \"{name}\""));
            assert!(is_module != is_program, "{}: in main.rs or Cargo.toml", file.display());
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}
