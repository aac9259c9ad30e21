/** The name of the file beside the files of a log that holds its {@link RemovedLines}. */
export const REMOVED_LINES_FILE = 'removed';

/** Record of the part of a log that rotation has removed. */
export interface RemovedLines {
  /** Sequence number of the first line that is kept. */
  readonly keptFrom: bigint;
  /** Size of the files that were removed, bytes. */
  readonly bytes: number;
}

/** A file of a log and its size. */
export interface MeasuredFile {
  readonly firstSequence: bigint;
  readonly bytes: number;
}

const TEXT = /^(\d{1,19}) (\d{1,16})\n$/;

/** One line of text, for {@link REMOVED_LINES_FILE}. */
export function encodeRemovedLines({ keptFrom, bytes }: RemovedLines): string {
  return `${keptFrom} ${bytes}\n`;
}

/** @returns Undefined when the text is not one that {@link encodeRemovedLines} makes. */
export function parseRemovedLines(text: string): RemovedLines | undefined {
  const [, keptFrom, bytes] = TEXT.exec(text) ?? [];
  return keptFrom === undefined || bytes === undefined
    ? undefined
    : { keptFrom: BigInt(keptFrom), bytes: Number(bytes) };
}

/**
 * Adds files that are about to be removed to the record of removed lines. Skips files that the
 * record already counts: an interrupted rotation may have recorded files without removing them.
 * @param removed - Undefined without a record.
 * @param surplus - Files to remove, oldest first.
 * @param keptFrom - Sequence number of the first line that stays.
 * @param sizeOf - Returns the size of a file in bytes; called only for files that are counted.
 * @returns Undefined when earlier files were removed without a record: the size of the log is
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
 * Bytes that a log held before one of its files. The difference of two results is the number of
 * bytes between two files.
 * @param files - All files that are kept, oldest first.
 * @param removed - Undefined without a record of removed files.
 * @returns Undefined when the size is unknown, as files were removed without a record or since they
 *   were listed.
 */
export function countBytesBefore(
  firstSequence: bigint,
  files: readonly MeasuredFile[],
  removed: RemovedLines | undefined,
): number | undefined {
  const { keptFrom, bytes: removedBytes } = removed ?? { keptFrom: 1n, bytes: 0 };
  const kept = files.filter((file) => file.firstSequence >= keptFrom);
  // A file may have been removed after the files were listed.
  if (firstSequence < keptFrom || (kept[0]?.firstSequence ?? firstSequence) !== keptFrom)
    return undefined;
  const before = kept.filter((file) => file.firstSequence < firstSequence);
  return before.reduce((sum, { bytes }) => sum + bytes, removedBytes);
}
