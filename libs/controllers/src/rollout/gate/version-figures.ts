import type { ReplicaUsage } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { estimateQuantile } from '@cloudless/network';
import type { GateFigure } from '@cloudless/policy';
import type { TrafficSum, TrafficWindow } from './traffic-window.js';

/** What figures are computed from. */
export interface FigureSources {
  readonly traffic: Pick<TrafficWindow, 'sum' | 'explainMissing'>;
  readonly usage: {
    /** Returns the newest usage of a replica; undefined when the last report is too old. */
    readonly getReplicaUsage: (nodeId: string, replicaId: string) => ReplicaUsage | undefined;
  };
}

/**
 * Computes the figures of one version.
 * @param replicas - The live replicas of the version that are not ordered to stop.
 * @returns A function that returns the value of a figure; undefined when it is missing: without
 *   replicas, without reports, and for what went wrong while nothing was tried.
 */
export function computeFigures(
  { traffic, usage }: FigureSources,
  replicas: readonly ReplicaRecord[],
): (figure: GateFigure) => number | undefined {
  if (replicas.length === 0) return () => undefined;
  let sum: TrafficSum | undefined;
  const isComplete = traffic.explainMissing() === undefined;
  const averageUsage = (read: (usage: ReplicaUsage) => number | undefined): number | undefined => {
    let total = 0;
    for (const { nodeId, id } of replicas) {
      const reported = usage.getReplicaUsage(nodeId, id);
      const value = reported && read(reported);
      if (value === undefined) return undefined;
      total += value;
    }
    return total / replicas.length;
  };
  return (figure) => {
    switch (figure) {
      case 'restarts': // contains the failed starts
        return replicas.reduce((total, { restarts }) => total + restarts, 0);
      case 'cpu_millis':
        return averageUsage(({ cpuMillis }) => cpuMillis);
      case 'memory_bytes':
        return averageUsage(({ memoryBytes }) =>
          memoryBytes === undefined ? undefined : Number(memoryBytes),
        );
      default:
        if (!isComplete) return undefined;
        sum ??= traffic.sum(replicas.map(({ id }) => id));
        return computeTraffic(figure, sum);
    }
  };
}

function computeTraffic(
  figure: Exclude<GateFigure, 'restarts' | 'cpu_millis' | 'memory_bytes'>,
  { coveredMs, connections, failures, requests, errors, durations }: TrafficSum,
): number | undefined {
  const perSecond = (count: number): number => (count * 1_000) / coveredMs;
  switch (figure) {
    case 'requests_per_s':
      return perSecond(requests);
    case 'errors_per_s':
      return requests === 0 ? undefined : perSecond(errors);
    case 'error_ratio':
      return requests === 0 ? undefined : errors / requests;
    case 'p50_ms':
      return estimateQuantile(durations, 0.5);
    case 'p90_ms':
      return estimateQuantile(durations, 0.9);
    case 'p99_ms':
      return estimateQuantile(durations, 0.99);
    case 'connections_per_s':
      return perSecond(connections);
    case 'connect_failures_per_s':
      return connections + failures === 0 ? undefined : perSecond(failures);
  }
}
