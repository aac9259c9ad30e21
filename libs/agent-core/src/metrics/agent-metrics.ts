import type { ReplicaReport } from '@cloudless/api';
import type { Meter } from '@cloudless/base';
import type { CoordinatorTransport } from '../session/coordinator-transport.js';
import type { NodeReplicas } from '../replica/node-replicas.js';

/** Wraps a transport so that dials and sessions are counted. */
export function instrumentTransport(
  transport: CoordinatorTransport,
  meter: Meter,
): CoordinatorTransport {
  const dials = meter.counter({
    name: 'cloudless_agent_dials_total',
    help: 'Connections dialled to coordinators, by result: ok or failed.',
    labels: ['result'],
  });
  const sessions = meter.counter({
    name: 'cloudless_agent_sessions_total',
    help: 'Sessions opened with coordinators; all but the first are reconnects.',
  });
  return {
    connect: async (address, signal, onReached) => {
      try {
        const connection = await transport.connect(address, signal, onReached);
        dials.add(1, { result: 'ok' });
        return {
          enroll: (request) => connection.enroll(request),
          renewNodeCertificate: (request) => connection.renewNodeCertificate(request),
          issueWorkloadCertificate: (request) => connection.issueWorkloadCertificate(request),
          authorizeAgentCall: (request) => connection.authorizeAgentCall(request),
          getReplicaFiles: (request, callSignal) => connection.getReplicaFiles(request, callSignal),
          openSession: (outgoing) => {
            sessions.add();
            return connection.openSession(outgoing);
          },
          openTunnel: (outgoing) => connection.openTunnel(outgoing),
          ping: () => connection.ping(),
          close: () => connection.close(),
        };
      } catch (reason) {
        dials.add(1, { result: 'failed' });
        throw reason;
      }
    },
  };
}

/**
 * Registers gauges that are read when metrics are exposed, and counters of restarts in place and of
 * failed starts.
 * @returns A function that ends the updates of these metrics.
 */
export function registerAgentMetrics(
  meter: Meter,
  agent: {
    readonly connected: () => boolean;
    readonly tunnels: () => number;
    readonly replicas: Pick<
      NodeReplicas,
      'subscribe' | 'findReport' | 'listReports' | 'waitingStartCount'
    >;
  },
): () => void {
  const connected = meter.gauge({
    name: 'cloudless_agent_session_connected',
    help: '1 while the session with a coordinator is open.',
  });
  const tunnels = meter.gauge({
    name: 'cloudless_agent_tunnels_open',
    help: 'Open tunnels.',
  });
  const replicas = meter.gauge({
    name: 'cloudless_agent_replicas',
    help: 'Replicas on this node, by whether they are ready.',
    labels: ['ready'],
  });
  const waiting = meter.gauge({
    name: 'cloudless_agent_starts_waiting',
    help: 'Replicas that wait in the start queue of this node.',
  });
  const restarts = meter.counter({
    name: 'cloudless_agent_replica_restarts_total',
    help: 'Restarts of replicas in place since the start of the agent, without failed starts.',
  });
  const failedStarts = meter.counter({
    name: 'cloudless_agent_replica_failed_starts_total',
    help: 'Failed starts of replicas that the agent tried again, since the start of the agent.',
  });
  const countedByReplica = new Map(
    [...agent.replicas.listReports()].map((report) => [report.replicaId, countStarts(report)]),
  );
  const unsubscribe = agent.replicas.subscribe({
    onChanged: (replicaId) => {
      const report = agent.replicas.findReport(replicaId);
      if (report === undefined) return;
      const before = countedByReplica.get(replicaId) ?? { restarts: 0, failedStarts: 0 };
      const after = countStarts(report);
      countedByReplica.set(replicaId, after);
      if (after.restarts > before.restarts) restarts.add(after.restarts - before.restarts);
      if (after.failedStarts > before.failedStarts)
        failedStarts.add(after.failedStarts - before.failedStarts);
    },
    onRefused: () => undefined,
    onForgotten: ({ replicaId }) => void countedByReplica.delete(replicaId),
  });
  const unregister = meter.onExpose(() => {
    connected.set(agent.connected() ? 1 : 0);
    tunnels.set(agent.tunnels());
    const reports = [...agent.replicas.listReports()];
    const ready = reports.filter((report) => report.ready).length;
    waiting.set(agent.replicas.waitingStartCount);
    replicas.set(ready, { ready: 'true' });
    replicas.set(reports.length - ready, { ready: 'false' });
  });
  return () => {
    unsubscribe();
    unregister();
  };
}

/** Separates the failed starts from the other restarts, which a report counts together. */
function countStarts({
  restarts,
  failedStarts,
}: Pick<ReplicaReport, 'restarts' | 'failedStarts'>): {
  readonly restarts: number;
  readonly failedStarts: number;
} {
  return { restarts: restarts - failedStarts, failedStarts };
}
