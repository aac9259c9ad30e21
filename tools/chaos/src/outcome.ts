import type { JudgedChanges } from './checks/replica-changes.js';
import type { FaultName } from './faults/names.js';

/** What one fault did to the cluster. */
export interface Outcome {
  readonly fault: FaultName;
  readonly target: string;
  /** Time until the next leader acknowledged a write, milliseconds. */
  readonly nextLeaderMs: number | undefined;
  /** Longest time without an acknowledged write, milliseconds. */
  readonly longestPauseMs: number;
  /** Time from the end of the fault until everything was as desired, milliseconds. */
  readonly recoveredMs: number | undefined;
  readonly acknowledged: number;
  readonly failedWrites: number;
  readonly answers: number;
  readonly failedRequests: number;
  /** Failed attempts of writes by code. */
  readonly failedCodes: Readonly<Record<string, number>>;
  /** Observations beside the figures. */
  readonly notes: readonly string[];
  readonly violations: readonly string[];
  /** Changes that a slow machine explains. */
  readonly late: JudgedChanges['late'];
}

/** Outcomes of all injections of one fault. */
export interface Summary {
  readonly fault: string;
  readonly count: number;
  readonly nextLeaderP50Ms: number | undefined;
  readonly nextLeaderP95Ms: number | undefined;
  readonly nextLeaderMaxMs: number | undefined;
  readonly longestPauseMs: number;
  readonly recoveredMaxMs: number | undefined;
  readonly acknowledged: number;
  readonly failedWrites: number;
  readonly answers: number;
  readonly failedRequests: number;
  readonly violations: number;
}

/** Summarises outcomes by fault, in the order of the first injection. */
export function summarise(outcomes: readonly Outcome[]): readonly Summary[] {
  return [...new Set(outcomes.map(({ fault }) => fault))].map((fault) => {
    const own = outcomes.filter((outcome) => outcome.fault === fault);
    const leader = sortKnown(own.map(({ nextLeaderMs }) => nextLeaderMs));
    const sum = (count: (outcome: Outcome) => number): number =>
      own.reduce((total, outcome) => total + count(outcome), 0);
    return {
      fault,
      count: own.length,
      nextLeaderP50Ms: pickAt(leader, 0.5),
      nextLeaderP95Ms: pickAt(leader, 0.95),
      nextLeaderMaxMs: leader.at(-1),
      longestPauseMs: Math.max(...own.map(({ longestPauseMs }) => longestPauseMs)),
      recoveredMaxMs: sortKnown(own.map(({ recoveredMs }) => recoveredMs)).at(-1),
      acknowledged: sum(({ acknowledged }) => acknowledged),
      failedWrites: sum(({ failedWrites }) => failedWrites),
      answers: sum(({ answers }) => answers),
      failedRequests: sum(({ failedRequests }) => failedRequests),
      violations: sum(({ violations }) => violations.length),
    };
  });
}

const COLUMNS: readonly (readonly [string, (row: Summary) => string | number | undefined])[] = [
  ['fault', (row) => row.fault],
  ['times', (row) => row.count],
  ['next leader P50', (row) => formatMs(row.nextLeaderP50Ms)],
  ['P95', (row) => formatMs(row.nextLeaderP95Ms)],
  ['max', (row) => formatMs(row.nextLeaderMaxMs)],
  ['no write for', (row) => formatMs(row.longestPauseMs)],
  ['recovered', (row) => formatMs(row.recoveredMaxMs)],
  ['writes', (row) => row.acknowledged],
  ['failed calls', (row) => row.failedWrites],
  ['requests', (row) => row.answers],
  ['failed', (row) => row.failedRequests],
  ['violations', (row) => row.violations],
];

/** Formats a table with a row for each fault. */
export function formatTable(summaries: readonly Summary[]): string {
  const rows = [
    COLUMNS.map(([title]) => title),
    ...summaries.map((row) => COLUMNS.map(([, read]) => String(read(row) ?? '-'))),
  ];
  const widths = COLUMNS.map((_, column) =>
    Math.max(...rows.map((row) => (row[column] ?? '').length)),
  );
  return rows
    .map((row) =>
      row
        .map((cell, column) => {
          const width = widths[column] ?? 0;
          return column === 0 ? cell.padEnd(width) : cell.padStart(width);
        })
        .join('  '),
    )
    .join('\n');
}

/** Formats milliseconds as `1.25 s`. */
export const formatMs = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : `${(ms / 1_000).toFixed(2)} s`;

const sortKnown = (values: readonly (number | undefined)[]): readonly number[] =>
  values.filter((value) => value !== undefined).sort((a, b) => a - b);

/** Returns the smallest sample that is not below `share` of the sorted samples. */
const pickAt = (sorted: readonly number[], share: number): number | undefined =>
  sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
