// The load beside the calls of the `api` benchmark: live agents, writers and watchers.
import { fork, type ChildProcess } from 'node:child_process';
import { once, setMaxListeners } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { CoordinatorClient } from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';
import { sleep } from '@cloudless/base';
import type { AgentsCommand } from './member-protocol.js';
import { createRealisticSpec } from './api-store.js';

/** Namespace of the workloads that change during the benchmark. */
export const CHURN_NAMESPACE = 'churn';
/** Workloads that the writers scale up and down. */
const CHURN_WORKLOADS = 10;
/** Wanted replicas of each of these workloads, alternately. */
const CHURN_REPLICAS = [100, 120] as const;

/** Starts simulated agents in another process, each with its own connection. */
export async function startAgents(coordinator: string, count: number): Promise<ChildProcess> {
  const agents = fork(fileURLToPath(new URL('member-agents.ts', import.meta.url)), {
    execArgv: ['--import', 'tsx', '--conditions=@cloudless/source'],
  });
  const started = once(agents, 'message');
  const command: AgentsCommand = { kind: 'start', paced: false, first: 0, coordinator, count };
  agents.send(command);
  await started;
  return agents;
}

/** Writers: each scales its own workloads up and down as long as the benchmark runs. */
export class Writers {
  private readonly stopping = new AbortController();
  private running: Promise<unknown> = Promise.resolve();
  /** Changes of workloads so far. */
  writes = 0;

  constructor(
    private readonly client: CoordinatorClient,
    private readonly pauseMs: number,
  ) {}

  /** Creates the workloads and waits until all replicas are ready. */
  async prepare(): Promise<void> {
    for (let index = 0; index < CHURN_WORKLOADS; index += 1) {
      const name = `churn-${index}`;
      const { env, labels, args, replicas } = createRealisticSpec(name, CHURN_REPLICAS[0]);
      await this.client.createWorkload({
        namespace: CHURN_NAMESPACE,
        name,
        spec: { command: ['serve'], env, labels, args, replicas },
      });
    }
    for (;;) {
      const { workloads } = await this.client.listWorkloads({ namespace: CHURN_NAMESPACE });
      if (workloads.every(({ status }) => status?.readyReplicas === CHURN_REPLICAS[0])) return;
      await sleep(systemClock, 500);
    }
  }

  start(): void {
    this.running = this.run();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.running;
  }

  private async run(): Promise<void> {
    for (let index = 0; !this.stopping.signal.aborted; index += 1) {
      const replicas = CHURN_REPLICAS[Math.floor(index / CHURN_WORKLOADS + 1) % 2] ?? 0;
      const name = `churn-${index % CHURN_WORKLOADS}`;
      await this.client.scaleWorkload({ namespace: CHURN_NAMESPACE, name, replicas });
      this.writes += 1;
      await sleep(systemClock, this.pauseMs);
    }
  }
}

/** Watches, each on its own connection, that only count what they receive. */
export class Watchers {
  private readonly stopping = new AbortController();
  /** Messages that all watches have received. */
  messages = 0;
  /** Watches that ended although the benchmark did not end them. */
  failures = 0;

  /** @param open - Opens one watch. */
  start(count: number, open: (signal: AbortSignal) => AsyncIterable<unknown>): void {
    setMaxListeners(0, this.stopping.signal);
    for (let index = 0; index < count; index += 1) void this.read(open(this.stopping.signal));
  }

  stop(): void {
    this.stopping.abort();
  }

  private async read(messages: AsyncIterable<unknown>): Promise<void> {
    try {
      for await (const _message of messages) this.messages += 1;
    } catch {
      // Ended by stop(), or counted below.
    }
    if (!this.stopping.signal.aborted) this.failures += 1;
  }
}
