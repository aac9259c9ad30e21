import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { COMPLETION_SCRIPTS, formatCandidates } from './scripts.js';

const home = mkdtempSync(join(tmpdir(), 'cloudless completion '));
afterAll(() => rmSync(home, { recursive: true, force: true }));

/**
 * Writes a program `cloudlessctl` that prints these lines, and stores the words to complete in the
 * file `words`, one a line.
 */
function installFake(lines: readonly string[]): void {
  writeFileSync(join(home, 'answer'), lines.map((line) => `${line}\n`).join(''));
  const program = `#!/bin/sh\nshift 2\nprintf '%s\\n' "$@" > "$HOME/words"\ncat "$HOME/answer"\n`;
  writeFileSync(join(home, 'cloudlessctl'), program, { mode: 0o755 });
  writeFileSync(join(home, 'web.yaml'), '');
}

/** Runs a script of a shell in `home`, where the fake program is. */
function runShell(shell: string, args: readonly string[]): string {
  const PATH = `${home}${delimiter}${process.env['PATH'] ?? ''}`;
  const env = { PATH, HOME: home, TERM: 'dumb' };
  const { stdout, stderr, error } = spawnSync(shell, args, { cwd: home, env, encoding: 'utf8' });
  if (error !== undefined) throw error;
  expect(stderr).toBe('');
  return stdout;
}

const readWords = (): readonly string[] =>
  readFileSync(join(home, 'words'), 'utf8').split('\n').slice(0, -1);

/** A test that is skipped on a machine without the shell. */
const itWith = (shell: string): jest.It =>
  spawnSync(shell, ['-c', 'exit 0']).status === 0 ? it : it.skip;

it('formats candidates with a tab before the description, and local names as a last line', () => {
  const candidates = [
    { value: 'web', description: '2/2 ready' },
    { value: 'worker', description: '' },
  ];
  expect(formatCandidates({ candidates })).toBe('web\t2/2 ready\nworker\n');
  expect(formatCandidates({ candidates: [], local: 'files' })).toBe(':files\n');
});

describe('completion script for bash', () => {
  /** Completes the last of the words, split as bash splits them at "=" and ":". */
  const complete = (...words: string[]): readonly string[] => {
    const script = `${COMPLETION_SCRIPTS['bash'] ?? ''}
compopt() { :; }
COMP_WORDS=(cloudlessctl "$@"); COMP_CWORD=$#
_cloudlessctl cloudlessctl
printf '%s\\n' "\${COMPREPLY[@]}"`;
    return runShell('bash', ['-c', script, 'bash', ...words])
      .split('\n')
      .slice(0, -1);
  };

  itWith('bash')('offers the values without their descriptions', () => {
    installFake(['web\t2/2 ready', 'worker\tx']);
    expect(complete('-n', 'prod', 'scale', 'w')).toEqual(['web', 'worker']);
    expect(readWords()).toEqual(['-n', 'prod', 'scale', 'w']);
  });

  itWith('bash')('completes an empty word', () => {
    installFake(['web']);
    expect(complete('scale', '')).toEqual(['web']);
    expect(readWords()).toEqual(['scale', '']);
  });

  itWith('bash')('joins the words that bash splits at = and :, and offers the rest', () => {
    installFake(['--output=json']);
    expect(complete('get', '--output', '=', 'js')).toEqual(['json']);
    expect(readWords()).toEqual(['get', '--output=js']);
    expect(complete('get', '--output', '=')).toEqual(['json']);
    expect(readWords()).toEqual(['get', '--output=']);
    installFake(['8080:http']);
    expect(complete('port-forward', 'web', '8080', ':', 'h')).toEqual(['http']);
    expect(readWords()).toEqual(['port-forward', 'web', '8080:h']);
  });

  itWith('bash')('adds local files when the option takes a file', () => {
    installFake([':files']);
    expect(complete('apply', '-f', 'we')).toEqual(['web.yaml']);
  });

  itWith('bash')('completes through the registered function of an interactive shell', () => {
    installFake(['web\t2/2 ready']);
    const script = `${COMPLETION_SCRIPTS['bash'] ?? ''}
complete -p cloudlessctl`;
    expect(runShell('bash', ['-c', script])).toContain('-F _cloudlessctl cloudlessctl');
  });
});

describe('completion script for zsh', () => {
  /** Prints what the script passes to `_describe` and `_files`. */
  const complete = (...words: string[]): readonly string[] => {
    const script = `compdef() { :; }
_describe() { shift; print -rl -- "\${(@P)\${@[-1]}}"; }
_files() { print -r -- "files $*"; }
${COMPLETION_SCRIPTS['zsh'] ?? ''}
words=(cloudlessctl "$@"); CURRENT=$#words
_cloudlessctl`;
    return runShell('zsh', ['-f', '-c', script, 'zsh', ...words])
      .split('\n')
      .slice(0, -1);
  };

  itWith('zsh')('offers the values with their descriptions, with escaped colons', () => {
    installFake(['web\t2/2 ready', '8080:http\tport 80: http', 'plain']);
    expect(complete('scale', '')).toEqual(['web:2/2 ready', '8080\\:http:port 80: http', 'plain']);
    expect(readWords()).toEqual(['scale', '']);
  });

  itWith('zsh')('adds local files and directories', () => {
    installFake([':files']);
    expect(complete('apply', '-f', '')).toEqual(['files ']);
    installFake([':directories']);
    expect(complete('admin', 'restore', '--data-dir', '')).toEqual(['files -/']);
  });

  itWith('zsh')('registers itself when the completion system is not loaded yet', () => {
    installFake([]);
    const script = `${COMPLETION_SCRIPTS['zsh'] ?? ''}
print -r -- "\${_comps[cloudlessctl]}"`;
    expect(runShell('zsh', ['-f', '-c', script])).toBe('_cloudlessctl\n');
  });
});

describe('completion script for fish', () => {
  const complete = (line: string): readonly string[] => {
    const script = `${COMPLETION_SCRIPTS['fish'] ?? ''}
complete -C $argv[1]`;
    return runShell('fish', ['--no-config', '-c', script, line]).split('\n').slice(0, -1);
  };

  itWith('fish')('offers the values with their descriptions, in the order of cloudlessctl', () => {
    installFake(['worker\tx', 'web\t2/2 ready']);
    expect(complete('cloudlessctl -n prod scale w')).toEqual(['worker\tx', 'web\t2/2 ready']);
    expect(readWords()).toEqual(['-n', 'prod', 'scale', 'w']);
  });

  itWith('fish')('completes an empty word', () => {
    installFake(['web']);
    expect(complete('cloudlessctl scale ')).toEqual(['web']);
    expect(readWords()).toEqual(['scale', '']);
  });

  itWith('fish')('adds local files', () => {
    installFake([':files']);
    expect(complete('cloudlessctl apply -f we')).toEqual(['web.yaml']);
  });
});
