import { CloudlessError } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';

/** Largest value of a revision of etcd. */
const MAX_ETCD_REVISION = 2n ** 63n - 1n;
const SLASH = 0x2f;
/** Compares with this mod revision never hold: revisions of etcd are positive. */
const IMPOSSIBLE_REVISION = -1n;
/** Prefixes of keys in etcd that are allowed. */
export const ETCD_PREFIX = /^\/?[A-Za-z0-9]([A-Za-z0-9._/-]{0,198}[A-Za-z0-9._-])?$/;

/**
 * Checks a prefix of keys in etcd.
 * @throws kind `invalid` for other characters, more than 200 characters, or a `/` at the end.
 */
function checkEtcdPrefix(prefix: string): void {
  if (ETCD_PREFIX.test(prefix)) return;
  throw new CloudlessError(
    'invalid',
    `"${prefix}" is not a prefix of keys in etcd; use letters, digits and . _ - / such as /cloudless, without / at the end`,
  );
}

/**
 * Where the entries of a store are in etcd: the key `/node/a` of the store is `<prefix>/` followed
 * by the key, and the record of the store itself is `<prefix>.store`, outside of these keys.
 */
export class KeySpace {
  /** Key of the record of the store. */
  readonly metaKey: Uint8Array;
  private readonly dataPrefix: Buffer;

  constructor(prefix: string) {
    checkEtcdPrefix(prefix);
    this.dataPrefix = Buffer.from(`${prefix}/`);
    this.metaKey = Buffer.from(`${prefix}.store`);
  }

  toEtcdKey(key: string): Uint8Array {
    return Buffer.concat([this.dataPrefix, Buffer.from(key)]);
  }

  fromEtcdKey(key: Uint8Array): string {
    return Buffer.from(key.buffer, key.byteOffset, key.byteLength).toString(
      'utf8',
      this.dataPrefix.length,
    );
  }

  /**
   * Returns the range of the keys with a prefix.
   * @param after - Only keys that sort after this key.
   */
  toEtcdRange(prefix: string, after?: string): { key: Uint8Array; rangeEnd: Uint8Array } {
    const first = Buffer.from(this.toEtcdKey(prefix));
    const rangeEnd = nextPrefix(first);
    if (after === undefined) return { key: first, rangeEnd };
    const next = Buffer.concat([this.toEtcdKey(after), Buffer.of(0)]);
    return { key: Buffer.compare(next, first) > 0 ? next : first, rangeEnd };
  }

  /**
   * Returns the range of a watch of the keys with a prefix. That of all keys also has the record of
   * the store, which sorts directly before the keys.
   */
  toWatchRange(prefix: string): { key: Uint8Array; rangeEnd: Uint8Array } {
    const range = this.toEtcdRange(prefix);
    return prefix === '' ? { ...range, key: this.metaKey } : range;
  }

  /** True for a key of the store, false for another key in a range of {@link toWatchRange}. */
  isStoreKey(key: Uint8Array): boolean {
    return key[this.dataPrefix.length - 1] === SLASH;
  }

  /** The ranges of all keys of etcd that do not belong to the store. */
  listForeignRanges(): readonly { key: Uint8Array; rangeEnd: Uint8Array }[] {
    const afterMeta = Buffer.concat([this.metaKey, Buffer.of(0)]);
    return [
      { key: Buffer.of(0), rangeEnd: this.metaKey },
      { key: afterMeta, rangeEnd: this.dataPrefix },
      { key: nextPrefix(this.dataPrefix), rangeEnd: Buffer.of(0) },
    ];
  }
}

/** Returns the first key after all keys with this prefix, whose last byte is below 255. */
function nextPrefix(prefix: Buffer): Buffer {
  const next = Buffer.from(prefix);
  const last = next.length - 1;
  next.writeUInt8(next.readUInt8(last) + 1, last);
  return next;
}

/**
 * Converts revisions. A store begins at its own revision 0, and a restored store at the revision of
 * the backup, whatever the revision of etcd is then.
 */
export class RevisionMap {
  /**
   * @param base - Revision of the store at its creation.
   * @param etcdBase - Revision of etcd at the creation of the store.
   */
  constructor(
    private readonly base: Revision,
    private readonly etcdBase: bigint,
  ) {}

  /** The revision of etcd after the creation of the store: that of its first change, or older. */
  get firstEtcdRevision(): bigint {
    return this.etcdBase + 1n;
  }

  fromEtcd(revision: bigint): Revision {
    return revision - this.etcdBase + this.base;
  }

  /**
   * Returns the revision of etcd for a read or a watch.
   * @throws kind `compacted` for a revision before the creation of the store; `invalid` for a
   *   negative revision.
   */
  toEtcd(revision: Revision): bigint {
    if (revision < 0n) throw new CloudlessError('invalid', `revision ${revision} is not 0 or more`);
    if (revision < this.base)
      throw new CloudlessError(
        'compacted',
        `revision ${revision} is older than this store, which was restored at revision ${this.base}`,
      );
    const mapped = revision - this.base + this.etcdBase;
    return mapped > MAX_ETCD_REVISION ? MAX_ETCD_REVISION : mapped;
  }

  /** Returns the mod revision for a compare, which never holds for a revision of no entry. */
  toCompared(revision: Revision | 'absent'): bigint {
    if (revision === 'absent') return 0n;
    const mapped = revision - this.base + this.etcdBase;
    return mapped <= this.etcdBase || mapped > MAX_ETCD_REVISION ? IMPOSSIBLE_REVISION : mapped;
  }
}
