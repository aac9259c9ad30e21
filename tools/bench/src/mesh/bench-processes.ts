import { spawn, type ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { create, toJsonString } from '@bufbuild/protobuf';
import { NetworkUpdateSchema } from '@cloudless/api';
import type { ProxyProcess } from './mesh-process.js';

/** The processes of a benchmark of the network proxy. */
export class BenchProcesses {
  private readonly children: ChildProcess[] = [];

  /**
   * @param directory - For files of the processes.
   * @param namespace - Name of the network namespace of the far processes.
   */
  constructor(
    private readonly directory: string,
    private readonly namespace: string,
  ) {}

  /** Number of processes that were started since the last {@link endAll}. */
  get count(): number {
    return this.children.length;
  }

  /** Kills all processes. */
  endAll(): void {
    for (const child of this.children.splice(0)) child.kill('SIGKILL');
  }

  /** Runs a program in this network namespace or in the far one. */
  run(command: readonly string[], isFar: boolean): ChildProcess {
    const [file = '', ...args] = isFar
      ? ['ip', 'netns', 'exec', this.namespace, ...command]
      : command;
    const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    this.children.push(child);
    return child;
  }

  /** Runs a process of ours, which prints the port at which it listens. */
  async runOurs(role: string, argument: string, isFar: boolean) {
    const program = join(import.meta.dirname, 'mesh-process.ts');
    const args = ['--conditions=@cloudless/source', '--import', 'tsx', program, role, argument];
    const child = this.run([process.execPath, ...args], isFar);
    if (child.stdout === null) throw new Error('no output');
    for await (const line of createInterface({ input: child.stdout })) {
      const { port } = JSON.parse(line) as { port: number };
      return { port, pid: child.pid ?? 0 };
    }
    throw new Error(`the process "${role}" ended`);
  }

  /** Runs a network proxy, which prints the port at which it accepts clients. */
  async runProxy(settings: ProxyProcess, isFar: boolean) {
    const file = join(this.directory, `${settings.nodeId}-${this.children.length}.json`);
    writeFileSync(file, JSON.stringify(settings), { mode: 0o600 });
    return this.runOurs('proxy', file, isFar);
  }
}

/** A cluster with the service `default/web` of one endpoint, as an update for a proxy. */
export function anUpdate(
  endpoint: { nodeId: string; ip: string; port: number },
  nodes: object[],
): string {
  return toJsonString(
    NetworkUpdateSchema,
    create(NetworkUpdateSchema, {
      ...{ revision: 1n, reset: true, complete: true },
      settings: { serviceCidr: '10.96.0.0/16', clusterDomain: 'cloudless.internal' },
      services: [
        {
          ...{ namespace: 'default', name: 'web', uid: 'web', clusterIp: '10.96.0.20' },
          spec: { ports: [{ name: 'http', port: 80 }] },
        },
      ],
      endpoints: [
        {
          ...{ id: 'default/web/r1', namespace: 'default', service: 'web', weight: 100 },
          ...{ nodeId: endpoint.nodeId, workload: 'web', replicaId: 'r1', ready: true },
          ports: [{ name: 'http', ip: endpoint.ip, port: endpoint.port }],
        },
      ],
      nodes,
    }),
  );
}

/** A node of an update. */
export const aNode = (id: string, serial = '', address = '') => ({
  ...{ id, alive: true, acceptedSerials: [serial] },
  network: { address, hostId: id },
});
