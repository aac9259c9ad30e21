import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { silentLog } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { readBootId, readStartToken } from '@cloudless/app-kit/background';
import { findMarkedProcesses } from '../../system/marked-processes.js';
import { aScript } from '../../testing/container-calls.js';
import { waitUntil } from '../../testing/real-machine.js';
import type { ShellTools } from '../process/launch-script.js';
import { findShellTools } from '../process/shell-tools.js';
import type { ProcessResolvers } from '../resolver/process-resolvers.js';
import { layout } from './container-paths.js';
import { FifoPool } from './fifo-pool.js';
import type { ManagedContainer } from './managed-container.js';
import { startContainer, type StartDeps } from './start-container.js';

let directory: string;
let tools: ShellTools | undefined;
beforeAll(async () => {
  tools = await findShellTools();
});
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-start-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function createDeps(overrides: Partial<StartDeps> = {}): StartDeps {
  let pipeCount = 0;
  return {
    directory,
    clock: systemClock,
    acceptedAtMs: systemClock.now(),
    log: silentLog,
    fifos: new FifoPool(layout.fifos(directory), () => `pipe-${(pipeCount += 1)}`),
    bootId: readBootId(),
    settings: {
      portRange: { from: 1, to: 2 },
      address: '127.0.0.1',
      path: '/usr/bin:/bin',
      logFiles: 2,
      logFileBytes: 1024,
    },
    onExit: () => undefined,
    onGuardLost: () => undefined,
    ...overrides,
  };
}

describe.each([
  { name: 'under a guard', isGuarded: true },
  { name: 'without a guard, as on macOS', isGuarded: false },
])('a process $name', ({ isGuarded }) => {
  const getTools = (): Pick<StartDeps, 'tools'> => ({ tools: isGuarded ? tools : undefined });

  it('is killed and its folder removed when its record cannot be written after the start', async () => {
    const request = aScript('exec sleep 3600');
    const folder = layout.container(directory, request.containerId);
    const { fifos } = createDeps();
    const acquire = async (file: string): Promise<void> => {
      await fifos.acquire(file);
      // The last step before the process is started: from here on no record can be written, as on a
      // full disk.
      if (file === layout.pipe(folder, 'stderr')) mkdirSync(path.join(folder, 'state.json.new'));
    };
    await expect(
      startContainer(request, [], createDeps({ ...getTools(), fifos: { acquire } })),
    ).rejects.toThrow('EISDIR');
    expect(readdirSync(layout.containers(directory))).toEqual([]);
    const processes = findMarkedProcesses().filter(
      ({ containerId }) => containerId === request.containerId,
    );
    await waitUntil(() => processes.every(({ pid }) => readStartToken(pid) === undefined));
  });

  /**
   * Runs a container to its end. No supervisor runs here that searches for remaining processes:
   * only the container itself kills them.
   */
  async function runToEnd(request: ContainerRequest): Promise<ManagedContainer> {
    let hasEnded = false;
    const container = await startContainer(
      request,
      [],
      createDeps({ ...getTools(), onExit: () => (hasEnded = true) }),
    );
    await waitUntil(() => hasEnded);
    await container.drained;
    return container;
  }

  it('kills its process group when it ends, including members with an empty environment', async () => {
    const note = path.join(directory, 'member');
    const script = `env -i sh -c 'echo $$ > ${note}; exec sleep 3600' & until [ -s ${note} ]; do sleep 0.02; done; exit 4`;
    const { status } = await runToEnd(aScript(script));
    expect(status).toMatchObject({ phase: 'exited', exitCode: 4 });
    const member = Number(readFileSync(note, 'utf8'));
    await waitUntil(() => readStartToken(member) === undefined);
  });

  it('is not removed while it runs: the error says to stop the container first', async () => {
    const request = aScript('exec sleep 3600');
    const container = await startContainer(request, [], createDeps(getTools()));
    try {
      expect(() => container.remove()).toThrow(
        `container ${request.containerId} is running: stop it first`,
      );
    } finally {
      await container.stop(0);
      await container.drained;
    }
  });

  it('leaves no launch script, which contains its environment, after the start', async () => {
    const request = aScript('exit 0', { env: { SECRET: 'hush' } });
    await runToEnd(request);
    const folder = layout.container(directory, request.containerId);
    expect(existsSync(layout.script(folder, 'main'))).toBe(false);
    expect(readFileSync(path.join(folder, 'state.json'), 'utf8')).not.toContain('hush');
  });
});

describe('a process whose lease ends while its own mounts are refused', () => {
  it('gets no second start, without own mounts', async () => {
    if (tools === undefined) return;
    const attempt = path.join(directory, 'attempt');
    const unshare = path.join(directory, 'unshare');
    writeFileSync(unshare, `#!/bin/sh\ntouch ${attempt}\necho refused >&2\nexit 1\n`, {
      mode: 0o700,
    });
    const resolvers = {
      prepare: () => ({ tools: { unshare, nsenter: unshare, mount: unshare }, mounts: [] }),
    } as unknown as ProcessResolvers;
    // The supervisor stands still from the refusal of the mounts on.
    const now = (): number => systemClock.now() + (existsSync(attempt) ? 900_000 : 0);
    const request = aScript('exec sleep 3600', {
      network: { dnsServers: ['127.0.0.1'] },
      lease: { leaseMs: 600_000, graceMs: 0 },
    });
    const deps = createDeps({ tools, resolvers, clock: { ...systemClock, now } });
    await expect(startContainer(request, [], deps)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('no process was started'),
    });
    expect(existsSync(attempt)).toBe(true);
    expect(readdirSync(layout.containers(directory))).toEqual([]);
  });
});
