//! Salvages the readable parts of a klog without its index: reads data frames one after the other,
//! and after a damaged one searches for the next offset with a valid frame. A frame is accepted
//! only with a matching checksum, which covers its file and offset.

use super::layout::{FOOTER_BYTES, Footer};
use super::properties;
use super::reader::KlogMetadata;
use crate::block::TableBlock;
use crate::block::frame::{
    FRAME_HEADER_BYTES, FRAME_OVERHEAD_BYTES, Frame, FrameKind, declared_frame_bytes,
};
use crate::limits::SALVAGE_WINDOW_BYTES;
use crate::range_tombstones::RangeTombstones;
use crate::table_file_reader::TableFileReader;
use perigee_base::{
    BlockHandle, EntryRef, Error, ErrorKind, FamilyId, FileHeader, FileId, FileKind, HEADER_BYTES,
    KeyComparator, Result,
};
use perigee_env::Dir;
use std::cell::Cell;

/// A byte range that could not be read.
#[derive(Clone, Debug)]
pub struct UnreadableRange {
    /// Offset of its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The last key read before it.
    pub last_key_before: Option<Vec<u8>>,
    /// The first key read after it.
    pub first_key_after: Option<Vec<u8>>,
    /// The read error.
    pub error: Error,
}

/// A klog that may be damaged anywhere.
#[derive(Debug)]
pub struct KlogSalvager {
    input: TableFileReader,
    /// The column family in the header, if the header can be read.
    pub family: Option<FamilyId>,
    /// The comparator of its keys, if the properties can be read.
    pub comparator: Option<KeyComparator>,
    /// The number of entries in the footer, if the footer can be read.
    pub expected_entries: Option<u64>,
    /// End of the data section.
    data_end: u64,
    /// The header error, if the header is damaged.
    header_error: Option<Error>,
    footer: Option<Footer>,
    /// Kind and handle of the part after the data, set once a scan has reached it.
    part_after_data: Cell<Option<(FrameKind, BlockHandle)>>,
}

impl KlogSalvager {
    /// Opens a klog that may be damaged.
    ///
    /// # Errors
    /// Only failures of the operating system, and formats too new to read.
    pub fn open(dir: &dyn Dir, id: FileId, database: Option<u64>) -> Result<KlogSalvager> {
        let name = crate::filename::file_name(id, FileKind::Klog);
        let bytes = dir.open(&name)?.len()?;
        let input = TableFileReader::open(dir, id, FileKind::Klog, bytes)?;
        let head = input.read(BlockHandle { offset: 0, len: (HEADER_BYTES as u64).min(bytes) })?;
        let header = FileHeader::decode(&head, FileKind::Klog, Some(id), database);
        let footer = bytes.checked_sub(FOOTER_BYTES as u64).map(|at| {
            let handle = BlockHandle { offset: at, len: FOOTER_BYTES as u64 };
            input.read(handle).and_then(|raw| Footer::decode(&raw, id, at))
        });
        let footer = footer.and_then(Result::ok);
        let properties = footer.and_then(|f| {
            let raw = input.read(f.properties).ok()?;
            let raw = Frame::decode(id, f.properties.offset, &raw, FrameKind::Properties)
                .ok()?
                .decompress(0)
                .ok()?;
            properties::decode(&raw).ok()
        });
        let (family, header) = match header {
            Ok(h) => (u32::try_from(h.a).ok().map(FamilyId), None),
            Err(e) if e.kind() == ErrorKind::FormatTooNew => return Err(e.in_file(name)),
            Err(e) => (None, Some(e.at(name, 0))),
        };
        Ok(KlogSalvager {
            family,
            comparator: properties.map(|(_, comparator)| comparator),
            expected_entries: footer.map(|f| f.entry_count),
            data_end: footer.map_or(bytes, |f| f.data_range().end),
            header_error: header,
            footer,
            part_after_data: Cell::new(None),
            input,
        })
    }

    /// Calls `take` with every readable entry, in order; returns the unreadable ranges.
    pub fn read_entries(
        &self,
        mut visit: impl FnMut(EntryRef<'_>) -> Result<()>,
    ) -> Result<Vec<UnreadableRange>> {
        let mut unreadable: Vec<UnreadableRange> = Vec::new();
        let mut open_gap = false;
        if let Some(e) = &self.header_error {
            let bytes = HEADER_BYTES as u64;
            unreadable.push(UnreadableRange {
                offset: 0,
                bytes,
                last_key_before: None,
                first_key_after: None,
                error: e.clone(),
            });
        }
        let mut key = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        let mut offset = HEADER_BYTES as u64;
        while offset < self.data_end {
            match self.read_block(offset) {
                Ok((block, length)) => {
                    for i in 0..block.len() {
                        block.copy_key(i, &mut key);
                        if std::mem::take(&mut open_gap)
                            && let Some(gap) = unreadable.last_mut()
                        {
                            gap.first_key_after = Some(key.clone());
                        }
                        visit(EntryRef { key: &key, seq: block.seq(i), value: block.value(i) })?;
                    }
                    last = Some(key.clone());
                    offset += length;
                }
                Err(e) if self.find_other_frame(offset).is_some() => {
                    drop(e);
                    self.part_after_data.set(self.find_other_frame(offset));
                    break;
                }
                Err(error) => {
                    let next = self.find_next_block(offset)?.unwrap_or(self.data_end);
                    check!(
                        next > offset,
                        "salvage advances past what it cannot read",
                        next,
                        offset
                    );
                    let error = self.input.error_at(offset, error);
                    unreadable.push(UnreadableRange {
                        offset,
                        bytes: next - offset,
                        last_key_before: last.clone(),
                        first_key_after: None,
                        error,
                    });
                    open_gap = true;
                    offset = next;
                }
            }
        }
        Ok(unreadable)
    }

    /// Returns the handle of a frame header at `offset`, or of what is left before the data ends.
    fn frame_header_at(&self, offset: u64) -> BlockHandle {
        let len = (FRAME_HEADER_BYTES as u64).min(self.data_end - offset);
        BlockHandle { offset, len }
    }

    /// Returns the data block at `offset` and the length of its frame.
    fn read_block(&self, offset: u64) -> Result<(TableBlock, u64)> {
        let head = self.input.read(self.frame_header_at(offset))?;
        let length = declared_frame_bytes(&head, FrameKind::Data)?;
        if length > self.data_end - offset {
            return Err(Error::corruption("the file ends inside a frame")
                .expected(length, self.data_end - offset));
        }
        let bytes = self.input.read(BlockHandle { offset, len: length })?;
        let frame = seeded!(
            RepairUsesBadBlock,
            Frame::decode(self.input.id(), offset, &bytes, FrameKind::Data)?,
            Frame::decode_body(&bytes[..bytes.len() - size_of::<u64>()], FrameKind::Data)?
        );
        Ok((TableBlock::parse(frame.decompress(TableBlock::SLACK)?)?, length))
    }

    /// Returns the part after the data if it starts here (used if the footer is lost).
    fn find_other_frame(&self, offset: u64) -> Option<(FrameKind, BlockHandle)> {
        let kinds = [FrameKind::Ranges, FrameKind::Filter, FrameKind::Index, FrameKind::Properties];
        kinds.into_iter().find_map(|kind| {
            let head = self.input.read(self.frame_header_at(offset)).ok()?;
            let length =
                declared_frame_bytes(&head, kind).ok().filter(|l| *l <= self.data_end - offset)?;
            let bytes = self.input.read(BlockHandle { offset, len: length }).ok()?;
            Frame::decode(self.input.id(), offset, &bytes, kind)
                .ok()
                .map(|_| (kind, BlockHandle { offset, len: length }))
        })
    }

    /// Returns the first offset after `offset` with a valid data block.
    fn find_next_block(&self, offset: u64) -> Result<Option<u64>> {
        let mut start = offset + 1;
        while start + FRAME_OVERHEAD_BYTES as u64 <= self.data_end {
            let len = (SALVAGE_WINDOW_BYTES + FRAME_HEADER_BYTES as u64).min(self.data_end - start);
            let window = self.input.read(BlockHandle { offset: start, len })?;
            let last = window.len().saturating_sub(FRAME_HEADER_BYTES);
            for at in 0..=last {
                let candidate = start + at as u64;
                let plausible =
                    matches!(window[at..], [_, _, _, _, _, _, _, _, _, 1, 0, 0, 0, 0, 0, 0, ..]);
                if plausible && self.read_block(candidate).is_ok() {
                    return Ok(Some(candidate));
                }
            }
            start += last as u64 + 1;
        }
        Ok(None)
    }

    /// Returns the range tombstones. Call it after [`KlogSalvager::read_entries`].
    ///
    /// # Errors
    /// `Corruption` if range tombstones exist, or may have existed, that cannot be read.
    pub fn read_range_tombstones(&self, comparator: KeyComparator) -> Result<RangeTombstones> {
        let handle = match (self.footer, self.part_after_data.get()) {
            (Some(footer), _) => footer.ranges_handle(),
            (None, Some((FrameKind::Ranges, handle))) => handle,
            (None, Some(_)) => BlockHandle::ABSENT,
            (None, None) => {
                let e = Error::corruption("range tombstones cannot be located, and may be lost");
                return Err(self.input.error_at(self.data_end, e));
            }
        };
        if handle == BlockHandle::ABSENT {
            return Ok(RangeTombstones::default());
        }
        let decode = || {
            let bytes = self.input.read(handle)?;
            let raw = Frame::decode(self.input.id(), handle.offset, &bytes, FrameKind::Ranges)?
                .decompress(0)?;
            RangeTombstones::decode(&raw, comparator)
        };
        decode().map_err(|e| self.input.error_at(handle.offset, e))
    }

    /// Fails unless all parts other than the data blocks are valid.
    pub fn check_metadata(&self, database: u64) -> Result<()> {
        KlogMetadata::read(&self.input, database).map(|_| ())
    }
}
