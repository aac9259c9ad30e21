import type { MessageInitShape } from '@bufbuild/protobuf';
import { type TaintSchema, Taint_Effect, Taint_EffectSchema } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import type { CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import { parsePairs } from '../../flags/spec-flags.js';
import { describeExpectedEnum, findEnumName } from '../../flags/enum-words.js';
import { formatTaints } from '../../views/node-view.js';
import { changeNodes, getNodeIds } from './change-node.js';

/** Sets labels of nodes with `key=value` and removes labels with `key-`. */
export async function labelNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { nodeIds, changes } = splitOperands(invocation, 'label', 'disk=ssd');
  const setLabels: Record<string, string> = {};
  const removeLabels: string[] = [];
  for (const { key, value } of parsePairs('label', changes)) {
    if (value === undefined) removeLabels.push(key);
    else setLabels[key] = value;
  }
  await changeNodes(invocation, nodeIds, {
    plan: (nodeId) => ({ case: 'updateNode', value: { nodeId, setLabels, removeLabels } }),
    call: (request) =>
      session.client.updateNode({ ...request, setLabels, removeLabels }, session.getCallOptions()),
    change: Object.keys(setLabels).length > 0 ? 'labelled' : 'unlabelled',
  });
}

/** Sets and removes taints of nodes, see {@link parseTaint}. */
export async function taintNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { nodeIds, changes } = splitOperands(invocation, 'taint', 'gpu=true:NO_SCHEDULE');
  const setTaints: MessageInitShape<typeof TaintSchema>[] = [];
  const removeTaints: string[] = [];
  for (const text of changes) {
    const taint = parseTaint(text);
    if (typeof taint === 'string') removeTaints.push(taint);
    else setTaints.push(taint);
  }
  await changeNodes(invocation, nodeIds, {
    plan: (nodeId) => ({ case: 'updateNode', value: { nodeId, setTaints, removeTaints } }),
    call: async (request) => {
      await requireTaints(session, request.nodeId, removeTaints);
      return session.client.updateNode(
        { ...request, setTaints, removeTaints },
        session.getCallOptions(),
      );
    },
    change: setTaints.length > 0 ? 'tainted' : 'has these taints no longer',
  });
}

/**
 * Checks that a node has the taints that are to be removed, so that no typing error goes unnoticed.
 * @param removals - `key` or `key:EFFECT`.
 * @throws {@link CliFailure} with exit code 3 for the first taint that the node does not have.
 */
async function requireTaints(
  session: CliSession,
  nodeId: string,
  removals: readonly string[],
): Promise<void> {
  // A command that is repeated with its request id may find the taints removed.
  if (removals.length === 0 || session.settings.requestId !== '') return;
  const { taints } = await session.client.getNode({ nodeId }, session.getCallOptions());
  const known = new Set(
    taints.flatMap(({ key, effect }) => [key, `${key}:${Taint_Effect[effect]}`]),
  );
  const missing = removals.find((removal) => !known.has(removal));
  if (missing === undefined) return;
  const present = taints.length === 0 ? 'it has no taints' : `its taints: ${formatTaints(taints)}`;
  throw new CliFailure(ExitCode.notFound, `node ${nodeId} has no taint "${missing}"; ${present}`);
}

/**
 * Splits the operands: the first is a node, and so is each next one up to the first label or taint,
 * which contains `=` or `:` or ends with a hyphen.
 * @param noun - `label` or `taint`, for the error message.
 * @param example - A label or taint for the error message.
 * @throws {@link CliFailure} when there is no node, or no label or taint.
 */
function splitOperands(
  { operands }: Invocation,
  noun: string,
  example: string,
): { readonly nodeIds: readonly string[]; readonly changes: readonly string[] } {
  const isChange = (text: string): boolean => /[=:]|-$/.test(text);
  const first = operands.findIndex((text, index) => index > 0 && isChange(text));
  const changes = first < 0 ? [] : operands.slice(first);
  if (changes.length === 0)
    throw createUsageFailure(
      `the ${noun}s are missing: cloudlessctl node ${noun} ${operands.join(' ') || 'NODE'} ${example}`,
    );
  return { nodeIds: getNodeIds({ operands: operands.slice(0, first) }), changes };
}

/**
 * Parses `key=value:EFFECT` or `key:EFFECT`, which set a taint, and `key-`, `key:EFFECT-` or
 * `key=value:EFFECT-`, which remove taints; a key has at most one taint of an effect.
 * @returns The taint to set. For a removal: the text without the final hyphen.
 * @throws {@link CliFailure} for any other text and for an unknown effect.
 */
function parseTaint(text: string): MessageInitShape<typeof TaintSchema> | string {
  const match = /^([^=:]+?)(?:=([^:]*))?(?::([^:]+?))?(-?)$/.exec(text);
  const [, key = '', value, effectName, remove] = match ?? [];
  const effect = effectName === undefined ? undefined : parseEffect(text, effectName);
  if (remove === '-' && (value === undefined || effect !== undefined))
    return effect === undefined ? key : `${key}:${Taint_Effect[effect]}`;
  if (match === null || effect === undefined) {
    throw createUsageFailure(
      `expected key=value:EFFECT to set a taint, key- or key:EFFECT- to remove it, got ${JSON.stringify(text)}`,
    );
  }
  return { key, value: value ?? '', effect };
}

function parseEffect(text: string, name: string): Taint_Effect {
  const names = Taint_EffectSchema.values.map((value) => value.name);
  const found = findEnumName(name, names);
  const effect = Taint_EffectSchema.values.find((value) => value.name === found);
  if (effect === undefined)
    throw createUsageFailure(`${text}: unknown effect, ${describeExpectedEnum(name, names)}`);
  return effect.number;
}
