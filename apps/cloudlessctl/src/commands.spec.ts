import { Command } from 'commander';
import { CommandTree, addGlobalOptions } from './command-tree.js';
import { declareCommands } from './commands.js';
import { getOperandValues, getOptionValues } from './completion/value-kinds.js';
import { runCli } from './testing/run-cli.js';
import type { CliIo } from './io/io.js';

/** Declares all commands; none of their modules is loaded. */
function declareAll(): { readonly tree: CommandTree; readonly program: Command } {
  const tree = new CommandTree({} as CliIo, []);
  const program = new Command('cloudlessctl');
  declareCommands(tree, program);
  return { tree, program };
}

describe('declared commands', () => {
  it('have the same names and descriptions before and after their modules are loaded', async () => {
    const { tree, program } = declareAll();
    const describeAll = (): readonly string[] =>
      program.commands.map((command) => `${command.name()}: ${command.description()}`);
    const declared = describeAll();
    await tree.loadAll(program);
    expect(describeAll()).toEqual(declared);
  });

  it('have an action or subcommands when their modules are loaded', async () => {
    const { tree, program } = declareAll();
    await tree.loadAll(program);
    const empty = program.commands.filter(
      (command) => command.options.length === 0 && command.commands.length === 0,
    );
    expect(empty.map((command) => command.name())).toEqual([]);
  });

  it.each([
    { words: ['scale', 'web'], loaded: ['scale'] },
    { words: ['-n', 'scale', '--no-color', 'events'], loaded: ['events'] },
    { words: ['--namespace=scale', 'delete'], loaded: ['delete'] },
    { words: ['--help'], loaded: [] },
    { words: ['--', 'scale'], loaded: [] },
    { words: ['nothing'], loaded: [] },
  ])('loads the module of $loaded for the words $words', async ({ words, loaded }) => {
    const { tree, program } = declareAll();
    program.option('-n, --namespace <name>').option('--no-color');
    const countParts = ({ options, commands }: Command): number => options.length + commands.length;
    const declared = program.commands.map(countParts);
    await tree.load(program, words);
    const changed = program.commands.filter(
      (command, index) => countParts(command) !== declared[index],
    );
    expect(changed.map((command) => command.name())).toEqual(loaded);
  });
});

describe('help', () => {
  it.each([
    { argv: ['help'], usage: 'Usage: cloudlessctl [options] [command]' },
    {
      argv: ['help', 'node', 'drain'],
      usage: 'Usage: cloudlessctl node drain [options] [nodes...]',
    },
    {
      argv: ['node', 'help', 'drain'],
      usage: 'Usage: cloudlessctl node drain [options] [nodes...]',
    },
    { argv: ['help', 'scale'], usage: 'Usage: cloudlessctl scale [options] [workloads...]' },
    { argv: ['scale', '-h'], usage: 'Usage: cloudlessctl scale [options] [workloads...]' },
  ])('prints the usage of the command for $argv', async ({ argv, usage }) => {
    const { exitCode, stdout, stderr } = await runCli(argv);
    expect({ exitCode, usage: stdout.split('\n')[0], stderr }).toEqual({
      exitCode: 0,
      usage,
      stderr: '',
    });
  });

  it('suggests a similar command for an unknown one, at any depth', async () => {
    expect(await runCli(['help', 'node', 'drian'])).toMatchObject({
      exitCode: 2,
      stderr:
        "cloudlessctl: unknown command 'drian'; did you mean drain?; see: cloudlessctl node --help\n",
    });
  });
});

describe('shell completion of every command', () => {
  it('knows what to offer for every operand and every value of an option', async () => {
    const { tree, program } = declareAll();
    addGlobalOptions(program);
    await tree.loadAll(program);
    const unknown: string[] = [];
    const visit = (command: Command, path: string): void => {
      for (const argument of command.registeredArguments)
        if (getOperandValues(argument) === undefined)
          unknown.push(`${path} <${argument.name()}>: see completion/value-kinds.ts`);
      for (const option of command.options)
        if (option.required && getOptionValues(option) === undefined)
          unknown.push(`${path} ${option.flags}: see completion/value-kinds.ts`);
      for (const child of command.commands) visit(child, `${path} ${child.name()}`);
    };
    for (const command of program.commands)
      if (!command.name().startsWith('_')) visit(command, command.name());
    expect(unknown).toEqual([]);
  });
});
