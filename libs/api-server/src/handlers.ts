import type { ConnectRouter } from '@connectrpc/connect';
import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import { AdminHandlers } from './admin-handlers.js';
import { AuditLog } from './audit/audit-log.js';
import { withSlowReaderTimeout } from './watch/slow-reader-timeout.js';
import { ForeignAgents } from './session/foreign-agents.js';
import { InteractiveHandlers } from './stream/interactive-handlers.js';
import { NodeHandlers } from './node/node-handlers.js';
import { EndpointAndEventHandlers } from './watch/endpoint-and-event-handlers.js';
import { RolloutHandlers } from './rollout/rollout-handlers.js';
import { PlanHandlers } from './plan/plan-handlers.js';
import type { ApiServerDeps } from './ports.js';
import { createServerInfo } from './server-info.js';
import { SessionHub } from './session/session-hub.js';
import { LivenessChanges } from './watch/liveness-changes.js';
import { StatisticsHandlers } from './stream/statistics-handlers.js';
import { NodeLogReader } from './stream/node-log-reader.js';
import { LOG_CHANNEL_PROTOCOL } from './session/node-admission.js';
import { StreamHandlers } from './stream/stream-handlers.js';
import { TunnelHub } from './stream/tunnel-hub.js';
import { KeyedMutex } from './mutation/keyed-mutex.js';
import { WorkloadHandlers } from './workload/workload-handlers.js';

/** The API of a coordinator, ready to be mounted on a Connect router. */
export interface ApiServer {
  /**
   * Registers CoordinatorService, AgentService for the containers of all nodes, and AdminService.
   */
  readonly registerRoutes: (router: ConnectRouter) => void;
  /**
   * Returns warnings for operators about problems that do not prevent calls from being served, one
   * sentence each. The `/ready` endpoint shows them. Empty without problems.
   */
  listWarnings(): readonly string[];
  /** Ends all sessions and tunnels and waits for reports that are being written. */
  close(): Promise<void>;
}

/** Creates the handlers of all calls. Close the result when the leadership ends. */
export function createApiServer(deps: ApiServerDeps): ApiServer {
  const livenessChanges = new LivenessChanges(deps.state, deps.nodes);
  const audit = new AuditLog(deps);
  const mutex = new KeyedMutex();
  const calls = CoordinatorService.method;
  const workloads = new WorkloadHandlers({ ...deps, livenessChanges, mutex });
  const nodes = new NodeHandlers({ ...deps, livenessChanges, mutex });
  const rollouts = new RolloutHandlers({ ...deps, mutex });
  const plans = new PlanHandlers({ ...deps, mutex });
  const endpointsAndEvents = new EndpointAndEventHandlers({ ...deps, livenessChanges });
  const admin = new AdminHandlers(deps);
  const foreignAgents = new ForeignAgents(deps);
  const sessions = new SessionHub({ ...deps, foreignAgents });
  const tunnels = new TunnelHub(deps, sessions);
  const logs = new NodeLogReader(
    tunnels,
    (nodeId) => (sessions.getProtocol(nodeId) ?? 0) >= LOG_CHANNEL_PROTOCOL,
  );
  const streams = new StreamHandlers(deps, tunnels, logs);
  const statistics = new StatisticsHandlers(deps, tunnels);
  const interactive = new InteractiveHandlers(deps, tunnels);
  const createPlan = audit.wrapUnary(calls.createPlan, (request, entry) =>
    plans.createPlan(request, entry),
  );
  const withTimeout = <Item extends { readonly revision: bigint }>(items: AsyncIterable<Item>) =>
    withSlowReaderTimeout(items, deps.clock);
  return {
    registerRoutes: (router) => {
      router.service(CoordinatorService, {
        getServerInfo: () => createServerInfo(deps),
        enrollNode: audit.wrapUnary(calls.enrollNode, (request, entry) =>
          nodes.enrollNode(request, entry),
        ),
        heartbeat: (request) => sessions.handleHeartbeat(request),
        renewLease: (request) => sessions.handleRenewLease(request),
        session: (messages, context) => sessions.runSession(messages, context),
        tunnel: (messages, context) => tunnels.handleTunnel(messages, context),
        getNode: (request) => nodes.getNode(request),
        listNodes: (request) => nodes.listNodes(request),
        watchNodes: (request, context) => withTimeout(nodes.watchNodes(request, context)),
        updateNode: audit.wrapUnary(calls.updateNode, (request, entry) =>
          nodes.updateNode(request, entry),
        ),
        cordonNode: audit.wrapUnary(calls.cordonNode, (request, entry) =>
          nodes.cordonNode(request, entry),
        ),
        uncordonNode: audit.wrapUnary(calls.uncordonNode, (request, entry) =>
          nodes.uncordonNode(request, entry),
        ),
        drainNode: audit.wrapUnary(calls.drainNode, (request, entry) =>
          nodes.drainNode(request, entry),
        ),
        confirmNodeLost: audit.wrapUnary(calls.confirmNodeLost, (request, entry) =>
          nodes.confirmNodeLost(request, entry),
        ),
        removeNode: audit.wrapUnary(calls.removeNode, (request, entry) =>
          nodes.removeNode(request, entry),
        ),
        createWorkload: audit.wrapUnary(calls.createWorkload, (request, entry) =>
          workloads.createWorkload(request, entry),
        ),
        updateWorkload: audit.wrapUnary(calls.updateWorkload, (request, entry) =>
          workloads.updateWorkload(request, entry),
        ),
        scaleWorkload: audit.wrapUnary(calls.scaleWorkload, (request, entry) =>
          workloads.scaleWorkload(request, entry),
        ),
        deleteWorkload: audit.wrapUnary(calls.deleteWorkload, (request, entry) =>
          workloads.deleteWorkload(request, entry),
        ),
        getWorkload: (request) => workloads.getWorkload(request),
        listWorkloads: (request) => workloads.listWorkloads(request),
        watchWorkloads: (request, context) =>
          withTimeout(workloads.watchWorkloads(request, context)),
        planWorkload: (request) => workloads.planWorkload(request),
        explainWorkload: (request) => workloads.explainWorkload(request),
        pauseRollout: audit.wrapUnary(calls.pauseRollout, (request, entry) =>
          rollouts.pauseRollout(request, entry),
        ),
        resumeRollout: audit.wrapUnary(calls.resumeRollout, (request, entry) =>
          rollouts.resumeRollout(request, entry),
        ),
        promoteRollout: audit.wrapUnary(calls.promoteRollout, (request, entry) =>
          rollouts.promoteRollout(request, entry),
        ),
        undoRollout: audit.wrapUnary(calls.undoRollout, (request, entry) =>
          rollouts.undoRollout(request, entry),
        ),
        restartRollout: audit.wrapUnary(calls.restartRollout, (request, entry) =>
          rollouts.restartRollout(request, entry),
        ),
        getWorkloadVersion: (request) => rollouts.getWorkloadVersion(request),
        createPlan: (request, context) =>
          request.validateOnly ? plans.predictPlan(request) : createPlan(request, context),
        getPlan: (request) => plans.getPlan(request),
        listPlans: (request) => plans.listPlans(request),
        executePlan: audit.wrapUnary(calls.executePlan, (request, entry) =>
          plans.executePlan(request, entry),
        ),
        listEndpoints: (request) => endpointsAndEvents.listEndpoints(request),
        watchEndpoints: (request, context) =>
          withTimeout(endpointsAndEvents.watchEndpoints(request, context)),
        listEvents: (request) => endpointsAndEvents.listEvents(request),
        watchEvents: (request, context) =>
          withTimeout(endpointsAndEvents.watchEvents(request, context)),
        streamLogs: (request, context) => streams.streamLogs(request, context),
        execCommand: audit.wrapUnary(calls.execCommand, (request, entry, context) =>
          streams.execCommand(request, entry, context),
        ),
        exec: (requests, context) =>
          audit.wrapStream(calls.exec, context, (entry) =>
            interactive.exec(requests, entry, context),
          ),
        portForward: (requests, context) =>
          audit.wrapStream(calls.portForward, context, (entry) =>
            interactive.portForward(requests, entry, context),
          ),
      });
      router.service(AgentService, {
        streamLogs: (request, context) => streams.streamLogs(request, context),
        execCommand: audit.wrapUnary(AgentService.method.execCommand, (request, entry, context) =>
          streams.execCommand(request, entry, context),
        ),
        exec: (requests, context) =>
          audit.wrapStream(AgentService.method.exec, context, (entry) =>
            interactive.exec(requests, entry, context),
          ),
        portForward: (requests, context) =>
          audit.wrapStream(AgentService.method.portForward, context, (entry) =>
            interactive.portForward(requests, entry, context),
          ),
        getContainerStatus: (request, context) => streams.getContainerStatus(request, context),
        listContainers: () => streams.listContainers(),
        getContainerStats: (request, context) => statistics.getContainerStats(request, context),
        listContainerStats: (request, context) => statistics.listContainerStats(request, context),
      });
      router.service(AdminService, {
        backup: (_request, context) =>
          audit.wrapStream(AdminService.method.backup, context, (entry) =>
            admin.backup(entry, context),
          ),
        acceptRestoredState: audit.wrapUnary(
          AdminService.method.acceptRestoredState,
          (_request, entry) => admin.acceptRestoredState(entry),
        ),
      });
    },
    listWarnings: () => foreignAgents.listWarnings(),
    close: async () => {
      livenessChanges.close();
      tunnels.close();
      await sessions.close();
    },
  };
}
