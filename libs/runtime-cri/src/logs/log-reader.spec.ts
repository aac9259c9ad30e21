import {
  appendFileSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { CloudlessError, sleep } from '@cloudless/base';
import { flattenBatches, type LogBatch, type LogLine, type LogRequest } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { readLog } from './log-reader.js';
import { rotateLog } from './log-rotation.js';
import { PartialLineResolver } from './partial-line-resolver.js';

const never = new AbortController().signal;
let directory: string;
let current: string;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-cri-log-'));
  current = path.join(directory, '0.log');
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const entry = (text: string, tag = 'F', stream = 'stdout'): string =>
  `2026-01-01T00:00:00.000000001Z ${stream} ${tag} ${text}\n`;
/** Appends entries with these numbers, both ends included, to the current file. */
const write = (from: number, to: number): void => {
  for (let line = from; line <= to; line += 1) appendFileSync(current, entry(`line ${line}`));
};
const reopen = async (): Promise<void> => writeFileSync(current, '', { flag: 'a' });
const rotate = (overrides: Partial<Parameters<typeof rotateLog>[0]> = {}): Promise<void> =>
  rotateLog({ directory, fileBytes: 10, files: 3, clock: systemClock, reopen, ...overrides });
const format = ({ sequence, text }: LogLine): string =>
  `${sequence} ${new TextDecoder().decode(text)}`;
/** The formatted lines with these numbers, both ends included. */
const formattedLines = (from: number, to: number): readonly string[] =>
  Array.from({ length: to - from + 1 }, (_, index) => `${from + index} line ${from + index}`);

/** Reads the log to its end and formats its lines. */
async function read(
  request: Partial<LogRequest> = {},
  isComplete = true,
): Promise<readonly string[]> {
  const lines: string[] = [];
  const options = {
    directory,
    request: { follow: false, ...request },
    signal: never,
    isComplete,
    waitUntilComplete: () => Promise.resolve(),
  };
  for await (const line of flattenBatches(readLog(options))) lines.push(format(line));
  return lines;
}

describe('rotateLog', () => {
  it('keeps the sequence number of each line, even after old files were removed', async () => {
    for (let file = 0; file < 5; file += 1) {
      write(file * 10 + 1, file * 10 + 10);
      await rotate();
    }
    write(51, 53);
    expect(readdirSync(directory).sort()).toEqual([
      '0.log',
      `${'31'.padStart(20, '0')}.log`,
      `${'41'.padStart(20, '0')}.log`,
      'removed',
    ]);
    expect(await read()).toEqual(formattedLines(31, 53));
    expect(await read({ tailLines: 5 })).toEqual(formattedLines(49, 53));
    expect(await read({ tailLines: 1 })).toEqual(formattedLines(53, 53));
    expect(await read({ afterSequence: 45n })).toEqual(formattedLines(46, 53));
    expect(await read({ afterSequence: 5n })).toEqual(formattedLines(31, 53));
  });

  it('does not rotate a log that is smaller than fileBytes', async () => {
    write(1, 1);
    await rotate({ fileBytes: 10_000 });
    expect(readdirSync(directory)).toEqual(['0.log']);
  });

  it('finishes a rotation that a crash has interrupted, and recreates a missing current file', async () => {
    write(1, 3);
    renameSync(current, path.join(directory, `${'1'.padStart(20, '0')}.closing`));
    expect(await read()).toEqual(formattedLines(1, 3));
    await rotate({ fileBytes: 10_000 });
    write(4, 5);
    expect(await read()).toEqual(formattedLines(1, 5));
    rmSync(current);
    await rotate();
    expect(readdirSync(directory)).toContain('0.log');
  });

  it('keeps the name of a closing file while the runtime is unreachable, but not after an exit', async () => {
    write(1, 3);
    const away = async (): Promise<void> => {
      throw new CloudlessError('unavailable', 'away');
    };
    await expect(rotate({ reopen: away })).rejects.toThrow('away');
    expect(readdirSync(directory)).toEqual([`${'1'.padStart(20, '0')}.closing`]);
    const ended = async (): Promise<void> => {
      throw new CloudlessError('internal', 'container is not running');
    };
    await rotate({ reopen: ended });
    expect(readdirSync(directory)).toEqual([`${'1'.padStart(20, '0')}.log`]);
    expect(await read()).toEqual(formattedLines(1, 3));
  });
});

describe('readLog with follow', () => {
  it('yields each line once across rotations, also a line that is written late to the old file', async () => {
    let complete = (): void => undefined;
    const completed = new Promise<void>((resolve) => (complete = resolve));
    write(1, 3);
    const options = {
      directory,
      request: { follow: true },
      signal: never,
      isComplete: false,
      waitUntilComplete: () => completed,
    };
    const lines = flattenBatches(readLog(options));
    const seen: string[] = [];
    const take = async (count: number): Promise<void> => {
      while (seen.length < count) seen.push(format((await lines.next()).value as LogLine));
    };
    await take(2);
    await rotate({
      reopen: async () => {
        await reopen();
        write(5, 6);
        await sleep(systemClock, 30); // time for the reader to continue with the new file by mistake
        expect(await read({ tailLines: 2 }, false)).toEqual(formattedLines(2, 3));
        appendFileSync(path.join(directory, `${'1'.padStart(20, '0')}.closing`), entry('line 4'));
      },
    });
    await take(6);
    write(7, 9);
    await rotate();
    write(10, 10);
    await take(10);
    complete();
    expect(await lines.next()).toMatchObject({ done: true });
    expect(seen).toEqual(formattedLines(1, 10));
  });

  it.each([
    { name: 'whole lines', tag: 'F' },
    { name: 'a line whose end was removed', tag: 'P' },
  ])(
    'reports the numbers and bytes of lines that were removed before they were read: $name',
    async ({ tag }) => {
      appendFileSync(current, entry('line 1', tag));
      const options = { directory, request: { follow: true }, signal: never, isComplete: false };
      let complete = (): void => undefined;
      const batches = readLog({
        ...options,
        waitUntilComplete: () => new Promise<void>((resolve) => (complete = resolve)),
      });
      const first = tag === 'F' ? [await batches.next()] : [];
      const waiting = first.length === 0 ? batches.next() : undefined;
      for (let file = 0; file < 4; file += 1) {
        write(file * 10 + 2, file * 10 + 11);
        await rotate();
      }
      write(42, 43);
      const rest = waiting === undefined ? [] : [await waiting];
      complete();
      for (let item = await batches.next(); item.done !== true; item = await batches.next())
        rest.push(item);
      let next = 1n;
      let bytes = 0;
      for (const { value } of [...first, ...rest]) {
        const { lines, skipped } = value as LogBatch;
        if (skipped !== undefined) {
          expect(skipped.firstSequence).toBe(next);
          next = skipped.lastSequence + 1n;
          bytes += skipped.bytes ?? 0;
        }
        for (const { sequence } of lines) expect(sequence).toBe(next++);
      }
      expect(next).toBe(44n);
      const missed = [...rest].flatMap(({ value }) => (value as LogBatch).skipped ?? []);
      const numbers = missed.flatMap(({ firstSequence, lastSequence }) =>
        Array.from(
          { length: Number(lastSequence - firstSequence) + 1 },
          (_, index) => Number(firstSequence) + index,
        ),
      );
      expect(bytes).toBe(numbers.reduce((sum, number) => sum + entry(`line ${number}`).length, 0));
    },
  );

  it('reports the numbers of lines that were removed before the reader resumed', async () => {
    for (let file = 0; file < 5; file += 1) {
      write(file * 10 + 1, file * 10 + 10);
      await rotate();
    }
    const request = { follow: false, afterSequence: 5n };
    const batches = readLog({
      directory,
      request,
      signal: never,
      isComplete: true,
      waitUntilComplete: () => Promise.resolve(),
    });
    const { value } = await batches.next();
    expect(value).toMatchObject({ skipped: { firstSequence: 6n, lastSequence: 30n } });
    expect((value as LogBatch).lines[0]?.sequence).toBe(31n);
  });

  it('rejects when waitUntilComplete rejects, and ends when its signal is aborted', async () => {
    write(1, 1);
    const failing = {
      directory,
      request: { follow: true },
      signal: never,
      isComplete: false,
      waitUntilComplete: () => Promise.reject(new Error('broken')),
    };
    const reader = flattenBatches(readLog(failing));
    expect(format((await reader.next()).value as LogLine)).toBe('1 line 1');
    await expect(reader.next()).rejects.toThrow('broken');
    const leave = new AbortController();
    const left = flattenBatches(
      readLog({
        ...failing,
        signal: leave.signal,
        waitUntilComplete: () => new Promise<void>(() => undefined),
      }),
    );
    await left.next();
    const waiting = left.next();
    leave.abort();
    expect(await waiting).toMatchObject({ done: true });
  });
});

describe('a partial line in PartialLineResolver', () => {
  const line = (sequence: number, stream: 'stdout' | 'stderr', partial: boolean): LogLine => ({
    ...{ sequence: BigInt(sequence), stream, partial, timeMs: 0, text: new Uint8Array(0) },
  });
  const run = (
    lines: readonly LogLine[],
    isComplete: boolean,
  ): readonly (readonly [bigint, boolean])[] => {
    const resolver = new PartialLineResolver();
    return [...lines.flatMap((each) => resolver.push(each)), ...resolver.finish(isComplete)].map(
      ({ sequence, partial }) => [sequence, partial],
    );
  };

  it.each([
    {
      name: 'is no longer partial when the log is complete',
      lines: [line(1, 'stdout', true)],
      complete: true,
      partial: [false],
    },
    {
      name: 'stays partial while the container runs',
      lines: [line(1, 'stdout', true)],
      complete: false,
      partial: [true],
    },
    {
      name: 'stays partial when another line of its stream follows',
      lines: [line(1, 'stdout', true), line(2, 'stdout', false)],
      complete: true,
      partial: [true, false],
    },
    {
      name: 'is no longer partial as the last line of its own stream',
      lines: [line(1, 'stdout', true), line(2, 'stderr', true)],
      complete: true,
      partial: [false, false],
    },
    {
      name: 'keeps its position when two lines of the other stream follow',
      lines: [line(1, 'stdout', true), line(2, 'stderr', false), line(3, 'stderr', false)],
      complete: true,
      partial: [true, false, false],
    },
  ])('$name', ({ lines, complete, partial }) => {
    expect(run(lines, complete)).toEqual(partial.map((each, index) => [BigInt(index + 1), each]));
  });
});
