import {
  AbstractLevel,
  AbstractDatabaseOptions,
  AbstractOpenOptions,
  AbstractPutOptions,
  AbstractDelOptions,
  AbstractBatchOperation,
  AbstractBatchOptions,
  AbstractChainedBatch,
  AbstractChainedBatchWriteOptions,
  AbstractSnapshot
} from 'abstract-level'
import { Database, DatabaseOptions as PerigeeOptions } from './index.js'

/** Options of {@link PerigeeLevel.open}. */
export interface OpenOptions extends AbstractOpenOptions {
  /**
   * Options of `Database.open`, such as `{ durability: 'full' }`. The default durability is
   * `'interval 100 ms'`; a write with the option `sync` is always synced.
   */
  perigee?: Omit<PerigeeOptions, 'keyEncoding' | 'valueEncoding'> | undefined
  /** `false`: no compression. */
  compression?: boolean | undefined
  /** Same as `perigee.blockCacheBytes`. */
  cacheSize?: number | undefined
  /** Same as `perigee.families.default.memtableBytes`. */
  writeBufferSize?: number | undefined
  /** Same as `perigee.families.default.blockBytes`. */
  blockSize?: number | undefined
  /** Same as `perigee.families.default.targetFileBytes`. */
  maxFileSize?: number | undefined
  /** Same as `perigee.maxOpenFiles`. */
  maxOpenFiles?: number | undefined
}

/** Options of the constructor. */
export interface DatabaseOptions<K, V>
  extends AbstractDatabaseOptions<K, V>, Omit<OpenOptions, 'passive'> {}

export interface SyncOptions {
  /** Acknowledge the write after a sync. */
  sync?: boolean | undefined
}

export interface PutOptions<K, V> extends AbstractPutOptions<K, V>, SyncOptions {}
export interface DelOptions<K> extends AbstractDelOptions<K>, SyncOptions {}
export interface BatchOptions<K, V> extends AbstractBatchOptions<K, V>, SyncOptions {}
export interface ChainedBatchWriteOptions extends AbstractChainedBatchWriteOptions, SyncOptions {}
export class ChainedBatch<TDatabase, KDefault, VDefault> extends AbstractChainedBatch<
  TDatabase,
  KDefault,
  VDefault
> {
  write(): Promise<void>
  write(options: ChainedBatchWriteOptions): Promise<void>
}

/**
 * An abstract-level database, stored by Perigee.
 *
 * @template KDefault The type of keys if not overridden on operations.
 * @template VDefault The type of values if not overridden on operations.
 */
export class PerigeeLevel<KDefault = string, VDefault = string> extends AbstractLevel<
  string | Buffer | Uint8Array,
  KDefault,
  VDefault
> {
  constructor(location: string, options?: DatabaseOptions<KDefault, VDefault> | undefined)
  /** The directory that was passed to the constructor. */
  get location(): string
  /** The open database, for what abstract-level has no methods for; `null` if not open. */
  get database(): Database | null
  open(): Promise<void>
  open(options: OpenOptions): Promise<void>
  put(key: KDefault, value: VDefault): Promise<void>
  put<K = KDefault, V = VDefault>(key: K, value: V, options: PutOptions<K, V>): Promise<void>
  del(key: KDefault): Promise<void>
  del<K = KDefault>(key: K, options: DelOptions<K>): Promise<void>
  batch(operations: Array<AbstractBatchOperation<typeof this, KDefault, VDefault>>): Promise<void>
  batch<K = KDefault, V = VDefault>(
    operations: Array<AbstractBatchOperation<typeof this, K, V>>,
    options: BatchOptions<K, V>
  ): Promise<void>
  batch(): ChainedBatch<typeof this, KDefault, VDefault>
  snapshot(options?: any | undefined): AbstractSnapshot
}
