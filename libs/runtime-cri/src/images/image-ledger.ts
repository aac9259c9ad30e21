import { createHash } from 'node:crypto';
import { readFileSync, realpathSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { errorCodeOf, errorFields, type Clock, type Log } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import { FileLock } from './file-lock.js';
import type { PresentImage, PulledImage } from './select-images.js';

/** Options of an {@link ImageLedger}. */
export interface ImageLedgerOptions {
  /**
   * Absolute path of the directory for ledgers, created when it does not exist. Use the same
   * directory for all agents of a machine.
   */
  readonly directory: string;
  /** Path of the socket of the container runtime. Each runtime has a ledger of its own. */
  readonly socketPath: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Number of the file format. A file with another number is not read. */
const FORMAT = 1;
/** Length of the hash in the file name: enough to distinguish the few sockets of a machine. */
const HASH_DIGITS = 16;

/**
 * Record of the images that agents pulled through one socket, each with its cluster. All agents of
 * a machine share one file, and one agent at a time changes the file.
 */
export class ImageLedger {
  private readonly file: string;
  private readonly lock: FileLock;

  constructor(private readonly options: ImageLedgerOptions) {
    const hash = createHash('sha256')
      .update(resolveRealPath(options.socketPath))
      .digest('hex')
      .slice(0, HASH_DIGITS);
    this.file = path.join(options.directory, `images-${hash}.json`);
    this.lock = new FileLock({
      directory: path.join(options.directory, `images-${hash}.lock`),
      clock: options.clock,
    });
  }

  /**
   * Reads the recorded images. A missing file counts as empty, and so does a damaged file, with a
   * warning in the log: images without a record are never removed.
   */
  read(): readonly PulledImage[] {
    let text: string;
    try {
      text = readFileSync(this.file, 'utf8');
    } catch (reason) {
      if (errorCodeOf(reason) === 'ENOENT') return [];
      throw reason;
    }
    try {
      return parseLedger(text);
    } catch (reason) {
      this.options.log.warn('list of pulled images is damaged and starts empty', {
        file: this.file,
        ...errorFields(reason),
      });
      return [];
    }
  }

  /**
   * Changes the record under a lock between the agents.
   * @param to - Returns the new record for the current record.
   * @throws kind `unavailable` when another agent holds the lock for too long.
   */
  change(to: (pulled: readonly PulledImage[]) => Promise<readonly PulledImage[]>): Promise<void> {
    makeDirectorySync(this.options.directory, 0o755);
    return this.lock.run(async () => {
      const before = this.read();
      const after = await to(before);
      if (JSON.stringify(after) !== JSON.stringify(before)) this.write(after);
    });
  }

  private write(images: readonly PulledImage[]): void {
    const draft = `${this.file}.draft`;
    writeFileSync(draft, `${JSON.stringify({ format: FORMAT, images }, undefined, 1)}\n`, {
      mode: 0o644,
      flush: true,
    });
    renameSync(draft, this.file);
  }
}

/**
 * Returns the record with one more pull. An image that existed before its first recorded pull is
 * not added, and neither is a name that came from another source: this cluster must not remove
 * them.
 * @param pulled - The record before the pull.
 */
export function addPull(
  pulled: readonly PulledImage[],
  { before, image, cluster, nowMs }: PullRecord,
): readonly PulledImage[] {
  const isSame = (each: PulledImage): boolean => each.id === image.id && each.cluster === cluster;
  const known = pulled.find(isSame);
  // The image existed before the pull.
  if (known === undefined && before.some(({ id }) => id === image.id)) return pulled;
  const ownNames = new Set(
    pulled.filter((each) => each.cluster === cluster).flatMap(({ names }) => names),
  );
  const foreignNames = new Set(
    before.flatMap(({ names }) => names).filter((name) => !ownNames.has(name)),
  );
  const names = [
    ...new Set([...(known?.names ?? []), ...image.names.filter((name) => !foreignNames.has(name))]),
  ].sort();
  return [
    ...pulled.filter((each) => !isSame(each)),
    { id: image.id, cluster, names, usedAtMs: nowMs },
  ];
}

/** A successful pull. */
export interface PullRecord {
  /** All images of the machine before the pull. */
  readonly before: readonly PresentImage[];
  /** The pulled image after the pull. */
  readonly image: PresentImage;
  readonly cluster: string;
  /** Current wall-clock time in milliseconds. */
  readonly nowMs: number;
}

function parseLedger(text: string): readonly PulledImage[] {
  const { format, images } = JSON.parse(text) as {
    readonly format?: unknown;
    readonly images?: unknown;
  };
  if (format !== FORMAT || !Array.isArray(images) || !images.every(isPulledImage))
    throw new Error('unknown format');
  return images;
}

function isPulledImage(value: unknown): value is PulledImage {
  const { id, cluster, names, usedAtMs } = (value ?? {}) as Partial<PulledImage>;
  const strings = [id, cluster, ...(Array.isArray(names) ? names : [undefined])];
  return strings.every((each) => typeof each === 'string') && Number.isFinite(usedAtMs);
}

/** Resolves symbolic links, because one socket may have several paths. */
function resolveRealPath(socketPath: string): string {
  try {
    return realpathSync(socketPath);
  } catch {
    return path.resolve(socketPath);
  }
}
