//! The entries of each table. A whole table is merged as it is; of a damaged one the readable entries are written to an
//! interim table first, so that the merge meets whole files only.

use super::is_damage;
use super::report::{Loss, Repaired};
use super::survey::Survey;
use super::write::Making;
use perigee_base::format::FileKind;
use perigee_base::{EntryRef, Error, ErrorKind, FamilyId, FileId, KeyOrder, Result, SeqNo};
use perigee_file::klog::Salvage;
use perigee_file::name;

/// Families made up for tables without one are numbered down from here.
const STRAY: u32 = 1 << 30;

/// Gathers all tables.
pub fn gather(
    survey: &Survey,
    making: &mut Making,
    report: &mut Repaired,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let bytes =
        |id: &FileId| survey.dir.file_len(&name::file_name(*id, FileKind::Klog)).ok().flatten().unwrap_or(0);
    let total: u64 = survey.klogs.iter().map(bytes).sum();
    let mut done = 0;
    making.open_vlogs(survey, report)?;
    for id in &survey.klogs {
        match one(survey, *id, making, report) {
            Err(e) if is_damage(&e) => {
                let file = name::file_name(*id, FileKind::Klog);
                // A missing one is listed already.
                if !report.lost.iter().any(|l| l.file == file) {
                    report.lose(&file, None, e);
                }
            }
            other => other?,
        }
        done += bytes(id);
        progress(done, total);
    }
    Ok(())
}

fn one(survey: &Survey, id: FileId, making: &mut Making, report: &mut Repaired) -> Result<()> {
    let file = name::file_name(id, FileKind::Klog);
    let table = Salvage::open(&*survey.dir, id, survey.database)?;
    if table.family == Some(FamilyId::NOBODY) && !survey.trusted {
        report.warn(format!("{file} is part of a bulk load that was not finished: it was left out"));
        return Ok(());
    }
    let (mut found, mut values, mut largest) = (0, Vec::new(), SeqNo::ZERO);
    let lost = table.walk(|e| {
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
        vec![stray(id)]
    } else {
        families(survey, id, &table, report)
    };
    for family in &families {
        let order = survey.catalog.families.get(family).map(|f| f.settings.order).or(table.order);
        making.know(survey, *family, order);
    }
    let family_name = families.first().map(|f| making.family_name(*f)).unwrap_or_default();
    let bad_values = values.len() as u64;
    report.tables += 1;
    report.entries_found += found - bad_values;
    let parts = survey.database.is_some_and(|db| table.check_parts(db).is_ok());
    let whole = parts && lost.is_empty() && bad_values == 0;
    let order = families.first().map_or(KeyOrder::Bytes, |f| making.order(*f));
    let ranges = table.ranges(order);
    for family in families {
        if let Ok(ranges) = &ranges {
            making.add_ranges(family, ranges)?;
        }
        if whole {
            making.add_table(survey, id, family)?;
        } else if found > bad_values {
            interim(&table, family, stamp, making)?;
        }
    }
    let counted = table.entries.filter(|_| lost.len() == 1).map(|n| n.saturating_sub(found));
    if !whole && lost.is_empty() && bad_values == 0 {
        let why =
            Error::corruption("index, filter or properties are damaged; no entry was lost").in_file(&file);
        report.lost.push(Loss {
            entries: Some(0),
            family: Some(family_name.clone()),
            ..Loss::new(&file, why)
        });
    }
    if let Err(e) = ranges {
        let e = e.wrap(ErrorKind::Corruption, "range tombstones of this table are lost");
        report.lose(&file, Some(&family_name), e);
    }
    for gap in lost {
        report.lose(&file, Some(&family_name), gap.why);
        if let Some(loss) = report.lost.last_mut() {
            (loss.offset, loss.bytes, loss.entries) = (Some(gap.offset), Some(gap.bytes), counted);
            (loss.first_key, loss.last_key) = (gap.after, gap.before);
        }
    }
    for (why, key) in values {
        let vlog = why.file().map_or_else(|| file.clone(), str::to_owned);
        report.lose(&vlog, Some(&family_name), why);
        if let Some(loss) = report.lost.last_mut() {
            (loss.first_key, loss.last_key, loss.entries) = (Some(key.clone()), Some(key), Some(1));
        }
    }
    Ok(())
}

/// The families that a table belongs to: as the manifest says, else as its header says, else nobody knows.
fn families(survey: &Survey, id: FileId, table: &Salvage, report: &mut Repaired) -> Vec<FamilyId> {
    let known = survey.families_of(id);
    if !known.is_empty() {
        return known;
    }
    if let Some(family) = table.family {
        return vec![family];
    }
    let file = name::file_name(id, FileKind::Klog);
    report.warn(format!(
        "nobody knows to which family {file} belonged: its entries are in a family of their own"
    ));
    vec![stray(id)]
}

/// The number of a family for one table.
fn stray(id: FileId) -> FamilyId {
    FamilyId(STRAY - (id.0 % u64::from(STRAY / 2)) as u32)
}

/// Writes what can be read to an interim table.
fn interim(table: &Salvage, family: FamilyId, stamp: Option<SeqNo>, making: &mut Making) -> Result<()> {
    let mut writer = making.interim(family)?;
    table.walk(|e: EntryRef<'_>| {
        let readable = making.check_value(&e.value).is_ok();
        let e = EntryRef { seq: stamp.unwrap_or(e.seq), ..e };
        if readable { writer.add(e) } else { Ok(()) }
    })?;
    making.add_interim(family, writer)
}
