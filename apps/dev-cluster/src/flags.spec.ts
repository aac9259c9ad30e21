import { readFileSync } from 'node:fs';
import { FLAGS, formatHelp, parseFlags } from './flags.mjs';

describe('parseFlags', () => {
  it('returns the defaults when no flag is given', () => {
    expect(parseFlags([])).toEqual({
      kind: 'run',
      flags: {
        port: 8080,
        opsPort: 8081,
        agentPort: 9092,
        workloadPort: 20_000,
        agents: 3,
        runtime: 'auto',
      },
    });
  });

  it('returns the values of flags, the last one when a flag is repeated', () => {
    const args = ['--port', '1', '--data-dir=/d', '--demo', '--runtime', 'cri', '--port=0'];
    expect(parseFlags(args)).toMatchObject({
      kind: 'run',
      flags: { port: 0, dataDir: '/d', demo: true, runtime: 'cri' },
    });
  });

  it.each([
    { args: ['--help'], kind: 'help' },
    { args: ['--port', '1', '-h'], kind: 'help' },
    { args: ['--version'], kind: 'version' },
    { args: ['-V'], kind: 'version' },
  ])('returns $kind for $args', ({ args, kind }) => {
    expect(parseFlags(args)).toEqual({ kind });
  });

  it.each([
    { args: ['--prot', '1'], message: 'unknown flag --prot; see --help for the flags' },
    { args: ['-x'], message: 'unknown flag -x; see --help for the flags' },
    { args: ['demo'], message: 'demo: is no flag; see --help for the flags' },
    { args: ['--demo=1'], message: '--demo: takes no value' },
    {
      args: ['--port'],
      message: '--port: needs a value; write --port=VALUE for a value that begins with "-"',
    },
    {
      args: ['--port', '--demo'],
      message: '--port: needs a value; write --port=VALUE for a value that begins with "-"',
    },
    {
      args: ['--port', '70000'],
      message: '--port: "70000" must be a whole number from 0 to 65535',
    },
    { args: ['--port', '1e3'], message: '--port: "1e3" must be a whole number from 0 to 65535' },
    { args: ['--agents', '41'], message: '--agents: "41" must be a whole number from 0 to 40' },
    {
      args: ['--runtime', 'docker'],
      message: '--runtime: "docker" must be one of auto, process, cri',
    },
    { args: ['--data-dir', ''], message: '--data-dir: "" must not be empty' },
  ])('rejects $args', ({ args, message }) => {
    expect(parseFlags(args)).toEqual({ kind: 'invalid', message });
  });
});

describe('formatHelp', () => {
  it('has lines of at most 100 characters', () => {
    expect(
      Math.max(
        ...formatHelp()
          .split('\n')
          .map((line) => line.length),
      ),
    ).toBeLessThan(101);
  });

  it.each(FLAGS.map(({ name }) => name))('shows flag --%s', (name) => {
    expect(formatHelp()).toMatch(new RegExp(`^ +(-\\w, )?--${name}\\b`, 'm'));
  });
});

describe('README.md', () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  it.each(FLAGS.map(({ name }) => name))('documents flag --%s', (name) => {
    expect(readme).toMatch(new RegExp(`^--${name}\\b`, 'm'));
  });
});
