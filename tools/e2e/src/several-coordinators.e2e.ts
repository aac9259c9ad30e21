import { ConnectError } from '@connectrpc/connect';
import type { ReplicaStatus } from '@cloudless/api';
import type { RunningProgram } from './support/processes.js';
import { findLeader } from './support/leader-log.js';
import {
  ReplicatedCluster,
  describeWithEtcd,
  type ReplicatedCoordinator,
} from './support/replicated-cluster.js';

/** Prints 1, 2, 3, …, a number every 20 ms. */
const COUNTER = [
  'node',
  '-e',
  `let n = 0; setInterval(() => console.log(String(++n)), 20); process.on('SIGTERM', () => process.exit(0));`,
];
const QUICK = ['--min-ready', '0s'];
/** Lines that a followed log prints after a change of the leader, so that a gap would show. */
const SOME_LINES = 20;

describeWithEtcd('two coordinators on etcd', () => {
  let cluster: ReplicatedCluster;
  let follow: RunningProgram;
  let first: ReplicaStatus | undefined;

  beforeAll(async () => {
    cluster = await ReplicatedCluster.start({ coordinators: 2, agents: 1 });
    await login(cluster.requireCoordinator('c1').url);
  });
  afterAll(() => cluster.stop());

  const login = async (server: string): Promise<void> => {
    const { code, stderr } = await cluster.login(server);
    if (code !== 0) throw new Error(`cloudlessctl login: ${stderr}`);
  };
  /** Runs cloudlessctl and expects success. */
  const ctl = async (...args: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await cluster.runCtl(...args);
    if (code !== 0) throw new Error(`cloudlessctl ${args.join(' ')}: ${code}: ${stderr}`);
    return stdout;
  };
  const requireLeader = async (): Promise<ReplicatedCoordinator> => {
    for (;;) {
      const leader = findLeader(cluster.coordinators);
      if (leader !== undefined) return leader;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const requireOther = (than: ReplicatedCoordinator): ReplicatedCoordinator =>
    cluster.requireCoordinator(than.name === 'c1' ? 'c2' : 'c1');
  /** Reads the only replica of the workload from one coordinator. */
  const readReplica = async (from: ReplicatedCoordinator): Promise<ReplicaStatus | undefined> => {
    const client = await cluster.openClient(from.name);
    return (await client.getWorkload({ name: 'count' })).status?.replicas[0];
  };
  const numbersOf = ({ lines }: RunningProgram): readonly number[] =>
    lines.filter((line) => /^\d+$/.test(line)).map(Number);
  /** Waits for more lines of the followed log, and expects each number once. */
  const expectNoGap = async (): Promise<void> => {
    const last = numbersOf(follow).at(-1) ?? 0;
    await follow.waitForLine((line) => Number(line) >= last + SOME_LINES);
    const numbers = numbersOf(follow);
    expect(numbers).toEqual(numbers.map((_, index) => (numbers[0] ?? 0) + index));
  };
  /** Repeats a write at one coordinator until it is acknowledged. */
  const writeUntilAcknowledged = async (at: ReplicatedCoordinator, by: string): Promise<void> => {
    const client = await cluster.openClient(at.name);
    for (;;) {
      try {
        await client.updateWorkload(
          { name: 'idle', requestId: by, spec: { labels: { by } } },
          { timeoutMs: 3_000 },
        );
        return;
      } catch (reason) {
        expect(ConnectError.from(reason).rawMessage).not.toBe('');
      }
    }
  };

  it('serve creations, lists, exec and logs through the follower', async () => {
    const follower = requireOther(await requireLeader());
    const at = ['--server', follower.url];
    await ctl('workload', 'create', 'count', ...at, ...QUICK, '--wait', '--', ...COUNTER);
    await ctl('workload', 'create', 'idle', ...at, '--replicas', '0', '--', 'sleep', '1');
    expect(await ctl('workload', 'list', ...at, '--no-headers')).toMatch(/count /);
    first = await readReplica(follower);
    const id = first?.id ?? '';
    expect(await ctl('exec', ...at, id, '--', 'printenv', 'CLOUDLESS_REPLICA_ID')).toBe(`${id}\n`);
    expect(await ctl('logs', ...at, id, '--tail', '1')).toMatch(/^\d+\n$/);
    const all = cluster.coordinators.map(({ url }) => url).join(',');
    follow = cluster.startCtl('logs', '-f', id, '--server', all);
    await follow.waitForLine((line) => /^\d+$/.test(line));
  });

  it.each(['SIGTERM', 'SIGKILL'] as const)(
    'keep the replica and a followed log when the leader gets %s',
    async (signal) => {
      const leader = await requireLeader();
      const other = requireOther(leader);
      await leader.program.kill(signal);
      await writeUntilAcknowledged(other, signal);
      await expectNoGap();
      expect((await requireLeader()).name).toBe(other.name);
      const { id, containerId, restarts } = (await readReplica(other)) ?? {};
      expect({ id, containerId, restarts }).toEqual({
        id: first?.id,
        containerId: first?.containerId,
        restarts: 0,
      });
      await cluster.startCoordinator(leader.name);
      expect((await readReplica(leader))?.id).toBe(first?.id);
    },
  );
});
