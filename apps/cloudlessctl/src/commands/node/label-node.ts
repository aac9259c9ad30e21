import type { MessageInitShape } from '@bufbuild/protobuf';
import { type TaintSchema, type Taint_Effect, Taint_EffectSchema } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { parsePairs } from '../../flags/spec-flags.js';
import { suggestSimilar } from '../../suggest.js';
import { requireOperand } from '../options.js';
import { printNodeChange } from './change-node.js';

/** Sets labels with `key=value` and removes labels with `key-`. */
export async function labelNode(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const setLabels: Record<string, string> = {};
  const removeLabels: string[] = [];
  for (const { key, value } of parsePairs('label', operands.slice(1))) {
    if (value === undefined) removeLabels.push(key);
    else setLabels[key] = value;
  }
  const nodeId = requireOperand(invocation, 0, 'node');
  await printNodeChange(
    session,
    await session.client.updateNode(
      { nodeId, setLabels, removeLabels, requestId: session.getRequestId() },
      session.getCallOptions(),
    ),
    'labelled',
  );
}

/** Sets and removes taints, see {@link parseTaint}. */
export async function taintNode(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const setTaints: MessageInitShape<typeof TaintSchema>[] = [];
  const removeTaints: string[] = [];
  for (const text of operands.slice(1)) {
    const taint = parseTaint(text);
    if (typeof taint === 'string') removeTaints.push(taint);
    else setTaints.push(taint);
  }
  const nodeId = requireOperand(invocation, 0, 'node');
  await printNodeChange(
    session,
    await session.client.updateNode(
      { nodeId, setTaints, removeTaints, requestId: session.getRequestId() },
      session.getCallOptions(),
    ),
    'tainted',
  );
}

/**
 * Parses `key=value:EFFECT` or `key:EFFECT`, which set a taint, and `key-` or `key:EFFECT-`, which
 * remove taints.
 * @returns The taint to set. For a removal: the text without the final hyphen.
 * @throws {@link CliFailure} for any other text and for an unknown effect.
 */
function parseTaint(text: string): MessageInitShape<typeof TaintSchema> | string {
  const match = /^([^=:]+?)(?:=([^:]*))?(?::([^:]+?))?(-?)$/.exec(text);
  const [, key = '', value, effectName, remove] = match ?? [];
  if (effectName !== undefined) parseEffect(text, effectName); // rejects an unknown effect
  if (remove === '-' && value === undefined)
    return effectName === undefined ? key : `${key}:${effectName}`;
  if (match === null || effectName === undefined) {
    throw createUsageFailure(
      `expected key=value:EFFECT to set a taint, key- or key:EFFECT- to remove it, got ${JSON.stringify(text)}`,
    );
  }
  return { key, value: value ?? '', effect: parseEffect(text, effectName) };
}

function parseEffect(text: string, name: string): Taint_Effect {
  const names = Taint_EffectSchema.values.map((value) => value.name);
  const effect = Taint_EffectSchema.values.find((value) => value.name === name);
  if (effect === undefined)
    throw createUsageFailure(
      `${text}: unknown effect, expected one of ${names.join(', ')}${suggestSimilar(name, names)}`,
    );
  return effect.number;
}
