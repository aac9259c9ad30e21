import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { randomHex, toContainerId, type ContainerId } from '@cloudless/base';
import { type ExecInput, type ExecRequest } from '@cloudless/runtime';
import { systemRandom } from '@cloudless/app-kit';
import {
  openRealMachine,
  findProcesses,
  waitUntil,
  type RealMachine,
} from './testing/real-machine.js';

let machine: RealMachine;
let containerId: ContainerId;
beforeEach(async () => {
  machine = await openRealMachine();
  containerId = toContainerId(randomHex(systemRandom, 32));
  const command = ['sleep', '3600'];
  const env = { MACHINE: machine.directory };
  await machine.runtime.start({
    containerId,
    labels: {},
    command,
    args: [],
    env,
    ports: [],
    limits: {},
  });
});
afterEach(() => machine.dispose());

const TTY = { columns: 80, rows: 24 };
const CHUNK = new Uint8Array(64 * 1024).fill(0x61);
const inShell = (script: string): readonly string[] => ['/bin/sh', '-c', script];
const never = (): AbortSignal => new AbortController().signal;

async function* anOpenInput(): AsyncGenerator<ExecInput> {
  await new Promise(() => undefined);
}

async function* anEndlessInput(): AsyncGenerator<ExecInput> {
  for (;;) yield { kind: 'stdin', data: CHUNK };
}

/** Runs a command to its end. Reads the next chunk when the promise of `onChunk` resolves. */
async function run(
  request: ExecRequest,
  onChunk: () => Promise<unknown> | undefined = () => undefined,
) {
  const chunks: Uint8Array[] = [];
  for await (const event of machine.runtime.exec(containerId, request, never())) {
    if (event.kind === 'exited')
      return { exitCode: event.exitCode, text: Buffer.concat(chunks).toString() };
    chunks.push(event.data);
    await onChunk();
  }
  throw new Error('the stream ended without an exit code');
}

describe('a command with a terminal', () => {
  it('is supported: the runtime has the capability exec.tty', () => {
    expect(machine.runtime.capabilities()).toContain('exec.tty');
  });

  it('leads a session with a controlling terminal', async () => {
    const script =
      'test -t 0 && test -t 1 && test -t 2 && echo $TERM > /dev/tty; ps -o tpgid= -p $$ | tr -d " "; echo $$';
    const { exitCode, text } = await run({
      command: inShell(script),
      tty: TTY,
      input: anOpenInput(),
      env: { TERM: 'vt100' },
    });
    const [term, group, pid] = text.trim().split(/\s+/);
    expect({ exitCode, term, group }).toEqual({ exitCode: 0, term: 'vt100', group: pid });
  });

  it('loses no output that it wrote before its end when the reader is slow', async () => {
    const { exitCode, text } = await run(
      { command: inShell('seq 1 50000; exit 7'), tty: TTY },
      () => machine.runtime.list(),
    );
    const lines = text.trim().split('\r\n');
    expect({ exitCode, lines: lines.length, last: lines.at(-1) }).toEqual({
      exitCode: 7,
      lines: 50_000,
      last: '50000',
    });
  });

  it('exits with code 128 + n when signal n ends it', async () => {
    expect(await run({ command: inShell('kill -9 $$'), tty: TTY })).toMatchObject({
      exitCode: 137,
    });
  });

  it('kills the jobs of its shell, which have process groups of their own, when it ends', async () => {
    const { exitCode } = await run({
      command: ['bash', '-ic', 'sleep 3600 & exit 5'],
      tty: TTY,
      input: anOpenInput(),
    });
    expect(exitCode).toBe(5);
    await waitUntil(() => findProcesses(machine).length === 1);
  });
});

describe.each([
  { kind: 'pipes', tty: {} },
  { kind: 'a terminal', tty: { tty: TTY } },
])('a command with $kind that does not read its input', ({ tty }) => {
  it('does not block the supervisor, and ends when its caller leaves', async () => {
    const caller = new AbortController();
    const events = machine.runtime
      .exec(
        containerId,
        { command: inShell('echo up; exec sleep 3600'), input: anEndlessInput(), ...tty },
        caller.signal,
      )
      [Symbol.asyncIterator]();
    await events.next();
    for (let call = 0; call < 50; call += 1) expect(await machine.runtime.list()).toHaveLength(1);
    // While a process replaces its program, /proc shows no mark of the container.
    await waitUntil(() => findProcesses(machine).length === 2);
    caller.abort();
    // A terminal may still echo earlier input.
    for (let event = await events.next(); event.done !== true; event = await events.next())
      expect(event.value.kind).toBe('output');
    await waitUntil(() => findProcesses(machine).length === 1);
  });
});

describe('commands of one node', () => {
  it('are refused while 64 run at the same time', async () => {
    const caller = new AbortController();
    const command = inShell('echo up; exec sleep 3600');
    const running = Array.from({ length: 64 }, () =>
      machine.runtime.exec(containerId, { command }, caller.signal)[Symbol.asyncIterator](),
    );
    await Promise.all(running.map((events) => events.next()));
    const next = machine.runtime.exec(containerId, { command: ['true'] }, never());
    await expect(next[Symbol.asyncIterator]().next()).rejects.toMatchObject({ kind: 'exhausted' });
    caller.abort();
    await Promise.all(running.map((events) => events.next()));
    await waitUntil(() => findProcesses(machine).length === 1);
  });
});

describe('a command whose caller has left', () => {
  it.each([
    { kind: 'pipes', tty: {} },
    { kind: 'a terminal', tty: { tty: TTY } },
  ])('can clean up before it is killed, with $kind', async ({ tty }) => {
    const file = path.join(machine.directory, 'cleaned');
    const script = `trap 'sleep 0.1; echo much; echo cleaned > ${file}; exit' TERM HUP; echo up; while :; do sleep 0.05; done`;
    for await (const _event of machine.runtime.exec(
      containerId,
      { command: inShell(script), ...tty },
      never(),
    ))
      break;
    await waitUntil(() => existsSync(file) && readFileSync(file, 'utf8') === 'cleaned\n');
    await waitUntil(() => findProcesses(machine).length === 1);
  });
});
