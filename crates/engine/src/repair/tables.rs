//! The entries of each table. A whole table is merged as it is; of a damaged one the readable
//! entries are written to an interim table first, so that the merge meets whole files only.

use super::is_damage;
use super::repair_builder::RepairBuilder;
use super::report::{LostRange, RepairSummary};
use super::survey::Survey;
use perigee_base::file_header::FileKind;
use perigee_base::{EntryRef, Error, ErrorKind, FamilyId, FileId, KeyComparator, Result, SeqNo};
use perigee_file::filename;
use perigee_file::klog::KlogSalvager;

/// Families made up for tables without one are numbered down from here.
const STRAY_FAMILY_BASE: u32 = 1 << 30;

/// Gathers all tables.
pub fn gather_tables(
    survey: &Survey,
    making: &mut RepairBuilder,
    report: &mut RepairSummary,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let bytes = |id: &FileId| {
        survey.dir.file_len(&filename::file_name(*id, FileKind::Klog)).ok().flatten().unwrap_or(0)
    };
    let total: u64 = survey.klogs.iter().map(bytes).sum();
    let mut done = 0;
    making.open_vlogs(survey, report)?;
    for id in &survey.klogs {
        match gather_table(survey, *id, making, report) {
            Err(e) if is_damage(&e) => {
                let file = filename::file_name(*id, FileKind::Klog);
                // A missing one is listed already.
                if !report.lost.iter().any(|l| l.file == file) {
                    report.add_lost_file(&file, None, e);
                }
            }
            other => other?,
        }
        done += bytes(id);
        progress(done, total);
    }
    Ok(())
}

fn gather_table(
    survey: &Survey,
    id: FileId,
    making: &mut RepairBuilder,
    report: &mut RepairSummary,
) -> Result<()> {
    let file = filename::file_name(id, FileKind::Klog);
    let table = KlogSalvager::open(&*survey.dir, id, survey.database)?;
    if table.family == Some(FamilyId::NONE) && !survey.is_manifest_trusted {
        report
            .warn(format!("{file} is part of a bulk load that was not finished: it was left out"));
        return Ok(());
    }
    let (mut found, mut values, mut largest) = (0, Vec::new(), SeqNo::ZERO);
    let lost = table.read_entries(|e| {
        found += 1;
        largest = largest.max(e.seq);
        if let Err(why) = making.check_value(&e.value) {
            values.push((why, e.key.to_vec()));
        }
        Ok(())
    })?;
    let stamp = survey.stamp(id);
    let families = if stamp.is_none() && largest == SeqNo::ZERO && found > 0 {
        // Beside other versions it would win or lose by chance.
        report.warn(format!(
            "{file} was loaded in bulk, perhaps by a load that was not finished, and its age is lost: its entries are \
             in a family of their own"
        ));
        vec![stray_family_id(id)]
    } else {
        table_families(survey, id, &table, report)
    };
    for family in &families {
        let order =
            survey.catalog.families.get(family).map(|f| f.settings.comparator).or(table.comparator);
        making.add_family(survey, *family, order);
    }
    let family_name = families.first().map(|f| making.family_name(*f)).unwrap_or_default();
    let bad_values = values.len() as u64;
    report.tables += 1;
    report.entries_found += found - bad_values;
    let parts = survey.database.is_some_and(|db| table.check_metadata(db).is_ok());
    let whole = parts && lost.is_empty() && bad_values == 0;
    let order = families.first().map_or(KeyComparator::Bytes, |f| making.order(*f));
    let ranges = table.read_range_tombstones(order);
    for family in families {
        if let Ok(ranges) = &ranges {
            making.add_ranges(family, ranges)?;
        }
        if whole {
            making.add_table(survey, id, family)?;
        } else if found > bad_values {
            write_interim_table(&table, family, stamp, making)?;
        }
    }
    let counted =
        table.expected_entries.filter(|_| lost.len() == 1).map(|n| n.saturating_sub(found));
    if !whole && lost.is_empty() && bad_values == 0 {
        let why = Error::corruption("index, filter or properties are damaged; no entry was lost")
            .in_file(&file);
        report.lost.push(LostRange {
            entries: Some(0),
            family: Some(family_name.clone()),
            ..LostRange::new(&file, why)
        });
    }
    if let Err(e) = ranges {
        let e = e.wrap(ErrorKind::Corruption, "range tombstones of this table are lost");
        report.add_lost_file(&file, Some(&family_name), e);
    }
    for gap in lost {
        report.add_lost_file(&file, Some(&family_name), gap.error);
        if let Some(loss) = report.lost.last_mut() {
            (loss.offset, loss.bytes, loss.entries) = (Some(gap.offset), Some(gap.bytes), counted);
            (loss.first_key, loss.last_key) = (gap.last_key_before, gap.first_key_after);
        }
    }
    for (why, key) in values {
        let vlog = why.file().map_or_else(|| file.clone(), str::to_owned);
        report.add_lost_file(&vlog, Some(&family_name), why);
        if let Some(loss) = report.lost.last_mut() {
            (loss.first_key, loss.last_key, loss.entries) = (Some(key.clone()), Some(key), Some(1));
        }
    }
    Ok(())
}

/// The families that a table belongs to: as the manifest says, else as its header says, else nobody
/// knows.
fn table_families(
    survey: &Survey,
    id: FileId,
    table: &KlogSalvager,
    report: &mut RepairSummary,
) -> Vec<FamilyId> {
    let known = survey.families_of(id);
    if !known.is_empty() {
        return known;
    }
    if let Some(family) = table.family {
        return vec![family];
    }
    let file = filename::file_name(id, FileKind::Klog);
    report.warn(format!(
        "nobody knows to which family {file} belonged: its entries are in a family of their own"
    ));
    vec![stray_family_id(id)]
}

/// The number of a family for one table.
fn stray_family_id(id: FileId) -> FamilyId {
    FamilyId(STRAY_FAMILY_BASE - (id.0 % u64::from(STRAY_FAMILY_BASE / 2)) as u32)
}

/// Writes what can be read to an interim table.
fn write_interim_table(
    table: &KlogSalvager,
    family: FamilyId,
    stamp: Option<SeqNo>,
    making: &mut RepairBuilder,
) -> Result<()> {
    let mut writer = making.begin_interim_table(family)?;
    table.read_entries(|e: EntryRef<'_>| {
        let readable = making.check_value(&e.value).is_ok();
        let e = EntryRef { seq: stamp.unwrap_or(e.seq), ..e };
        if readable { writer.add(e) } else { Ok(()) }
    })?;
    making.add_interim_table(family, writer)
}
