import fc from 'fast-check';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { LogEntrySchema } from '@cloudless/api';
import type { LogEntry } from '@cloudless/api';
import { mergeByArrival, mergeByTime } from './merge-logs.js';

const anEntry = (log: number, timeMs: number, sequence: number): LogEntry =>
  create(LogEntrySchema, {
    containerId: `c${log}`,
    sequence: BigInt(sequence),
    time: timestampFromMs(timeMs),
  });

/** Logs whose lines are ordered by time, in batches. */
const arbLogs = fc
  .array(fc.array(fc.array(fc.nat(20), { maxLength: 4 }), { maxLength: 5 }), { maxLength: 4 })
  .map((logs) =>
    logs.map((batches, log) => {
      let timeMs = 0;
      let sequence = 0;
      return batches.map((steps) =>
        steps.map((step) => anEntry(log, (timeMs += step), (sequence += 1))),
      );
    }),
  );

async function* stream(
  batches: readonly (readonly LogEntry[])[],
): AsyncGenerator<readonly LogEntry[]> {
  yield* batches;
}

const toLogs = (logs: readonly (readonly (readonly LogEntry[])[])[]) =>
  logs.map((batches, source) => ({ source, batches: stream(batches) }));

async function collect(
  merged: AsyncIterable<{ readonly source: number; readonly entries: readonly LogEntry[] }>,
): Promise<LogEntry[]> {
  const entries: LogEntry[] = [];
  for await (const group of merged) {
    for (const { containerId } of group.entries) expect(containerId).toBe(`c${group.source}`);
    entries.push(...group.entries);
  }
  return entries;
}

const timesOf = (entries: readonly LogEntry[]): number[] =>
  entries.map(({ time }) => Number(time?.seconds) * 1000 + (time?.nanos ?? 0) / 1e6);

describe('mergeByTime', () => {
  it('yields every line of every log once, in the order of time and of each log', async () => {
    await fc.assert(
      fc.asyncProperty(arbLogs, async (logs) => {
        const entries = await collect(mergeByTime(toLogs(logs)));
        const times = timesOf(entries);
        expect(times).toEqual([...times].sort((a, b) => a - b));
        for (const [log, batches] of logs.entries())
          expect(entries.filter(({ containerId }) => containerId === `c${log}`)).toEqual(
            batches.flat(),
          );
      }),
    );
  });
});

describe('mergeByArrival', () => {
  it('yields every line of every log once, in the order of each log', async () => {
    await fc.assert(
      fc.asyncProperty(arbLogs, async (logs) => {
        const entries = await collect(mergeByArrival(toLogs(logs)));
        for (const [log, batches] of logs.entries())
          expect(entries.filter(({ containerId }) => containerId === `c${log}`)).toEqual(
            batches.flat(),
          );
        expect(entries).toHaveLength(logs.flat(2).length);
      }),
    );
  });

  it('fails with the error of a log that fails', async () => {
    const failing = (async function* (): AsyncGenerator<readonly LogEntry[]> {
      yield [anEntry(1, 1, 1)];
      throw new Error('node gone');
    })();
    const logs = [{ source: 1, batches: failing }, ...toLogs([[]])];
    await expect(collect(mergeByArrival(logs))).rejects.toThrow('node gone');
  });
});
