import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { readStartToken } from '@cloudless/app-kit/background';
import { killProcess } from '../../system/process-reference.js';
import { readProcesses } from '../../system/process-tree.js';
import { waitUntil } from '../../testing/real-machine.js';
import { MainProcess, type MainProcessOptions } from './main-process.js';

/** Time limit of a test that waits for the end of a process; the default limit is a minute. */
const LIMIT_MS = 10_000;
const describeLinux = process.platform === 'linux' ? describe : describe.skip;
let directory: string;
const children: ChildProcess[] = [];

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-main-process-'));
});
afterEach(() => {
  for (const { pid = 0 } of children.splice(0)) killProcess(-pid);
  rmSync(directory, { recursive: true, force: true });
});

/** Starts a script as leader of a session of its own. */
function startLeader(script: string): ChildProcess {
  const child = spawn('/bin/sh', ['-c', script], { detached: true, stdio: 'ignore', env: {} });
  children.push(child);
  return child;
}

function toMainProcess(
  { pid = 0 }: ChildProcess,
  options: Partial<MainProcessOptions> = {},
): MainProcess {
  return new MainProcess({
    pid,
    startToken: readStartToken(pid) ?? '',
    guard: undefined,
    cgroup: undefined,
    endFile: path.join(directory, 'end'),
    adopted: false,
    ...options,
  });
}

/** Reads the process id that a script writes to a file of this name. */
async function waitForPid(name: string): Promise<number> {
  const read = (): string => {
    try {
      return readFileSync(path.join(directory, name), 'utf8');
    } catch {
      return '';
    }
  };
  await waitUntil(() => read().endsWith('\n'));
  return Number(read());
}

const writePid = (name: string): string => `echo $$ > ${path.join(directory, name)}`;
const isGone = (pid: number) => (): boolean => readStartToken(pid) === undefined;

describeLinux('MainProcess', () => {
  it(
    'kills the members of the process group that remain after the process has ended',
    async () => {
      const leader = startLeader(`sh -c '${writePid('member')}; exec sleep 3600' & sleep 3600`);
      const main = toMainProcess(leader);
      const member = await waitForPid('member');
      killProcess(main.pid);
      await once(leader, 'exit');
      expect(isGone(member)()).toBe(false);
      main.killGroup();
      await waitUntil(isGone(member));
    },
    LIMIT_MS,
  );

  it(
    'kills a descendant that left the session before the process was terminated',
    async () => {
      const script = `setsid sh -c '${writePid('descendant')}; exec sleep 3600' & wait`;
      const leader = startLeader(script);
      const main = toMainProcess(leader);
      const descendant = await waitForPid('descendant');
      main.terminate();
      await once(leader, 'exit');
      expect(isGone(descendant)()).toBe(false);
      main.killRelatives(readProcesses());
      await waitUntil(isGone(descendant));
    },
    LIMIT_MS,
  );

  it(
    'kills the process and its descendants in other sessions when the process ignores SIGTERM',
    async () => {
      const leader = startLeader(
        `trap '' TERM; setsid sh -c '${writePid('descendant')}; exec sleep 3600' & ${writePid('leader')}; wait; sleep 3600`,
      );
      const main = toMainProcess(leader);
      const descendant = await waitForPid('descendant');
      const ended = once(leader, 'exit');
      main.kill();
      expect(await ended).toEqual([null, 'SIGKILL']);
      await waitUntil(isGone(descendant));
    },
    LIMIT_MS,
  );

  it('does not kill an unrelated process when it kills its group and its relatives', async () => {
    const leader = startLeader('exit 0');
    const other = startLeader('exec sleep 3600');
    const main = toMainProcess(leader);
    await once(leader, 'exit');
    main.killGroup();
    main.killRelatives(readProcesses());
    await once(startLeader('sleep 0.05'), 'exit'); // longer than a kill takes
    expect(isGone(other.pid ?? 0)()).toBe(false);
  });

  it('does not kill the session of a later process with the same id', async () => {
    const later = startLeader(`sh -c '${writePid('child')}; exec sleep 3600' & wait`);
    const child = await waitForPid('child');
    const main = toMainProcess(later, { startToken: 'of an earlier process' });
    main.killRelatives(readProcesses());
    await once(startLeader('sleep 0.05'), 'exit'); // longer than a kill takes
    expect([main.isAlive, isGone(child)()]).toEqual([false, false]);
  });

  it('reports no end while the process runs, then the exit status that the guard has written', async () => {
    const leader = startLeader('exec sleep 3600');
    const main = toMainProcess(leader);
    expect(main.findEnd(0)).toBeUndefined();
    killProcess(main.pid);
    await once(leader, 'exit');
    writeFileSync(path.join(directory, 'end'), '3\n');
    expect(main.findEnd(1)).toMatchObject({ exitCode: 3, reason: 'exit code 3' });
  });

  it('reports an unknown exit code when the guard has written no exit status', async () => {
    const leader = startLeader('exit 3');
    const main = toMainProcess(leader);
    await once(leader, 'exit');
    expect(main.findEnd(0)).toMatchObject({ exitCode: -1 });
  });

  it('waits 2 s for the exit status after the end of the process, then kills the stuck guard', async () => {
    const guard = startLeader('exec sleep 3600');
    const leader = startLeader('exit 0');
    const { pid = 0 } = guard;
    const main = toMainProcess(leader, {
      guard: { pid, startToken: readStartToken(pid) ?? '' },
    });
    await once(leader, 'exit');
    expect(main.findEnd(10_000)).toBeUndefined();
    expect(main.findEnd(11_999)).toBeUndefined();
    const ended = once(guard, 'exit');
    expect(main.findEnd(12_000)).toMatchObject({ exitCode: -1 });
    expect(await ended).toEqual([null, 'SIGKILL']);
  });

  it('switches to polling when the guard was killed, and reports an end that has happened before', async () => {
    const leader = startLeader('exec sleep 3600');
    const main = toMainProcess(leader);
    expect(main.mustPoll).toBe(false);
    expect(main.onGuardEnded()).toBeUndefined();
    expect(main.mustPoll).toBe(true);
    killProcess(main.pid);
    await once(leader, 'exit');
    expect(main.onGuardEnded()).toMatchObject({ exitCode: -1 });
  });
});
