import { describe, expect, it } from '@jest/globals';
import type { ContainerId } from '@cloudless/base';
import {
  EXEC_GRACE_MS,
  type ExecEvent,
  type ExecInput,
  type ExecRequest,
} from '../container-runtime.js';
import { PushQueue } from '../events/push-queue.js';
import type { CurrentMachine } from './harness.js';
import { runExec, createNeverAborted, startContainer } from './helpers.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const stdin = (text: string): ExecInput => ({ kind: 'stdin', data: bytes(text) });
const SIZE = { columns: 90, rows: 30 };
/** Size of one chunk of endless input. */
const CHUNK_BYTES = 64 * 1024;

/** A running command with its input and output. */
class RunningCommand {
  readonly input = new PushQueue<ExecInput>({ limit: 1_000 });
  private readonly events: AsyncIterator<ExecEvent>;
  private text = '';

  constructor(current: CurrentMachine, id: ContainerId, request: Omit<ExecRequest, 'input'>) {
    this.events = current()
      .runtime.exec(id, { ...request, input: this.input }, createNeverAborted())
      [Symbol.asyncIterator]();
  }

  /**
   * Reads until `isComplete` returns true for the whole stdout so far, which it returns. Line ends
   * of terminals are converted to line feeds.
   */
  async readStdoutUntil(isComplete: (stdout: string) => boolean): Promise<string> {
    for (;;) {
      if (isComplete(this.text)) return this.text;
      const next = await this.events.next();
      if (next.done === true || next.value.kind === 'exited')
        throw new Error(`the command ended after: ${this.text}`);
      if (next.value.stream === 'stdout')
        this.text += new TextDecoder().decode(next.value.data).replaceAll('\r\n', '\n');
    }
  }

  /**
   * Reads until the command exits.
   * @returns The exit code.
   */
  async readExitCode(): Promise<number> {
    for (;;) {
      const next = await this.events.next();
      if (next.done === true) throw new Error('the events ended without an exit code');
      if (next.value.kind === 'exited') return next.value.exitCode;
      this.text += new TextDecoder().decode(next.value.data).replaceAll('\r\n', '\n');
    }
  }

  /** Leaves the command as a caller does that stops reading. */
  async leave(): Promise<void> {
    await this.events.return?.();
  }

  get stdout(): string {
    return this.text;
  }
}

/** Tests of streamed input, of terminals, and of commands whose caller leaves. */
export function describeExecStreams(current: CurrentMachine): void {
  describe('exec with streamed input or a terminal', () => {
    const startHolding = (): Promise<ContainerId> =>
      startContainer(current(), [{ step: 'hold' }], { env: { SHARED: 'container', OWN: 'a' } });

    it('passes input and its end to the command as they arrive', async () => {
      const running = new RunningCommand(current, await startHolding(), {
        command: current().command([{ step: 'copyStdin' }]),
      });
      running.input.push(stdin('one'));
      await running.readStdoutUntil((text) => text === 'one');
      running.input.push(stdin(' two'));
      await running.readStdoutUntil((text) => text === 'one two');
      running.input.push({ kind: 'end' });
      expect(await running.readExitCode()).toBe(0);
    });

    it('closes stdin when the input iterable ends', async () => {
      const running = new RunningCommand(current, await startHolding(), {
        command: current().command([{ step: 'copyStdin' }]),
      });
      running.input.push(stdin('all'));
      running.input.end();
      expect([await running.readExitCode(), running.stdout]).toEqual([0, 'all']);
    });

    it('stops reading the input when the command does not read, and ends it when the command exits', async () => {
      const machine = current();
      let chunkCount = 0;
      let hasReturned = false;
      async function* anEndlessInput(): AsyncGenerator<ExecInput> {
        try {
          for (; chunkCount < 1_024; chunkCount += 1)
            yield { kind: 'stdin', data: new Uint8Array(CHUNK_BYTES) };
        } finally {
          hasReturned = true;
        }
      }
      const command = machine.command([
        { step: 'gate', name: 'deaf' },
        { step: 'exit', code: 3 },
      ]);
      const outcome = runExec(machine.runtime, await startHolding(), {
        command,
        input: anEndlessInput(),
      });
      await machine.openGate('deaf');
      expect(await outcome).toMatchObject({ exitCode: 3, failure: undefined });
      expect(chunkCount).toBeLessThan(1_024);
      await machine.advanceTime(0);
      expect(hasReturned).toBe(true);
    });

    it('fails with the error of the input and ends the command', async () => {
      const machine = current();
      const running = new RunningCommand(current, await startHolding(), {
        command: machine.command([{ step: 'child', name: 'fed' }, { step: 'hold' }]),
      });
      const outcome = running.readExitCode();
      outcome.catch(() => undefined);
      await machine.waitForChildStart('fed');
      running.input.fail(new Error('the caller broke'));
      await expect(outcome).rejects.toThrow('the caller broke');
      await machine.advanceTime(EXEC_GRACE_MS);
      await machine.waitForChildEnd('fed');
    });

    it('runs the command with the variables of the container and of the request', async () => {
      const command = current().command([
        { step: 'writeEnv', name: 'SHARED' },
        { step: 'writeEnv', name: 'OWN' },
      ]);
      expect(
        await runExec(current().runtime, await startHolding(), { command, env: { OWN: 'b' } }),
      ).toMatchObject({
        stdout: 'container\nb\n',
        exitCode: 0,
      });
    });

    it('kills a command that ignores SIGTERM after its caller has left', async () => {
      const machine = current();
      const running = new RunningCommand(current, await startHolding(), {
        command: machine.command([
          { step: 'ignoreTerm' },
          { step: 'child', name: 'deaf' },
          { step: 'write', stream: 'stdout', text: 'up' },
          { step: 'hold' },
        ]),
      });
      await running.readStdoutUntil((text) => text === 'up');
      await running.leave();
      await machine.advanceTime(EXEC_GRACE_MS);
      await machine.waitForChildEnd('deaf');
    });

    it('provides a terminal of the requested size, or rejects tty without the capability exec.tty', async () => {
      const machine = current();
      const command = machine.command([
        { step: 'write', stream: 'stderr', text: 'both\n' },
        { step: 'writeSize' },
        { step: 'readLine' },
        { step: 'writeSize' },
        { step: 'copyStdin' },
        { step: 'exit', code: 4 },
      ]);
      const id = await startHolding();
      if (!machine.runtime.capabilities().includes('exec.tty')) {
        const refused = await runExec(machine.runtime, id, { command, tty: SIZE });
        expect(refused.failure).toMatchObject({
          kind: 'unimplemented',
          message: expect.stringContaining('exec.tty'),
        });
        return;
      }
      const running = new RunningCommand(current, id, { command, tty: SIZE });
      await running.readStdoutUntil((text) => text === 'both\n30 90\n');
      running.input.push({ kind: 'resize', columns: 40, rows: 10 });
      running.input.push(stdin('\n'));
      await running.readStdoutUntil((text) => text.endsWith('10 40\n'));
      running.input.push({ kind: 'end' });
      expect(await running.readExitCode()).toBe(4);
    });

    it('ends a command with a terminal when its caller leaves', async () => {
      const machine = current();
      if (!machine.runtime.capabilities().includes('exec.tty')) return;
      const command = machine.command([
        { step: 'child', name: 'shell' },
        { step: 'write', stream: 'stdout', text: 'up' },
        { step: 'hold' },
      ]);
      const running = new RunningCommand(current, await startHolding(), { command, tty: SIZE });
      await running.readStdoutUntil((text) => text === 'up');
      await running.leave();
      await machine.advanceTime(EXEC_GRACE_MS);
      await machine.waitForChildEnd('shell');
    });

    it('provides no terminal when tty is not requested', async () => {
      const command = current().command([{ step: 'writeSize' }]);
      expect(await runExec(current().runtime, await startHolding(), { command })).toMatchObject({
        stdout: 'no terminal\n',
      });
    });
  });
}
