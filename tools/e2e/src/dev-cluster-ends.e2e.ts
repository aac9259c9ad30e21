import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chooseWorkloadPorts } from './support/cluster.js';
import {
  RunningProgram,
  findBundle,
  killAll,
  listProcessesUsing,
  repository,
} from './support/processes.js';
import { Terminal } from './support/terminal.js';

const EXAMPLE = `name: example
spec: { command: [sleep, '1000'], rollout: { minReadyDuration: 0s } }
`;
/** The last line of the start: the example runs then. */
const STARTED = 'stops everything';

/** Contains `example.yaml`, `log` of tee, and `tmp` for all files and processes of the clusters. */
let directory = '';
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cloudless-ends-'));
  await writeFile(join(directory, 'example.yaml'), EXAMPLE);
});
beforeEach(() => mkdir(join(directory, 'tmp')));
afterEach(async () => {
  killAll(listProcessesUsing(join(directory, 'tmp')));
  await rm(join(directory, 'tmp'), { recursive: true });
});
afterAll(() => rm(directory, { recursive: true }));

/** Returns the environment by which {@link listProcessesUsing} finds every process of a cluster. */
const createEnv = (): NodeJS.ProcessEnv => ({ TMPDIR: join(directory, 'tmp'), NO_COLOR: '1' });
const createFlags = (): readonly string[] => [
  ...['--port', '0', '--ops-port', '0', '--agent-port', '0', '--runtime', 'process'],
  ...['--workload-port', String(chooseWorkloadPorts(1_000)), '--agents', '1'],
  ...['--example', join(directory, 'example.yaml')],
];
/** Returns the command line of a dev cluster with one agent and one replica. */
const createCluster = (): readonly string[] => [
  process.execPath,
  findBundle('dev-cluster'),
  ...createFlags(),
];
/** Returns the command line of `npm start` without npm. */
const createNpmStart = (): readonly string[] => [
  process.execPath,
  join(repository, 'tools/start.mjs'),
  ...createFlags(),
];
/** Returns a command line whose output is read by `tee`. */
const withTee = (command: readonly string[]): readonly string[] => [
  ...['sh', '-c', 'log=$1; shift; "$@" | tee "$log"', 'sh', join(directory, 'log'), ...command],
];

/** Starts a program and resolves when the cluster is up. */
async function start([file = '', ...args]: readonly string[]): Promise<RunningProgram> {
  const program = RunningProgram.start(file, args, createEnv());
  await program.waitForLine((line) => line.includes(STARTED));
  return program;
}

/** Starts a program in a terminal and resolves when the cluster is up. */
async function startInTerminal(command: readonly string[]): Promise<Terminal> {
  const terminal = Terminal.start(command, createEnv());
  await terminal.waitForText(new RegExp(STARTED));
  return terminal;
}

/** Resolves when no process of the cluster is left. */
async function waitUntilNothingRuns(): Promise<void> {
  while (listProcessesUsing(join(directory, 'tmp')).length > 0)
    await new Promise((resolve) => setTimeout(resolve, 50));
}

/** A terminal emulator: shows what the program in its pseudoterminal writes. */
const TERMINAL_EMULATOR = `
  const [file, ...args] = process.argv.slice(1);
  require('@lydell/node-pty').spawn(file, args, {}).onData((text) => process.stdout.write(text));
`;

describe('a dev cluster leaves no process and no temporary directory behind after', () => {
  it.each([
    {
      name: 'Ctrl-C',
      end: async () => {
        const terminal = await startInTerminal(createCluster());
        terminal.sendText('\x03');
        expect(await terminal.exited).toBe(0);
      },
    },
    {
      name: 'Ctrl-C that also ends the reader of its output, as in `npm start | tee log`',
      end: async () => (await startInTerminal(withTee(createNpmStart()))).sendText('\x03'),
    },
    {
      name: 'the end of the reader of its output',
      end: async () => {
        const script = `"$@" | sed '/${STARTED}/q'`;
        await (
          await start(['sh', '-c', script, 'sh', ...createCluster()])
        ).exited;
      },
    },
    {
      name: 'SIGTERM',
      end: async () => expect(await (await start(createCluster())).kill('SIGTERM')).toBe(0),
    },
    {
      name: 'SIGHUP',
      end: async () => expect(await (await start(createCluster())).kill('SIGHUP')).toBe(0),
    },
    {
      name: 'the end of its terminal',
      end: async () => {
        const emulator = [process.execPath, '-e', TERMINAL_EMULATOR, '--', ...createCluster()];
        await (await start(emulator)).kill('SIGKILL');
      },
    },
    {
      name: 'the time limit of `timeout 1h npm start`',
      // timeout takes SIGALRM for the end of the time
      end: async () => (await start(['timeout', '1h', ...createNpmStart()])).kill('SIGALRM'),
    },
    {
      name: 'SIGKILL',
      end: async () => (await start(createCluster())).kill('SIGKILL'),
    },
    {
      name: 'SIGKILL of its parent process `npm start`',
      end: async () => (await start(createNpmStart())).kill('SIGKILL'),
    },
    {
      name: 'SIGTERM to every process of its tree and SIGKILL, as task runners end a program',
      end: async () => {
        const cluster = await start(createCluster());
        for (const line of listProcessesUsing(join(directory, 'tmp')))
          process.kill(Number.parseInt(line, 10), 'SIGTERM');
        await cluster.kill('SIGKILL');
      },
    },
  ])('$name', async ({ end }) => {
    await end();
    await waitUntilNothingRuns();
    expect(await readdir(join(directory, 'tmp'))).toEqual([]);
  });
});
