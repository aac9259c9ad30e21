import { describe, expect, it } from '@jest/globals';
import type { LogLine } from '../container-runtime.js';
import type { CurrentMachine, RuntimeHarness } from './harness.js';
import {
  waitForExit,
  readLines,
  createNeverAborted,
  createNumberedLines,
  readUntil,
  startContainer,
  decodeLine,
} from './helpers.js';

/** Tests of `logs` with `follow`. */
export function describeLogFollow(current: CurrentMachine, harness: RuntimeHarness): void {
  describe('logs with follow', () => {
    it('yields existing lines, then new lines, and ends when the container has exited', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'number', stream: 'stdout', from: 1, to: 3 },
        { step: 'gate', name: 'more' },
        { step: 'number', stream: 'stdout', from: 4, to: 6 },
        { step: 'write', stream: 'stdout', text: 'end' },
      ]);
      const reader = machine.runtime
        .logs(id, { follow: true }, createNeverAborted())
        [Symbol.asyncIterator]();
      expect((await readUntil(reader, 'line 3')).map(decodeLine)).toEqual(
        createNumberedLines(1, 3),
      );
      await machine.openGate('more');
      expect((await readUntil(reader, 'end')).map(decodeLine)).toEqual([
        ...createNumberedLines(4, 6),
        'end',
      ]);
      expect(await reader.next()).toMatchObject({ done: true });
    });

    it('yields the requested tail, then new lines without gaps', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'number', stream: 'stdout', from: 1, to: 30 },
        { step: 'gate', name: 'more' },
        { step: 'number', stream: 'stdout', from: 31, to: 40 },
      ]);
      await readUntil(
        machine.runtime.logs(id, { follow: true }, createNeverAborted())[Symbol.asyncIterator](),
        'line 30',
      );
      const reader = machine.runtime
        .logs(id, { follow: true, tailLines: 2 }, createNeverAborted())
        [Symbol.asyncIterator]();
      expect(decodeLine((await reader.next()).value as LogLine)).toBe('line 29');
      await machine.openGate('more');
      expect((await readUntil(reader, 'line 40')).map(decodeLine)).toEqual(
        createNumberedLines(30, 40),
      );
    });

    it('yields every line once across log rotation', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'number', stream: 'stdout', from: 1, to: harness.rotatingLines },
      ]);
      const lines = await readLines(machine.runtime, id, { follow: true });
      expect(lines.map(({ sequence }) => sequence)).toEqual(
        lines.map((_, index) => BigInt(index + 1)),
      );
      expect(lines.map(decodeLine)).toEqual(createNumberedLines(1, harness.rotatingLines));
      expect(
        (await readLines(machine.runtime, id, { tailLines: harness.rotatingLines })).length,
      ).toBe(harness.rotatingLines);
    });

    it('yields every line once, and no empty batch, from logBatches', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'number', stream: 'stdout', from: 1, to: harness.rotatingLines },
      ]);
      const lines: LogLine[] = [];
      for await (const batch of machine.runtime.logBatches(
        id,
        { follow: true },
        createNeverAborted(),
      )) {
        expect(batch.lines.length).toBeGreaterThan(0);
        expect(batch.skipped).toBeUndefined();
        lines.push(...batch.lines);
      }
      expect(lines.map(({ sequence }) => sequence)).toEqual(
        lines.map((_, index) => BigInt(index + 1)),
      );
      expect(lines.map(decodeLine)).toEqual(createNumberedLines(1, harness.rotatingLines));
    });

    it('resumes after the sequence number at which another reader stopped', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'number', stream: 'stdout', from: 1, to: 10 },
        { step: 'gate', name: 'more' },
        { step: 'number', stream: 'stdout', from: 11, to: 20 },
      ]);
      const first = await readUntil(
        machine.runtime.logs(id, { follow: true }, createNeverAborted())[Symbol.asyncIterator](),
        'line 10',
      );
      await machine.openGate('more');
      const rest = await readLines(machine.runtime, id, {
        follow: true,
        afterSequence: first.at(-1)?.sequence ?? 0n,
      });
      expect(rest.map(decodeLine)).toEqual(createNumberedLines(11, 20));
    });

    it('ends after the existing lines of an exited container', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'number', stream: 'stdout', from: 1, to: 5 },
      ]);
      await waitForExit(machine.runtime, id);
      expect((await readLines(machine.runtime, id, { follow: true })).map(decodeLine)).toEqual(
        createNumberedLines(1, 5),
      );
      expect(await readLines(machine.runtime, id, { follow: true, tailLines: 0 })).toEqual([]);
    });

    it('ends when the signal is aborted, while the container keeps running', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'write', stream: 'stdout', text: 'ready\n' },
        { step: 'hold' },
      ]);
      const controller = new AbortController();
      const reader = machine.runtime
        .logs(id, { follow: true }, controller.signal)
        [Symbol.asyncIterator]();
      await readUntil(reader, 'ready');
      const waiting = reader.next();
      controller.abort();
      expect(await waiting).toMatchObject({ done: true });
      expect(await machine.runtime.list()).toMatchObject([{ phase: 'running' }]);
    });
  });
}
