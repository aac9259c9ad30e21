import { unmapIpv4, type Clock } from '@cloudless/base';
import type { NetworkView } from '../model/network-model.js';
import type { LocalClient } from '../ports.js';

/** Time for which what was found is used again, milliseconds. */
const REUSE_MS = 1_000;
/** Answers about other nodes that are kept; when there are more, all are forgotten. */
const MAX_KEPT = 10_000;

export interface WorkloadPlacesOptions {
  readonly view: NetworkView;
  readonly clock: Clock;
  readonly nodeId: string;
  /** Returns true when an address is one of this machine, which many clients share. */
  readonly isShared: (address: string) => boolean;
}

/**
 * Nodes and addresses of workloads, derived from the endpoints of the cluster. Finds the workload
 * of a client address of this node, and checks that another node runs a workload for which it
 * speaks. Workloads that no service selects are not known.
 */
export class WorkloadPlaces {
  private clients = new Map<string, LocalClient | undefined>();
  private clientsAtMs = -Infinity;
  private readonly kept = new Map<string, { readonly isTrue: boolean; readonly atMs: number }>();

  constructor(private readonly options: WorkloadPlacesOptions) {}

  /** Returns the workload of this node with an address; undefined when several have the address. */
  clientAt(address: string): LocalClient | undefined {
    const nowMs = this.options.clock.now();
    if (nowMs - this.clientsAtMs >= REUSE_MS) {
      this.clients = this.findClients();
      this.clientsAtMs = nowMs;
    }
    return this.clients.get(unmapIpv4(address));
  }

  /** Returns true when a replica of a workload, named `<namespace>.<name>`, runs on a node. */
  runsOn(nodeId: string, workload: string): boolean {
    const key = `${nodeId} ${workload}`;
    const nowMs = this.options.clock.now();
    const known = this.kept.get(key);
    if (known !== undefined && nowMs - known.atMs < REUSE_MS) return known.isTrue;
    if (this.kept.size >= MAX_KEPT) this.kept.clear();
    const isTrue = this.findOn(nodeId, workload);
    this.kept.set(key, { isTrue, atMs: nowMs });
    return isTrue;
  }

  private findOn(nodeId: string, workload: string): boolean {
    const { view } = this.options;
    for (const key of view.servicesOn(nodeId))
      for (const endpoint of view.endpointsOf(key).values())
        if (endpoint.nodeId === nodeId)
          if (`${endpoint.namespace}.${endpoint.workload}` === workload) return true;
    return false;
  }

  private findClients(): Map<string, LocalClient | undefined> {
    const { view, nodeId, isShared } = this.options;
    const clients = new Map<string, LocalClient | undefined>();
    for (const key of view.servicesOn(nodeId))
      for (const endpoint of view.endpointsOf(key).values()) {
        if (endpoint.nodeId !== nodeId || endpoint.workload === '') continue;
        const { namespace, workload } = endpoint;
        for (const { ip } of endpoint.ports) {
          if (isShared(ip)) continue;
          const other = clients.get(ip);
          const isSame = other?.namespace === namespace && other.workload === workload;
          const isTaken = clients.has(ip) && !isSame;
          clients.set(ip, isTaken ? undefined : { namespace, workload });
        }
      }
    return clients;
  }
}
