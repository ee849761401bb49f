//! What a rewrite of a column family needs to know about the database.

use super::Catalog;
use super::family::FamilyState;
use perigee_base::SeqNo;
use perigee_base::bug::{self, Bug};
use perigee_tree::Version;
use perigee_tree::rewrite::{RewriteContext, RewritePacer};

impl Catalog {
    /// Returns the context for a rewrite of `family` whose newest operation is `newest` (0: it
    /// changes nothing that readers see). The live readers are listed now, after the inputs were
    /// fixed.
    pub fn rewrite_context<'a>(
        &'a self,
        family: &FamilyState,
        version: &'a Version,
        pacer: &'a dyn RewritePacer,
        newest: SeqNo,
    ) -> RewriteContext<'a> {
        let now = self.runtime.env.clock.monotonic_us();
        let readers = self.snapshots.begin_rewrite(&self.visible_seq, now, newest);
        let ignored = bug::is_active(Bug::IgnoreSnapshots);
        let readers = if ignored { readers.without_snapshots() } else { readers };
        RewriteContext {
            version,
            stripes: readers.into_stripes(),
            options: family.klog_options(self.runtime.identity.database),
            separation_threshold: family.settings().value_threshold,
            target_bytes: self.resources.target_table_bytes(family.settings().target_file_bytes),
            cuts: Vec::new(),
            verify_outputs: self.runtime.settings.verify_outputs,
            fill_cache: false,
            table_cache: self.resources.table_cache(),
            next_file_id: &self.next_file_id,
            pacer,
            now: &*self.runtime.logical_clock,
            merge_operator: family.tree.view().merge_operator.get().cloned(),
            filter: None,
            bottom_seq: None,
            deferred_sync: None,
        }
    }
}
