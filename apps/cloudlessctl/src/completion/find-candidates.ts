import type { Command } from 'commander';
import type { GlobalOptions } from '../config/settings.js';
import type { CommandTree } from '../command-tree.js';
import type { LocalSession } from '../call/local-session.js';
import { PLURALS, type Kind } from '../kinds.js';
import type { Candidate } from './candidate.js';
import { findOption, findSubcommand, parseWords, splitFlag } from './parse-words.js';
import type { ParsedWords } from './parse-words.js';
import { getOperandValues, getOptionValues } from './value-kinds.js';
import type { ValueKind } from './value-kinds.js';

/** The completions of a word. */
export interface Candidates {
  readonly candidates: readonly Candidate[];
  /** Local names that the shell adds itself. */
  readonly local?: 'files' | 'directories';
}

/** The kinds of `get`, and those of them that `describe` accepts. */
const KINDS: readonly Candidate[] = Object.values(PLURALS).map((value) => ({
  value,
  description: 'kind',
}));
const DESCRIBED: readonly Kind[] = [
  ...(['workload', 'service', 'route', 'secret', 'config', 'policy', 'plan', 'node'] as const),
];
const DESCRIBED_KINDS = KINDS.filter(({ value }) =>
  DESCRIBED.some((kind) => PLURALS[kind] === value),
);

/**
 * Returns the candidates for the last of `words`: subcommands, flags, values of flags, or names that
 * the coordinator returns. Returns no names when the coordinator cannot be reached.
 * @param open - Creates a session with the global options that the words contain.
 */
export async function findCandidates(
  tree: CommandTree,
  program: Command,
  words: readonly string[],
  open: (options: GlobalOptions) => Promise<LocalSession>,
): Promise<Candidates> {
  await tree.load(program, words);
  const word = words.at(-1) ?? '';
  const parsed = parseWords(program, words.slice(0, -1));
  const find = async (kind: readonly string[] | ValueKind | undefined): Promise<Candidates> => {
    if (typeof kind !== 'string')
      return { candidates: (kind ?? []).map((value) => ({ value, description: '' })) };
    return findByKind(kind, tree, program, parsed, open);
  };
  if (parsed.isAfterSeparator) return { candidates: [], local: 'files' };
  if (parsed.pending !== undefined)
    return startingWith(word, await find(getOptionValues(parsed.pending)));
  if (word.startsWith('-')) {
    const [flag = '', value] = splitFlag(word);
    const option = findOption(parsed.command, flag);
    if (value === undefined || option?.required !== true)
      return startingWith(word, { candidates: listFlags(parsed.command) });
    const prefix = word.slice(0, word.length - value.length);
    const { candidates } = startingWith(value, await find(getOptionValues(option)));
    return {
      candidates: candidates.map((candidate) => ({
        ...candidate,
        value: `${prefix}${candidate.value}`,
      })),
    };
  }
  const subcommands = listSubcommands(parsed.command);
  if (subcommands.length > 0 && parsed.operands.length === 0)
    return startingWith(word, { candidates: subcommands });
  return startingWith(word, await find(getNextOperand(parsed)));
}

/** Returns what completion offers for the next operand; undefined when there is none. */
function getNextOperand({
  command,
  operands,
}: ParsedWords): readonly string[] | ValueKind | undefined {
  const declared = command.registeredArguments;
  const last = declared.at(-1);
  const next = declared[operands.length] ?? (last?.variadic === true ? last : undefined);
  if (next === undefined) return undefined;
  const isDescribedName = next.name() === 'name' && declared[0]?.name() === 'kind-or-workload';
  return isDescribedName ? 'nameOfKind' : getOperandValues(next);
}

async function findByKind(
  kind: ValueKind,
  tree: CommandTree,
  program: Command,
  parsed: ParsedWords,
  open: (options: GlobalOptions) => Promise<LocalSession>,
): Promise<Candidates> {
  if (kind === 'freeText') return { candidates: [] };
  if (kind === 'file') return { candidates: [], local: 'files' };
  if (kind === 'directory') return { candidates: [], local: 'directories' };
  if (kind === 'kind') return { candidates: KINDS };
  if (kind === 'command') return { candidates: await findCommands(tree, program, parsed) };
  const { findNames } = await import('./find-names.js');
  const names = await findNames(kind, parsed.operands, () =>
    open(Object.fromEntries(parsed.values)),
  );
  return { candidates: kind === 'kindOrWorkload' ? [...names, ...DESCRIBED_KINDS] : names };
}

/** Returns the commands for the next word of `help`; empty for the command of a container. */
async function findCommands(
  tree: CommandTree,
  program: Command,
  { command, operands }: ParsedWords,
): Promise<readonly Candidate[]> {
  if (command.name() !== 'help') return [];
  await tree.load(program, operands);
  let selected: Command | undefined = program;
  for (const operand of operands) selected = selected && findSubcommand(selected, operand);
  return selected === undefined ? [] : listSubcommands(selected);
}

function listSubcommands(command: Command): readonly Candidate[] {
  return command.commands
    .filter((child) => !child.name().startsWith('_'))
    .map((child) => ({ value: child.name(), description: child.description() }));
}

function listFlags(command: Command): readonly Candidate[] {
  const flags = command.options.flatMap(({ long, description }) =>
    typeof long === 'string' ? [{ value: long, description }] : [],
  );
  return [...flags, { value: '--help', description: 'show the help' }];
}

/** Keeps the candidates that begin with a word. */
function startingWith(word: string, { candidates, ...rest }: Candidates): Candidates {
  return { candidates: candidates.filter(({ value }) => value.startsWith(word)), ...rest };
}
