import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import type { ConnectRouter } from '@connectrpc/connect';
import { AdminHandlers } from './admin.js';
import { AuditLog } from './audit.js';
import { cutUnread } from './cut-unread.js';
import { ForeignAgents } from './foreign-agents.js';
import { InteractiveHandlers } from './interactive.js';
import { NodeHandlers } from './nodes.js';
import { ObservingHandlers } from './observing.js';
import { RolloutHandlers } from './rollouts.js';
import { PlanHandlers } from './plans.js';
import type { ApiServerDeps } from './ports.js';
import { serverInfo } from './server-info.js';
import { SessionHub } from './sessions.js';
import { SoftChanges } from './soft-changes.js';
import { StatisticsHandlers } from './statistics.js';
import { LogStreams } from './log-streams.js';
import { LOG_CHANNEL_PROTOCOL } from './admission.js';
import { StreamHandlers } from './streams.js';
import { TunnelHub } from './tunnels.js';
import { KeyedMutex } from './keyed-mutex.js';
import { WorkloadHandlers } from './workloads.js';

/** The API of a coordinator, ready to be mounted on a Connect router. */
export interface ApiServer {
  /**
   * Registers CoordinatorService, AgentService for the containers of all nodes, and AdminService.
   */
  readonly routes: (router: ConnectRouter) => void;
  /**
   * Problems that an operator should know although every call is served. Empty when there are none.
   * Shown by /ready.
   */
  warnings(): readonly string[];
  close(): Promise<void>;
}

/** Creates the handlers of all calls. */
export function createApiServer(deps: ApiServerDeps): ApiServer {
  const soft = new SoftChanges(deps.state, deps.nodes);
  const audit = new AuditLog(deps);
  const mutex = new KeyedMutex();
  const calls = CoordinatorService.method;
  const workloads = new WorkloadHandlers({ ...deps, soft, audit, mutex });
  const nodes = new NodeHandlers({ ...deps, soft, audit, mutex });
  const rollouts = new RolloutHandlers({ ...deps, audit, mutex });
  const plans = new PlanHandlers({ ...deps, audit, mutex });
  const observing = new ObservingHandlers({ ...deps, soft });
  const admin = new AdminHandlers({ ...deps, audit });
  const foreign = new ForeignAgents(deps);
  const sessions = new SessionHub({ ...deps, foreign });
  const tunnels = new TunnelHub(deps, sessions);
  const logs = new LogStreams(
    tunnels,
    (nodeId) => (sessions.protocolOf(nodeId) ?? 0) >= LOG_CHANNEL_PROTOCOL,
  );
  const streams = new StreamHandlers({ ...deps, audit }, tunnels, logs);
  const statistics = new StatisticsHandlers(deps, tunnels);
  const interactive = new InteractiveHandlers({ ...deps, audit }, tunnels);
  const watch = <Item extends { readonly revision: bigint }>(items: AsyncIterable<Item>) =>
    cutUnread(items, deps.clock);
  return {
    routes: (router) => {
      router.service(CoordinatorService, {
        getServerInfo: () => serverInfo(deps),
        enrollNode: audit.unary(calls.enrollNode, nodes.enrollNode),
        heartbeat: (request) => sessions.heartbeat(request),
        session: (messages, context) => sessions.session(messages, context),
        tunnel: (messages, context) => tunnels.tunnel(messages, context),
        getNode: nodes.getNode,
        listNodes: nodes.listNodes,
        watchNodes: (request, context) => watch(nodes.watchNodes(request, context)),
        updateNode: audit.unary(calls.updateNode, nodes.updateNode),
        cordonNode: audit.unary(calls.cordonNode, nodes.cordonNode),
        uncordonNode: audit.unary(calls.uncordonNode, nodes.uncordonNode),
        drainNode: audit.unary(calls.drainNode, nodes.drainNode),
        confirmNodeLost: audit.unary(calls.confirmNodeLost, nodes.confirmNodeLost),
        removeNode: audit.unary(calls.removeNode, nodes.removeNode),
        createWorkload: audit.unary(calls.createWorkload, workloads.createWorkload),
        updateWorkload: audit.unary(calls.updateWorkload, workloads.updateWorkload),
        scaleWorkload: audit.unary(calls.scaleWorkload, workloads.scaleWorkload),
        deleteWorkload: audit.unary(calls.deleteWorkload, workloads.deleteWorkload),
        getWorkload: workloads.getWorkload,
        listWorkloads: workloads.listWorkloads,
        watchWorkloads: (request, context) => watch(workloads.watchWorkloads(request, context)),
        planWorkload: workloads.planWorkload,
        explainWorkload: workloads.explainWorkload,
        pauseRollout: audit.unary(calls.pauseRollout, rollouts.pauseRollout),
        resumeRollout: audit.unary(calls.resumeRollout, rollouts.resumeRollout),
        promoteRollout: audit.unary(calls.promoteRollout, rollouts.promoteRollout),
        undoRollout: audit.unary(calls.undoRollout, rollouts.undoRollout),
        restartRollout: audit.unary(calls.restartRollout, rollouts.restartRollout),
        getWorkloadVersion: rollouts.getWorkloadVersion,
        createPlan: audit.unary(calls.createPlan, plans.createPlan),
        getPlan: plans.getPlan,
        executePlan: audit.unary(calls.executePlan, plans.executePlan),
        listEndpoints: observing.listEndpoints,
        watchEndpoints: (request, context) => watch(observing.watchEndpoints(request, context)),
        listEvents: observing.listEvents,
        watchEvents: (request, context) => watch(observing.watchEvents(request, context)),
        streamLogs: (request, context) => streams.streamLogs(request, context),
        execCommand: audit.unary(calls.execCommand, (request, context) =>
          streams.execCommand(request, context),
        ),
        exec: (requests, context) =>
          audit.stream(calls.exec, context, interactive.exec(requests, context)),
        portForward: (requests, context) =>
          audit.stream(calls.portForward, context, interactive.portForward(requests, context)),
      });
      router.service(AgentService, {
        streamLogs: (request, context) => streams.streamLogs(request, context),
        execCommand: audit.unary(AgentService.method.execCommand, (request, context) =>
          streams.execCommand(request, context),
        ),
        exec: (requests, context) =>
          audit.stream(AgentService.method.exec, context, interactive.exec(requests, context)),
        portForward: (requests, context) =>
          audit.stream(
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
          audit.stream(AdminService.method.backup, context, admin.backup(request, context)),
        acceptRestoredState: audit.unary(
          AdminService.method.acceptRestoredState,
          admin.acceptRestoredState,
        ),
      });
    },
    warnings: () => foreign.warnings(),
    close: async () => {
      soft.close();
      tunnels.close();
      await sessions.close();
    },
  };
}
