import type { Command } from 'commander';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { showEvents, addEventOptions } from '../event/event-commands.js';
import { showContainers } from '../replica/container-commands.js';
import { listNamespaces } from '../namespace/list-namespaces.js';
import { describeNode } from '../node/describe-node.js';
import { getNodes, listNodes } from '../node/list-nodes.js';
import { hasFlag, requireOperand } from '../options.js';
import { watchNodes } from '../node/watch-nodes.js';
import { listTokens } from '../token/token-commands.js';
import { listUsers } from '../user/list-users.js';
import { getReplicas, listReplicas } from '../replica/list-replicas.js';
import { watchReplicas } from '../replica/watch-replicas.js';
import { watchWorkloads } from '../workload/watch-workloads.js';
import {
  addListOptions,
  describeWorkload,
  getWorkloads,
  listWorkloads,
} from '../workload/list-workloads.js';
import { KIND_LIST, PLURALS, findKind, parseKind } from '../../kinds.js';
import type { Kind } from '../../kinds.js';
import { describeObject, getObjects, isGroupedKind } from './get-objects.js';

/**
 * `get` has the options of every kind. This table lists the kinds that accept an option; an option
 * without an entry is accepted with every kind.
 */
const KINDS_BY_OPTION: Readonly<Record<string, readonly Kind[]>> = {
  workload: ['replica', 'event', 'container'],
  node: ['replica', 'event', 'container'],
  selector: ['workload', 'node', 'replica', 'namespace', 'service', 'route', 'secret', 'config'],
  allNamespaces: [
    ...(['workload', 'replica', 'event', 'container', 'namespace', 'service', 'route'] as const),
    ...(['secret', 'config', 'policy', 'plan'] as const),
  ],
  watch: ['workload', 'node', 'replica', 'event'],
  limit: ['event'],
  since: ['event'],
  type: ['event'],
  reason: ['event'],
  severity: ['event'],
  audit: ['event'],
  why: ['event'],
};

/** Adds `get`. */
export function addGetCommand(tree: CommandTree, parent: Command): void {
  const getCommand = tree.addCommand(parent, 'get <kind> [names...]', `list ${KIND_LIST}`, get);
  addEventOptions(addListOptions(getCommand));
}

/** Adds `describe`. */
export function addDescribeCommand(tree: CommandTree, parent: Command): void {
  tree.addCommand(
    parent,
    'describe <kind-or-workload> [name]',
    'show details of a workload, service, route, secret, config, policy, plan or node',
    describeAny,
  );
}

/** Shows the named objects of a kind, or all objects of the kind. */
async function get(invocation: Invocation): Promise<void> {
  const kind = parseKind(requireOperand(invocation, 0, 'kind'));
  const names = invocation.operands.slice(1);
  checkOptions(invocation, kind);
  const hasNames = names.length > 0;
  const watches = hasFlag(invocation, 'watch');
  if (isGroupedKind(kind)) return getObjects(invocation, kind, names);
  switch (kind) {
    case 'workload':
      if (watches) return watchWorkloads(invocation, names);
      return hasNames ? getWorkloads(invocation, names) : listWorkloads(invocation);
    case 'node':
      if (watches) return watchNodes(invocation, names);
      return hasNames ? getNodes(invocation, names) : listNodes(invocation);
    case 'replica':
      if (watches && hasNames)
        throw createUsageFailure('--watch takes no replica ids; use --workload or --node');
      if (watches) return watchReplicas(invocation);
      return hasNames ? getReplicas(invocation, names) : listReplicas(invocation);
    case 'container':
      return showContainers(invocation, names);
    case 'namespace':
      return listNamespaces(invocation, names);
    case 'user':
      return listUsers(invocation, names);
    case 'token':
      if (hasNames)
        throw createUsageFailure('tokens have no names: filter with --field-selector id=…');
      return listTokens(invocation);
    case 'event':
      if (hasNames)
        throw createUsageFailure('events have no names: filter with --workload or --node');
      return showEvents(invocation);
  }
}

/**
 * Rejects options that do not apply to a kind.
 * @throws {@link CliFailure} with exit code 2.
 */
function checkOptions(invocation: Invocation, kind: Kind): void {
  for (const [option, kinds] of Object.entries(KINDS_BY_OPTION)) {
    if (invocation.options[option] === undefined || kinds.includes(kind)) continue;
    const flag = option.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    throw createUsageFailure(
      `--${flag} applies to ${joinWords(kinds.map((accepting) => PLURALS[accepting]))}, not to ${PLURALS[kind]}`,
    );
  }
  if (hasFlag(invocation, 'watch') && invocation.options['sortBy'] !== undefined)
    throw createUsageFailure(
      '--sort-by does not apply to --watch, which prints changes as they come',
    );
}

/** Handles `describe <workload>` and `describe <kind> <name>`. */
async function describeAny(invocation: Invocation): Promise<void> {
  const [kindOrWorkload = '', name] = invocation.operands;
  if (name === undefined) {
    if (findKind(kindOrWorkload) === 'node')
      throw createUsageFailure('the name is missing: cloudlessctl describe node NAME');
    return describeWorkload(invocation, kindOrWorkload);
  }
  const kind = parseKind(kindOrWorkload);
  if (kind === 'workload') return describeWorkload(invocation, name);
  if (kind === 'node') return describeNode(invocation, name);
  if (isGroupedKind(kind)) return describeObject(invocation, kind, name);
  throw createUsageFailure(
    `${PLURALS[kind]} cannot be described; use: cloudlessctl get ${PLURALS[kind]}${kind === 'event' ? '' : ' -o wide'}`,
  );
}

/** Joins words to a list: `a`, `a and b`, `a, b and c`. */
function joinWords(words: readonly string[]): string {
  const last = words.at(-1) ?? '';
  return words.length < 2 ? last : `${words.slice(0, -1).join(', ')} and ${last}`;
}
