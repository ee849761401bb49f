//! Reads TidesDB 9 databases through TidesDB's own library, whose path the user specifies.
//!
//! Submodules: `expiry_chain` (location of an entry's expiry time in an iterator; `unsafe`), `api`
//! (the C interface; `unsafe`), `calibrate` (finds the expiry chain), `layout` (inspects the
//! files), `settings` (maps the settings of a column family). Invariant: unless the user requests
//! an in-place import, the library opens only a copy.

#[allow(unsafe_code)]
mod expiry_chain;
#[allow(unsafe_code)]
mod api;
mod calibrate;
mod layout;
mod settings;

use super::comparators::{self, ComparatorOverrides};
use super::scratch::{self, ScratchDir};
use super::source::{EntryVisitor, ForeignSource, ReadPass, SourceEntry, SourceFamily};
use crate::failure::{Failure, Result, show_path};
use api::{Database, FamilyConfig, Library, ScanDirection};
use expiry_chain::ExpiryChain;
use perigee::KeyComparator;
use std::cmp::Ordering::{Greater, Less};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum age of an expired entry that the library still returns: it uses a clock that is updated
/// only from time to time.
const EXPIRED_GRACE_SECS: i64 = 3600;
/// Expiry times after this second (in 34,000 years) are considered misread.
const EXPIRY_MAX_SECS: i64 = 1 << 40;

/// Arguments of an import.
#[derive(Debug)]
pub struct ImportRequest<'a> {
    /// Directory of the database.
    pub dir: &'a Path,
    /// Path of TidesDB's shared library.
    pub library: &'a Path,
    /// Open the database itself instead of a copy.
    pub in_place: bool,
    /// Import all entries without expiry times.
    pub ignore_ttl: bool,
    /// Comparators of column families with a custom comparator.
    pub comparator_overrides: &'a ComparatorOverrides,
}

/// An open TidesDB database.
pub struct TidesDbSource {
    // Declared before `_scratch`, so that it is closed before its files are removed.
    db: Database,
    families: Vec<SourceFamily>,
    /// `None` if expiry times are ignored.
    chain: Option<ExpiryChain>,
    started_secs: i64,
    description: String,
    _scratch: ScratchDir,
}

/// Returns the current time in seconds since the Unix epoch.
fn now_secs() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| i64::try_from(t.as_secs()).unwrap_or(i64::MAX))
}

/// Checks the database and the request, copies the database into `scratch` unless it is imported in
/// place, and opens it.
pub fn open(
    request: &ImportRequest<'_>,
    scratch: impl FnOnce() -> Result<ScratchDir>,
) -> Result<TidesDbSource> {
    let layout = layout::read_layout(request.dir)?;
    request
        .comparator_overrides
        .check_families(layout.families.iter().map(|(name, _)| name.as_str()))?;
    for (name, comparator) in &layout.families {
        comparator_of(request.comparator_overrides, name, comparator)?;
    }
    if let Some((name, comparator)) =
        custom_comparator_families(&layout).next().filter(|_| request.in_place)
    {
        return Err(Failure::usage(format!(
            "the column family {name:?} with the comparator {comparator:?} cannot be imported in \
             place"
        ))
        .hint("omit --in-place"));
    }
    let library = Library::load(request.library)?;
    let started_secs = now_secs();
    let scratch = scratch()?;
    let copied = scratch.dir().join("source");
    let lock = scratch::lock_source(request.dir, "TidesDB")?;
    let dir = if request.in_place {
        // The library takes the lock itself and would conflict with ours.
        drop(lock);
        request.dir
    } else {
        std::fs::create_dir(&copied).map_err(|e| Failure::file("create", &copied, &e))?;
        scratch::copy_source(request.dir, &copied)?;
        drop(lock);
        // The library does not open a column family whose comparator is not registered: in the copy
        // it gets the equivalent built-in comparator that the user specified.
        for (name, comparator) in custom_comparator_families(&layout) {
            layout::rename_comparator(
                &copied,
                name,
                comparators::comparator_name(comparator_of(
                    request.comparator_overrides,
                    name,
                    comparator,
                )?),
            )?;
        }
        &copied
    };
    let db = library.open(dir, layout.unified)?;
    check_all_families_open(&db, &layout)?;
    let (mut families, mut configs) = (Vec::new(), Vec::new());
    for (name, comparator) in &layout.families {
        let comparator = comparator_of(request.comparator_overrides, name, comparator)?;
        let (config, keys) = db.stats(name)?;
        let c_library_settings = Some(settings::c_library_settings(&config, comparator));
        let (options, settings) = settings::map_settings(&config, comparator);
        families.push(SourceFamily {
            name: name.clone(),
            options,
            settings,
            c_library_settings,
            estimated_entries: Some(keys),
        });
        configs.push(config);
    }
    let chain = calibrate_expiry(request, &library, &scratch, layout.unified, &configs)?;
    let how = if request.in_place { "in place" } else { "from a copy" };
    let description = format!("TidesDB database {}, read {how}", show_path(request.dir));
    Ok(TidesDbSource { db, families, chain, started_secs, description, _scratch: scratch })
}

/// Finds the expiry chain, unless expiry times are ignored.
fn calibrate_expiry(
    request: &ImportRequest<'_>,
    library: &std::rc::Rc<Library>,
    scratch: &ScratchDir,
    unified: bool,
    configs: &[FamilyConfig],
) -> Result<Option<ExpiryChain>> {
    if request.ignore_ttl {
        return Ok(None);
    }
    calibrate::find_expiry_chain(library, &scratch.dir().join("probes"), unified, configs).map(Some)
}

/// Returns the comparator of a column family: the built-in one of that name, otherwise the one that
/// the user specified.
fn comparator_of(
    overrides: &ComparatorOverrides,
    family: &str,
    comparator: &str,
) -> Result<KeyComparator> {
    match (comparators::comparator_by_name(comparator), overrides.get(family)) {
        (Some(built_in), None) => Ok(built_in),
        (Some(built_in), Some(specified)) if built_in == specified => Ok(built_in),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "--comparator conflicts with the built-in comparator {comparator} of the column family \
             {family:?}"
        ))
        .hint("specify --comparator only for column families with a custom comparator")),
        (None, Some(specified)) => Ok(specified),
        (None, None) => Err(Failure::usage(format!(
            "the column family {family:?} is sorted by the comparator {comparator:?}, a function \
             of the program that wrote it"
        ))
        .hint(format!(
            "if it is equivalent to a built-in comparator, specify that one: --comparator \
             {family}=memcmp (or uint64, int64, reverse, ...); keys out of order are refused"
        ))),
    }
}

/// Returns the column families with custom comparators.
fn custom_comparator_families(
    layout: &layout::SourceLayout,
) -> impl Iterator<Item = &(String, String)> {
    layout
        .families
        .iter()
        .filter(|(_, comparator)| comparators::comparator_by_name(comparator).is_none())
}

/// Returns an error if the library did not open a column family that has files.
fn check_all_families_open(db: &Database, layout: &layout::SourceLayout) -> Result<()> {
    let open = db.family_names()?;
    match layout.families.iter().find(|(name, _)| !open.iter().any(|n| n == name.as_bytes())) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::other(
            "TidesDB",
            format!("TidesDB's library opened the database without its column family {name:?}"),
        )
        .hint(
            "open and close the database with the program that wrote it, so that its log is empty; \
             then run the import again",
        )),
    }
}

impl ForeignSource for TidesDbSource {
    fn description(&self) -> String {
        self.description.clone()
    }
    fn families(&self) -> &[SourceFamily] {
        &self.families
    }
    /// The second pass reads backward, after a flush of entries that the first pass may have read
    /// from the memtable: both use other code paths of the library.
    fn for_each_entry(
        &mut self,
        family: usize,
        pass: ReadPass,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<()> {
        let family = &self.families[family];
        let comparator = family.options.comparator;
        let (direction, expected) = match pass {
            ReadPass::First => (ScanDirection::Forward, Less),
            ReadPass::Second => (ScanDirection::Backward, Greater),
        };
        if pass == ReadPass::Second {
            self.db.flush(&family.name)?;
        }
        let mut last: Option<Vec<u8>> = None;
        self.db.for_each_position(&family.name, direction, &mut |at| {
            let sorted =
                last.as_deref().is_none_or(|last| comparator.cmp(last, at.key) == expected);
            let previous = last.as_deref().unwrap_or_default();
            if !sorted && !has_non_number_key(comparator, previous, at.key) {
                return Err(unsorted_failure(family, at.key));
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(at.key);
            let expires_at_ms = self.expires_at_ms(family, at)?;
            visit(SourceEntry { key: at.key, value: at.value, expires_at_ms })
        })
    }
}

/// Returns true if one of two keys compared as numbers is not of 8 bytes: TidesDB's comparison is
/// not transitive then.
fn has_non_number_key(comparator: KeyComparator, a: &[u8], b: &[u8]) -> bool {
    matches!(comparator, KeyComparator::U64 | KeyComparator::I64) && (a.len() != 8 || b.len() != 8)
}

fn printable_key(key: &[u8]) -> std::slice::EscapeAscii<'_> {
    key[..key.len().min(64)].escape_ascii()
}

fn unsorted_failure(family: &SourceFamily, key: &[u8]) -> Failure {
    Failure::other(
        "import",
        format!(
            "the column family {:?} is not sorted by the comparator {:?}: the key {} is out of \
             order",
            family.name,
            family.options.comparator.name(),
            printable_key(key)
        ),
    )
    .hint(
        "if you specified --comparator for it, that is not its comparator; otherwise the source is \
         damaged",
    )
}

impl TidesDbSource {
    /// Returns the expiry time of an entry in milliseconds since the Unix epoch.
    fn expires_at_ms(
        &self,
        family: &SourceFamily,
        at: &api::IterPosition<'_>,
    ) -> Result<Option<u64>> {
        let Some(chain) = &self.chain else { return Ok(None) };
        match at.read_expiry(chain) {
            // 0 and negative values mean that the entry does not expire.
            Some(i64::MIN..=0) => Ok(None),
            Some(expiry)
                if (self.started_secs - EXPIRED_GRACE_SECS..EXPIRY_MAX_SECS).contains(&expiry) =>
            {
                Ok(u64::try_from(expiry).ok().map(|secs| secs * 1000))
            }
            other => Err(calibrate::unreadable_expiry_failure(&format!(
                "column family {:?}, key {}: {}",
                family.name,
                printable_key(at.key),
                match other {
                    Some(expiry) => format!("{expiry} is not a plausible expiry time"),
                    None => "its expiry time is not where it is in other entries".to_owned(),
                }
            ))),
        }
    }
}
