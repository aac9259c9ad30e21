import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { LogBatch, LogRequest } from '@cloudless/runtime';
import { readLog } from './log-reader.js';
import { LogWriter } from './log-writer.js';

let directory: string;
beforeEach(() => (directory = mkdtempSync(path.join(tmpdir(), 'cloudless-log-'))));
afterEach(() => rmSync(directory, { recursive: true }));

const aWriter = (): LogWriter =>
  new LogWriter({
    directory,
    clock: new ManualClock(1_000),
    log: silentLog,
    files: 3,
    fileBytes: 200,
  });
/** Writes numbered lines, one record each. */
const write = (writer: LogWriter, from: number, to: number): void => {
  for (let number = from; number <= to; number += 1)
    writer.append('stdout', Buffer.from(`line ${number}\n`));
};
const follow = (
  request: Partial<LogRequest> = {},
  drained: Promise<void> = new Promise(() => undefined),
) =>
  readLog({
    directory,
    request: { follow: true, ...request },
    signal: new AbortController().signal,
    waitUntilDrained: () => drained,
  });
const toNumbers = ({ lines }: LogBatch): readonly number[] =>
  lines.map(({ sequence }) => Number(sequence));
const range = (from: number, to: number): readonly number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);
/** Size in bytes of the record of a line in the file. */
const measureRecord = (number: number): number => `${number} 1000 oF line ${number}\n`.length;

describe('readLog, when rotation removes files before they are read', () => {
  it('yields each line, or the numbers and the size of the missing lines', async () => {
    const writer = aWriter();
    write(writer, 1, 3);
    const drained = { resolve: (): void => undefined };
    const batches = follow({}, new Promise<void>((resolve) => (drained.resolve = resolve)));
    const firstBatch = (await batches.next()).value as LogBatch;
    expect(toNumbers(firstBatch)).toEqual([1, 2, 3]);
    write(writer, 4, 100);
    drained.resolve();
    let next = 4;
    let missingNumbers: readonly number[] = [];
    for await (const batch of batches) {
      const { skipped } = batch;
      if (skipped !== undefined) {
        expect(Number(skipped.firstSequence)).toBe(next);
        const missing = range(next, Number(skipped.lastSequence));
        expect(skipped.bytes).toBe(missing.reduce((sum, number) => sum + measureRecord(number), 0));
        missingNumbers = [...missingNumbers, ...missing];
        next += missing.length;
      }
      for (const number of toNumbers(batch)) expect(number).toBe(next++);
    }
    expect(next).toBe(101);
    expect(missingNumbers.length).toBeGreaterThan(50);
    writer.close();
  });

  it('reports the lines that were removed before the reader resumed', async () => {
    const writer = aWriter();
    write(writer, 1, 100);
    const batch = (await follow({ follow: false, afterSequence: 10n }).next()).value as LogBatch;
    const [firstNumber = 0] = toNumbers(batch);
    expect(firstNumber).toBeGreaterThan(50);
    expect(batch.skipped).toEqual({ firstSequence: 11n, lastSequence: BigInt(firstNumber - 1) });
    writer.close();
  });

  it('reports no missing lines when all kept lines are requested', async () => {
    const writer = aWriter();
    write(writer, 1, 100);
    for await (const { skipped } of follow({ follow: false })) expect(skipped).toBeUndefined();
    for await (const { skipped } of follow({ follow: false, tailLines: 30 }))
      expect(skipped).toBeUndefined();
    writer.close();
  });

  it('reports no size of the missing lines when the record of the removed files is missing', async () => {
    const writer = aWriter();
    write(writer, 1, 40);
    rmSync(path.join(directory, 'removed'));
    const batches = follow();
    const firstBatch = (await batches.next()).value as LogBatch;
    write(writer, 41, 200);
    const batch = (await batches.next()).value as LogBatch;
    const skipped = batch.skipped ?? ((await batches.next()).value as LogBatch).skipped;
    expect(toNumbers(firstBatch).length).toBeGreaterThan(0);
    expect(skipped).toMatchObject({ firstSequence: expect.any(BigInt) as unknown });
    expect(skipped?.bytes).toBeUndefined();
    await batches.return(undefined);
    writer.close();
  });
});
