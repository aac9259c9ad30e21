import { fromConnectError } from '@cloudless/api';
import { errorMessageOf, type Random } from '@cloudless/base';
import { type RealCluster, SERVER_COMMAND } from '@cloudless/e2e';

const WORKLOADS = 6;
const NAMES = Array.from({ length: WORKLOADS }, (_, index) => `churn-${index + 1}`);
/** Number of log lines after which a follower cancels its stream. */
const MAX_LINES = 50;

/** Random calls and faults, repeated until the end of the run. */
export class Churn {
  private readonly countByAction = new Map<string, number>();
  private failed = 0;
  private lastFailure = '';
  /** Calls that failed because of an internal error of the coordinator or an agent. */
  readonly serverFaults: string[] = [];

  constructor(
    private readonly cluster: RealCluster,
    private readonly random: Random,
    private readonly agents: readonly string[],
  ) {}

  get counts(): Readonly<Record<string, unknown>> {
    return {
      actions: Object.fromEntries([...this.countByAction].sort()),
      refused: this.failed,
      lastRefusal: this.lastFailure,
    };
  }

  get progress(): string {
    return `${[...this.countByAction.values()].reduce((sum, count) => sum + count, 0)} actions, ${this.failed} refused`;
  }

  /** Runs three users and the fault injection in parallel until `isRunning` returns false. */
  async run(isRunning: () => boolean): Promise<void> {
    await Promise.all([
      this.runUser(isRunning),
      this.runUser(isRunning),
      this.runUser(isRunning),
      this.runFaults(isRunning),
    ]);
  }

  private async runUser(isRunning: () => boolean): Promise<void> {
    const { client } = this.cluster;
    while (isRunning()) {
      const name = this.pickRandom(NAMES);
      const replicas = Math.floor(this.random.next() * 5);
      const spec = {
        command: SERVER_COMMAND,
        ports: [{ name: 'http', containerPort: 80 }],
        replicas,
        rollout: { minReadyDuration: { seconds: 0n } },
        preStopDelay: { seconds: 0n },
      };
      await this.runAction(
        this.pickRandom<readonly [string, () => Promise<unknown>]>([
          ['create', () => client.createWorkload({ name, spec })],
          ['create', () => client.createWorkload({ name, spec })],
          ['scale', () => client.scaleWorkload({ name, replicas })],
          [
            'update',
            () =>
              client.updateWorkload({
                name,
                spec: { args: [String(Math.floor(this.random.next() * 1e6))] },
              }),
          ],
          ['delete', () => client.deleteWorkload({ name })],
          ['get', () => client.getWorkload({ name })],
          ['list', () => client.listWorkloads({ includeReplicas: true })],
          ['events', () => client.listEvents({ newestFirst: true })],
          ['logs', () => this.followLogs(name)],
          ['watch', () => this.watch(name)],
          ['exec', () => client.execCommand({ name: 'steady', command: ['true'] })],
        ]),
      );
    }
  }

  /** Drains nodes, and sometimes kills a process of a replica or an agent, which is restarted. */
  private async runFaults(isRunning: () => boolean): Promise<void> {
    while (isRunning()) {
      // Rarely, because a replica that is killed repeatedly waits ever longer for its restart.
      if (this.random.next() < 0.15)
        await this.runAction(['process killed', () => this.killProcess()]);
      await this.cluster.waitUntilSettled('steady');
      // agent-1 is measured and is never killed.
      const victim = this.pickRandom(this.agents.slice(1));
      if (this.random.next() < 0.1)
        await this.runAction(['agent killed', () => this.restartAgent(victim)]);
      await this.runAction(['drain', () => this.drain(victim)]);
    }
  }

  private async killProcess(): Promise<void> {
    const { status } = await this.cluster.client.getWorkload({ name: 'steady' });
    const victim = this.pickRandom(status?.replicas.filter(({ ready }) => ready) ?? []);
    const { pid } = await this.cluster.agentClient.getContainerStatus({
      containerId: victim.containerId,
    });
    process.kill(pid, 'SIGKILL');
    await this.cluster.waitForWorkload(
      'steady',
      (workload) =>
        workload.status?.replicas.some((replica) => replica.id === victim.id && !replica.ready) !==
        true,
    );
  }

  private async restartAgent(name: string): Promise<void> {
    await this.cluster.requireAgent(name).kill('SIGKILL');
    await this.cluster.startAgent(name, `zone-${name}`);
  }

  private async drain(nodeId: string): Promise<void> {
    await this.cluster.client.drainNode({ nodeId });
    await this.cluster.waitUntilSettled('steady');
    await this.cluster.client.uncordonNode({ nodeId });
  }

  /** Follows a log for some lines, then cancels the stream. */
  private async followLogs(name: string): Promise<void> {
    const cancelling = new AbortController();
    let lines = 0;
    const timer = setTimeout(() => cancelling.abort(), 500);
    try {
      for await (const _entry of this.cluster.client.streamLogs(
        { name, follow: true },
        { signal: cancelling.signal },
      )) {
        lines += 1;
        if (lines >= MAX_LINES) break;
      }
    } catch (reason) {
      if (!cancelling.signal.aborted) throw reason;
    } finally {
      clearTimeout(timer);
      cancelling.abort();
    }
  }

  /** Watches a workload for five items, then cancels the stream. */
  private async watch(name: string): Promise<void> {
    const cancelling = new AbortController();
    let items = 0;
    const timer = setTimeout(() => cancelling.abort(), 500);
    try {
      for await (const _item of this.cluster.client.watchWorkloads(
        { name },
        { signal: cancelling.signal },
      )) {
        items += 1;
        if (items >= 5) break;
      }
    } catch (reason) {
      if (!cancelling.signal.aborted) throw reason;
    } finally {
      clearTimeout(timer);
      cancelling.abort();
    }
  }

  private async runAction([name, action]: readonly [
    string,
    () => Promise<unknown>,
  ]): Promise<void> {
    try {
      await action();
      this.countByAction.set(name, (this.countByAction.get(name) ?? 0) + 1);
    } catch (reason) {
      this.failed += 1;
      this.lastFailure = `${name}: ${errorMessageOf(reason)}`;
      if (isServerFault(reason)) this.serverFaults.push(this.lastFailure);
    }
  }

  private pickRandom<Item>(items: readonly Item[]): Item {
    return items[Math.floor(this.random.next() * items.length)] as Item;
  }
}

/** Only a server uses the text `internal error`; errors of this process have other texts. */
function isServerFault(reason: unknown): boolean {
  const { kind, message } = fromConnectError(reason);
  return kind === 'internal' && message === 'internal error';
}
