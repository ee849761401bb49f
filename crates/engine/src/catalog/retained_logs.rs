//! Decides which log segments are retained for readers beyond what recovery needs. Pure except for
//! trimming.
//!
//! Invariant: the retained segments are the newest and have no gaps, so that a reader can continue
//! from any position in them.

use perigee_base::{FileId, FileKind, Result, SeqNo};
use perigee_env::Dir;
use perigee_file::filename;

/// A complete segment, or the valid prefix of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpan {
    /// File id.
    pub id: FileId,
    /// LSN of its first record.
    pub first_lsn: SeqNo,
    /// LSN after its last record.
    pub end_lsn: SeqNo,
    /// File offset of the end of its last record; anything after it is ignored.
    pub bytes: u64,
}

/// Returns how many of the oldest segments exceed `limit` bytes.
pub fn excess_segments(spans: &[LogSpan], limit: u64) -> usize {
    let mut kept = 0u64;
    let newest = spans.iter().rev().take_while(|s| {
        kept = kept.saturating_add(s.bytes);
        kept <= limit
    });
    spans.len() - newest.count()
}

/// Splits the retained segments and the `more` that recovery no longer needs into those to keep and
/// those to delete.
pub fn split_retained(
    kept: &[LogSpan],
    more: &[LogSpan],
    limit: u64,
) -> (Vec<LogSpan>, Vec<LogSpan>) {
    let mut all = kept.to_vec();
    for span in more.iter().filter(|s| s.first_lsn < s.end_lsn) {
        // A reader could not continue across a gap: everything before it goes.
        if all.last().is_some_and(|last| last.end_lsn != span.first_lsn) {
            all.clear();
        }
        all.push(*span);
    }
    let stay = all.split_off(excess_segments(&all, limit));
    let stays = |s: &&LogSpan| !stay.iter().any(|k| k.id == s.id);
    let gone: Vec<LogSpan> = kept.iter().chain(more).filter(stays).copied().collect();
    check!(
        stay.windows(2).all(|w| w[0].end_lsn == w[1].first_lsn),
        "retained segments have no gaps",
        stay
    );
    check!(
        stay.iter().map(|s| s.bytes).fold(0, u64::saturating_add) <= limit,
        "retained segments do not exceed their limit",
        stay,
        limit
    );
    check!(
        stay.len() + gone.len() == kept.len() + more.len(),
        "a segment is retained or removed",
        stay,
        gone
    );
    (stay, gone)
}

/// Truncates a retained segment to its valid bytes.
pub fn trim_segment(dir: &dyn Dir, span: &LogSpan) -> Result<()> {
    let name = filename::file_name(span.id, FileKind::Wal);
    if dir.file_len(&name)?.is_some_and(|len| len > span.bytes) {
        dir.append_to(&name)?.truncate(span.bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u64, first: u64, end: u64, bytes: u64) -> LogSpan {
        LogSpan { id: FileId(id), first_lsn: SeqNo(first), end_lsn: SeqNo(end), bytes }
    }
    fn ids(spans: &[LogSpan]) -> Vec<u64> {
        spans.iter().map(|s| s.id.0).collect()
    }

    #[test]
    fn newest_segments_are_retained_within_limit() {
        let kept = [span(1, 1, 5, 40), span(2, 5, 9, 40)];
        let more = [span(3, 9, 12, 30)];
        let split = |limit| {
            let (stay, gone) = split_retained(&kept, &more, limit);
            (ids(&stay), ids(&gone))
        };
        assert_eq!(split(0), (vec![], vec![1, 2, 3]));
        assert_eq!(split(70), (vec![2, 3], vec![1]));
        assert_eq!(split(1000), (vec![1, 2, 3], vec![]));
        assert_eq!(
            split(29),
            (vec![], vec![1, 2, 3]),
            "a segment that is too large removes those before it"
        );
    }

    #[test]
    fn segments_before_gap_and_empty_segments_are_removed() {
        let (stay, gone) =
            split_retained(&[span(1, 1, 5, 40)], &[span(2, 6, 9, 1), span(3, 9, 9, 1)], 1000);
        assert_eq!((ids(&stay), ids(&gone)), (vec![2], vec![1, 3]));
    }
}
