import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { ManualClock } from '@cloudless/base/testing';
import { createProcessReader, type ProcessFiles } from './index.js';

interface FakeProcess {
  /** Pid of the session leader. */
  readonly session: number;
  /** CPU time in ticks. Default 0. */
  readonly ticks?: number;
  /** Start time in ticks since boot. Default 9. */
  readonly start?: number;
  /** True when the stat file is malformed. */
  readonly damaged?: boolean;
}

/**
 * Files of a machine with these processes, by pid. Each process has 4 KiB of resident memory.
 * `onRead` is called before each read and may change the processes.
 */
function machineOf(
  processes: Record<number, FakeProcess>,
  onRead: (path: string) => void = () => undefined,
): ProcessFiles {
  return {
    processIds: () => Promise.resolve(Object.keys(processes).map(Number)),
    readText: async (path) => {
      onRead(path);
      const [, pid = '', name] = /^\/proc\/(\d+)\/(\w+)$/.exec(path) ?? [];
      const process = processes[Number(pid)];
      if (process === undefined) return undefined;
      const { session, ticks = 0, start = 9, damaged = false } = process;
      if (name === 'status') return 'VmRSS: 4 kB\nThreads: 1\n';
      if (name === 'io') return 'read_bytes: 1\nwrite_bytes: 2\n';
      return damaged
        ? 'damaged'
        : `${pid} (a) b) S 1 1 ${session} 0 -1 0 0 0 0 0 ${ticks} 0 0 0 20 0 1 0 ${start} 0 1`;
    },
  };
}

const createReader = (files: ProcessFiles) =>
  createProcessReader({ clock: new ManualClock(), files });

describe('ProcessReader.read', () => {
  it('returns the sum over the processes of each requested session', async () => {
    const read = await createReader(
      machineOf({
        1: { session: 1, ticks: 99 },
        10: { session: 10, ticks: 1 },
        11: { session: 10, ticks: 2 },
        20: { session: 20 },
      }),
    ).read([10, 20]);
    expect([...read.keys()]).toEqual([10, 20]);
    expect(read.get(10)).toMatchObject({
      sample: {
        source: '10@9',
        origin: 'processes',
        cpu: { usageNsec: 30_000_000n },
        memory: { usageBytes: 8_192 },
        io: { readBytes: 2n, writeBytes: 4n },
        pids: { current: 2 },
      },
      problems: [],
    });
    expect(read.get(20)?.sample.pids).toEqual({ current: 1 });
  });

  it('omits a session whose leader has ended before or during the read', async () => {
    expect((await createReader(machineOf({ 11: { session: 10 } })).read([10])).size).toBe(0);
    const ending: Record<number, FakeProcess> = { 10: { session: 10 } };
    const files = machineOf(ending, (path) => {
      if (path === '/proc/10/io') delete ending[10];
    });
    expect((await createReader(files).read([10])).size).toBe(0);
  });

  it("omits a session whose leader's pid was reused during the read", async () => {
    const changing: Record<number, FakeProcess> = { 10: { session: 10, start: 9 } };
    const files = machineOf(changing, (path) => {
      if (path === '/proc/10/io') changing[10] = { session: 10, start: 10 };
    });
    expect((await createReader(files).read([10])).size).toBe(0);
  });

  it('leaves out a member whose pid was reused by a process of another session', async () => {
    const changing: Record<number, FakeProcess> = {
      10: { session: 10, ticks: 1 },
      11: { session: 10, ticks: 2 },
    };
    let reads = 0;
    const files = machineOf(changing, (path) => {
      if (path === '/proc/11/stat' && (reads += 1) === 2) changing[11] = { session: 12, ticks: 50 };
    });
    expect((await createReader(files).read([10])).get(10)?.sample).toMatchObject({
      cpu: { usageNsec: 10_000_000n },
      pids: { current: 1 },
    });
  });

  it('omits the part of a malformed file and names the file, and returns the other sessions', async () => {
    const read = await createReader(
      machineOf({ 10: { session: 10, damaged: true }, 20: { session: 20, ticks: 1 } }),
    ).read([10, 20]);
    expect(read.get(10)?.sample).not.toHaveProperty('cpu');
    expect(read.get(10)?.sample.pids).toEqual({ current: 1 });
    expect(read.get(10)?.problems.map(({ file }) => file)).toEqual(['/proc/<pid>/stat']);
    expect(read.get(20)?.sample.cpu?.usageNsec).toBe(10_000_000n);
  });

  it('returns nothing for no sessions, and rejects with kind unimplemented without /proc', async () => {
    const withoutProc: ProcessFiles = {
      readText: async () => undefined,
      processIds: async () => undefined,
    };
    expect((await createReader(withoutProc).read([])).size).toBe(0);
    await expect(createReader(withoutProc).read([1])).rejects.toMatchObject({
      kind: 'unimplemented',
      message: expect.stringContaining('/proc') as string,
    });
  });

  const onLinux = process.platform === 'linux' ? it : it.skip;
  onLinux('returns the use of a real session with its children', async () => {
    const busy =
      'sh -c "i=0; while [ \\$i -lt 200000 ]; do i=\\$((i+1)); done"; echo done; sleep 1000 & wait';
    const leader = spawn('sh', ['-c', busy], {
      detached: true,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const ended = once(leader, 'exit');
    try {
      await once(leader.stdout, 'data');
      const pid = leader.pid ?? 0;
      const reader = createProcessReader({ clock: new ManualClock() });
      // The shell prints its line before it has started its last child.
      let sample = (await reader.read([pid])).get(pid)?.sample;
      while (sample?.pids?.current === 1) sample = (await reader.read([pid])).get(pid)?.sample;
      expect(sample?.pids).toEqual({ current: 2 });
      expect(sample?.cpu?.usageNsec).toBeGreaterThan(10_000_000n);
      expect(sample?.memory?.usageBytes).toBeGreaterThan(0);
      expect(sample?.io?.writeBytes).toBeDefined();
    } finally {
      process.kill(-(leader.pid ?? 0), 'SIGKILL');
      await ended;
    }
  });
});
