import type { Command } from 'commander';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { suggestSimilar } from '../../suggest.js';
import { showEvents, addEventOptions } from '../event/event-commands.js';
import { showContainers } from '../replica/container-commands.js';
import { describeNode, getNodes, listNodes } from '../node/list-nodes.js';
import { hasFlag, requireOperand } from '../options.js';
import { watchNodes } from '../node/watch-nodes.js';
import { watchWorkloads } from '../workload/watch-workloads.js';
import {
  addListOptions,
  describeWorkload,
  getWorkloads,
  listWorkloads,
} from '../workload/list-workloads.js';

type Kind = 'workload' | 'node' | 'event' | 'container';

/** The kinds of `get` and `describe`, by each accepted word. */
const KINDS: Readonly<Record<string, Kind>> = {
  workload: 'workload',
  workloads: 'workload',
  wl: 'workload',
  node: 'node',
  nodes: 'node',
  event: 'event',
  events: 'event',
  container: 'container',
  containers: 'container',
};

/**
 * `get` has the options of every kind. This table lists the kinds that accept an option; an option
 * without an entry is accepted with every kind.
 */
const KINDS_BY_OPTION: Readonly<Record<string, readonly string[]>> = {
  workload: ['event', 'container'],
  node: ['event', 'container'],
  selector: ['workload', 'node'],
  allNamespaces: ['workload', 'event', 'container'],
  limit: ['event'],
  audit: ['event'],
  why: ['event'],
};

/** Adds `get`. */
export function addGetCommand(tree: CommandTree, parent: Command): void {
  const getCommand = tree.addCommand(
    parent,
    'get <kind> [names...]',
    'list workloads, nodes, containers or events',
    get,
  );
  addEventOptions(addListOptions(getCommand));
}

/** Adds `describe`. */
export function addDescribeCommand(tree: CommandTree, parent: Command): void {
  tree.addCommand(
    parent,
    'describe <kind-or-workload> [name]',
    'show details of a workload or node',
    describeAny,
  );
}

/** Shows the named objects of a kind, or all objects of the kind. */
async function get(invocation: Invocation): Promise<void> {
  const kind = parseKind(requireOperand(invocation, 0, 'kind'));
  const names = invocation.operands.slice(1);
  for (const [option, kinds] of Object.entries(KINDS_BY_OPTION)) {
    if (invocation.options[option] === undefined || kinds.includes(kind)) continue;
    const flag = option.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    throw createUsageFailure(
      `--${flag} applies to ${joinWords(kinds.map((accepting) => `${accepting}s`))}, not to ${kind}s`,
    );
  }
  if (kind === 'container') {
    if (hasFlag(invocation, 'watch'))
      throw createUsageFailure('--watch applies to workloads, nodes and events, not to containers');
    return showContainers(invocation, names);
  }
  if (kind !== 'event' && hasFlag(invocation, 'watch')) {
    return kind === 'workload' ? watchWorkloads(invocation, names) : watchNodes(invocation, names);
  }
  if (kind === 'workload')
    return names.length > 0 ? getWorkloads(invocation, names) : listWorkloads(invocation);
  if (kind === 'node')
    return names.length > 0 ? getNodes(invocation, names) : listNodes(invocation);
  if (names.length > 0)
    throw createUsageFailure('events have no names: filter with --workload or --node');
  return showEvents(invocation);
}

/** Handles `describe <workload>` and `describe <kind> <name>`. */
async function describeAny(invocation: Invocation): Promise<void> {
  const [kindOrWorkload = '', name] = invocation.operands;
  if (name === undefined) return describeWorkload(invocation, kindOrWorkload);
  const kind = parseKind(kindOrWorkload);
  if (kind === 'workload') return describeWorkload(invocation, name);
  if (kind === 'node') return describeNode(invocation, name);
  if (kind === 'container')
    throw createUsageFailure(
      'containers cannot be described; use: cloudlessctl get containers -o wide',
    );
  throw createUsageFailure('events cannot be described; use: cloudlessctl events');
}

/** Joins words to a list: `a`, `a and b`, `a, b and c`. */
function joinWords(words: readonly string[]): string {
  const last = words.at(-1) ?? '';
  return words.length < 2 ? last : `${words.slice(0, -1).join(', ')} and ${last}`;
}

function parseKind(word: string): Kind {
  const kind = KINDS[word.toLowerCase()];
  if (kind === undefined) {
    throw createUsageFailure(
      `unknown kind ${JSON.stringify(word)}: expected workloads, nodes, containers or events${suggestSimilar(word, Object.keys(KINDS))}`,
    );
  }
  return kind;
}
