import type { Command } from 'commander';
import type { CommandTree, Invocation } from '../command-tree.js';
import { usageFailure } from '../failure.js';
import { didYouMean } from '../suggest.js';
import { VERSION } from '../version.js';
import { showEvents, addEventOptions } from './event-commands.js';
import { describeNode, getNodes, listNodes } from './node-commands.js';
import { operand } from './options.js';
import { addListOptions, describe, getWorkloads, listWorkloads } from './workload-commands.js';

/** What `get` and `describe` know, by each word that names it. */
const KINDS: Readonly<Record<string, 'workload' | 'node' | 'event'>> = {
  workload: 'workload',
  workloads: 'workload',
  wl: 'workload',
  node: 'node',
  nodes: 'node',
  event: 'event',
  events: 'event',
};

/** `get` offers the options of every kind; these are the kinds that take each. */
const TAKEN_BY: Readonly<Record<string, readonly string[]>> = {
  watch: ['event'],
  workload: ['event'],
  node: ['event'],
  selector: ['workload', 'node'],
  allNamespaces: ['workload', 'event'],
};

/** Adds the short forms `get` and `describe`, and `version`. */
export function addGeneralCommands(tree: CommandTree, parent: Command): void {
  const getCommand = tree.leaf(parent, 'get <kind> [names...]', 'list or show workloads, nodes or events', get);
  addEventOptions(addListOptions(getCommand));
  tree.leaf(parent, 'describe <kind-or-workload> [name]', 'everything about one workload or node', describeAny);
  tree.offlineLeaf(parent, 'version', 'show the version', async ({ session }) => {
    if (session.structured) await session.printValue({ version: VERSION });
    else await session.print(`cloudlessctl ${VERSION}\n`);
  });
}

async function get(invocation: Invocation): Promise<void> {
  const kind = kindOf(operand(invocation, 0, 'kind'));
  const names = invocation.operands.slice(1);
  for (const [option, kinds] of Object.entries(TAKEN_BY)) {
    if (invocation.options[option] === undefined || kinds.includes(kind)) continue;
    const flag = option.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    throw usageFailure(`--${flag} is for ${kinds.map((taken) => `${taken}s`).join(' and ')}, not for ${kind}s`);
  }
  if (kind === 'workload') return names.length > 0 ? getWorkloads(invocation, names) : listWorkloads(invocation);
  if (kind === 'node') return names.length > 0 ? getNodes(invocation, names) : listNodes(invocation);
  if (names.length > 0) throw usageFailure('events have no names: give --workload or --node');
  return showEvents(invocation);
}

async function describeAny(invocation: Invocation): Promise<void> {
  const [first = '', second] = invocation.operands;
  if (second === undefined) return describe(invocation, first);
  const kind = kindOf(first);
  if (kind === 'workload') return describe(invocation, second);
  if (kind === 'node') return describeNode(invocation, second);
  throw usageFailure('events are listed, not described: cloudlessctl events');
}

function kindOf(word: string): 'workload' | 'node' | 'event' {
  const kind = KINDS[word.toLowerCase()];
  if (kind === undefined) {
    throw usageFailure(
      `unknown kind ${JSON.stringify(word)}: expected workloads, nodes or events${didYouMean(word, Object.keys(KINDS))}`,
    );
  }
  return kind;
}
