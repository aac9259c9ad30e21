import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import type { ConnectRouter } from '@connectrpc/connect';
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
   * Problems that an operator should know although every call is served. Empty when there are none.
   * Shown by /ready.
   */
  listWarnings(): readonly string[];
  close(): Promise<void>;
}

/** Creates the handlers of all calls. */
export function createApiServer(deps: ApiServerDeps): ApiServer {
  const soft = new LivenessChanges(deps.state, deps.nodes);
  const audit = new AuditLog(deps);
  const mutex = new KeyedMutex();
  const calls = CoordinatorService.method;
  const workloads = new WorkloadHandlers({ ...deps, soft, audit, mutex });
  const nodes = new NodeHandlers({ ...deps, soft, audit, mutex });
  const rollouts = new RolloutHandlers({ ...deps, audit, mutex });
  const plans = new PlanHandlers({ ...deps, audit, mutex });
  const observing = new EndpointAndEventHandlers({ ...deps, soft });
  const admin = new AdminHandlers({ ...deps, audit });
  const foreign = new ForeignAgents(deps);
  const sessions = new SessionHub({ ...deps, foreign });
  const tunnels = new TunnelHub(deps, sessions);
  const logs = new NodeLogReader(
    tunnels,
    (nodeId) => (sessions.getProtocol(nodeId) ?? 0) >= LOG_CHANNEL_PROTOCOL,
  );
  const streams = new StreamHandlers({ ...deps, audit }, tunnels, logs);
  const statistics = new StatisticsHandlers(deps, tunnels);
  const interactive = new InteractiveHandlers({ ...deps, audit }, tunnels);
  const watch = <Item extends { readonly revision: bigint }>(items: AsyncIterable<Item>) =>
    withSlowReaderTimeout(items, deps.clock);
  return {
    registerRoutes: (router) => {
      router.service(CoordinatorService, {
        getServerInfo: () => createServerInfo(deps),
        enrollNode: audit.wrapUnary(calls.enrollNode, nodes.enrollNode),
        heartbeat: (request) => sessions.handleHeartbeat(request),
        session: (messages, context) => sessions.runSession(messages, context),
        tunnel: (messages, context) => tunnels.handleTunnel(messages, context),
        getNode: nodes.getNode,
        listNodes: nodes.listNodes,
        watchNodes: (request, context) => watch(nodes.watchNodes(request, context)),
        updateNode: audit.wrapUnary(calls.updateNode, nodes.updateNode),
        cordonNode: audit.wrapUnary(calls.cordonNode, nodes.cordonNode),
        uncordonNode: audit.wrapUnary(calls.uncordonNode, nodes.uncordonNode),
        drainNode: audit.wrapUnary(calls.drainNode, nodes.drainNode),
        confirmNodeLost: audit.wrapUnary(calls.confirmNodeLost, nodes.confirmNodeLost),
        removeNode: audit.wrapUnary(calls.removeNode, nodes.removeNode),
        createWorkload: audit.wrapUnary(calls.createWorkload, workloads.createWorkload),
        updateWorkload: audit.wrapUnary(calls.updateWorkload, workloads.updateWorkload),
        scaleWorkload: audit.wrapUnary(calls.scaleWorkload, workloads.scaleWorkload),
        deleteWorkload: audit.wrapUnary(calls.deleteWorkload, workloads.deleteWorkload),
        getWorkload: workloads.getWorkload,
        listWorkloads: workloads.listWorkloads,
        watchWorkloads: (request, context) => watch(workloads.watchWorkloads(request, context)),
        planWorkload: workloads.planWorkload,
        explainWorkload: workloads.explainWorkload,
        pauseRollout: audit.wrapUnary(calls.pauseRollout, rollouts.pauseRollout),
        resumeRollout: audit.wrapUnary(calls.resumeRollout, rollouts.resumeRollout),
        promoteRollout: audit.wrapUnary(calls.promoteRollout, rollouts.promoteRollout),
        undoRollout: audit.wrapUnary(calls.undoRollout, rollouts.undoRollout),
        restartRollout: audit.wrapUnary(calls.restartRollout, rollouts.restartRollout),
        getWorkloadVersion: rollouts.getWorkloadVersion,
        createPlan: audit.wrapUnary(calls.createPlan, plans.createPlan),
        getPlan: plans.getPlan,
        executePlan: audit.wrapUnary(calls.executePlan, plans.executePlan),
        listEndpoints: observing.listEndpoints,
        watchEndpoints: (request, context) => watch(observing.watchEndpoints(request, context)),
        listEvents: observing.listEvents,
        watchEvents: (request, context) => watch(observing.watchEvents(request, context)),
        streamLogs: (request, context) => streams.streamLogs(request, context),
        execCommand: audit.wrapUnary(calls.execCommand, (request, context) =>
          streams.execCommand(request, context),
        ),
        exec: (requests, context) =>
          audit.wrapStream(calls.exec, context, interactive.exec(requests, context)),
        portForward: (requests, context) =>
          audit.wrapStream(calls.portForward, context, interactive.portForward(requests, context)),
      });
      router.service(AgentService, {
        streamLogs: (request, context) => streams.streamLogs(request, context),
        execCommand: audit.wrapUnary(AgentService.method.execCommand, (request, context) =>
          streams.execCommand(request, context),
        ),
        exec: (requests, context) =>
          audit.wrapStream(AgentService.method.exec, context, interactive.exec(requests, context)),
        portForward: (requests, context) =>
          audit.wrapStream(
            AgentService.method.portForward,
            context,
            interactive.portForward(requests, context),
          ),
        getContainerStatus: (request, context) => streams.getContainerStatus(request, context),
        listContainers: () => streams.listContainers(),
        getContainerStats: (request, context) => statistics.getContainerStats(request, context),
        listContainerStats: (request, context) => statistics.listContainerStats(request, context),
      });
      router.service(AdminService, {
        backup: (request, context) =>
          audit.wrapStream(AdminService.method.backup, context, admin.backup(request, context)),
        acceptRestoredState: audit.wrapUnary(
          AdminService.method.acceptRestoredState,
          admin.acceptRestoredState,
        ),
      });
    },
    listWarnings: () => foreign.listWarnings(),
    close: async () => {
      soft.close();
      tunnels.close();
      await sessions.close();
    },
  };
}
