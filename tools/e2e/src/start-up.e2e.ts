import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { mkdir, watch } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import {
  findBundle,
  killAll,
  listProcessesUsing,
  runToEnd,
  RunningProgram,
} from './support/processes.js';

/** Flags with ports that the system chooses. */
const ANY_PORTS = ['--port', '0', '--ops-port', '0'];

/** Command lines of the programs, for a data directory. */
const programs = {
  coordinator: (dataDir: string) => [
    findBundle('coordinator'),
    '--tls',
    'off',
    ...ANY_PORTS,
    '--data-dir',
    dataDir,
  ],
  agent: (dataDir: string) => [
    findBundle('agent'),
    'run',
    '--runtime',
    'process',
    '--name',
    'agent-1',
    '--data-dir',
    dataDir,
  ],
  'dev-cluster': (dataDir: string) => [
    findBundle('dev-cluster'),
    ...[
      ...ANY_PORTS,
      '--agent-port',
      '0',
      '--agents',
      '1',
      '--runtime',
      'process',
      '--data-dir',
      dataDir,
    ],
  ],
  supervisor: (dataDir: string) => [findBundle('agent'), 'supervisor', dataDir, '60000'],
} as const;

let directory = '';
const started: RunningProgram[] = [];
beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), 'cloudless-e2e-start-'))));
afterEach(async () => {
  for (const program of started.splice(0)) await program.kill('SIGKILL');
  killAll(listProcessesUsing(directory));
  rmSync(directory, { recursive: true });
});

function startProgram(program: keyof typeof programs, dataDir: string): RunningProgram {
  const running = RunningProgram.start(process.execPath, programs[program](dataDir));
  started.push(running);
  return running;
}

/** Resolves when another process creates a file. The directory of the file must exist. */
async function waitForFile(file: string): Promise<void> {
  for await (const { filename } of watch(dirname(file)))
    if (filename?.startsWith(basename(file)) === true) return;
}

describe.each(['coordinator', 'agent', 'dev-cluster'] as const)(
  '%s with a data directory that cannot be created',
  (program) => {
    // In /proc, mkdir fails with ENOENT although /proc exists, as on autofs and some FUSE file
    // systems.
    it('exits with an error that names the directory', async () => {
      const dataDir = '/proc/cloudless/data';
      const { code, stderr } = await runToEnd(process.execPath, programs[program](dataDir));
      expect({ code, namesDirectory: stderr.includes('/proc/cloudless') }).toEqual({
        code: expect.any(Number),
        namesDirectory: true,
      });
      expect(code).not.toBe(0);
    });
  },
);

/**
 * A named pipe without a writer simulates a file system that does not answer: opening the pipe
 * blocks. `hangsAt` is the file that the program opens then, `lastFile` the file that it creates
 * just before.
 */
describe.each([
  { program: 'coordinator', hangsAt: 'store.mdb', lastFile: 'holder' },
  { program: 'agent', hangsAt: 'identity.json', lastFile: 'runtime' },
  { program: 'dev-cluster', hangsAt: 'coordinator/store.mdb', lastFile: 'coordinator/holder' },
  { program: 'supervisor', hangsAt: 'lock.1', lastFile: 'lock-draft.' },
] as const)('$program that hangs during its start', ({ program, hangsAt, lastFile }) => {
  it('exits at the first SIGTERM', async () => {
    await mkdir(dirname(join(directory, hangsAt)), { recursive: true, mode: 0o700 });
    execFileSync('mkfifo', ['-m', '600', join(directory, hangsAt)]);
    const hasReachedPipe = waitForFile(join(directory, lastFile));
    const running = startProgram(program, directory);
    await hasReachedPipe;
    const code = await running.kill('SIGTERM');
    // a supervisor outlives its agent, and ends by itself when it has no processes
    const left = listProcessesUsing(directory).filter(
      (line) => line.includes('main.mjs') && !line.includes(' supervisor '),
    );
    // An agent ends its supervisor first. The others have no exit code: the signal ended the process.
    expect({ code, left }).toEqual({ code: program === 'agent' ? 0 : null, left: [] });
  });
});
