import { describe, expect, it } from '@jest/globals';
import {
  requireArguments,
  createAgentProgram,
  settingNames,
  type AgentActions,
} from './agent-program.js';

/** Actions and output of a command line. */
function parsed(...words: readonly string[]): {
  readonly asked: readonly unknown[];
  readonly output: string;
} {
  const asked: unknown[] = [];
  let output = '';
  const actions: AgentActions = {
    run: (options) => asked.push(['run', options]),
    reset: (options) => asked.push(['reset', options]),
    supervise: () => asked.push(['supervise']),
    print: (text) => (output += text),
  };
  const program = createAgentProgram(actions).configureOutput({
    writeOut: (text) => (output += text),
  });
  try {
    program.parse(['node', 'cloudless-agent', ...words]);
  } catch (reason) {
    asked.push((reason as { readonly code: string }).code);
  }
  return { asked, output };
}

describe('cloudless-agent --help', () => {
  it.each(Object.values(settingNames.flags).map(([flag]) => flag.split(' ')[0] ?? ''))(
    'shows %s',
    (flag) => {
      const { asked, output } = parsed('--help');
      expect(asked).toEqual(['commander.helpDisplayed']);
      expect(output).toMatch(new RegExp(`^ +${flag}\\b`, 'm'));
    },
  );

  it('shows every command except supervisor, which only the agent itself runs', () => {
    const { output } = parsed('--help');
    expect(output).toMatch(/^ {2}run .*\n(.*\n)? {2}reset .*\n(.*\n)? {2}version /m);
    expect(output).not.toContain('supervisor [');
  });
});

describe('cloudless-agent', () => {
  it('rejects a call without arguments and settings, with a hint to run and --help', () => {
    expect(() => requireArguments([], { PATH: '/bin' })).toThrow(
      'no command and no setting is given. Run "cloudless-agent run"',
    );
  });

  it.each([
    { name: 'the command', words: ['run'], env: {} },
    { name: 'a flag', words: ['--name', 'a'], env: {} },
    {
      name: 'a setting in the environment',
      words: [],
      env: { CLOUDLESS_AGENT_COORDINATOR: 'http://127.0.0.1:9' },
    },
  ])('runs the agent when called with $name', ({ words, env }) => {
    requireArguments(words, env);
    expect(parsed(...words).asked).toMatchObject([['run', words.length > 1 ? { name: 'a' } : {}]]);
  });

  it('runs another command', () => {
    expect(parsed('reset', '--data-dir', '/x').asked).toEqual([['reset', { dataDir: '/x' }]]);
    expect(parsed('supervisor', '/x', '--idle', '5').asked).toEqual([['supervise']]);
    expect(parsed('version').output).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});
