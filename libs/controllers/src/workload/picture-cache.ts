/** The encoded parts of one workload. A part is absent when something in it has changed. */
export interface Picture {
  head?: Uint8Array;
  summary?: Uint8Array;
  versions?: Uint8Array;
  /** The message without replicas and versions, behind its length. */
  brief?: Uint8Array;
  /** The whole message, behind its length. */
  full?: Uint8Array;
}

/** A part of a {@link Picture}. */
export type PicturePart = keyof Picture;

/**
 * Most workloads that are remembered because their whole message did not fit. When such a workload is
 * read again, its whole message takes the place of older ones. So the messages of a client that polls
 * some workloads are kept, and a client that reads all workloads in turns, more than fit, does not
 * drop each message before its next read.
 */
const MAX_REFUSED = 64;

/**
 * Keeps the pictures of workloads within a number of bytes. Whole messages are dropped first, those
 * that were not read for the longest time before the others: they are far larger than the parts that
 * lists need.
 */
export class PictureCache {
  /** The least recently read first. */
  private readonly pictures = new Map<string, Picture>();
  /** Workloads whose picture has the whole message, the least recently read first. */
  private readonly whole = new Set<string>();
  private readonly refused = new Set<string>();
  private bytes = 0;

  /** @param maxBytes - Most bytes of all pictures. */
  constructor(private readonly maxBytes: number) {}

  /** Number of workloads with a picture. */
  get size(): number {
    return this.pictures.size;
  }

  /** Bytes of all pictures. */
  get keptBytes(): number {
    return this.bytes;
  }

  /** Removes the picture of a workload and returns it for changes; an empty one when none is kept. */
  take(uid: string): Picture {
    const picture = this.pictures.get(uid);
    if (picture === undefined) return {};
    this.remove(uid, picture);
    return picture;
  }

  /**
   * Keeps a picture that was taken or is new, as the most recently read one. Beyond the limit of
   * bytes, drops parts of this picture or of others.
   * @param isNewlyWhole - True when the whole message was just encoded.
   */
  keep(uid: string, picture: Picture, isNewlyWhole: boolean): void {
    this.pictures.set(uid, picture);
    this.bytes += countBytes(picture);
    if (picture.full !== undefined) this.whole.add(uid);
    if (this.bytes <= this.maxBytes) return;
    if (isNewlyWhole && this.refuse(uid)) this.drop(uid, WHOLE);
    for (const oldest of this.whole) {
      if (this.bytes <= this.maxBytes) return;
      this.drop(oldest, WHOLE);
    }
    for (const [oldest, kept] of this.pictures) {
      if (this.bytes <= this.maxBytes) return;
      this.remove(oldest, kept);
    }
  }

  /** Drops parts of the picture of a workload. */
  drop(uid: string, parts: readonly PicturePart[]): void {
    const picture = this.pictures.get(uid);
    if (picture === undefined) return;
    for (const part of parts) {
      this.bytes -= picture[part]?.byteLength ?? 0;
      delete picture[part];
    }
    if (picture.full === undefined) this.whole.delete(uid);
    // The workload of an empty picture may have been deleted.
    if (countBytes(picture) === 0) this.pictures.delete(uid);
  }

  clear(): void {
    this.pictures.clear();
    this.whole.clear();
    this.refused.clear();
    this.bytes = 0;
  }

  private remove(uid: string, picture: Picture): void {
    this.pictures.delete(uid);
    this.whole.delete(uid);
    this.bytes -= countBytes(picture);
  }

  /**
   * Returns true when the whole message of a workload is not to be kept: it does not fit, and was not
   * refused lately.
   */
  private refuse(uid: string): boolean {
    if (this.refused.delete(uid)) return false;
    this.refused.add(uid);
    if (this.refused.size > MAX_REFUSED)
      for (const oldest of this.refused) {
        this.refused.delete(oldest);
        break;
      }
    return true;
  }
}

/** All parts of a {@link Picture}. */
export const ALL_PARTS = ['head', 'summary', 'versions', 'brief', 'full'] as const;
const WHOLE = ['full'] as const;

function countBytes(picture: Picture): number {
  return ALL_PARTS.reduce((sum, part) => sum + (picture[part]?.byteLength ?? 0), 0);
}
