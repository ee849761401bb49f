//! Reads and checks the options file (feature `toml`). Only this module parses TOML; the option
//! table defines the options and the syntax of values.

use crate::options::file::{split_path, toml_key};
use crate::options::limits::OPTIONS_FILE_BYTES_MAX;
use crate::options::syntax::Scalar;
use crate::options::table::{DATABASE, FAMILY, Row};
use crate::options::{FamilyOptions, Options};
use perigee_engine::{Error, ErrorKind, Result, env::DirOpenMode, env::Env};
use std::path::Path;

impl Options {
    /// Reads options from a TOML file. Options that the file does not set have their defaults.
    /// `docs/OPTIONS.md` lists all options; [`Options::save`] writes all of them to a file, with
    /// comments.
    ///
    /// # Errors
    /// `InvalidArgument` if the file is not valid TOML, contains an unknown option (the message
    /// suggests the nearest known one), or a value is out of range; `NotFound`; `Io`.
    ///
    /// ```
    /// # use perigee::{Compression, Db, Durability, FamilyOptions, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("perigee-toml-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// let file = dir.join("perigee.toml");
    /// let logs = FamilyOptions::new().compression(Compression::Zstd(3));
    /// Options::new().family("logs", logs).save(&file)?;
    /// let options = Options::load(&file)?;
    /// assert_eq!(options.durability, Durability::Full);
    /// let db = Db::open(dir.join("db"), options)?;
    /// assert_eq!(db.family("logs")?.options().compression, Compression::Zstd(3));
    ///
    /// let e = Options::from_toml("[family.logs]\nblok_bytes = \"4 KiB\"").unwrap_err();
    /// assert!(e.to_string().contains("did you mean \"block_bytes\"?"));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn load(path: impl AsRef<Path>) -> Result<Options> {
        Self::load_in(Env::real(), path)
    }

    /// Reads options from a file like [`Options::load`], in the environment `env` (see
    /// [`crate::env`]).
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// Options::in_env(env.clone()).durability(Durability::None).save("/perigee.toml")?;
    /// let options = Options::load_in(env, "/perigee.toml")?;
    /// let db = Db::open("/db", options)?;
    /// assert_eq!(db.admin().options().durability, Durability::None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn load_in(env: Env, path: impl AsRef<Path>) -> Result<Options> {
        let path = path.as_ref();
        let (dir, name) = split_path(path)?;
        let file = env.fs.open_dir(dir, DirOpenMode::Existing)?.open(&name)?;
        let bytes = file.len()?;
        if bytes > OPTIONS_FILE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "{} is too large for an options file",
                path.display()
            ))
            .expected(format_args!("at most {OPTIONS_FILE_BYTES_MAX} bytes"), bytes));
        }
        let mut text = vec![0; bytes as usize];
        file.read_exact_at(&mut text, 0)?;
        let text = String::from_utf8(text)
            .map_err(|_| Error::invalid(format!("{} is not UTF-8 text", path.display())))?;
        let options = Options::from_toml(&text)
            .map_err(|e| Error::new(e.kind(), format!("{}: {}", path.display(), e.message())))?;
        Ok(Options { env, ..options })
    }

    /// Parses options from TOML text; see [`Options::load`].
    ///
    /// ```
    /// # use perigee::*;
    /// let options = Options::from_toml("[database]\ndurability = \"none\"")?;
    /// assert_eq!(options.durability, Durability::None);
    /// assert!(Options::from_toml("no_such_option = 1").is_err());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Options> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            Error::invalid(format!("line {line}: {}", e.message()))
        })?;
        parse_options(&table)
    }
}

/// Reads the tables of an options file.
pub(crate) fn parse_options(table: &toml::Table) -> Result<Options> {
    let mut options = Options::new();
    for (name, value) in table {
        match (name.as_str(), value) {
            ("database", toml::Value::Table(rows)) => {
                read_options("[database]", DATABASE, &mut options, rows)?;
            }
            ("family", toml::Value::Table(families)) => {
                for (name, value) in families {
                    let section = format!("[family.{}]", toml_key(name));
                    let toml::Value::Table(rows) = value else {
                        return Err(Error::invalid(format!(
                            "{section} must be a table of options"
                        )));
                    };
                    options.families.insert(name.clone(), parse_family(&section, rows)?);
                }
            }
            (other, _) => return Err(unknown_option("", other, &["database", "family"])),
        }
    }
    options.default_family = options.families.remove("default");
    Ok(options)
}

/// Reads the options of a column family; `section` names them in messages.
pub(crate) fn parse_family(section: &str, rows: &toml::Table) -> Result<FamilyOptions> {
    let mut options = FamilyOptions::new();
    read_options(section, FAMILY, &mut options, rows)?;
    let checked = options.to_settings().check();
    checked.map_err(|e| e.wrap(ErrorKind::InvalidArgument, section))?;
    Ok(options)
}

fn read_options<T>(section: &str, rows: &[Row<T>], into: &mut T, from: &toml::Table) -> Result<()> {
    for (name, value) in from {
        let Some(row) = rows.iter().find(|r| r.name == name) else {
            let known: Vec<&str> = rows.iter().map(|r| r.name).collect();
            return Err(unknown_option(section, name, &known));
        };
        let scalar = match value {
            toml::Value::String(s) => Scalar::Text(s.clone()),
            toml::Value::Integer(n) => Scalar::Integer(*n),
            toml::Value::Boolean(b) => Scalar::Flag(*b),
            other => Scalar::Text(other.type_str().to_owned()),
        };
        (row.set)(into, &scalar)
            .map_err(|why| Error::invalid(format!("{section}: {name}: {why}")))?;
    }
    Ok(())
}

fn unknown_option(section: &str, name: &str, known: &[&str]) -> Error {
    let nearest = known
        .iter()
        .min_by_key(|k| edit_distance(name, k))
        .filter(|k| edit_distance(name, k) <= 2 + k.len() / 4);
    let hint = match nearest {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => format!("the known options are {}", known.join(", ")),
    };
    let gap = if section.is_empty() { "" } else { " " };
    Error::invalid(format!("{section}{gap}unknown option {name:?}: {hint}"))
}

/// Returns the Levenshtein distance of two strings.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_engine::env::fs::memory::SimDisk;
    use perigee_engine::{Compression, Durability};
    use std::time::Duration;

    #[test]
    fn saved_options_load_unchanged() {
        let env = Env { fs: SimDisk::new(1), ..Env::real() };
        env.fs.open_dir(Path::new("/etc"), DirOpenMode::CreateIfMissing).unwrap();
        let options = Options::in_env(env.clone())
            .durability(Durability::Interval(Duration::from_millis(250)))
            .background_rate(Some(50 << 20))
            .default_family(
                FamilyOptions::new().compression(Compression::Lz4Fast(9)).value_threshold(1000),
            )
            .family("odd \"name\" \u{1}é", FamilyOptions::new().filter_bits(0));
        for _ in 0..2 {
            options.save("/etc/perigee.toml").unwrap();
        }
        let back = Options::load_in(env.clone(), "/etc/perigee.toml").unwrap();
        assert_eq!(back.to_toml(), options.to_toml());
        assert_eq!(back.families, options.families);
        assert_eq!(back.default_family, options.default_family);
        assert!(Options::load_in(env, "/etc/other.toml").is_err());
        assert_eq!(Options::from_toml("").unwrap().to_toml(), Options::new().to_toml());
    }

    #[test]
    fn damaged_options_text_never_panics() {
        let good = Options::new().family("x", FamilyOptions::new()).to_toml();
        let bytes = good.as_bytes();
        let mut tried = 0;
        for at in 0..bytes.len() {
            for with in [&b""[..], b"\"", b"[", b"=", b"-1", b"9999999999999999999", b"\xff", b"\0"]
            {
                let bad = [&bytes[..at], with, &bytes[at + 1..]].concat();
                if let Ok(text) = std::str::from_utf8(&bad) {
                    tried += usize::from(Options::from_toml(text).is_err());
                }
            }
        }
        assert!(tried > 1000, "only {tried} damaged texts were rejected");
    }

    #[test]
    fn options_errors_name_the_fix() {
        for (text, expected) in [
            ("[databse]\n", "unknown option \"databse\": did you mean \"database\"?"),
            ("[database]\nblock_cache = \"1 GiB\"", "did you mean"),
            ("[database]\nzzz = 1", "the known options are create_if_missing,"),
            (
                "[family.x]\nblock_bytes = \"1 B\"",
                "[family.x]: the option block_bytes is out of range",
            ),
            ("[family.x]\nblock_bytes = \"many\"", "\"many\" is not a size"),
            ("[family.x]\ncompression = \"zip\"", "\"zip\" is not one of"),
            ("[family.x]\ncompression = \"zstd 40\"", "out of range"),
            ("[family.x]\ncomparator = \"alphabetic\"", "is not one of \"bytes\""),
            ("[family.x]\ncomparator = \"user:mine\"", "register_comparator"),
            ("[family.x]\nlevel_ratio = [1]", "level_ratio"),
            ("[database]\ndurability = \"interval\"", "interval 100 ms"),
            ("family = 3", "unknown option \"family\""),
            ("[family]\nx = 3", "[family.x] must be a table"),
            ("[database]\nverify_outputs = maybe", "line 2"),
        ] {
            let e = Options::from_toml(text).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{text}");
            assert!(e.to_string().contains(expected), "{text}: {e}");
        }
    }
}
