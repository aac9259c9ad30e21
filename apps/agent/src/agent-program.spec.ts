import { describe, expect, it } from '@jest/globals';
import { checkAsked, createAgentProgram, names, type AgentActions } from './agent-program.js';

/** The actions that a command line triggers, and its output. */
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

describe('the help of the agent', () => {
  it.each(Object.values(names.flags).map(([flag]) => flag.split(' ')[0] ?? ''))(
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

describe('a call of the agent', () => {
  it('without arguments and settings is refused with a hint to run and --help', () => {
    expect(() => checkAsked([], { PATH: '/bin' })).toThrow(
      'no command and no setting was given. Run "cloudless-agent run"',
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
  ])('with $name runs the agent', ({ words, env }) => {
    checkAsked(words, env);
    expect(parsed(...words).asked).toMatchObject([['run', words.length > 1 ? { name: 'a' } : {}]]);
  });

  it('with another command runs that command', () => {
    expect(parsed('reset', '--data-dir', '/x').asked).toEqual([['reset', { dataDir: '/x' }]]);
    expect(parsed('supervisor', '/x', '--idle', '5').asked).toEqual([['supervise']]);
    expect(parsed('version').output).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});
