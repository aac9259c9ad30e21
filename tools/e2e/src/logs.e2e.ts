import type { Workload } from '@cloudless/api';
import { RealCluster, QUICK } from './support/cluster.js';
import type { RunningProgram } from './support/processes.js';

/** Command that writes numbered lines without end, and a last line on SIGTERM. */
const COUNTER = [
  'node',
  '-e',
  `let n = 0;
   setInterval(() => console.log('n ' + ++n), 20);
   process.on('SIGTERM', () => process.stdout.write('last ' + ++n + '\\n', () => process.exit(0)));`,
];

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start();
});
afterEach(() => cluster.stop());

/** A printed log line. */
interface Line {
  readonly containerId: string;
  readonly replicaId: string;
  readonly sequence: string;
  readonly line: string;
}

/** A running `cloudlessctl logs -f -o json`. */
class Follower {
  /** All log lines so far. */
  readonly printed: Line[] = [];
  private readonly lineCounts = new Map<string, number>();
  /** Output lines that were parsed. */
  private readCount = 0;

  constructor(readonly program: RunningProgram) {}

  /** Waits until `count` more lines of each replica were printed. */
  async waitForLines(replicaIds: readonly string[], count: number): Promise<void> {
    this.readOutput();
    const minimums = new Map(replicaIds.map((id) => [id, (this.lineCounts.get(id) ?? 0) + count]));
    await this.program.waitForLine(() => {
      this.readOutput();
      return [...minimums].every(([id, minimum]) => (this.lineCounts.get(id) ?? 0) >= minimum);
    });
  }

  /** Parses the output since the last call. */
  readOutput(): void {
    for (const text of this.program.lines.slice(this.readCount)) {
      this.readCount += 1;
      if (!text.startsWith('{')) continue;
      const line = JSON.parse(text) as Line;
      this.printed.push(line);
      this.lineCounts.set(line.replicaId, (this.lineCounts.get(line.replicaId) ?? 0) + 1);
    }
  }
}

/** Returns the ids of the ready replicas. A replica that has just ended may still be listed. */
function listReady({ status }: Workload): readonly string[] {
  return (status?.replicas ?? []).filter(({ ready }) => ready).map(({ id }) => id);
}

function groupByContainer(lines: readonly Line[]): ReadonlyMap<string, readonly Line[]> {
  const groups = new Map<string, Line[]>();
  for (const line of lines)
    groups
      .set(line.containerId, groups.get(line.containerId) ?? [])
      .get(line.containerId)
      ?.push(line);
  return groups;
}

describe('cloudlessctl logs -f', () => {
  it('misses and repeats no line when a replica, an agent and the coordinator are killed', async () => {
    await cluster.client.createWorkload({
      name: 'web',
      spec: { ...QUICK, command: COUNTER, replicas: 3 },
    });
    const first = await cluster.waitUntilSettled('web');
    const follower = new Follower(cluster.startCtl('logs', '-f', 'web', '-o', 'json'));
    const ids = listReady(first);
    await follower.waitForLines(ids, 20);

    const victim = first.status!.replicas.find(({ nodeId }) => nodeId === 'agent-2')!;
    process.kill(
      (await cluster.agentClient.getContainerStatus({ containerId: victim.containerId })).pid,
      'SIGKILL',
    );
    await follower.waitForLines(ids, 20);

    await cluster.requireAgent('agent-1').kill('SIGKILL');
    await cluster.startAgent('agent-1', 'zone-a');
    // on a slow machine the restart of the agent may take longer than its lease, so that its
    // replica is replaced
    const third = listReady(await cluster.waitUntilSettled('web'));
    const replaced = ids.filter((id) => !third.includes(id));
    await follower.waitForLines(third, 20);

    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    for (const name of ['agent-1', 'agent-2', 'agent-3']) await cluster.waitUntilNodeReady(name);
    const fourth = listReady(await cluster.waitUntilSettled('web'));
    await follower.waitForLines(fourth, 20);

    await cluster.client.updateWorkload({ name: 'web', spec: { env: { VERSION: '2' } } });
    await follower.waitForLines(listReady(await cluster.waitUntilSettled('web')), 20);
    await cluster.client.deleteWorkload({ name: 'web' });
    expect(await follower.program.exited).toBe(0);
    follower.readOutput();

    const groups = groupByContainer(follower.printed);
    expect(groups.size).toBeGreaterThanOrEqual(3 + 1 + 3);
    const killed = [...groups.values()].filter((lines) => !lines.at(-1)!.line.startsWith('last'));
    const unreachable = replaced.concat(third.filter((id) => !fourth.includes(id)));
    expect(
      killed.map(([line]) => line!.replicaId).filter((id) => !unreachable.includes(id)),
    ).toEqual([victim.id]);
    for (const lines of groups.values()) {
      expect(lines.map(({ sequence }) => Number(sequence))).toEqual(
        lines.map((_, index) => index + 1),
      );
      expect(lines.map(({ line }) => Number(line.split(' ')[1]))).toEqual(
        lines.map((_, index) => index + 1),
      );
    }
  }, 300_000);

  it('prints only new lines with --tail 0, also after the coordinator was killed', async () => {
    const command = [
      'sh',
      '-c',
      'for n in 1 2 3; do echo old; done; while :; do sleep 0.05; echo tick; done',
    ];
    await cluster.client.createWorkload({ name: 'web', spec: { ...QUICK, command } });
    const ids = listReady(await cluster.waitUntilSettled('web'));
    const follower = new Follower(
      cluster.startCtl('logs', '-f', '--tail', '0', 'web', '-o', 'json'),
    );
    await follower.waitForLines(ids, 3);
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    await cluster.waitUntilNodeReady('agent-1');
    await follower.waitForLines(ids, 20);
    const from = Number(follower.printed[0]!.sequence);
    expect(from).toBeGreaterThan(3);
    expect(follower.printed.map(({ sequence }) => Number(sequence))).toEqual(
      follower.printed.map((_, index) => from + index),
    );
    await follower.program.kill('SIGTERM');
  });

  it('prints all lines across log rotation', async () => {
    // 9 MB in lines of 90 bytes fill two log files and start a third one.
    const script =
      'const pad = "x".repeat(80); for (let n = 1; n <= 100000; n += 1) console.log(String(n).padStart(9) + pad);';
    await cluster.client.createWorkload({
      name: 'web',
      spec: { ...QUICK, command: ['node', '-e', `${script} setInterval(() => 0, 1000)`] },
    });
    await cluster.waitUntilSettled('web');
    const follower = cluster.startCtl('logs', '-f', 'web');
    await follower.waitForLine((line) => line.startsWith('   100000x'));
    const numbers = follower.lines
      .filter((line) => line.endsWith('xxx'))
      .map((line) => Number.parseInt(line, 10));
    expect(numbers).toEqual(Array.from({ length: 100_000 }, (_, index) => index + 1));
    await follower.kill('SIGTERM');
  });
});
