import { describe, expect, it } from '@jest/globals';
import type { ContainerId } from '@cloudless/base';
import type { CurrentMachine, RuntimeHarness } from './harness.js';
import { waitForExit, runExec, createNeverAborted, startContainer } from './helpers.js';

/** Tests of `exec`. */
export function describeExec(current: CurrentMachine, harness: RuntimeHarness): void {
  describe('exec', () => {
    const startHolding = (): Promise<ContainerId> =>
      startContainer(current(), [{ step: 'hold' }], { env: { SHARED: 'with the container' } });

    it('yields stdout, stderr and the exit code of a command that fails', async () => {
      const machine = current();
      const command = machine.command([
        { step: 'write', stream: 'stdout', text: 'out' },
        { step: 'write', stream: 'stderr', text: 'err' },
        { step: 'exit', code: 9 },
      ]);
      expect(await runExec(machine.runtime, await startHolding(), { command })).toEqual({
        stdout: 'out',
        stderr: 'err',
        exitCode: 9,
        failure: undefined,
      });
    });

    it('runs the command with the environment of the container', async () => {
      const machine = current();
      const command = machine.command([{ step: 'writeEnv', name: 'SHARED' }]);
      expect(await runExec(machine.runtime, await startHolding(), { command })).toMatchObject({
        stdout: 'with the container\n',
        exitCode: 0,
      });
    });

    it.each([{ size: 0 }, { size: 5 }, { size: 300_000 }])(
      'passes $size bytes of input to the command',
      async ({ size }) => {
        const machine = current();
        const stdin = new TextEncoder().encode('a'.repeat(size));
        const outcome = await runExec(machine.runtime, await startHolding(), {
          command: machine.command([{ step: 'copyStdin' }]),
          stdin,
        });
        expect([outcome.stdout.length, outcome.exitCode, outcome.failure]).toEqual([
          size,
          0,
          undefined,
        ]);
      },
    );

    it('delivers all output of a command that writes 2 MB', async () => {
      const machine = current();
      const command = machine.command([
        { step: 'fill', stream: 'stdout', letter: 'z', count: 2_000_000 },
      ]);
      const outcome = await runExec(machine.runtime, await startHolding(), { command });
      expect([outcome.stdout.length, outcome.exitCode]).toEqual([2_000_000, 0]);
    });

    it('ends the command and its children after timeoutMs, and delivers the output before', async () => {
      const machine = current();
      const command = machine.command([
        { step: 'write', stream: 'stdout', text: 'begun' },
        { step: 'child', name: 'slow' },
        { step: 'hold' },
      ]);
      const running = runExec(machine.runtime, await startHolding(), { command, timeoutMs: 400 });
      await machine.advanceTime(400);
      expect(await running).toMatchObject({
        stdout: 'begun',
        exitCode: undefined,
        failure: { kind: 'deadline' },
      });
      await machine.waitForChildEnd('slow');
    });

    it('ends the command and its children when its signal is aborted', async () => {
      const machine = current();
      const controller = new AbortController();
      const command = machine.command([{ step: 'child', name: 'aborted' }, { step: 'hold' }]);
      const running = runExec(
        machine.runtime,
        await startHolding(),
        { command },
        controller.signal,
      );
      await machine.waitForChildStart('aborted');
      controller.abort();
      expect(await running).toMatchObject({ exitCode: undefined, failure: undefined });
      await machine.waitForChildEnd('aborted');
    });

    it('ends the command and its children when the caller leaves the loop', async () => {
      const machine = current();
      const command = machine.command([
        { step: 'child', name: 'left' },
        { step: 'write', stream: 'stdout', text: 'x' },
        { step: 'hold' },
      ]);
      for await (const event of machine.runtime.exec(
        await startHolding(),
        { command },
        createNeverAborted(),
      )) {
        expect(event.kind).toBe('output');
        break;
      }
      await machine.waitForChildEnd('left');
    });

    it('ends the command when its container stops', async () => {
      const machine = current();
      const id = await startHolding();
      const command = machine.command([{ step: 'child', name: 'inside' }, { step: 'hold' }]);
      const running = runExec(machine.runtime, id, { command });
      await machine.waitForChildStart('inside');
      await machine.runtime.stop(id, 0);
      expect(await running).toMatchObject({ exitCode: 137 });
      await machine.waitForChildEnd('inside');
    });

    it.each([
      { name: 'that does not exist', command: harness.unknownCommand, exitCode: 127 },
      { name: 'that cannot be executed', command: harness.unexecutableCommand, exitCode: 126 },
    ])(
      'exits with $exitCode and a message on stderr for a program $name',
      async ({ command, exitCode }) => {
        const { runtime } = current();
        const input = { stdin: new TextEncoder().encode('unread') };
        const outcome = await runExec(runtime, await startHolding(), { command, ...input });
        expect(outcome).toEqual({
          stdout: '',
          stderr: expect.stringMatching(/^[^\n]+\n$/),
          exitCode,
          failure: undefined,
        });
        expect(outcome.stderr).toContain(command[0]);
      },
    );

    it('writes the message about a missing program to the terminal', async () => {
      const { runtime } = current();
      if (!runtime.capabilities().includes('exec.tty')) return;
      const request = { command: harness.unknownCommand, tty: { columns: 80, rows: 24 } };
      const outcome = await runExec(runtime, await startHolding(), request);
      expect(outcome).toEqual({
        stdout: expect.stringMatching(/^[^\n]+\r\n$/),
        stderr: '',
        exitCode: 127,
        failure: undefined,
      });
    });

    it('fails in an exited container, and for an empty command', async () => {
      const machine = current();
      const id = await startContainer(machine, [{ step: 'exit', code: 0 }]);
      await waitForExit(machine.runtime, id);
      const command = machine.command([{ step: 'exit', code: 0 }]);
      expect(await runExec(machine.runtime, id, { command })).toMatchObject({
        failure: { kind: 'precondition' },
      });
      const running = await startHolding();
      expect(await runExec(machine.runtime, running, { command: [] })).toMatchObject({
        failure: { kind: 'invalid' },
      });
    });
  });
}
