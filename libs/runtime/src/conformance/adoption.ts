import { describe, expect, it } from '@jest/globals';
import type { CurrentMachine } from './harness.js';
import {
  waitForExit,
  runExec,
  readLines,
  createNumberedLines,
  startContainer,
  decodeLine,
} from './helpers.js';

/** Tests of the containers that a restarted caller finds. */
export function describeAdoption(current: CurrentMachine): void {
  describe('a new runtime instance on the same machine', () => {
    it('lists the same containers with labels, endpoints and process ids', async () => {
      const machine = current();
      await startContainer(machine, [{ step: 'hold' }], {
        labels: { replica: 'a' },
        ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
      });
      const before = await machine.runtime.list();
      const newRuntime = await machine.reopen();
      expect(await newRuntime.list()).toEqual(before);
    });

    it('reports the exit code of a container that exited during the restart', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'gate', name: 'go' },
        { step: 'exit', code: 42 },
      ]);
      const reopened = machine.reopen();
      await machine.openGate('go');
      const newRuntime = await reopened;
      expect(await waitForExit(newRuntime, id)).toMatchObject({
        exitCode: 42,
        reason: 'exit code 42',
      });
    });

    it('continues a log without gaps or duplicates', async () => {
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'number', stream: 'stdout', from: 1, to: 500 },
        { step: 'gate', name: 'more' },
        { step: 'number', stream: 'stdout', from: 501, to: 1_000 },
      ]);
      const newRuntime = await machine.reopen();
      await machine.openGate('more');
      const lines = await readLines(newRuntime, id, { follow: true });
      expect(lines.map(decodeLine)).toEqual(createNumberedLines(1, 1_000));
      expect(lines.at(-1)?.sequence).toBe(1_000n);
    });

    it('stops, removes and runs commands in containers of the previous instance', async () => {
      const machine = current();
      const id = await startContainer(machine, [{ step: 'hold' }], { env: { NAME: 'kept' } });
      const newRuntime = await machine.reopen();
      const command = machine.command([{ step: 'writeEnv', name: 'NAME' }]);
      expect(await runExec(newRuntime, id, { command })).toMatchObject({ stdout: 'kept\n' });
      expect(await newRuntime.stop(id, 0)).toMatchObject({ exitCode: 137 });
      await newRuntime.remove(id);
      expect(await newRuntime.list()).toEqual([]);
    });

    it('closes the previous instance, whose calls then fail with unavailable', async () => {
      const machine = current();
      const previous = machine.runtime;
      await machine.reopen();
      await expect(previous.list()).rejects.toMatchObject({ kind: 'unavailable' });
      await previous.close();
    });
  });
}
