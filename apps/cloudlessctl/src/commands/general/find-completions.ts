import type { Command } from 'commander';
import { resolvePortName } from '@cloudless/api';
import { parseWorkloadName } from '../../names.js';
import type { LocalSession } from '../../call/local-session.js';
import { openSession } from '../../call/open-session.js';

/** Time limit of the calls for one completion: the shell is blocked until the completion ends. */
const LOOKUP_TIMEOUT_MS = 1_000;

/** Most names that one completion requests from the coordinator: one page of a list. */
const MAX_NAMES = 200;

/**
 * Returns the candidates for the last of `words`: flags, subcommands, or names that the coordinator
 * returns. Returns no names when the coordinator cannot be reached.
 */
export async function findCandidates(
  program: Command,
  words: readonly string[],
  session: LocalSession,
): Promise<readonly string[]> {
  const prefix = words.at(-1) ?? '';
  let command = program;
  const operands: string[] = [];
  for (const word of words.slice(0, -1)) {
    const child =
      operands.length === 0
        ? command.commands.find((subcommand) => subcommand.name() === word)
        : undefined;
    if (child !== undefined) command = child;
    else if (!word.startsWith('-')) operands.push(word);
  }
  const children = command.commands
    .map((child) => child.name())
    .filter((name) => !name.startsWith('_'));
  const listFlags = (): string[] => [
    ...command.options.flatMap(({ long }) => long ?? []),
    '--help',
  ];
  const candidates = prefix.startsWith('-')
    ? listFlags()
    : children.length > 0
      ? children
      : await findNames(command, operands, session);
  return candidates.filter((candidate) => candidate.startsWith(prefix));
}

/**
 * Returns the candidates for the next operand of a command: fixed choices, kinds, nodes, ports or
 * workloads.
 */
async function findNames(
  command: Command,
  operands: readonly string[],
  localSession: LocalSession,
): Promise<readonly string[]> {
  const verb = command.name();
  const choices = command.registeredArguments[operands.length]?.argChoices;
  if (choices !== undefined) return choices;
  const completesKind = verb === 'get' || (verb === 'describe' && command.parent?.parent === null);
  if (completesKind && operands.length === 0)
    return ['workloads', 'nodes', ...(verb === 'get' ? ['containers', 'events'] : [])];
  const completesNodes = command.parent?.name() === 'node' || /^nodes?$/.test(operands[0] ?? '');
  if (command.registeredArguments.length === 0 || verb === 'create') return [];
  const session = await openSession(localSession);
  try {
    const options = session.getCallOptions(LOOKUP_TIMEOUT_MS);
    if (completesNodes)
      return (await session.client.listNodes({ pageSize: MAX_NAMES }, options)).nodes.map(
        ({ id }) => id,
      );
    const [target] = operands;
    if (verb === 'port-forward' && target !== undefined) {
      const { spec } = await session.client.getWorkload(
        parseWorkloadName(target, session.settings.namespace),
        options,
      );
      return (spec?.ports ?? []).map(resolvePortName);
    }
    const page = await session.client.listWorkloads(
      { namespace: session.settings.namespace, pageSize: MAX_NAMES },
      options,
    );
    return page.workloads.map(({ name }) => name);
  } catch {
    // The coordinator cannot be reached or does not have the workload. The shell completes file
    // names instead; an error message would disturb the command line.
    return [];
  } finally {
    session.close();
  }
}
