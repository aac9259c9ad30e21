import type { DescMethod } from '@bufbuild/protobuf';
import {
  CoordinatorService,
  resolveNamespace,
  type Plan,
  type PlannedChange,
} from '@cloudless/api';
import type { CallAccess } from '../access/call-access.js';
import type { ApiCaller } from '../access/caller.js';

const calls = CoordinatorService.method;

/** The RPC that makes a single change of each form. A change needs the role of this RPC. */
const RPC_OF_CHANGE: Readonly<
  Record<Exclude<PlannedChange['change']['case'], undefined>, DescMethod>
> = {
  apply: calls.updateWorkload,
  create: calls.createWorkload,
  update: calls.updateWorkload,
  scale: calls.scaleWorkload,
  delete: calls.deleteWorkload,
  undo: calls.undoRollout,
  restart: calls.restartRollout,
  pause: calls.pauseRollout,
  resume: calls.resumeRollout,
  promote: calls.promoteRollout,
  drain: calls.drainNode,
  cordon: calls.cordonNode,
  uncordon: calls.uncordonNode,
  updateNode: calls.updateNode,
  removeNode: calls.removeNode,
  confirmNodeLost: calls.confirmNodeLost,
  // Replaces replicas, as a restart does.
  evict: calls.restartRollout,
};

/**
 * Checks that the caller may make every change by itself.
 * @throws kind `denied` for the first change that the caller may not make.
 */
export function requireChanges(
  access: CallAccess,
  caller: ApiCaller,
  changes: readonly PlannedChange[],
): void {
  for (const { change } of changes) {
    if (change.case === undefined) continue;
    const namespace = 'nodeId' in change.value ? '' : resolveNamespace(change.value);
    access.requireNamespace(caller, RPC_OF_CHANGE[change.case], namespace);
  }
}

/**
 * Returns true when the caller may read everything that a plan is about: the workloads of its changes
 * and those that the changes of nodes move.
 */
export function isVisiblePlan(
  access: CallAccess,
  caller: ApiCaller,
  { changes, workloads }: Plan,
): boolean {
  const namespaces = new Set(workloads.map((workload) => resolveNamespace(workload)));
  for (const { change } of changes) {
    if (change.case === undefined) continue;
    namespaces.add('nodeId' in change.value ? '' : resolveNamespace(change.value));
  }
  return [...namespaces].every((namespace) => access.isPermitted(caller, calls.getPlan, namespace));
}
