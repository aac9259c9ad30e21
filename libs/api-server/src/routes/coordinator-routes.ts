import type { ServiceImpl } from '@connectrpc/connect';
import { CoordinatorService } from '@cloudless/api';
import type { ReplicaFiles } from '../files/replica-files.js';
import type { NodeHandlers } from '../node/node-handlers.js';
import type { PlanHandlers } from '../plan/plan-handlers.js';
import type { RolloutHandlers } from '../rollout/rollout-handlers.js';
import type { SessionHub } from '../session/session-hub.js';
import type { TunnelHub } from '../stream/tunnel-hub.js';
import type { WhatIfHandlers } from '../what-if/what-if-handlers.js';
import type { WorkloadHandlers } from '../workload/workload-handlers.js';
import type { CallRoutes } from './call-routes.js';
import type { ReadRoutes } from './read-routes.js';
import { createStreamRoutes, type StreamRouteHandlers } from './stream-routes.js';

type Coordinator = ServiceImpl<typeof CoordinatorService>;
const calls = CoordinatorService.method;

/** The handlers of CoordinatorService by subject. */
export interface CoordinatorHandlers extends StreamRouteHandlers {
  readonly reads: ReadRoutes['coordinator'];
  readonly sessions: SessionHub;
  readonly tunnels: TunnelHub;
  readonly replicaFiles: ReplicaFiles;
  readonly nodes: NodeHandlers;
  readonly workloads: WorkloadHandlers;
  readonly rollouts: RolloutHandlers;
  readonly plans: PlanHandlers;
  readonly whatIf: WhatIfHandlers;
}

/** Creates the implementation of CoordinatorService. */
export function createCoordinatorRoutes(
  routes: CallRoutes,
  handlers: CoordinatorHandlers,
): Coordinator {
  const { sessions, tunnels, replicaFiles, reads } = handlers;
  return {
    ...reads,
    heartbeat: (request, context) => sessions.handleHeartbeat(request, context),
    renewLease: (request, context) => sessions.handleRenewLease(request, context),
    session: (messages, context) => sessions.runSession(messages, context),
    tunnel: (messages, context) => tunnels.handleTunnel(messages, context),
    getReplicaFiles: (request, context) => replicaFiles.getReplicaFiles(request, context),
    ...createNodeRoutes(routes, handlers),
    ...createWorkloadRoutes(routes, handlers),
    ...createRolloutRoutes(routes, handlers),
    ...createPlanRoutes(routes, handlers),
    ...createSimulationRoutes(handlers),
    ...createStreamRoutes(routes, calls, handlers),
  };
}

function createNodeRoutes(routes: CallRoutes, { nodes }: CoordinatorHandlers) {
  return {
    enrollNode: routes.change(calls.enrollNode, (request, entry) =>
      nodes.enrollNode(request, entry),
    ),
    updateNode: routes.change(calls.updateNode, (request, entry) =>
      nodes.updateNode(request, entry),
    ),
    cordonNode: routes.change(calls.cordonNode, (request, entry) =>
      nodes.cordonNode(request, entry),
    ),
    uncordonNode: routes.change(calls.uncordonNode, (request, entry) =>
      nodes.uncordonNode(request, entry),
    ),
    drainNode: routes.change(calls.drainNode, (request, entry) => nodes.drainNode(request, entry)),
    confirmNodeLost: routes.change(calls.confirmNodeLost, (request, entry) =>
      nodes.confirmNodeLost(request, entry),
    ),
    removeNode: routes.change(calls.removeNode, (request, entry) =>
      nodes.removeNode(request, entry),
    ),
  } satisfies Partial<Coordinator>;
}

function createWorkloadRoutes(routes: CallRoutes, { workloads }: CoordinatorHandlers) {
  return {
    createWorkload: routes.changeWorkload(calls.createWorkload, (request, entry, context) =>
      workloads.createWorkload(request, entry, context),
    ),
    updateWorkload: routes.changeWorkload(calls.updateWorkload, (request, entry, context) =>
      workloads.updateWorkload(request, entry, context),
    ),
    scaleWorkload: routes.changeWorkload(calls.scaleWorkload, (request, entry, context) =>
      workloads.scaleWorkload(request, entry, context),
    ),
    deleteWorkload: routes.changeWorkload(calls.deleteWorkload, (request, entry, context) =>
      workloads.deleteWorkload(request, entry, context),
    ),
    planWorkload: routes.readWorkload(calls.planWorkload, (request, context) =>
      workloads.planWorkload(request, context),
    ),
    explainWorkload: routes.readWorkload(calls.explainWorkload, (request) =>
      workloads.explainWorkload(request),
    ),
  } satisfies Partial<Coordinator>;
}

function createRolloutRoutes(routes: CallRoutes, { rollouts }: CoordinatorHandlers) {
  return {
    pauseRollout: routes.changeWorkload(calls.pauseRollout, (request, entry, context) =>
      rollouts.pauseRollout(request, entry, context),
    ),
    resumeRollout: routes.changeWorkload(calls.resumeRollout, (request, entry, context) =>
      rollouts.resumeRollout(request, entry, context),
    ),
    promoteRollout: routes.changeWorkload(calls.promoteRollout, (request, entry, context) =>
      rollouts.promoteRollout(request, entry, context),
    ),
    undoRollout: routes.changeWorkload(calls.undoRollout, (request, entry, context) =>
      rollouts.undoRollout(request, entry, context),
    ),
    restartRollout: routes.changeWorkload(calls.restartRollout, (request, entry, context) =>
      rollouts.restartRollout(request, entry, context),
    ),
  } satisfies Partial<Coordinator>;
}

function createPlanRoutes(routes: CallRoutes, { plans }: CoordinatorHandlers) {
  const createPlan = routes.change(calls.createPlan, (request, entry) =>
    plans.createPlan(request, entry),
  );
  return {
    createPlan: (request, context) =>
      request.validateOnly ? plans.predictPlan(request, context) : createPlan(request, context),
    executePlan: routes.change(calls.executePlan, (request, entry) =>
      plans.executePlan(request, entry),
    ),
  } satisfies Partial<Coordinator>;
}

function createSimulationRoutes({ whatIf }: CoordinatorHandlers) {
  return {
    simulateCluster: (request, context) => whatIf.simulateCluster(request, context),
    proposeMoves: (request, context) => whatIf.proposeMoves(request, context),
  } satisfies Partial<Coordinator>;
}
