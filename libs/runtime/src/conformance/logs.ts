import { describe, expect, it } from '@jest/globals';
import type { ContainerId } from '@cloudless/base';
import { MAX_LINE_BYTES } from '../logs/line-splitter.js';
import type { CurrentMachine } from './harness.js';
import {
  waitForExit,
  readLines,
  createNumberedLines,
  startContainer,
  decodeLine,
} from './helpers.js';

/** Tests of `logs` without `follow`. */
export function describeLogs(current: CurrentMachine): void {
  describe('logs', () => {
    async function runToEnd(behaviour: Parameters<typeof startContainer>[1]): Promise<ContainerId> {
      const id = await startContainer(current(), behaviour);
      await waitForExit(current().runtime, id);
      return id;
    }
    const runNumberedLines = (to: number): Promise<ContainerId> =>
      runToEnd([{ step: 'number', stream: 'stdout', from: 1, to }]);

    it('yields lines in order, numbered from 1 without gaps, with their read time', async () => {
      const id = await runNumberedLines(200);
      const [status] = await current().runtime.list();
      const lines = await readLines(current().runtime, id);
      expect(lines.map(decodeLine)).toEqual(createNumberedLines(1, 200));
      expect(lines.map(({ sequence }) => sequence)).toEqual(
        lines.map((_, index) => BigInt(index + 1)),
      );
      expect(lines.every(({ timeMs }) => timeMs >= (status?.startedAtMs ?? Infinity))).toBe(true);
    });

    it('yields every line once the exit is known, also a last line without a line feed', async () => {
      const id = await runToEnd([{ step: 'write', stream: 'stdout', text: 'one\n\ntwo' }]);
      const lines = await readLines(current().runtime, id);
      expect(lines.map((line) => [decodeLine(line), line.partial])).toEqual([
        ['one', false],
        ['', false],
        ['two', false],
      ]);
    });

    it('yields only the requested streams, and numbers lines over both streams', async () => {
      const id = await runToEnd([
        { step: 'number', stream: 'stdout', from: 1, to: 20 },
        { step: 'number', stream: 'stderr', from: 21, to: 40 },
      ]);
      const all = await readLines(current().runtime, id);
      expect(all.map(({ sequence }) => sequence)).toEqual(all.map((_, index) => BigInt(index + 1)));
      expect(
        (await readLines(current().runtime, id, { streams: ['stdout'] })).map(decodeLine),
      ).toEqual(createNumberedLines(1, 20));
      expect(
        (await readLines(current().runtime, id, { streams: ['stderr'] })).map(decodeLine),
      ).toEqual(createNumberedLines(21, 40));
      expect(await readLines(current().runtime, id, { streams: [] })).toEqual([]);
    });

    it.each([
      { name: 'the last 3 lines for a tail of 3', request: { tailLines: 3 }, from: 48 },
      { name: 'no existing line for a tail of 0', request: { tailLines: 0 }, from: 51 },
      {
        name: 'all lines when there are fewer than the tail',
        request: { tailLines: 1_000 },
        from: 1,
      },
      { name: 'the lines after a sequence number', request: { afterSequence: 20n }, from: 21 },
      { name: 'nothing after the last line', request: { afterSequence: 50n }, from: 51 },
      {
        name: 'the lines that meet both afterSequence and tailLines',
        request: { afterSequence: 20n, tailLines: 40 },
        from: 21,
      },
      {
        name: 'the tail when more lines follow afterSequence',
        request: { afterSequence: 20n, tailLines: 2 },
        from: 49,
      },
    ])('yields $name', async ({ request, from }) => {
      const id = await runNumberedLines(50);
      expect((await readLines(current().runtime, id, request)).map(decodeLine)).toEqual(
        createNumberedLines(from, 50),
      );
    });

    it('yields only lines at or after sinceMs', async () => {
      const id = await runNumberedLines(10);
      const all = await readLines(current().runtime, id);
      const lastTimeMs = Math.max(...all.map(({ timeMs }) => timeMs));
      expect(await readLines(current().runtime, id, { sinceMs: 0 })).toEqual(all);
      expect(await readLines(current().runtime, id, { sinceMs: lastTimeMs })).toEqual(
        all.filter(({ timeMs }) => timeMs >= lastTimeMs),
      );
      expect(await readLines(current().runtime, id, { sinceMs: lastTimeMs + 1 })).toEqual([]);
    });

    it('counts the tail only over the lines of the requested streams', async () => {
      const id = await runToEnd([
        { step: 'number', stream: 'stdout', from: 1, to: 20 },
        { step: 'number', stream: 'stderr', from: 21, to: 40 },
      ]);
      expect(
        (await readLines(current().runtime, id, { streams: ['stdout'], tailLines: 2 })).map(
          decodeLine,
        ),
      ).toEqual(createNumberedLines(19, 20));
    });

    it('splits a line into entries only when it exceeds the maximum size', async () => {
      const count = 2 * MAX_LINE_BYTES + 5;
      const id = await runToEnd([
        { step: 'fill', stream: 'stdout', letter: 'x', count },
        { step: 'write', stream: 'stdout', text: '\n' },
        { step: 'fill', stream: 'stdout', letter: 'y', count: MAX_LINE_BYTES },
        { step: 'write', stream: 'stdout', text: '\n' },
      ]);
      const lines = await readLines(current().runtime, id);
      expect(lines.map(({ text, partial }) => [text[0], text.length, partial])).toEqual([
        [0x78, MAX_LINE_BYTES, true],
        [0x78, MAX_LINE_BYTES, true],
        [0x78, 5, false],
        [0x79, MAX_LINE_BYTES, false],
      ]);
    });

    it('yields the bytes of output that is not UTF-8 unchanged', async () => {
      const bytes = [0xff, 0x00, 0xc3, 0x28, 0x0d, 0x80];
      const id = await runToEnd([
        { step: 'writeBytes', stream: 'stderr', bytes: [...bytes, 0x0a] },
      ]);
      expect((await readLines(current().runtime, id)).map(({ text }) => Array.from(text))).toEqual([
        bytes,
      ]);
    });
  });
}
