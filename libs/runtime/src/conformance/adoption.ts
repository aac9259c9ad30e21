import { describe, expect, it } from '@jest/globals';
import type { CurrentMachine } from './harness.js';
import { ended, execOutcome, linesOf, numbered, started, textOf } from './helpers.js';

/** A new caller finds and goes on with what the last one left. */
export function describeAdoption(current: CurrentMachine): void {
  describe('a new instance on the same machine', () => {
    it('finds the same containers, with labels, endpoints and processes as they were', async () => {
      const machine = current();
      await started(machine, [{ step: 'hold' }], {
        labels: { replica: 'a' },
        ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
      });
      const before = await machine.runtime.list();
      const again = await machine.reopen();
      expect(await again.list()).toEqual(before);
    });

    it('learns the exit code of what ended meanwhile', async () => {
      const machine = current();
      const id = await started(machine, [
        { step: 'gate', name: 'go' },
        { step: 'exit', code: 42 },
      ]);
      const reopened = machine.reopen();
      await machine.openGate('go');
      const again = await reopened;
      expect(await ended(again, id)).toMatchObject({ exitCode: 42, reason: 'exit code 42' });
    });

    it('reads the log on without gap or repeat', async () => {
      const machine = current();
      const id = await started(machine, [
        { step: 'number', stream: 'stdout', from: 1, to: 500 },
        { step: 'gate', name: 'more' },
        { step: 'number', stream: 'stdout', from: 501, to: 1_000 },
      ]);
      const again = await machine.reopen();
      await machine.openGate('more');
      const lines = await linesOf(again, id, { follow: true });
      expect(lines.map(textOf)).toEqual(numbered(1, 1_000));
      expect(lines.at(-1)?.sequence).toBe(1_000n);
    });

    it('stops, executes in and removes what it found', async () => {
      const machine = current();
      const id = await started(machine, [{ step: 'hold' }], { env: { NAME: 'kept' } });
      const again = await machine.reopen();
      const command = machine.command([{ step: 'writeEnv', name: 'NAME' }]);
      expect(await execOutcome(again, id, { command })).toMatchObject({ stdout: 'kept\n' });
      expect(await again.stop(id, 0)).toMatchObject({ exitCode: 137 });
      await again.remove(id);
      expect(await again.list()).toEqual([]);
    });

    it('a closed instance refuses calls', async () => {
      const machine = current();
      const old = machine.runtime;
      await machine.reopen();
      await expect(old.list()).rejects.toMatchObject({ kind: 'unavailable' });
      await old.close();
    });
  });
}
