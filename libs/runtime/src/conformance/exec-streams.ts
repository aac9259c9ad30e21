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
   * Reads until stdout satisfies `fits`. Line ends of terminals are converted to line feeds.
   * @returns stdout.
   */
  async readStdoutUntil(fits: (stdout: string) => boolean): Promise<string> {
    for (;;) {
      if (fits(this.text)) return this.text;
      const next = await this.events.next();
      if (next.done === true || next.value.kind === 'exited')
        throw new Error(`the command ended after: ${this.text}`);
      if (next.value.stream === 'stdout')
        this.text += new TextDecoder().decode(next.value.data).replaceAll('\r\n', '\n');
    }
  }

  /** Reads until the command exits. @returns The exit code. */
  async readExitCode(): Promise<number> {
    for (;;) {
      const next = await this.events.next();
      if (next.done === true) throw new Error('no exit code came');
      if (next.value.kind === 'exited') return next.value.exitCode;
      this.text += new TextDecoder().decode(next.value.data).replaceAll('\r\n', '\n');
    }
  }

  async leave(): Promise<void> {
    await this.events.return?.();
  }

  get stdout(): string {
    return this.text;
  }
}

/** Tests of streamed input, terminals and the end of commands with their caller. */
export function describeExecStreams(current: CurrentMachine): void {
  describe('exec with streamed input or a terminal', () => {
    const startHolding = (): Promise<ContainerId> =>
      startContainer(current(), [{ step: 'hold' }], { env: { SHARED: 'container', OWN: 'a' } });

    it('passes input and its end to the command as they arrive', async () => {
      const talk = new RunningCommand(current, await startHolding(), {
        command: current().command([{ step: 'copyStdin' }]),
      });
      talk.input.push(stdin('one'));
      await talk.readStdoutUntil((text) => text === 'one');
      talk.input.push(stdin(' two'));
      await talk.readStdoutUntil((text) => text === 'one two');
      talk.input.push({ kind: 'end' });
      expect(await talk.readExitCode()).toBe(0);
    });

    it('closes stdin when the input iterable ends', async () => {
      const talk = new RunningCommand(current, await startHolding(), {
        command: current().command([{ step: 'copyStdin' }]),
      });
      talk.input.push(stdin('all'));
      talk.input.end();
      expect([await talk.readExitCode(), talk.stdout]).toEqual([0, 'all']);
    });

    it('reads no more input than the command reads', async () => {
      const machine = current();
      let taken = 0;
      let left = false;
      async function* endless(): AsyncGenerator<ExecInput> {
        try {
          for (; taken < 1_024; taken += 1)
            yield { kind: 'stdin', data: new Uint8Array(CHUNK_BYTES) };
        } finally {
          left = true;
        }
      }
      const command = machine.command([
        { step: 'gate', name: 'deaf' },
        { step: 'exit', code: 3 },
      ]);
      const running = runExec(machine.runtime, await startHolding(), { command, input: endless() });
      await machine.openGate('deaf');
      expect(await running).toMatchObject({ exitCode: 3, failure: undefined });
      expect(taken).toBeLessThan(1_024);
      await machine.advanceTime(0);
      expect(left).toBe(true);
    });

    it('fails with the error of the input and ends the command', async () => {
      const machine = current();
      const talk = new RunningCommand(current, await startHolding(), {
        command: machine.command([{ step: 'child', name: 'fed' }, { step: 'hold' }]),
      });
      const outcome = talk.readExitCode();
      outcome.catch(() => undefined);
      await machine.waitForChildStart('fed');
      talk.input.fail(new Error('the caller broke'));
      await expect(outcome).rejects.toThrow('the caller broke');
      await machine.advanceTime(EXEC_GRACE_MS);
      await machine.waitForChildEnd('fed');
    });

    it('adds environment variables to those of the container', async () => {
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
      const talk = new RunningCommand(current, await startHolding(), {
        command: machine.command([
          { step: 'ignoreTerm' },
          { step: 'child', name: 'deaf' },
          { step: 'write', stream: 'stdout', text: 'up' },
          { step: 'hold' },
        ]),
      });
      await talk.readStdoutUntil((text) => text === 'up');
      await talk.leave();
      await machine.advanceTime(EXEC_GRACE_MS);
      await machine.waitForChildEnd('deaf');
    });

    it('provides a terminal with its size, merged streams and the end-of-file character', async () => {
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
      const talk = new RunningCommand(current, id, { command, tty: SIZE });
      await talk.readStdoutUntil((text) => text === 'both\n30 90\n');
      talk.input.push({ kind: 'resize', columns: 40, rows: 10 });
      talk.input.push(stdin('\n'));
      await talk.readStdoutUntil((text) => text.endsWith('10 40\n'));
      talk.input.push({ kind: 'end' });
      expect(await talk.readExitCode()).toBe(4);
    });

    it('ends a command with a terminal when its caller leaves', async () => {
      const machine = current();
      if (!machine.runtime.capabilities().includes('exec.tty')) return;
      const command = machine.command([
        { step: 'child', name: 'shell' },
        { step: 'write', stream: 'stdout', text: 'up' },
        { step: 'hold' },
      ]);
      const talk = new RunningCommand(current, await startHolding(), { command, tty: SIZE });
      await talk.readStdoutUntil((text) => text === 'up');
      await talk.leave();
      await machine.advanceTime(EXEC_GRACE_MS);
      await machine.waitForChildEnd('shell');
    });

    it('provides no terminal unless requested', async () => {
      const command = current().command([{ step: 'writeSize' }]);
      expect(await runExec(current().runtime, await startHolding(), { command })).toMatchObject({
        stdout: 'no terminal\n',
      });
    });
  });
}
