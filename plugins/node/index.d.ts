/// <reference types="node" />

/** A key: a string is stored as UTF-8. At most 65,536 bytes; may be empty. */
export type Key = string | Uint8Array
/** A value of encoding `'buffer'` or `'utf8'`. At most 1 GiB. */
export type Bytes = string | Uint8Array

export type KeyEncoding = 'buffer' | 'utf8'
export type ValueEncoding = 'buffer' | 'utf8' | 'json'

/** When a write is acknowledged. See {@link DatabaseOptions.durability}. */
export type WriteDurability = 'full' | 'none'

/** Codes of errors. */
export type PerigeeErrorCode =
  | 'PERIGEE_INVALID_ARGUMENT'
  | 'PERIGEE_NOT_FOUND'
  | 'PERIGEE_ALREADY_EXISTS'
  | 'PERIGEE_LOCKED'
  | 'PERIGEE_CORRUPTION'
  | 'PERIGEE_FORMAT_TOO_NEW'
  | 'PERIGEE_IO'
  | 'PERIGEE_NO_SPACE'
  | 'PERIGEE_OUTCOME_UNKNOWN'
  | 'PERIGEE_POISONED'
  | 'PERIGEE_CLOSED'
  | 'PERIGEE_NO_MEMORY'
  | 'PERIGEE_READ_ONLY'
  | 'PERIGEE_BUSY'
  | 'PERIGEE_CONFLICT'
  | 'PERIGEE_ABORTED'
  | 'PERIGEE_INTERRUPTED'
  | 'PERIGEE_INTERNAL'
  | 'PERIGEE_ERROR'

/** An error of the database. `instanceof PerigeeError` is true for all of them. */
export class PerigeeError extends Error {
  constructor(code: PerigeeErrorCode, message: string, options?: { cause?: unknown })
  readonly name: 'PerigeeError'
  readonly code: PerigeeErrorCode
  /** True if the operation had no effect and may succeed if it is tried again as a whole. */
  readonly retryable: boolean
  /** The file in which the error occurred, relative to the database directory. */
  readonly file?: string
  /** The byte offset in that file. */
  readonly offset?: number
  /** The column family of a conflict. */
  readonly family?: string
  /** The key of a conflict. */
  readonly key?: Buffer
  /** The error number of the operating system. */
  readonly errno?: number
}

/** The type of keys that an encoding returns. */
export type KeyOf<E extends KeyEncoding> = E extends 'utf8' ? string : Buffer
/** The type of values that an encoding returns. */
export type ValueOf<E extends ValueEncoding> = E extends 'json'
  ? any
  : E extends 'utf8'
    ? string
    : Buffer
/** The type of values that an encoding takes. */
export type ValueIn<E extends ValueEncoding> = E extends 'json' ? any : Bytes

/** The encodings of keys and values that are returned (default `'buffer'`). */
export interface EncodingOptions<
  K extends KeyEncoding = KeyEncoding,
  V extends ValueEncoding = ValueEncoding
> {
  /** Returned keys: `'buffer'` (default) or `'utf8'`, strings. */
  keyEncoding?: K | undefined
  /** Values: `'buffer'` (default), `'utf8'`, strings, or `'json'`, any value of JSON. */
  valueEncoding?: V | undefined
}

/** Options of a column family. They are stored with it. Sizes are bytes or texts like `64 MiB`. */
export interface FamilyOptions {
  /** Order of keys: `'bytes'` (default), `'reverse'`, `'u64'`, ... Fixed at creation. */
  comparator?: string
  memtableBytes?: number | string
  valueThreshold?: number | string
  blockBytes?: number | string
  /** `'lz4'` (default), `'none'`, `'snappy'`, `'zstd 3'`, ... */
  compression?: string
  /** Bits per key of the Bloom filter, or a false-positive rate such as `'1 %'`. */
  filterBits?: number | string
  targetFileBytes?: number | string
  level1Bytes?: number | string
  levelRatio?: number | string
  isolation?: IsolationLevel | 'database'
  /** `'none'` (default), `'counter'` or `'append:SEPARATOR'`. See {@link ColumnFamily.merge}. */
  mergeOperator?: string
}

export type IsolationLevel =
  'read uncommitted' | 'read committed' | 'repeatable read' | 'snapshot' | 'serializable'

/** Options of a database. Not stored, except `families`. */
export interface DatabaseOptions<
  K extends KeyEncoding = KeyEncoding,
  V extends ValueEncoding = ValueEncoding
> extends EncodingOptions<K, V> {
  /** Create the database if it does not exist (default true). */
  createIfMissing?: boolean
  /** Fail if the database exists (default false). */
  errorIfExists?: boolean
  /** Open without a lock and without changing a byte, also while another process writes. */
  readOnly?: boolean
  salvageReadonly?: boolean
  /**
   * When a write is acknowledged: `'full'` (default) after a sync, `'none'` or
   * `'interval 100 ms'` before it: much faster, and a power failure can lose the newest writes.
   */
  durability?: WriteDurability | `interval ${string}`
  isolation?: IsolationLevel
  /** Memory for everything together: `'auto'` (default, a quarter of the machine) or a size. */
  memoryBudget?: number | string
  blockCacheBytes?: number | string
  rowCacheBytes?: number | string
  maxOpenFiles?: number
  minFreeSpace?: number | string
  verifyOutputs?: boolean
  backgroundRate?: number | string
  spaceAmplification?: number
  scrubInterval?: string
  logRetention?: number | string
  history?: string
  latencyStats?: boolean
  logFileBytes?: number | string
  logFilesKept?: number
  /** Options of column families by name; those that do not exist are created. */
  families?: Record<string, FamilyOptions>
}

/** A key range. `gte` and `lte` take precedence over `gt` and `lt`. */
export interface KeyRange {
  gt?: Key | null | undefined
  gte?: Key | null | undefined
  lt?: Key | null | undefined
  lte?: Key | null | undefined
  /** The keys that start with these bytes; not together with bounds. */
  prefix?: Key | null | undefined
}

export interface RangeOptions<
  K extends KeyEncoding = KeyEncoding,
  V extends ValueEncoding = ValueEncoding
>
  extends KeyRange, EncodingOptions<K, V> {
  /** From the last key to the first (default false). */
  reverse?: boolean | undefined
  /** Maximum number of entries (default: no limit). */
  limit?: number | undefined
}

export interface WriteOptions {
  /** The durability of this write (default: that of the database). */
  durability?: WriteDurability | undefined
}

export interface PutOptions<V extends ValueEncoding = ValueEncoding> extends WriteOptions {
  /** Time to live in milliseconds. */
  ttl?: number | undefined
  /** Expiry time; not together with `ttl`. */
  expiresAt?: Date | number | undefined
  valueEncoding?: V | undefined
}

export interface TransactionOptions {
  isolation?: IsolationLevel | undefined
  /** Rejects writes, tracks no reads and never conflicts. */
  readOnly?: boolean | undefined
  /** Locks each key before it is written, and waits for other holders of the lock. */
  pessimistic?: boolean | undefined
  /** Longest wait for a lock in milliseconds (default 1000). */
  lockTimeout?: number | undefined
  /** Longest duration of the transaction in milliseconds. */
  timeout?: number | undefined
  maxBytes?: number | undefined
  spillBytes?: number | undefined
}

export interface RunTransactionOptions extends TransactionOptions, WriteOptions {
  /** Maximum number of attempts after conflicts (default 100). */
  attempts?: number | undefined
}

export interface ValueWithTtl<T> {
  value: T
  /** Expiry time; `null`: never. */
  expiresAt: Date | null
  /** Milliseconds until then; `null`: never expires. */
  ttl: number | null
}

/** An operation of a batch. `family`: a column family or its name (default: that of the batch). */
export type BatchOperation =
  | ({
      type: 'put'
      key: Key
      value: any
      family?: ColumnFamily<any, any> | Database<any, any> | string
    } & Omit<PutOptions, 'durability'>)
  | {
      type: 'delete' | 'del'
      key: Key
      family?: ColumnFamily<any, any> | Database<any, any> | string
    }
  | {
      type: 'merge'
      key: Key
      value: Bytes
      family?: ColumnFamily<any, any> | Database<any, any> | string
    }
  | ({
      type: 'deleteRange'
      family?: ColumnFamily<any, any> | Database<any, any> | string
    } & KeyRange)

/** A scan of a key range. It shows the entries that existed when it was created. */
export class RangeIterator<T> implements AsyncIterableIterator<T>, Iterable<T> {
  private constructor()
  next(): Promise<IteratorResult<T, undefined>>
  nextSync(): IteratorResult<T, undefined>
  /** Returns up to `size` elements; an empty array at the end. */
  nextBatch(size: number): Promise<T[]>
  /** Returns all remaining elements, and closes the iterator. */
  all(): Promise<T[]>
  allSync(): T[]
  /** Continues with the first entry of the range at or after `key`, in the order of the scan. */
  seek(key: Key): void
  close(): Promise<void>
  closeSync(): void
  return(value?: any): Promise<IteratorResult<T, any>>
  [Symbol.asyncIterator](): this
  [Symbol.iterator](): IterableIterator<T>
}

/** Reads of a column family: its current state, or as seen by a snapshot or transaction. */
declare class Reads<K extends KeyEncoding = 'buffer', V extends ValueEncoding = 'buffer'> {
  protected constructor()
  /** Returns a value; `undefined` if the key does not exist. */
  get(key: Key): Promise<ValueOf<V> | undefined>
  get<E extends ValueEncoding>(
    key: Key,
    options: { valueEncoding: E }
  ): Promise<ValueOf<E> | undefined>
  getSync(key: Key): ValueOf<V> | undefined
  getSync<E extends ValueEncoding>(key: Key, options: { valueEncoding: E }): ValueOf<E> | undefined
  /** Returns values in the order of `keys`, as of one moment. */
  getMany(keys: Key[]): Promise<(ValueOf<V> | undefined)[]>
  getMany<E extends ValueEncoding>(
    keys: Key[],
    options: { valueEncoding: E }
  ): Promise<(ValueOf<E> | undefined)[]>
  getManySync(keys: Key[]): (ValueOf<V> | undefined)[]
  getManySync<E extends ValueEncoding>(
    keys: Key[],
    options: { valueEncoding: E }
  ): (ValueOf<E> | undefined)[]
  has(key: Key): Promise<boolean>
  hasSync(key: Key): boolean
  hasMany(keys: Key[]): Promise<boolean[]>
  hasManySync(keys: Key[]): boolean[]
  /** Returns a value with its expiry time. */
  getWithTtl(key: Key): Promise<ValueWithTtl<ValueOf<V>> | undefined>
  getWithTtlSync(key: Key): ValueWithTtl<ValueOf<V>> | undefined
  /** Iterates over `[key, value]` in the order of keys. */
  range<RK extends KeyEncoding = K, RV extends ValueEncoding = V>(
    options?: RangeOptions<RK, RV>
  ): RangeIterator<[KeyOf<RK>, ValueOf<RV>]>
  /** Iterates over keys, without reading values. */
  keys<RK extends KeyEncoding = K>(options?: RangeOptions<RK>): RangeIterator<KeyOf<RK>>
  /** Iterates over values, in the order of keys. */
  values<RV extends ValueEncoding = V>(
    options?: RangeOptions<KeyEncoding, RV>
  ): RangeIterator<ValueOf<RV>>
  /** Returns the first entry of a range, or `undefined`. */
  first(options?: RangeOptions): Promise<[KeyOf<K>, ValueOf<V>] | undefined>
  firstSync(options?: RangeOptions): [KeyOf<K>, ValueOf<V>] | undefined
  /** Returns the last entry of a range, or `undefined`. */
  last(options?: RangeOptions): Promise<[KeyOf<K>, ValueOf<V>] | undefined>
  lastSync(options?: RangeOptions): [KeyOf<K>, ValueOf<V>] | undefined
  /** Counts the keys of a range, by reading them. */
  count(range?: KeyRange): Promise<number>
  countSync(range?: KeyRange): number
  [Symbol.asyncIterator](): RangeIterator<[KeyOf<K>, ValueOf<V>]>
}

/** Reads and writes of a column family. */
declare class ReadsAndWrites<
  K extends KeyEncoding = 'buffer',
  V extends ValueEncoding = 'buffer'
> extends Reads<K, V> {
  put(key: Key, value: ValueIn<V>, options?: Omit<PutOptions, 'valueEncoding'>): Promise<void>
  put<E extends ValueEncoding>(
    key: Key,
    value: ValueIn<E>,
    options: PutOptions<E> & { valueEncoding: E }
  ): Promise<void>
  putSync(key: Key, value: ValueIn<V>, options?: Omit<PutOptions, 'valueEncoding'>): void
  putSync<E extends ValueEncoding>(
    key: Key,
    value: ValueIn<E>,
    options: PutOptions<E> & { valueEncoding: E }
  ): void
  /** Deletes a key. It is not an error if it does not exist. */
  delete(key: Key, options?: WriteOptions): Promise<void>
  deleteSync(key: Key, options?: WriteOptions): void
  /** Adds an operand to a key of a column family with a merge operator. */
  merge(key: Key, operand: Bytes, options?: WriteOptions): Promise<void>
  mergeSync(key: Key, operand: Bytes, options?: WriteOptions): void
  /** Deletes all keys of a range, in one operation. */
  deleteRange(range: KeyRange, options?: WriteOptions): Promise<void>
  deleteRangeSync(range: KeyRange, options?: WriteOptions): void
  /** Commits operations atomically. Without arguments: collects them with method calls. */
  batch(): WriteBatch
  batch(operations: Iterable<BatchOperation>, options?: WriteOptions): Promise<void>
  batchSync(operations: Iterable<BatchOperation>, options?: WriteOptions): void
}

/** Operations that are collected, and then committed atomically. */
export class WriteBatch {
  private constructor()
  readonly length: number
  put(
    key: Key,
    value: any,
    options?: Omit<PutOptions, 'durability'> & {
      family?: ColumnFamily<any, any> | Database<any, any> | string
    }
  ): this
  delete(
    key: Key,
    options?: { family?: ColumnFamily<any, any> | Database<any, any> | string }
  ): this
  merge(
    key: Key,
    value: Bytes,
    options?: { family?: ColumnFamily<any, any> | Database<any, any> | string }
  ): this
  deleteRange(
    range: KeyRange,
    options?: { family?: ColumnFamily<any, any> | Database<any, any> | string }
  ): this
  clear(): this
  write(options?: WriteOptions): Promise<void>
  writeSync(options?: WriteOptions): void
}

/** The result of {@link ColumnFamily.compareAndSwap}. */
export interface SwapResult<T> {
  /** True if the key had the expected value. */
  swapped: boolean
  /** The value that the key has now; `undefined` if it does not exist. */
  current: T | undefined
}

/** An estimate from metadata in memory. */
export interface RangeEstimate {
  keys: number
  entries: number
  diskBytes: number
  memoryBytes: number
}

/** Reads and writes that only the current state has: not snapshots and transactions. */
export interface LiveOperations<V extends ValueEncoding> {
  /** Replaces a value if it is `expected`; `undefined` or `null`: the key does not exist. */
  compareAndSwap(
    key: Key,
    expected: ValueIn<V> | undefined | null,
    value: ValueIn<V> | undefined | null
  ): Promise<SwapResult<ValueOf<V>>>
  /** Deletes a key and returns the value that it had. */
  take(key: Key): Promise<ValueOf<V> | undefined>
  estimate(range?: KeyRange): Promise<RangeEstimate>
}

/** A column family: an ordered map of keys to values with options of its own. */
export class ColumnFamily<K extends KeyEncoding = 'buffer', V extends ValueEncoding = 'buffer'>
  extends ReadsAndWrites<K, V>
  implements LiveOperations<V>
{
  readonly name: string
  compareAndSwap(
    key: Key,
    expected: ValueIn<V> | undefined | null,
    value: ValueIn<V> | undefined | null
  ): Promise<SwapResult<ValueOf<V>>>
  take(key: Key): Promise<ValueOf<V> | undefined>
  estimate(range?: KeyRange): Promise<RangeEstimate>
  /** Writes the memtables to tables. */
  flush(): Promise<void>
  /** Compacts a key range (default: everything). */
  compact(range?: KeyRange): Promise<void>
  stats(): Promise<Record<string, any>>
  options(): Promise<Record<string, any>>
  /** Replaces the options; those that are left out get their defaults. */
  setOptions(options: FamilyOptions): Promise<void>
}

/** A column family as seen by a transaction. */
export class TransactionFamily<
  K extends KeyEncoding = 'buffer',
  V extends ValueEncoding = 'buffer'
> extends ReadsAndWrites<K, V> {
  readonly name: string
  /** Locks a key until the transaction ends, and returns its value. */
  getForUpdate(
    key: Key,
    options?: { lock?: 'exclusive' | 'shared' }
  ): Promise<ValueOf<V> | undefined>
  getForUpdateSync(key: Key, options?: { lock?: 'exclusive' | 'shared' }): ValueOf<V> | undefined
}

/**
 * A transaction. Its own methods concern the column family `default`. Calls on it are executed
 * one after the other, in the order of the calls.
 */
export class Transaction<
  K extends KeyEncoding = 'buffer',
  V extends ValueEncoding = 'buffer'
> extends TransactionFamily<K, V> {
  family(name: string): TransactionFamily<K, V>
  family<FK extends KeyEncoding, FV extends ValueEncoding>(
    family: ColumnFamily<FK, FV> | Database<FK, FV>
  ): TransactionFamily<FK, FV>
  /** The number of writes. */
  readonly length: number
  /** True after a commit or rollback. */
  readonly ended: boolean
  /** True if an operation or the commit has failed with a conflict. */
  readonly hadConflict: boolean
  commit(options?: WriteOptions): Promise<void>
  commitSync(options?: WriteOptions): void
  rollback(): Promise<void>
  rollbackSync(): void
  savepoint(name: string): Promise<void>
  rollbackTo(name: string): Promise<void>
  releaseSavepoint(name: string): Promise<void>
}

/** A read-only view of all column families at one moment. */
export class Snapshot<
  K extends KeyEncoding = 'buffer',
  V extends ValueEncoding = 'buffer'
> extends Reads<K, V> {
  family(name: string): Reads<K, V>
  family<FK extends KeyEncoding, FV extends ValueEncoding>(
    family: ColumnFamily<FK, FV> | Database<FK, FV>
  ): Reads<FK, FV>
  /** The sequence number of the last operation that it sees. */
  readonly sequence: number
  readonly isOpen: boolean
  close(): Promise<void>
  closeSync(): void
}

export interface BackupReport {
  generation: number
  sequence: number
  new_files: number
  new_bytes: number
  shared_files: number
  shared_bytes: number
}

export interface BackupInfo {
  generation: number
  database: number
  sequence: number
  created_ms: number
  bytes: number
  files: Record<string, any>[]
}

export interface RestoreReport {
  generation: number
  sequence: number
  files: number
  bytes: number
}

export interface CheckpointReport {
  sequence: number
  linked_files: number
  linked_bytes: number
  copied_files: number
  copied_bytes: number
  own_bytes: number
}

export interface VerifyReport {
  files: number
  bytes: number
  entries: number
  /** One error for each damaged file; empty if all checksums are correct. */
  errors: Record<string, any>[]
}

export interface RepairReport {
  families: { name: string; entries: number }[]
  tables: number
  entries_found: number
  log_records: number
  sequence: number
  lost: Record<string, any>[]
  warnings: string[]
}

/** An open database. Its own reads and writes concern the column family `default`. */
export class Database<K extends KeyEncoding = 'buffer', V extends ValueEncoding = 'buffer'>
  extends ReadsAndWrites<K, V>
  implements LiveOperations<V>
{
  /** Opens the database in a directory, or creates it. */
  static open<K extends KeyEncoding = 'buffer', V extends ValueEncoding = 'buffer'>(
    path: string,
    options?: DatabaseOptions<K, V>
  ): Promise<Database<K, V>>
  static openSync<K extends KeyEncoding = 'buffer', V extends ValueEncoding = 'buffer'>(
    path: string,
    options?: DatabaseOptions<K, V>
  ): Database<K, V>
  readonly path: string
  readonly isOpen: boolean
  /** Waits for writes that were accepted, and closes. Other calls in progress finish or fail. */
  close(): Promise<void>
  closeSync(): void
  compareAndSwap(
    key: Key,
    expected: ValueIn<V> | undefined | null,
    value: ValueIn<V> | undefined | null
  ): Promise<SwapResult<ValueOf<V>>>
  take(key: Key): Promise<ValueOf<V> | undefined>
  estimate(range?: KeyRange): Promise<RangeEstimate>
  /** Returns an existing column family. */
  family<FK extends KeyEncoding = K, FV extends ValueEncoding = V>(
    name: string,
    options?: EncodingOptions<FK, FV>
  ): ColumnFamily<FK, FV>
  createFamily<FK extends KeyEncoding = K, FV extends ValueEncoding = V>(
    name: string,
    options?: FamilyOptions & EncodingOptions<FK, FV>
  ): Promise<ColumnFamily<FK, FV>>
  familyOrCreate<FK extends KeyEncoding = K, FV extends ValueEncoding = V>(
    name: string,
    options?: FamilyOptions & EncodingOptions<FK, FV>
  ): Promise<ColumnFamily<FK, FV>>
  dropFamily(name: string): Promise<void>
  clearFamily(name: string): Promise<void>
  renameFamily(name: string, to: string): Promise<void>
  /** Returns the names of the column families, sorted. */
  families(): string[]
  snapshot(): Snapshot<K, V>
  begin(options?: TransactionOptions): Transaction<K, V>
  /**
   * Runs `work` in a transaction and commits it. After a conflict runs `work` again, so it must
   * have no other side effects. If it fails for another reason, nothing is committed.
   */
  transaction<T>(
    work: (transaction: Transaction<K, V>) => T | Promise<T>,
    options?: RunTransactionOptions
  ): Promise<T>
  /** Makes all acknowledged writes durable. */
  sync(): Promise<void>
  syncSync(): void
  flush(): Promise<void>
  compact(): Promise<void>
  /** Compacts and reclaims the space of all deleted, overwritten and expired entries. */
  purge(): Promise<void>
  /** Waits until no flush or compaction is running or due. */
  waitIdle(): Promise<void>
  /** Reads and checks every byte. Damage is reported in `errors`. */
  verify(): Promise<VerifyReport>
  /** Adds a generation to a backup directory: copies only what it does not have yet. */
  backup(dir: string): Promise<BackupReport>
  /** Makes a copy in a new directory that can be opened. */
  checkpoint(dir: string): Promise<CheckpointReport>
  /** Returns all statistics; docs/STATISTICS.md of the repository describes them. */
  stats(): Promise<Record<string, any>>
  /** Returns the statistics in the OpenMetrics format. */
  metrics(): Promise<string>
}

export function listBackups(dir: string): Promise<BackupInfo[]>
export function verifyBackup(
  dir: string,
  options?: { generation?: number }
): Promise<Record<string, any>>
/** Restores a generation, the newest by default, into a new directory. */
export function restoreBackup(
  dir: string,
  target: string,
  options?: { generation?: number }
): Promise<RestoreReport>
/** Removes all generations but the `keep` newest ones. */
export function pruneBackups(dir: string, keep: number): Promise<Record<string, any>>
/** Copies what is readable of a damaged database into a new directory. */
export function repair(source: string, target: string): Promise<RepairReport>

// Types only: these classes are not values of the module.
export type { Reads, ReadsAndWrites }
export {}

// `using` and `await using`; declared here for compilers without the library `esnext.disposable`.
declare global {
  interface SymbolConstructor {
    readonly dispose: unique symbol
    readonly asyncDispose: unique symbol
  }
}

export interface Database<K, V> {
  [Symbol.dispose](): void
  [Symbol.asyncDispose](): Promise<void>
}
export interface Snapshot<K, V> {
  [Symbol.dispose](): void
  [Symbol.asyncDispose](): Promise<void>
}
export interface Transaction<K, V> {
  [Symbol.dispose](): void
  [Symbol.asyncDispose](): Promise<void>
}
export interface RangeIterator<T> {
  [Symbol.dispose](): void
  [Symbol.asyncDispose](): Promise<void>
}
