import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Workload, WorkloadSpecSchema } from '@cloudless/api';
import { findBundle, runToEnd, type Machine } from '@cloudless/e2e';
import { requireItem } from '../require-item.js';
import type { AgentMachine } from '../world/agent-machine.js';
import type { World } from '../world/world.js';

/** Port at which proxies accept connections of other nodes. */
const MESH_PORT = 9443;
/** Time for a rollout, a drain or the return of a node, milliseconds. */
const SETTLED_WITHIN_MS = 120_000;
const POLL_MS = 100;
/** Time for a change, with its repetitions, milliseconds. */
const CALL_WITHIN_MS = 10_000;
/** Label of the node without replicas, on which the clients run. */
const CLIENT_LABEL = 'role=client';

/** Fields of the spec of a workload. */
export type Spec = Exclude<MessageInitShape<typeof WorkloadSpecSchema>, { $typeName: string }>;

/** A process on a machine. */
export interface MachineProcess {
  readonly pid: number;
  readonly command: string;
}

/** A cluster whose last node has the clients, and whose other nodes have the replicas. */
export class ServiceCluster {
  constructor(readonly world: World) {}

  /**
   * Starts the programs: one coordinator with its store, nodes with replicas and the client's node.
   * @param nodes - Nodes with replicas.
   */
  async start(nodes: number): Promise<void> {
    const agents = nodes + 1;
    await this.world.start({
      members: 1,
      coordinators: 1,
      agents,
      describeAgent: ({ name, address }) => ({
        zone: 'zone-a',
        flags: [
          ...['--network', 'on', '--mesh-listen', `${address}:${MESH_PORT}`],
          ...['--label', name === `a${agents}` ? CLIENT_LABEL : 'role=server'],
        ],
      }),
    });
    const [coordinator] = this.world.coordinators;
    await this.ctl('login', coordinator?.url ?? '', '--token-file', this.world.tokenFile);
  }

  /** The machine of the clients. */
  get client(): AgentMachine {
    return requireItem(this.world.agents.at(-1));
  }

  /** The machines with replicas. */
  get servers(): readonly AgentMachine[] {
    return this.world.agents.slice(0, -1);
  }

  /** Runs cloudlessctl, and expects success. Returns its output. */
  async ctl(...args: readonly string[]): Promise<string> {
    const program = [findBundle('cloudlessctl'), ...args];
    const result = await runToEnd(process.execPath, program, { env: this.world.ctlEnv });
    if (result.code !== 0)
      throw new Error(`cloudlessctl ${args.join(' ')}: ${result.code}: ${result.stderr}`);
    return result.stdout;
  }

  /** Creates a workload on the nodes with replicas, and waits until its replicas are ready. */
  async create(name: string, spec: Spec): Promise<void> {
    const placement = { nodeSelector: { role: 'server' }, ...spec.placement };
    await this.world.call(
      (client, options) =>
        client.createWorkload({ name, requestId: name, spec: { ...spec, placement } }, options),
      SETTLED_WITHIN_MS,
    );
    await this.waitUntilSettled(name);
  }

  /** Replaces rollout and environment of a workload. */
  async update(name: string, spec: Pick<Spec, 'rollout' | 'env'>): Promise<void> {
    const updateMask = { paths: ['rollout', 'env'] };
    await this.world.call(
      (client, options) => client.updateWorkload({ name, spec, updateMask }, options),
      CALL_WITHIN_MS,
    );
  }

  /**
   * Returns the virtual address of a service once the client's node reaches the service: by a TCP
   * connection, or by a datagram that the service must send back.
   */
  async waitForAddress(
    service: string,
    port: number,
    protocol: 'tcp' | 'udp' = 'tcp',
  ): Promise<string> {
    const text = await this.ctl('service', 'describe', service, '-o', 'json');
    const { status } = JSON.parse(text) as { readonly status: { readonly clusterIp: string } };
    const target = `-w 1 ${status.clusterIp} ${port}`;
    const probe =
      protocol === 'tcp' ? `nc -z ${target}` : `echo probe | nc -u ${target} | grep -q probe`;
    await this.waitUntil(
      async () => (await this.client.machine.run(probe)).code === 0,
      `service ${service} is not reached at ${status.clusterIp}:${port}`,
    );
    return status.clusterIp;
  }

  /** Waits until a condition of a workload holds. */
  async waitForWorkload(name: string, holds: (workload: Workload) => boolean): Promise<Workload> {
    let newest: Workload | undefined;
    await this.waitUntil(async () => {
      newest = await this.read(name);
      return newest.status?.observedGeneration === newest.generation && holds(newest);
    }, `workload ${name} is not as expected`);
    return requireItem(newest);
  }

  /** Waits until exactly the desired replicas of the newest version exist, all ready. */
  waitUntilSettled(name: string): Promise<Workload> {
    return this.waitForWorkload(name, ({ status }) => {
      const { desiredReplicas, readyReplicas, updatedReplicas, replicas } = requireItem(status);
      return [readyReplicas, updatedReplicas, replicas.length].every(
        (count) => count === desiredReplicas,
      );
    });
  }

  /** Returns true when a node for replicas runs none of a workload. */
  async hasEmptyServer(name: string): Promise<boolean> {
    const { status } = await this.read(name);
    const used = new Set((status?.replicas ?? []).map(({ nodeId }) => nodeId));
    return this.servers.some((server) => !used.has(server.name));
  }

  /** Waits until the desired number of replicas is ready on nodes other than one that is lost. */
  waitUntilReplaced(name: string, lostNodeId: string): Promise<Workload> {
    return this.waitForWorkload(name, ({ status }) => {
      const { desiredReplicas, replicas } = requireItem(status);
      const elsewhere = replicas.filter(({ nodeId, ready }) => ready && nodeId !== lostNodeId);
      return elsewhere.length === desiredReplicas;
    });
  }

  /** Returns a workload. */
  read(name: string): Promise<Workload> {
    return this.world.call(
      (client, options) => client.getWorkload({ name }, options),
      SETTLED_WITHIN_MS,
    );
  }

  /** Polls until a condition holds. @throws Error with `problem` when this takes too long. */
  async waitUntil(holds: () => Promise<boolean>, problem: string): Promise<void> {
    const deadlineMs = performance.now() + SETTLED_WITHIN_MS;
    while (!(await holds())) {
      if (performance.now() > deadlineMs) throw new Error(problem);
      await pause(POLL_MS);
    }
  }
}

/** Lists the processes in the network of a machine whose command line contains a text. */
export function listProcesses(machine: Machine, text = ''): readonly MachineProcess[] {
  const namespace = machine.networkPrefix.join(' ').match(/\/run\/netns\/(\S+)/)?.[1] ?? '';
  return execFileSync('ip', ['netns', 'pids', namespace], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line !== '')
    .map((pid) => ({ pid: Number(pid), command: readCommand(pid) }))
    .filter(({ command }) => command.includes(text));
}

/** Kills processes of a machine at once, and returns the time of the wall clock, milliseconds. */
export function killProcesses(processes: readonly MachineProcess[]): number {
  if (processes.length === 0) throw new Error('there is no process to kill');
  const atMs = Date.now();
  for (const { pid } of processes) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (reason) {
      if ((reason as NodeJS.ErrnoException).code !== 'ESRCH') throw reason;
    }
  }
  return atMs;
}

function readCommand(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
  } catch {
    return '';
  }
}
