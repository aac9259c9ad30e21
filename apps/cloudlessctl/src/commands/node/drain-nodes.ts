import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { NodeSchema } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { parseDurationOption } from '../../config/settings.js';
import { toMessageJson } from '../../call/cli-session.js';
import { waitUntilDrained } from '../../wait/wait-node.js';
import { changeEach } from '../change-each.js';
import { hasFlag, requireOperands, getTextOption } from '../options.js';
import { handleChangeOptions } from '../plan/plan-options.js';
import type { ChangeInit } from '../plan/predict-changes.js';
import { findNode } from './find-node.js';

/**
 * Drains nodes, none when one of several does not exist: with `--plan` stores the drains as a plan,
 * with `--plan-id` executes a stored plan. In JSON or YAML, one node is printed as an object,
 * several nodes as a list.
 */
export async function drainNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const deadlineText = getTextOption(invocation, 'deadline');
  const deadlineMs =
    deadlineText === undefined ? undefined : parseDurationOption('--deadline', deadlineText);
  const drainOptions = {
    force: hasFlag(invocation, 'force'),
    ...(deadlineMs === undefined ? {} : { deadline: durationFromMs(deadlineMs) }),
  };
  const nodeIds = [...new Set(invocation.operands)];
  const createDrainChanges = () => {
    requireOperands(invocation, 'nodes');
    return nodeIds.map((nodeId): ChangeInit => ({
      change: { case: 'drain', value: { nodeId, ...drainOptions } },
    }));
  };
  const confirmation = { isForced: hasFlag(invocation, 'force'), dryRunUsesExitCode: true };
  if (await handleChangeOptions(invocation, createDrainChanges, confirmation)) return;
  requireOperands(invocation, 'nodes');
  // A mistyped name must not leave a part of the drains behind.
  if (nodeIds.length > 1) for (const nodeId of nodeIds) await findNode(session, nodeId);
  const drained = await changeEach(session, nodeIds, {
    describe: (nodeId) => `node ${nodeId}`,
    change: async (nodeId, requestId) => {
      const request = { nodeId, ...drainOptions, requestId };
      const node = await session.client.drainNode(request, session.getCallOptions());
      await session.printStatus(`node ${nodeId}: draining`);
      return node;
    },
  });
  const started = drained.results.map(({ id }) => id);
  const final =
    hasFlag(invocation, 'wait') && started.length > 0
      ? await waitUntilDrained(session, started, deadlineMs)
      : drained.results;
  if (session.isStructured) {
    const nodes = final.map((node) => toMessageJson(NodeSchema, node));
    const [only] = nodes;
    await session.printValue(nodeIds.length === 1 && only !== undefined ? only : { nodes });
  }
  drained.throwFailure();
}
