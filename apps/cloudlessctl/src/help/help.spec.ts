import { Command } from 'commander';
import { create, toJson } from '@bufbuild/protobuf';
import type { JsonValue } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, withDefaults } from '@cloudless/api';
import { CommandTree, addGlobalOptions } from '../command-tree.js';
import { declareCommands } from '../commands.js';
import { findOption, parseWords, splitFlag } from '../completion/parse-words.js';
import { FLAG_DEFAULTS } from '../flags/flag-help.js';
import { SPEC_FLAGS } from '../flags/spec-flags.js';
import type { CliIo } from '../io/io.js';
import { runCli } from '../testing/run-cli.js';
import { findExamples } from './examples.js';

const help = async (...words: string[]): Promise<string> =>
  (await runCli([...words, '--help'], { columns: 80 })).stdout;

/** Loads all commands and returns those with an action, with their paths. */
async function listCommands(): Promise<{
  readonly program: Command;
  readonly leaves: readonly { readonly path: string; readonly command: Command }[];
}> {
  const tree = new CommandTree({} as CliIo, []);
  const program = new Command('cloudlessctl');
  addGlobalOptions(program);
  declareCommands(tree, program);
  await tree.loadAll(program);
  const leaves: { path: string; command: Command }[] = [];
  const visit = (command: Command, path: string): void => {
    if (command.commands.length === 0) leaves.push({ path, command });
    for (const child of command.commands) visit(child, `${path} ${child.name()}`.trim());
  };
  visit(program, '');
  return { program, leaves: leaves.filter(({ path }) => !path.startsWith('_')) };
}

describe('help', () => {
  it.each([
    { words: ['get'] },
    { words: ['node'] },
    { words: ['workload', 'create'] },
    { words: ['rollout', 'status'] },
  ])('of $words is as in the snapshot', async ({ words }) => {
    expect(await help(...words)).toMatchSnapshot();
  });

  it('lists the options of every command before the global options', async () => {
    const { leaves } = await listCommands();
    for (const { path } of leaves) {
      const text = await help(...path.split(' '));
      const headings = text.split('\n').filter((line) => /^[A-Z][a-z ]+:$/.test(line));
      const options = headings.filter((line) => line !== 'Examples:' && line !== 'Arguments:');
      expect({ path, last: options.at(-1) }).toEqual({ path, last: 'Global options:' });
    }
  });

  it('fits into 80 columns for every command', async () => {
    const { leaves } = await listCommands();
    for (const { path } of leaves) {
      const text = await help(...path.split(' '));
      expect({ path, long: text.split('\n').filter((line) => line.length > 80) }).toEqual({
        path,
        long: [],
      });
    }
  });

  it('shows a default only in the help of the command that creates', async () => {
    expect(await help('workload', 'create')).toContain('Number of replicas (default: 1)');
    expect(await help('workload', 'update')).toMatch(/Number of replicas$/m);
  });

  it('describes the operands of every command', async () => {
    const { leaves } = await listCommands();
    const silent = leaves.flatMap(({ path, command }) =>
      command.registeredArguments
        .filter(({ description }) => description === '')
        .map((argument) => `${path} <${argument.name()}>: see help/operands.ts`),
    );
    expect(silent).toEqual([]);
  });
});

describe('examples', () => {
  it('exist for every command', async () => {
    const { leaves } = await listCommands();
    const without = leaves.filter(
      ({ path, command }) => findExamples(path).length === 0 && !hasOwnExamples(command),
    );
    expect(without.map(({ path }) => path)).toEqual([]);
  });

  it('use commands and options that exist', async () => {
    const { program, leaves } = await listCommands();
    const wrong: string[] = [];
    for (const example of leaves.flatMap(({ path }) => findExamples(path))) {
      const words = example.split(' -- ')[0]?.split(' > ')[0]?.split(' ') ?? [];
      const { command, pending } = parseWords(program, words);
      const flags = words.filter((word) => /^-[-a-zA-Z]/.test(word));
      const unknown = flags.filter((flag) => !isKnown(command, flag));
      if (command.commands.length > 0 || pending !== undefined || unknown.length > 0)
        wrong.push(`${example}: ${unknown.join(' ')}`);
    }
    expect(wrong).toEqual([]);
  });
});

/** Returns true for a known flag, also with a value or as several short flags. */
function isKnown(command: Command, word: string): boolean {
  if (findOption(command, word) !== undefined) return true;
  if (/^-[a-z]{2,}$/.test(word))
    return [...word.slice(1)].every((letter) => findOption(command, `-${letter}`) !== undefined);
  return findOption(command, splitFlag(word)[0] ?? '') !== undefined;
}

/** Commands whose own help text contains examples. */
function hasOwnExamples(command: Command): boolean {
  return ['completion', 'init', 'convert', 'schema'].includes(command.name());
}

describe('defaults in the help', () => {
  it('are those of the API', () => {
    const spec = toJson(
      WorkloadSpecSchema,
      withDefaults(create(WorkloadSpecSchema, { imagePull: {} })),
      {
        alwaysEmitImplicit: true,
      },
    );
    const read = (path: string): JsonValue | undefined =>
      path
        .split('.')
        .map((name) => name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()))
        .reduce<JsonValue | undefined>(
          (value, key) => (value as Record<string, JsonValue> | undefined)?.[key],
          spec,
        );
    for (const [flag, text] of Object.entries(FLAG_DEFAULTS)) {
      const { path = '', parse } = SPEC_FLAGS.find((known) => known.flag === flag) ?? {};
      expect({ flag, value: parse?.([text], undefined) }).toEqual({ flag, value: read(path) });
    }
  });
});
