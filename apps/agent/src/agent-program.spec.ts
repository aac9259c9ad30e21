import { describe, expect, it } from '@jest/globals';
import {
  createAgentProgram,
  requireCommand,
  settingNames,
  type AgentActions,
} from './agent-program.js';

/** Parses a command line; returns the calls of actions, or the error code, and the output. */
function parseCommandLine(...args: readonly string[]): {
  readonly calls: readonly unknown[];
  readonly output: string;
  readonly errors: string;
} {
  const calls: unknown[] = [];
  let output = '';
  let errors = '';
  const actions: AgentActions = {
    run: (options) => calls.push(['run', options]),
    reset: (options) => calls.push(['reset', options]),
    print: (text) => (output += text),
  };
  const program = createAgentProgram(actions).configureOutput({
    writeOut: (text) => (output += text),
    writeErr: (text) => (errors += text),
  });
  try {
    program.parse(['node', 'cloudless-agent', ...args]);
  } catch (reason) {
    calls.push((reason as { readonly code: string }).code);
  }
  return { calls, output, errors };
}

describe('cloudless-agent --help', () => {
  it.each(Object.values(settingNames.flags).map(([flag]) => flag.split(' ')[0] ?? ''))(
    'shows flag %s',
    (flag) => {
      const { calls, output } = parseCommandLine('--help');
      expect(calls).toEqual(['commander.helpDisplayed']);
      expect(output).toMatch(new RegExp(`^ +${flag}\\b`, 'm'));
    },
  );

  it('shows every command', () => {
    const { output } = parseCommandLine('--help');
    expect(output).toMatch(/^ {2}run .*\n(.*\n)? {2}reset .*\n(.*\n)? {2}version /m);
  });
});

describe('cloudless-agent', () => {
  it.each([{ args: ['--name', 'a'] }, { args: ['-n', 'a'] }, { args: ['--config=x', 'run'] }])(
    'rejects the flags $args without a command, with the command line to use',
    ({ args }) => {
      expect(() => requireCommand(args)).toThrow(
        `${args[0]}: flags follow a command; run the agent with "cloudless-agent run ${args[0]} …", or see --help`,
      );
    },
  );

  it.each(['', '--help', '-h', '--version', '-V', 'run --name a', 'reset'])(
    'accepts the arguments "%s"',
    (args) => {
      expect(() => requireCommand(args.split(' ').filter(Boolean))).not.toThrow();
    },
  );

  it('prints its help and runs nothing without arguments', () => {
    const { calls, output, errors } = parseCommandLine();
    expect(calls).toEqual(['commander.help']);
    expect(output).toBe('');
    expect(errors).toMatch(/^Usage: cloudless-agent <command> \[flags\]\n/);
  });

  it('calls the action of the command run with its flags', () => {
    expect(parseCommandLine('run').calls).toEqual([['run', {}]]);
    expect(parseCommandLine('run', '--name', 'a').calls).toEqual([['run', { name: 'a' }]]);
  });

  it('calls the action of the commands reset and version', () => {
    expect(parseCommandLine('reset', '--data-dir', '/x').calls).toEqual([
      ['reset', { dataDir: '/x' }],
    ]);
    expect(parseCommandLine('version').output).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});
