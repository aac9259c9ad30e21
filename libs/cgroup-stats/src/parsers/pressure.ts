import { definedFields } from '@cloudless/base';
import { iterateFields, iterateLines, parseWhole } from './lines.js';
import { MalformedCgroupFileError } from './malformed.js';

/** Share of time in which tasks of a group waited for a resource. */
export interface Stall {
  /** Percent of the last 10, 60 and 300 seconds, 0 to 100, averaged by the kernel. */
  readonly avg10Percent: number;
  readonly avg60Percent: number;
  readonly avg300Percent: number;
  /** Total time since the creation of the group in nanoseconds. */
  readonly totalNsec: bigint;
}

/** Pressure stall information (PSI) of one resource. */
export interface Pressure {
  /** Time in which at least one task waited. */
  readonly some?: Stall;
  /** Time in which all tasks waited at once. For the CPU from kernel 5.13 on. */
  readonly full?: Stall;
}

/**
 * Parses `cpu.pressure`, `memory.pressure` and `io.pressure` of cgroup v2; converts microseconds to
 * nanoseconds.
 * @param file - File name for error messages.
 * @throws {@link MalformedCgroupFileError} when the file is empty or a `some` or `full` line is
 *   malformed. Other lines and unknown keys are skipped.
 * @see Linux kernel, Documentation/accounting/psi.rst
 */
export function parsePressure(file: string, text: string): Pressure {
  let some: Stall | undefined;
  let full: Stall | undefined;
  let lines = 0;
  for (const { line, text: content } of iterateLines(text)) {
    lines += 1;
    const fields = iterateFields(content);
    const kind: unknown = fields.next().value;
    if (kind === 'some') some ??= parseStall(file, line, fields);
    if (kind === 'full') full ??= parseStall(file, line, fields);
  }
  if (lines === 0) throw new MalformedCgroupFileError(file, 0, 'the file is empty');
  return { ...definedFields({ some, full }) };
}

function parseStall(file: string, line: number, fields: Iterable<string>): Stall {
  const values: Record<string, string> = {};
  for (const field of fields) {
    const equals = field.indexOf('=');
    const key = field.slice(0, Math.max(0, equals));
    if (STALL_KEYS.has(key)) values[key] = field.slice(equals + 1);
  }
  const percent = (key: string): number => {
    const value = values[key] ?? '';
    if (!/^\d{1,3}\.\d{2}$/.test(value))
      throw new MalformedCgroupFileError(file, line, `${key} is not a percentage such as 0.50`);
    return Number(value);
  };
  return {
    avg10Percent: percent('avg10'),
    avg60Percent: percent('avg60'),
    avg300Percent: percent('avg300'),
    totalNsec: parseWhole(file, line, values['total'] ?? '') * NSEC_PER_USEC,
  };
}

const STALL_KEYS: ReadonlySet<string> = new Set(['avg10', 'avg60', 'avg300', 'total']);
const NSEC_PER_USEC = 1_000n;
