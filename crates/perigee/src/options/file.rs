//! Writes the options file, usually `perigee.toml`. The option table defines the options and the
//! syntax of values; `toml_reader` reads the file.
//!
//! ```toml
//! [database]
//! durability = "interval 100 ms"
//!
//! [family.default]
//! compression = "zstd 3"
//! ```

#[cfg(feature = "serde")]
use crate::options::FamilyOptions;
use crate::options::Options;
use crate::options::syntax;
use crate::options::table::{DATABASE, FAMILY, Row};
use perigee_engine::{Error, Result, env::DirOpenMode};
use std::fmt::Write as _;
use std::path::Path;

/// The usual name of the options file.
pub const FILE_NAME: &str = "perigee.toml";

impl Options {
    /// Formats all options as TOML, each with a comment on its trade-off.
    ///
    /// ```
    /// # use perigee::*;
    /// let options = Options::new().durability(Durability::None);
    /// let again = Options::from_toml(&options.to_toml())?;
    /// assert_eq!(again.durability, Durability::None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn to_toml(&self) -> String {
        let mut out = String::from(
            "# Options of a Perigee database. Missing options have their defaults.\n\n[database]\n",
        );
        write_options(&mut out, DATABASE, self);
        let default = self.default_family.iter().map(|o| ("default", o));
        for (name, options) in default.chain(self.families.iter().map(|(name, o)| (&name[..], o))) {
            let _ = write!(out, "\n[family.{}]\n", toml_key(name));
            write_options(&mut out, FAMILY, options);
        }
        out
    }

    /// Writes [`Options::to_toml`] to a file, atomically and durably. An existing file is replaced.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// let options = Options::in_env(env.clone()).durability(Durability::None);
    /// options.save("/perigee.toml")?;
    /// assert_eq!(Options::load_in(env, "/perigee.toml")?.durability, Durability::None);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `path` does not name a file; `NotFound` if its directory does not
    /// exist; `Io`.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = split_path(path.as_ref())?;
        let dir = self.env.fs.open_dir(dir, DirOpenMode::Existing)?;
        let new = format!("{name}.tmp");
        if dir.file_len(&new)?.is_some() {
            dir.remove(&new)?;
        }
        let file = dir.create(&new)?;
        file.append(&[self.to_toml().as_bytes()])?;
        file.sync()?;
        dir.rename(&new, &name)?;
        dir.sync()
    }
}

/// Splits a path into directory and file name.
pub(crate) fn split_path(path: &Path) -> Result<(&Path, String)> {
    let name = path.file_name().and_then(|n| n.to_str());
    let name =
        name.ok_or_else(|| Error::invalid(format!("{} does not name a file", path.display())))?;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((dir, name.to_owned()))
}

/// Formats the options of a column family as the lines of its table in an options file.
#[cfg(feature = "serde")]
pub(crate) fn family_to_toml(options: &FamilyOptions) -> String {
    let mut out = String::new();
    write_options(&mut out, FAMILY, options);
    out
}

/// Formats a name as a TOML key, quoted if necessary.
pub(crate) fn toml_key(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    syntax::toml_string(name)
}

fn write_options<T>(out: &mut String, rows: &[Row<T>], from: &T) {
    for row in rows {
        let _ = write!(out, "# {}\n{} = {}\n", row.tradeoff, row.name, (row.get)(from));
    }
}
