import { ExecutePlanResponseSchema } from '@cloudless/api';
import type { ExecutePlanResponse, Node, Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatWorkloadName } from '../../names.js';
import { waitUntilDrained } from '../../wait/wait-node.js';
import { waitUntilDeleted, waitUntilSettled } from '../../wait/wait-workload.js';
import { hasFlag } from '../options.js';
import { getWaitOptions } from '../wait-options.js';
import { readOverride } from './override-option.js';

/** Returns true for a text with the form of a plan id. */
export function isPlanId(text: string): boolean {
  return /^[0-9a-f]{16}$/.test(text);
}

/** Executes a stored plan, and with `--wait` waits until its workloads and nodes have settled. */
export async function executeStoredPlan(invocation: Invocation, id: string): Promise<void> {
  const { session } = invocation;
  const executed = await session.client.executePlan(
    { id, requestId: session.getRequestId(), ...readOverride(invocation) },
    session.getCallOptions(),
  );
  await printExecuted(session, executed);
  const final = hasFlag(invocation, 'wait')
    ? await waitUntilExecuted(invocation, executed)
    : executed;
  if (session.isStructured)
    await session.printValue(toMessageJson(ExecutePlanResponseSchema, final));
}

export async function printExecuted(
  session: CliSession,
  { workloads, nodes, removedNodeIds }: ExecutePlanResponse,
): Promise<void> {
  for (const workload of workloads)
    await session.printStatus(`${formatWorkloadName(workload)}: ${describeChange(workload)}`);
  for (const node of nodes) await session.printStatus(`node ${node.id}: ${describeNode(node)}`);
  for (const id of removedNodeIds) await session.printStatus(`node ${id}: removed`);
  if (workloads.length + nodes.length + removedNodeIds.length === 0)
    await session.printStatus('nothing to change, the workloads are as planned');
}

function describeChange({ generation, deletionRequestedAt }: Workload): string {
  if (deletionRequestedAt !== undefined) return 'is being deleted';
  return generation === 1n ? 'created' : 'updated';
}

function describeNode(node: Node): string {
  if (node.draining) return 'draining';
  return node.cordoned ? 'cordoned' : 'updated';
}

/**
 * Waits until the workloads have settled or are deleted, and the nodes are drained.
 * @returns The response with the final states.
 */
async function waitUntilExecuted(
  invocation: Invocation,
  executed: ExecutePlanResponse,
): Promise<ExecutePlanResponse> {
  const { session } = invocation;
  const workloads: Workload[] = [];
  for (const workload of executed.workloads) {
    if (workload.deletionRequestedAt === undefined) {
      workloads.push(await waitUntilSettled(session, workload, getWaitOptions(invocation)));
    } else {
      await waitUntilDeleted(session, workload);
      workloads.push(workload);
    }
  }
  const nodeIds = executed.nodes.filter(({ draining }) => draining).map(({ id }) => id);
  const drained = nodeIds.length === 0 ? [] : await waitUntilDrained(session, nodeIds, undefined);
  const nodes = executed.nodes.map((node) => drained.find(({ id }) => id === node.id) ?? node);
  return { ...executed, workloads, nodes };
}
