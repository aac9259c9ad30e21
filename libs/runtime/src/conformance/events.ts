import { describe, expect, it } from '@jest/globals';
import type { CurrentMachine } from './harness.js';
import { waitForExit, createNeverAborted, startContainer } from './helpers.js';

/** Tests of `events`. */
export function describeEvents(current: CurrentMachine): void {
  describe('events', () => {
    it('yields each start and exit after the call in order to every reader', async () => {
      const machine = current();
      const listeners = [
        machine.runtime.events(createNeverAborted()),
        machine.runtime.events(createNeverAborted()),
      ].map((events) => events[Symbol.asyncIterator]());
      const first = await startContainer(
        machine,
        [
          { step: 'gate', name: 'go' },
          { step: 'exit', code: 5 },
        ],
        { labels: { a: 'b' } },
      );
      await machine.openGate('go');
      await waitForExit(machine.runtime, first);
      const second = await startContainer(machine, [{ step: 'hold' }]);
      for (const listener of listeners) {
        const seen = [await listener.next(), await listener.next(), await listener.next()].map(
          ({ value }) => value,
        );
        expect(seen).toMatchObject([
          { kind: 'started', status: { containerId: first, phase: 'running', labels: { a: 'b' } } },
          { kind: 'exited', status: { containerId: first, phase: 'exited', exitCode: 5 } },
          { kind: 'started', status: { containerId: second } },
        ]);
      }
    });

    it('loses no exit that happens between the call and a later list', async () => {
      const machine = current();
      const ids = await Promise.all(
        Array.from({ length: 8 }, () =>
          startContainer(machine, [
            { step: 'gate', name: 'go' },
            { step: 'exit', code: 0 },
          ]),
        ),
      );
      const events = machine.runtime.events(createNeverAborted());
      const opening = machine.openGate('go');
      const unreported = new Set(ids);
      for (const status of await machine.runtime.list())
        if (status.phase === 'exited') unreported.delete(status.containerId);
      await opening;
      const reader = events[Symbol.asyncIterator]();
      while (unreported.size > 0) {
        const next = await reader.next();
        if (next.done === true) throw new Error('the events ended');
        if (next.value.kind === 'exited') unreported.delete(next.value.status.containerId);
      }
      expect((await machine.runtime.list()).map(({ phase }) => phase)).toEqual(
        ids.map(() => 'exited'),
      );
    });

    it('ends when the signal is aborted, before or after the call', async () => {
      const { runtime } = current();
      const controller = new AbortController();
      const waiting = runtime.events(controller.signal)[Symbol.asyncIterator]().next();
      controller.abort();
      expect(await waiting).toMatchObject({ done: true });
      expect(await runtime.events(controller.signal)[Symbol.asyncIterator]().next()).toMatchObject({
        done: true,
      });
    });

    it('fails with unavailable when the runtime is closed', async () => {
      const machine = current();
      const waiting = machine.runtime.events(createNeverAborted())[Symbol.asyncIterator]().next();
      const outcome = expect(waiting).rejects.toMatchObject({ kind: 'unavailable' });
      await machine.reopen();
      await outcome;
    });
  });
}
