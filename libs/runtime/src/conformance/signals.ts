import { describe, expect, it } from '@jest/globals';
import { SIGNAL_CAPABILITY } from '../container-runtime.js';
import type { CurrentMachine } from './harness.js';
import {
  aContainerId,
  createNeverAborted,
  decodeLine,
  readLines,
  readUntil,
  startContainer,
  waitForExit,
} from './helpers.js';

/** Tests of `signal`, and of the confidential environment variables of `start`. */
export function describeSignals(current: CurrentMachine): void {
  const lacksSignals = (): boolean => !current().runtime.capabilities().includes(SIGNAL_CAPABILITY);

  describe('signal', () => {
    it('reaches the main process, which handles the signal', async () => {
      if (lacksSignals()) return;
      const machine = current();
      const id = await startContainer(machine, [
        { step: 'onTerm', line: 'bye', exitCode: 7 },
        { step: 'write', stream: 'stdout', text: 'ready\n' },
        { step: 'hold' },
      ]);
      await readUntil(
        machine.runtime.logs(id, { follow: true }, createNeverAborted())[Symbol.asyncIterator](),
        'ready',
      );
      await machine.runtime.signal(id, 'SIGTERM');
      expect(await waitForExit(machine.runtime, id)).toMatchObject({ exitCode: 7 });
      expect((await readLines(machine.runtime, id)).map(decodeLine)).toEqual(['ready', 'bye']);
    });

    it('is rejected for an exited and for an unknown container', async () => {
      if (lacksSignals()) return;
      const { runtime } = current();
      const id = await startContainer(current(), [{ step: 'exit', code: 0 }]);
      await waitForExit(runtime, id);
      await expect(runtime.signal(id, 'SIGHUP')).rejects.toMatchObject({ kind: 'precondition' });
      await expect(runtime.signal(aContainerId(), 'SIGHUP')).rejects.toMatchObject({
        kind: 'notFound',
      });
    });
  });

  describe('confidential environment variables', () => {
    it('reach the process, and replace other variables of the same name', async () => {
      const machine = current();
      const id = await startContainer(
        machine,
        [
          { step: 'writeEnv', name: 'PASSWORD' },
          { step: 'writeEnv', name: 'GREETING' },
          { step: 'writeEnv', name: 'BOTH' },
        ],
        {
          env: { GREETING: 'hello', BOTH: 'public' },
          secretEnv: { PASSWORD: `it's $HOME "x"`, BOTH: 'secret' },
        },
      );
      await waitForExit(machine.runtime, id);
      expect((await readLines(machine.runtime, id)).map(decodeLine)).toEqual([
        `it's $HOME "x"`,
        'hello',
        'secret',
      ]);
    });
  });
}
