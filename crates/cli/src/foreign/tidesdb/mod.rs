//! The door to TidesDB 9: a database is read through TidesDB's own library, which the user names.
//!
//! Rooms: `chain` (where an iterator keeps an entry's end; `unsafe`), `api` (its C interface;
//! `unsafe`), `calibrate` (how that is found), `look` (what its files tell), `settings` (what
//! becomes of a family's). Invariant: unless asked for in place, the library only ever sees a copy.

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

/// How long before the import began an entry may have ended that the library still shows: it goes
/// by a clock that it looks at now and then.
const EXPIRED_GRACE_SECS: i64 = 3600;
/// Ends behind this second (in 34,000 years) are taken for misread.
const EXPIRY_MAX_SECS: i64 = 1 << 40;

/// What to import, and how.
#[derive(Debug)]
pub struct ImportRequest<'a> {
    /// The database.
    pub dir: &'a Path,
    /// TidesDB's shared library.
    pub library: &'a Path,
    /// Open the database itself.
    pub in_place: bool,
    /// Read everything as if it never expired.
    pub ignore_ttl: bool,
    /// Orders of families with comparators of users.
    pub comparator_overrides: &'a ComparatorOverrides,
}

/// A database of TidesDB, open.
pub struct TidesDbSource {
    // Before `_scratch`: closed before its files are removed.
    db: Database,
    families: Vec<SourceFamily>,
    /// `None`: ends are ignored.
    chain: Option<ExpiryChain>,
    started_secs: i64,
    description: String,
    _scratch: ScratchDir,
}

/// Seconds since 1970.
fn now_secs() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| i64::try_from(t.as_secs()).unwrap_or(i64::MAX))
}

/// Checks everything that can be checked before, copies the database into `scratch` unless it is to
/// be opened in place, and opens it.
pub fn open(
    wanted: &ImportRequest<'_>,
    scratch: impl FnOnce() -> Result<ScratchDir>,
) -> Result<TidesDbSource> {
    let layout = layout::read_layout(wanted.dir)?;
    wanted
        .comparator_overrides
        .check_families(layout.families.iter().map(|(name, _)| name.as_str()))?;
    for (name, comparator) in &layout.families {
        comparator_of(wanted.comparator_overrides, name, comparator)?;
    }
    if let Some((name, comparator)) =
        custom_comparator_families(&layout).next().filter(|_| wanted.in_place)
    {
        return Err(Failure::usage(format!(
            "the family {name:?}, with the comparator {comparator:?}, needs a copy"
        ))
        .hint("leave --in-place out"));
    }
    let library = Library::load(wanted.library)?;
    let started_secs = now_secs();
    let scratch = scratch()?;
    let copied = scratch.dir().join("source");
    let held = scratch::lock_source(wanted.dir, "TidesDB")?;
    let dir = if wanted.in_place {
        // The library takes the lock itself, and would meet ours.
        drop(held);
        wanted.dir
    } else {
        std::fs::create_dir(&copied).map_err(|e| Failure::file("create", &copied, &e))?;
        scratch::copy_source(wanted.dir, &copied)?;
        drop(held);
        // A family whose comparator nobody has registered is not opened at all: in the copy it gets
        // the one that is said to be the same.
        for (name, comparator) in custom_comparator_families(&layout) {
            layout::rename_comparator(
                &copied,
                name,
                comparators::comparator_name(comparator_of(
                    wanted.comparator_overrides,
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
        let order = comparator_of(wanted.comparator_overrides, name, comparator)?;
        let (config, keys) = db.stats(name)?;
        let for_c = Some(settings::c_library_settings(&config, order));
        let (options, settings) = settings::map_settings(&config, order);
        families.push(SourceFamily {
            name: name.clone(),
            options,
            settings,
            c_library_settings: for_c,
            estimated_entries: Some(keys),
        });
        configs.push(config);
    }
    let chain = calibrate_expiry(wanted, &library, &scratch, layout.unified, &configs)?;
    let how = if wanted.in_place { "in place" } else { "from a copy" };
    let told = format!("TidesDB database {}, read {how}", show_path(wanted.dir));
    Ok(TidesDbSource { db, families, chain, started_secs, description: told, _scratch: scratch })
}

/// How the ends of entries are read, unless they are not wanted.
fn calibrate_expiry(
    wanted: &ImportRequest<'_>,
    library: &std::rc::Rc<Library>,
    scratch: &ScratchDir,
    unified: bool,
    configs: &[FamilyConfig],
) -> Result<Option<ExpiryChain>> {
    if wanted.ignore_ttl {
        return Ok(None);
    }
    calibrate::find_expiry_chain(library, &scratch.dir().join("probes"), unified, configs).map(Some)
}

/// The order of a family: that of its comparator if it is built in, else what the user says.
fn comparator_of(
    said: &ComparatorOverrides,
    family: &str,
    comparator: &str,
) -> Result<KeyComparator> {
    match (comparators::comparator_by_name(comparator), said.get(family)) {
        (Some(order), None) => Ok(order),
        (Some(order), Some(asked)) if order == asked => Ok(order),
        (Some(_), Some(_)) => {
            Err(Failure::usage(format!("--order for the family {family:?}: its comparator is {comparator}"))
                .hint("only a comparator that is not built in needs --order"))
        }
        (None, Some(asked)) => Ok(asked),
        (None, None) => Err(Failure::usage(format!(
            "the family {family:?} is sorted by the comparator {comparator:?}, a function of the program that wrote it"
        ))
        .hint(format!(
            "if it sorts as a built-in one does, say so: --order {family}=memcmp (or uint64, int64, reverse, ...); \
             keys that are not in that order are refused"
        ))),
    }
}

/// The families with comparators of users.
fn custom_comparator_families(
    layout: &layout::SourceLayout,
) -> impl Iterator<Item = &(String, String)> {
    layout
        .families
        .iter()
        .filter(|(_, comparator)| comparators::comparator_by_name(comparator).is_none())
}

/// Refuses if the library did not open a family whose files are there.
fn check_all_families_open(db: &Database, layout: &layout::SourceLayout) -> Result<()> {
    let open = db.family_names()?;
    match layout.families.iter().find(|(name, _)| !open.iter().any(|n| n == name.as_bytes())) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::other(
            "TidesDB",
            format!("TidesDB's library opened the database without its family {name:?}"),
        )
        .hint("open it with the program that wrote it and close it there, so that its log is empty; then import")),
    }
}

impl ForeignSource for TidesDbSource {
    fn description(&self) -> String {
        self.description.clone()
    }
    fn families(&self) -> &[SourceFamily] {
        &self.families
    }
    /// The second look goes backward, and over what the first one may have found in memory once
    /// that is in tables: both are other roads through the library.
    fn for_each_entry(
        &mut self,
        family: usize,
        look: ReadPass,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<()> {
        let family = &self.families[family];
        let order = family.options.order;
        let (way, ahead) = match look {
            ReadPass::First => (ScanDirection::Forward, Less),
            ReadPass::Second => (ScanDirection::Backward, Greater),
        };
        if look == ReadPass::Second {
            self.db.flush(&family.name)?;
        }
        let mut last: Option<Vec<u8>> = None;
        self.db.for_each_position(&family.name, way, &mut |at| {
            let sorted = last.as_deref().is_none_or(|last| order.cmp(last, at.key) == ahead);
            if !sorted && !has_non_number_key(order, last.as_deref().unwrap_or_default(), at.key) {
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

/// Whether two keys stand where TidesDB's own order of numbers is none: one of them has not 8
/// bytes.
fn has_non_number_key(order: KeyComparator, a: &[u8], b: &[u8]) -> bool {
    matches!(order, KeyComparator::U64 | KeyComparator::I64) && (a.len() != 8 || b.len() != 8)
}

fn printable_key(key: &[u8]) -> std::slice::EscapeAscii<'_> {
    key[..key.len().min(64)].escape_ascii()
}

fn unsorted_failure(family: &SourceFamily, key: &[u8]) -> Failure {
    Failure::other(
        "import",
        format!(
            "the family {:?} does not come in the order {:?}: the key {} is out of place",
            family.name,
            family.options.order.name(),
            printable_key(key)
        ),
    )
    .hint("if --order said how it is sorted, that is not so; otherwise the source is damaged")
}

impl TidesDbSource {
    /// When an entry expires, in milliseconds since the Unix epoch.
    fn expires_at_ms(
        &self,
        family: &SourceFamily,
        at: &api::IterPosition<'_>,
    ) -> Result<Option<u64>> {
        let Some(chain) = &self.chain else { return Ok(None) };
        match at.read_expiry(chain) {
            // 0, and everything below it, is never.
            Some(i64::MIN..=0) => Ok(None),
            Some(end)
                if (self.started_secs - EXPIRED_GRACE_SECS..EXPIRY_MAX_SECS).contains(&end) =>
            {
                Ok(u64::try_from(end).ok().map(|secs| secs * 1000))
            }
            other => Err(calibrate::unreadable_expiry_failure(&format!(
                "family {:?}, key {}: {}",
                family.name,
                printable_key(at.key),
                match other {
                    Some(end) => format!("{end} is no time that an entry ends at"),
                    None => "its end is not where it was in other entries".to_owned(),
                }
            ))),
        }
    }
}
