/** Name of the file with the {@link RemovedLines} of a log, in the directory of the log files. */
export const REMOVED_LINES_FILE = 'removed';

/** Record of the part of a log that rotation has removed. */
export interface RemovedLines {
  /** Sequence number of the first line that is kept. */
  readonly keptFrom: bigint;
  /** Total size in bytes of all files that were removed. */
  readonly bytes: number;
}

/** A log file: the sequence number of its first line, and its size. */
export interface MeasuredFile {
  readonly firstSequence: bigint;
  readonly bytes: number;
}

const TEXT = /^(\d{1,19}) (\d{1,16})\n$/;

/** Returns the content of {@link REMOVED_LINES_FILE}: one line of text. */
export function encodeRemovedLines({ keptFrom, bytes }: RemovedLines): string {
  return `${keptFrom} ${bytes}\n`;
}

/**
 * Parses the content of {@link REMOVED_LINES_FILE}.
 * @returns Undefined for a text that {@link encodeRemovedLines} cannot have made.
 */
export function parseRemovedLines(text: string): RemovedLines | undefined {
  const [, keptFrom, bytes] = TEXT.exec(text) ?? [];
  return keptFrom === undefined || bytes === undefined
    ? undefined
    : { keptFrom: BigInt(keptFrom), bytes: Number(bytes) };
}

/**
 * Returns the record of removed lines with more files added. Call it before the files are removed.
 * Files that the record already counts are skipped: an interrupted rotation may have recorded files
 * without removing them.
 * @param removed - The current record; undefined when there is none.
 * @param surplus - Files that will be removed, oldest first.
 * @param keptFrom - Sequence number of the first line that stays.
 * @param sizeOf - Returns the size of a file in bytes; not called for skipped files.
 * @returns Undefined when earlier files were removed without a record: then the total size is
 *   unknown.
 */
export function addRemovedFiles<File extends { readonly firstSequence?: bigint | undefined }>(
  removed: RemovedLines | undefined,
  surplus: readonly File[],
  keptFrom: bigint,
  sizeOf: (file: File) => number,
): RemovedLines | undefined {
  const before = removed ?? { keptFrom: 1n, bytes: 0 };
  const counted = surplus.filter(({ firstSequence = 0n }) => firstSequence >= before.keptFrom);
  if (counted[0]?.firstSequence !== before.keptFrom) return undefined;
  return { keptFrom, bytes: counted.reduce((sum, file) => sum + sizeOf(file), before.bytes) };
}

/**
 * Returns the number of bytes that the log has received before one of its files. The difference of
 * two results is the number of bytes between two files.
 * @param firstSequence - First sequence number of the file.
 * @param files - All files that are kept, oldest first.
 * @param removed - Undefined without a record of removed files.
 * @returns Undefined when the number is unknown, because files were removed without a record or
 *   after `files` was listed.
 */
export function countBytesBefore(
  firstSequence: bigint,
  files: readonly MeasuredFile[],
  removed: RemovedLines | undefined,
): number | undefined {
  const { keptFrom, bytes: removedBytes } = removed ?? { keptFrom: 1n, bytes: 0 };
  const kept = files.filter((file) => file.firstSequence >= keptFrom);
  // Undefined also when a file was removed after the files were listed.
  if (firstSequence < keptFrom || (kept[0]?.firstSequence ?? firstSequence) !== keptFrom)
    return undefined;
  const before = kept.filter((file) => file.firstSequence < firstSequence);
  return before.reduce((sum, { bytes }) => sum + bytes, removedBytes);
}
