//! Reads whatever can be read of a klog, without its index: data frames one after the other, and behind a damaged one the
//! next place where a whole frame lies. A frame is believed only with its checksum, which is bound to file and place.

use super::layout::{FOOTER_BYTES, Footer, Place};
use super::props;
use super::reader::Parts;
use crate::block::Block;
use crate::block::frame::{Frame, FrameKind, HEAD_BYTES, OVERHEAD_BYTES, claimed_bytes};
use crate::input::Input;
use crate::ranges::Fragments;
use perigee_base::format::{FileHeader, FileKind, HEADER_BYTES};
use perigee_base::{EntryRef, Error, ErrorKind, FamilyId, FileId, KeyOrder, Result};
use perigee_env::Dir;
use std::cell::Cell;

/// Bytes searched at once for the next frame.
const WINDOW: u64 = 1 << 20;

/// A piece that could not be read.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Where it starts.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The last key before it.
    pub after: Option<Vec<u8>>,
    /// The first key behind it.
    pub before: Option<Vec<u8>>,
    /// What is wrong.
    pub why: Error,
}

/// A klog that may be damaged anywhere.
#[derive(Debug)]
pub struct Salvage {
    input: Input,
    /// The family in its header, if that can be read.
    pub family: Option<FamilyId>,
    /// The order of its keys, if its properties can be read.
    pub order: Option<KeyOrder>,
    /// Entries that it should hold, if its footer can be read.
    pub entries: Option<u64>,
    /// Where its data ends.
    end: u64,
    /// The header, if it is damaged.
    header: Option<Error>,
    footer: Option<Footer>,
    /// The part behind the data, once a walk has come to it: kind and place.
    behind: Cell<Option<(FrameKind, Place)>>,
}

impl Salvage {
    /// Opens a klog for what can be read of it.
    ///
    /// # Errors
    /// Only for failures of the operating system, and formats too new to read.
    pub fn open(dir: &dyn Dir, id: FileId, database: Option<u64>) -> Result<Salvage> {
        let name = crate::name::file_name(id, FileKind::Klog);
        let bytes = dir.open(&name)?.len()?;
        let input = Input::open(dir, id, FileKind::Klog, bytes)?;
        let head = input.read(0, (HEADER_BYTES as u64).min(bytes))?;
        let header = FileHeader::decode(&head, FileKind::Klog, Some(id), database);
        let footer = bytes
            .checked_sub(FOOTER_BYTES as u64)
            .map(|at| input.read(at, FOOTER_BYTES as u64).and_then(|raw| Footer::decode(&raw, id, at)));
        let footer = footer.and_then(Result::ok);
        let properties = footer.and_then(|f| {
            let raw = input.read(f.properties.0, f.properties.1).ok()?;
            let raw = Frame::decode(id, f.properties.0, &raw, FrameKind::Properties).ok()?.unpack(0).ok()?;
            props::decode(&raw).ok()
        });
        let (family, header) = match header {
            Ok(h) => (u32::try_from(h.a).ok().map(FamilyId), None),
            Err(e) if e.kind() == ErrorKind::FormatTooNew => return Err(e.in_file(name)),
            Err(e) => (None, Some(e.at(name, 0))),
        };
        Ok(Salvage {
            family,
            order: properties.map(|(_, order)| order),
            entries: footer.map(|f| f.entries),
            end: footer.map_or(bytes, |f| f.data().end),
            header,
            footer,
            behind: Cell::new(None),
            input,
        })
    }

    /// Hands out every entry that can be read, in order, and returns what cannot.
    pub fn walk(&self, mut take: impl FnMut(EntryRef<'_>) -> Result<()>) -> Result<Vec<Lost>> {
        let mut lost: Vec<Lost> = Vec::new();
        let mut open_gap = false;
        if let Some(e) = &self.header {
            let bytes = HEADER_BYTES as u64;
            lost.push(Lost { offset: 0, bytes, after: None, before: None, why: e.clone() });
        }
        let mut key = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        let mut offset = HEADER_BYTES as u64;
        while offset < self.end {
            match self.block(offset) {
                Ok((block, length)) => {
                    for i in 0..block.len() {
                        block.copy_key(i, &mut key);
                        if std::mem::take(&mut open_gap)
                            && let Some(gap) = lost.last_mut()
                        {
                            gap.before = Some(key.clone());
                        }
                        take(EntryRef { key: &key, seq: block.seq(i), value: block.value(i) })?;
                    }
                    last = Some(key.clone());
                    offset += length;
                }
                Err(e) if self.other_frame(offset).is_some() => {
                    drop(e);
                    self.behind.set(self.other_frame(offset));
                    break;
                }
                Err(why) => {
                    let next = self.next_block(offset)?.unwrap_or(self.end);
                    let why = self.input.damage(offset, why);
                    lost.push(Lost { offset, bytes: next - offset, after: last.clone(), before: None, why });
                    open_gap = true;
                    offset = next;
                }
            }
        }
        Ok(lost)
    }

    /// The data block at `offset` and the bytes of its frame.
    fn block(&self, offset: u64) -> Result<(Block, u64)> {
        let head = self.input.read(offset, (HEAD_BYTES as u64).min(self.end - offset))?;
        let length = claimed_bytes(&head, FrameKind::Data)?;
        if length > self.end - offset {
            return Err(Error::corruption("the file ends inside a frame").expected(length, self.end - offset));
        }
        let bytes = self.input.read(offset, length)?;
        let raw = Frame::decode(self.input.id(), offset, &bytes, FrameKind::Data)?.unpack(Block::SLACK)?;
        Ok((Block::parse(raw)?, length))
    }

    /// The part behind the data, if it starts here (when the footer that says so is lost).
    fn other_frame(&self, offset: u64) -> Option<(FrameKind, Place)> {
        let kinds = [FrameKind::Ranges, FrameKind::Filter, FrameKind::Index, FrameKind::Properties];
        kinds.into_iter().find_map(|kind| {
            let head = self.input.read(offset, (HEAD_BYTES as u64).min(self.end - offset)).ok()?;
            let length = claimed_bytes(&head, kind).ok().filter(|l| *l <= self.end - offset)?;
            let bytes = self.input.read(offset, length).ok()?;
            Frame::decode(self.input.id(), offset, &bytes, kind).ok().map(|_| (kind, (offset, length)))
        })
    }

    /// The first place behind `offset` where a whole data block lies.
    fn next_block(&self, offset: u64) -> Result<Option<u64>> {
        let mut start = offset + 1;
        while start + OVERHEAD_BYTES as u64 <= self.end {
            let window = self.input.read(start, (WINDOW + HEAD_BYTES as u64).min(self.end - start))?;
            let last = window.len().saturating_sub(HEAD_BYTES);
            for at in 0..=last {
                let place = start + at as u64;
                let plausible = matches!(window[at..], [_, _, _, _, _, _, _, _, _, 1, 0, 0, 0, 0, 0, 0, ..]);
                if plausible && self.block(place).is_ok() {
                    return Ok(Some(place));
                }
            }
            start += last as u64 + 1;
        }
        Ok(None)
    }

    /// The range tombstones. After a walk.
    ///
    /// # Errors
    /// `Corruption` if there are, or may have been, some that cannot be read.
    pub fn ranges(&self, order: KeyOrder) -> Result<Fragments> {
        let place = match (self.footer, self.behind.get()) {
            (Some(footer), _) => footer.ranges(),
            (None, Some((FrameKind::Ranges, place))) => place,
            (None, Some(_)) => (0, 0),
            (None, None) => {
                let e = Error::corruption("range tombstones, if it had any, cannot be found");
                return Err(self.input.damage(self.end, e));
            }
        };
        if place == (0, 0) {
            return Ok(Fragments::default());
        }
        let decode = || {
            let bytes = self.input.read(place.0, place.1)?;
            let raw = Frame::decode(self.input.id(), place.0, &bytes, FrameKind::Ranges)?.unpack(0)?;
            Fragments::decode(&raw, order)
        };
        decode().map_err(|e| self.input.damage(place.0, e))
    }

    /// Whether everything beside the data blocks is as it should be.
    pub fn check_parts(&self, database: u64) -> Result<()> {
        Parts::read(&self.input, database).map(|_| ())
    }
}
