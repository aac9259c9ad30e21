import { describe, expect, it } from '@jest/globals';
import {
  requireArguments,
  createAgentProgram,
  settingNames,
  type AgentActions,
} from './agent-program.js';

/** Parses a command line; returns the calls of actions, or the error code, and the output. */
function parseCommandLine(...args: readonly string[]): {
  readonly calls: readonly unknown[];
  readonly output: string;
} {
  const calls: unknown[] = [];
  let output = '';
  const actions: AgentActions = {
    run: (options) => calls.push(['run', options]),
    reset: (options) => calls.push(['reset', options]),
    supervise: () => calls.push(['supervise']),
    print: (text) => (output += text),
  };
  const program = createAgentProgram(actions).configureOutput({
    writeOut: (text) => (output += text),
  });
  try {
    program.parse(['node', 'cloudless-agent', ...args]);
  } catch (reason) {
    calls.push((reason as { readonly code: string }).code);
  }
  return { calls, output };
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

  it('shows every command except supervisor, which only the agent itself runs', () => {
    const { output } = parseCommandLine('--help');
    expect(output).toMatch(/^ {2}run .*\n(.*\n)? {2}reset .*\n(.*\n)? {2}version /m);
    expect(output).not.toContain('supervisor [');
  });
});

describe('cloudless-agent', () => {
  it('rejects a call without arguments and settings with a hint to use the command run', () => {
    expect(() => requireArguments([], { PATH: '/bin' })).toThrow(
      'no command and no setting is given. Run "cloudless-agent run"',
    );
  });

  it.each([
    { name: 'the command', args: ['run'], env: {} },
    { name: 'a flag', args: ['--name', 'a'], env: {} },
    {
      name: 'a setting in the environment',
      args: [],
      env: { CLOUDLESS_AGENT_COORDINATOR: 'http://127.0.0.1:9' },
    },
  ])('runs the agent when called with $name', ({ args, env }) => {
    requireArguments(args, env);
    expect(parseCommandLine(...args).calls).toMatchObject([
      ['run', args.length > 1 ? { name: 'a' } : {}],
    ]);
  });

  it('calls the action of the commands reset, supervisor and version', () => {
    expect(parseCommandLine('reset', '--data-dir', '/x').calls).toEqual([
      ['reset', { dataDir: '/x' }],
    ]);
    expect(parseCommandLine('supervisor', '/x', '--idle', '5').calls).toEqual([['supervise']]);
    expect(parseCommandLine('version').output).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});
