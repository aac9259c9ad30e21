import { describe, expect, it } from '@jest/globals';
import type { ContainerId } from '@cloudless/base';
import { MAX_LINE_BYTES } from '../line-splitter.js';
import type { CurrentMachine } from './harness.js';
import { ended, linesOf, numbered, started, textOf } from './helpers.js';

/** Reading what has been written. */
export function describeLogs(current: CurrentMachine): void {
  describe('logs', () => {
    async function finished(behaviour: Parameters<typeof started>[1]): Promise<ContainerId> {
      const id = await started(current(), behaviour);
      await ended(current().runtime, id);
      return id;
    }
    const numbers = (to: number): Promise<ContainerId> =>
      finished([{ step: 'number', stream: 'stdout', from: 1, to }]);

    it('gives the lines in order, numbered from 1 without gap, with the time they were read', async () => {
      const id = await numbers(200);
      const [status] = await current().runtime.list();
      const lines = await linesOf(current().runtime, id);
      expect(lines.map(textOf)).toEqual(numbered(1, 200));
      expect(lines.map(({ sequence }) => sequence)).toEqual(
        lines.map((_, index) => BigInt(index + 1)),
      );
      expect(lines.every(({ timeMs }) => timeMs >= (status?.startedAtMs ?? Infinity))).toBe(true);
    });

    it('has every line, also the last one without line end, as soon as the exit is known', async () => {
      const id = await finished([{ step: 'write', stream: 'stdout', text: 'one\n\ntwo' }]);
      const lines = await linesOf(current().runtime, id);
      expect(lines.map((line) => [textOf(line), line.partial])).toEqual([
        ['one', false],
        ['', false],
        ['two', false],
      ]);
    });

    it('counts both streams together and tells them apart', async () => {
      const id = await finished([
        { step: 'number', stream: 'stdout', from: 1, to: 20 },
        { step: 'number', stream: 'stderr', from: 21, to: 40 },
      ]);
      const all = await linesOf(current().runtime, id);
      expect(all.map(({ sequence }) => sequence)).toEqual(all.map((_, index) => BigInt(index + 1)));
      expect((await linesOf(current().runtime, id, { streams: ['stdout'] })).map(textOf)).toEqual(
        numbered(1, 20),
      );
      expect((await linesOf(current().runtime, id, { streams: ['stderr'] })).map(textOf)).toEqual(
        numbered(21, 40),
      );
      expect(await linesOf(current().runtime, id, { streams: [] })).toEqual([]);
    });

    it.each([
      { name: 'the last lines', request: { tailLines: 3 }, from: 48 },
      { name: 'no line of the past', request: { tailLines: 0 }, from: 51 },
      { name: 'all when there are fewer', request: { tailLines: 1_000 }, from: 1 },
      { name: 'what comes after a sequence number', request: { afterSequence: 20n }, from: 21 },
      { name: 'nothing after the last', request: { afterSequence: 50n }, from: 51 },
      { name: 'both conditions', request: { afterSequence: 20n, tailLines: 40 }, from: 21 },
      { name: 'the shorter of both', request: { afterSequence: 20n, tailLines: 2 }, from: 49 },
    ])('selects $name', async ({ request, from }) => {
      const id = await numbers(50);
      expect((await linesOf(current().runtime, id, request)).map(textOf)).toEqual(
        numbered(from, 50),
      );
    });

    it('selects by time', async () => {
      const id = await numbers(10);
      const all = await linesOf(current().runtime, id);
      const lastTimeMs = Math.max(...all.map(({ timeMs }) => timeMs));
      expect(await linesOf(current().runtime, id, { sinceMs: 0 })).toEqual(all);
      expect(await linesOf(current().runtime, id, { sinceMs: lastTimeMs })).toEqual(
        all.filter(({ timeMs }) => timeMs >= lastTimeMs),
      );
      expect(await linesOf(current().runtime, id, { sinceMs: lastTimeMs + 1 })).toEqual([]);
    });

    it('tail counts the lines of the streams asked for', async () => {
      const id = await finished([
        { step: 'number', stream: 'stdout', from: 1, to: 20 },
        { step: 'number', stream: 'stderr', from: 21, to: 40 },
      ]);
      expect(
        (await linesOf(current().runtime, id, { streams: ['stdout'], tailLines: 2 })).map(textOf),
      ).toEqual(numbered(19, 20));
    });

    it('cuts a long line into entries that go on, and no other', async () => {
      const count = 2 * MAX_LINE_BYTES + 5;
      const id = await finished([
        { step: 'fill', stream: 'stdout', letter: 'x', count },
        { step: 'write', stream: 'stdout', text: '\n' },
        { step: 'fill', stream: 'stdout', letter: 'y', count: MAX_LINE_BYTES },
        { step: 'write', stream: 'stdout', text: '\n' },
      ]);
      const lines = await linesOf(current().runtime, id);
      expect(lines.map(({ text, partial }) => [text[0], text.length, partial])).toEqual([
        [0x78, MAX_LINE_BYTES, true],
        [0x78, MAX_LINE_BYTES, true],
        [0x78, 5, false],
        [0x79, MAX_LINE_BYTES, false],
      ]);
    });

    it('keeps bytes that are not UTF-8', async () => {
      const bytes = [0xff, 0x00, 0xc3, 0x28, 0x0d, 0x80];
      const id = await finished([
        { step: 'writeBytes', stream: 'stderr', bytes: [...bytes, 0x0a] },
      ]);
      expect((await linesOf(current().runtime, id)).map(({ text }) => Array.from(text))).toEqual([
        bytes,
      ]);
    });
  });
}
