import { createHash } from 'node:crypto';
import { readFileSync, realpathSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { errorFields, type Clock, type Log } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import { FileLock } from './file-lock.js';
import type { PresentImage, PulledImage } from './select-images.js';

export interface ImageLedgerOptions {
  /**
   * Absolute path of the directory for ledgers, created when it does not exist. The same for all
   * programs that use the runtime.
   */
  readonly directory: string;
  readonly socketPath: string;
  readonly clock: Clock;
  readonly log: Log;
}

const FORMAT = 1;
const HASH_DIGITS = 16;

/**
 * Record of the images that were pulled through one socket, and by which cluster: one file for all
 * agents of a machine, changed by one agent at a time.
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
   * Reads the recorded images. A damaged file counts as empty: its images are then never removed.
   */
  read(): readonly PulledImage[] {
    let text: string;
    try {
      text = readFileSync(this.file, 'utf8');
    } catch (reason) {
      if ((reason as NodeJS.ErrnoException).code === 'ENOENT') return [];
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
   * Changes the record under a lock.
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
 * Returns the record with one more pull.
 * @param pulled - The record before the pull.
 */
export function addPull(
  pulled: readonly PulledImage[],
  { before, image, cluster, nowMs }: PullRecord,
): readonly PulledImage[] {
  const isSame = (each: PulledImage): boolean => each.id === image.id && each.cluster === cluster;
  const known = pulled.find(isSame);
  // It existed before the pull: this cluster must not remove it.
  if (known === undefined && before.some(({ id }) => id === image.id)) return pulled;
  const own = new Set(
    pulled.filter((each) => each.cluster === cluster).flatMap(({ names }) => names),
  );
  const foreign = new Set(before.flatMap(({ names }) => names).filter((name) => !own.has(name)));
  const names = [
    ...new Set([...(known?.names ?? []), ...image.names.filter((name) => !foreign.has(name))]),
  ].sort();
  return [
    ...pulled.filter((each) => !isSame(each)),
    { id: image.id, cluster, names, usedAtMs: nowMs },
  ];
}

/** A successful pull. */
export interface PullRecord {
  readonly before: readonly PresentImage[];
  readonly image: PresentImage;
  readonly cluster: string;
  /** Wall-clock milliseconds. */
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
  const texts = [id, cluster, ...(Array.isArray(names) ? names : [undefined])];
  return texts.every((each) => typeof each === 'string') && Number.isFinite(usedAtMs);
}

/** Resolves symbolic links, because one runtime may be reachable by several paths. */
function resolveRealPath(socketPath: string): string {
  try {
    return realpathSync(socketPath);
  } catch {
    return path.resolve(socketPath);
  }
}
