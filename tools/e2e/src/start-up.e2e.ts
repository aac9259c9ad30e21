import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { mkdir, watch } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { bundleOf, killAll, processesUsing, runToEnd, Running } from './processes.js';

/** Flags with ports that the system chooses. */
const ANY_PORTS = ['--port', '0', '--ops-port', '0'];

const programs = {
  coordinator: (dataDir: string) => [bundleOf('coordinator'), ...ANY_PORTS, '--data-dir', dataDir],
  agent: (dataDir: string) => [
    bundleOf('agent'),
    '--runtime',
    'process',
    '--name',
    'agent-1',
    '--data-dir',
    dataDir,
  ],
  'dev-cluster': (dataDir: string) => [
    bundleOf('dev-cluster'),
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
  supervisor: (dataDir: string) => [bundleOf('agent'), 'supervisor', dataDir, '60000'],
} as const;

let directory = '';
const started: Running[] = [];
beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), 'cloudless-e2e-start-'))));
afterEach(async () => {
  for (const program of started.splice(0)) await program.kill('SIGKILL');
  killAll(processesUsing(directory));
  rmSync(directory, { recursive: true });
});

function start(program: keyof typeof programs, dataDir: string): Running {
  const running = Running.start(process.execPath, programs[program](dataDir));
  started.push(running);
  return running;
}

/** Resolves when another process creates a file. Its directory must exist. */
async function made(file: string): Promise<void> {
  for await (const { filename } of watch(dirname(file)))
    if (filename?.startsWith(basename(file)) === true) return;
}

describe.each(['coordinator', 'agent', 'dev-cluster'] as const)(
  '%s with a data directory that cannot be created',
  (program) => {
    // Linux answers mkdir in /proc with ENOENT although /proc exists; autofs and some FUSE file
    // systems do the same.
    it('exits and names the directory', async () => {
      const dataDir = '/proc/cloudless/data';
      const { code, stderr } = await runToEnd(process.execPath, programs[program](dataDir));
      expect({ code, names: stderr.includes('/proc/cloudless') }).toEqual({
        code: expect.any(Number),
        names: true,
      });
      expect(code).not.toBe(0);
    });
  },
);

/**
 * A named pipe without a writer simulates a file system that does not answer: opening or reading it
 * blocks.
 */
describe.each([
  { program: 'coordinator', hangsAt: 'store.mdb', whenThereIs: 'holder' },
  { program: 'agent', hangsAt: 'identity.json', whenThereIs: 'runtime' },
  { program: 'dev-cluster', hangsAt: 'coordinator/store.mdb', whenThereIs: 'coordinator/holder' },
  { program: 'supervisor', hangsAt: 'lock.1', whenThereIs: 'lock-draft.' },
] as const)('$program that hangs during its start', ({ program, hangsAt, whenThereIs }) => {
  it('exits at the first SIGTERM', async () => {
    await mkdir(dirname(join(directory, hangsAt)), { recursive: true, mode: 0o700 });
    execFileSync('mkfifo', ['-m', '600', join(directory, hangsAt)]);
    const hangs = made(join(directory, whenThereIs));
    const running = start(program, directory);
    await hangs;
    const code = await running.kill('SIGTERM');
    // A supervisor outlives its agent and ends by itself when it has no processes.
    const left = processesUsing(directory).filter(
      (line) => line.includes('main.mjs') && !line.includes(' supervisor '),
    );
    // no exit code: the process was ended by the signal
    expect({ code, left }).toEqual({ code: null, left: [] });
  });
});
