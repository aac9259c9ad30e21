import { AgentService, CoordinatorService } from '@cloudless/api';
import type { ConnectRouter } from '@connectrpc/connect';
import { NodeHandlers } from './nodes.js';
import { ObservingHandlers } from './observing.js';
import type { ApiServerDeps } from './ports.js';
import { SessionHub } from './sessions.js';
import { StreamHandlers } from './streams.js';
import { TunnelHub } from './tunnels.js';
import { WorkloadHandlers } from './workloads.js';

/** The API of a coordinator, ready to be mounted. */
export interface ApiServer {
  /** Registers CoordinatorService, and AgentService for the containers of all nodes. */
  readonly routes: (router: ConnectRouter) => void;
  close(): Promise<void>;
}

/** Wires every call to its handler. */
export function createApiServer(deps: ApiServerDeps): ApiServer {
  const workloads = new WorkloadHandlers(deps);
  const nodes = new NodeHandlers(deps);
  const observing = new ObservingHandlers(deps);
  const sessions = new SessionHub(deps);
  const tunnels = new TunnelHub(deps, sessions);
  const streams = new StreamHandlers(deps, tunnels);
  return {
    routes: (router) => {
      router.service(CoordinatorService, {
        enrollNode: nodes.enrollNode,
        heartbeat: (request) => sessions.heartbeat(request),
        session: (messages, context) => sessions.session(messages, context),
        tunnel: (messages, context) => tunnels.tunnel(messages, context),
        getNode: nodes.getNode,
        listNodes: nodes.listNodes,
        updateNode: nodes.updateNode,
        cordonNode: nodes.cordonNode,
        uncordonNode: nodes.uncordonNode,
        drainNode: nodes.drainNode,
        removeNode: nodes.removeNode,
        createWorkload: workloads.createWorkload,
        updateWorkload: workloads.updateWorkload,
        scaleWorkload: workloads.scaleWorkload,
        deleteWorkload: workloads.deleteWorkload,
        getWorkload: workloads.getWorkload,
        listWorkloads: workloads.listWorkloads,
        watchWorkloads: (request, context) => workloads.watchWorkloads(request, context),
        planWorkload: workloads.planWorkload,
        explainWorkload: workloads.explainWorkload,
        listEndpoints: observing.listEndpoints,
        watchEndpoints: (request, context) => observing.watchEndpoints(request, context),
        listEvents: observing.listEvents,
        watchEvents: (request, context) => observing.watchEvents(request, context),
        streamLogs: (request, context) => streams.streamLogs(request, context),
        execCommand: (request, context) => streams.execCommand(request, context),
      });
      router.service(AgentService, {
        streamLogs: (request, context) => streams.streamLogs(request, context),
        execCommand: (request, context) => streams.execCommand(request, context),
        getContainerStatus: (request, context) => streams.getContainerStatus(request, context),
        listContainers: () => streams.listContainers(),
      });
    },
    close: () => sessions.close(),
  };
}
