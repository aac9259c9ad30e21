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
 * Registers gauges that are read when metrics are exposed, and a counter of restarts in place.
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
    help: 'Restarts of replicas in place since the start of the agent.',
  });
  const restartsByReplica = new Map(
    [...agent.replicas.listReports()].map((report) => [report.replicaId, report.restarts]),
  );
  const unsubscribe = agent.replicas.subscribe({
    onChanged: (replicaId) => {
      const report = agent.replicas.findReport(replicaId);
      if (report === undefined) return;
      const added = report.restarts - (restartsByReplica.get(replicaId) ?? 0);
      restartsByReplica.set(replicaId, report.restarts);
      if (added > 0) restarts.add(added);
    },
    onRefused: () => undefined,
    onForgotten: ({ replicaId }) => void restartsByReplica.delete(replicaId),
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
