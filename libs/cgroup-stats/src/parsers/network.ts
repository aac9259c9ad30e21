import { iterateFields, iterateLines, parseWhole } from './lines.js';
import { MalformedCgroupFileError } from './malformed.js';

/** Traffic of the interfaces of one network namespace since their creation, summed without `lo`. */
export interface NetworkUse {
  readonly receivedBytes: bigint;
  readonly receivedPackets: bigint;
  readonly receivedErrors: bigint;
  readonly receivedDropped: bigint;
  readonly sentBytes: bigint;
  readonly sentPackets: bigint;
  readonly sentErrors: bigint;
  readonly sentDropped: bigint;
}

/**
 * Parses `/proc/<pid>/net/dev`: two lines of headings, then one line per interface of the process's
 * network namespace. `lo` is skipped because its traffic stays inside the namespace.
 * @throws {@link MalformedCgroupFileError}
 * @see proc_pid_net(5)
 */
export function parseNetDev(text: string): NetworkUse {
  const sums = COLUMNS.map(() => 0n);
  let headings = 0;
  for (const { line, text: content } of iterateLines(text)) {
    if (headings < HEADINGS) {
      if (!content.includes('|'))
        throw new MalformedCgroupFileError(
          FILE,
          line,
          'the headings differ from the documented ones',
        );
      headings += 1;
      continue;
    }
    // The last colon ends the name of the interface. Old kernels write no blank after the colon.
    const colon = content.lastIndexOf(':');
    if (colon < 1)
      throw new MalformedCgroupFileError(FILE, line, 'the name of the interface is missing');
    const values = parseCounters(line, content.slice(colon + 1));
    if (content.slice(0, colon) !== 'lo')
      COLUMNS.forEach(
        (column, index) => (sums[index] = (sums[index] ?? 0n) + (values[column] ?? 0n)),
      );
  }
  if (headings < HEADINGS) throw new MalformedCgroupFileError(FILE, 0, 'the headings are missing');
  const [
    receivedBytes = 0n,
    receivedPackets = 0n,
    receivedErrors = 0n,
    receivedDropped = 0n,
    ...sent
  ] = sums;
  const [sentBytes = 0n, sentPackets = 0n, sentErrors = 0n, sentDropped = 0n] = sent;
  return {
    receivedBytes,
    receivedPackets,
    receivedErrors,
    receivedDropped,
    sentBytes,
    sentPackets,
    sentErrors,
    sentDropped,
  };
}

/**
 * Indices of the summed columns: each direction has eight columns, beginning with bytes, packets,
 * errs and drop.
 */
const COLUMNS = [0, 1, 2, 3, 8, 9, 10, 11];
/** Number of columns up to the last summed column. */
const NEEDED = 12;
/** Number of lines of headings. */
const HEADINGS = 2;
const FILE = '/proc/<pid>/net/dev';

/** Parses the first {@link NEEDED} counters of an interface. */
function parseCounters(line: number, text: string): readonly bigint[] {
  const values: bigint[] = [];
  for (const field of iterateFields(text)) {
    values.push(parseWhole(FILE, line, field));
    if (values.length === NEEDED) return values;
  }
  throw new MalformedCgroupFileError(FILE, line, `fewer than ${NEEDED} counters`);
}
