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
const numbersOf = ({ lines }: LogBatch): readonly number[] =>
  lines.map(({ sequence }) => Number(sequence));
const upTo = (from: number, to: number): readonly number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);
/** Size of the record in the file. */
const sizeOf = (number: number): number => `${number} 1000 oF line ${number}\n`.length;

describe('readLog, overtaken by rotation', () => {
  it('yields each line, or the number and size of the missing lines', async () => {
    const writer = aWriter();
    write(writer, 1, 3);
    const drained = { resolve: (): void => undefined };
    const batches = follow({}, new Promise<void>((resolve) => (drained.resolve = resolve)));
    const first = (await batches.next()).value as LogBatch;
    expect(numbersOf(first)).toEqual([1, 2, 3]);
    write(writer, 4, 100);
    drained.resolve();
    let next = 4;
    let missing: readonly number[] = [];
    for await (const batch of batches) {
      const { skipped } = batch;
      if (skipped !== undefined) {
        expect(Number(skipped.firstSequence)).toBe(next);
        const these = upTo(next, Number(skipped.lastSequence));
        expect(skipped.bytes).toBe(these.reduce((sum, number) => sum + sizeOf(number), 0));
        missing = [...missing, ...these];
        next += these.length;
      }
      for (const number of numbersOf(batch)) expect(number).toBe(next++);
    }
    expect(next).toBe(101);
    expect(missing.length).toBeGreaterThan(50);
    writer.close();
  });

  it('reports the lines that were removed before the reader resumed', async () => {
    const writer = aWriter();
    write(writer, 1, 100);
    const batch = (await follow({ follow: false, afterSequence: 10n }).next()).value as LogBatch;
    const [first = 0] = numbersOf(batch);
    expect(first).toBeGreaterThan(50);
    expect(batch.skipped).toEqual({ firstSequence: 11n, lastSequence: BigInt(first - 1) });
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

  it('reports no size of missing lines when files were removed without a record', async () => {
    const writer = aWriter();
    write(writer, 1, 40);
    rmSync(path.join(directory, 'removed'));
    const batches = follow();
    const first = (await batches.next()).value as LogBatch;
    write(writer, 41, 200);
    const batch = (await batches.next()).value as LogBatch;
    const found = batch.skipped ?? ((await batches.next()).value as LogBatch).skipped;
    expect(numbersOf(first).length).toBeGreaterThan(0);
    expect(found).toMatchObject({ firstSequence: expect.any(BigInt) as unknown });
    expect(found?.bytes).toBeUndefined();
    await batches.return(undefined);
    writer.close();
  });
});
