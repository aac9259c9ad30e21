import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CloudlessError, errorFields, StoppedError, type Clock } from '@cloudless/base';
import { connectOrStart } from './connect-or-start.js';
import { readStartToken } from './process-identity.js';

let directory = '';
beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), 'background-'))));
afterEach(() => rmSync(directory, { recursive: true }));

/** A clock whose time passes when a condition holds. */
function createClock(condition: () => boolean): Clock {
  let nowMs = 0;
  return {
    now: () => nowMs,
    wallTime: () => nowMs,
    setTimer: (_, callback) => {
      const timer = setTimeout(() => {
        if (condition()) nowMs += 60_000;
        callback();
      }, 10);
      return { cancel: () => clearTimeout(timer) };
    },
  };
}

/**
 * Returns the error when a program with this program text never answers.
 * @param condition - Holds when the time limit may pass.
 */
async function failToConnect(program: string, condition: () => boolean): Promise<unknown> {
  const connect = (): Promise<never> =>
    Promise.reject(new CloudlessError('unavailable', 'connect ENOENT'));
  const command = [process.execPath, '-e', program];
  const background = {
    ...{ title: 'process supervisor', directory, command, errorFile: 'supervisor.err' },
  };
  const { signal } = new AbortController();
  return connectOrStart(connect, background, createClock(condition), signal).catch(
    (reason: unknown) => reason,
  );
}

describe('connectOrStart, when the program does not answer within 60 s,', () => {
  it('quotes the last lines of the error output in the cause, not in the message for API callers', async () => {
    const lines = [1, 2, 3, 4, 5, 6, 7, 8].map((line) => `line ${line}`).join('\n');
    const program = `require('node:fs').writeSync(2, ${JSON.stringify(`${lines}\n`)})`;
    const hasOutput = (): boolean => statSync(join(directory, 'supervisor.err')).size > 0;
    const { error, causes } = errorFields(await failToConnect(program, hasOutput));
    expect(error).toBe(
      'the process supervisor does not answer within 60 s: it cannot start, or the machine is too busy',
    );
    expect(causes?.[0]).toBe(
      `CloudlessError: no process supervisor answers in ${directory} (connect ENOENT); supervisor.err ends with:\n` +
        [4, 5, 6, 7, 8].map((line) => `    line ${line}`).join('\n'),
    );
  });

  it('says that the error output is empty', async () => {
    const { causes } = errorFields(await failToConnect('', () => true));
    expect(causes?.[0]).toContain(`${directory} (connect ENOENT); supervisor.err is empty`);
  });
});

describe('connectOrStart, when its signal is aborted before the program answers,', () => {
  it('ends the program that it has started', async () => {
    const pidFile = join(directory, 'pid');
    const program = [
      `require('node:fs').writeFileSync(${JSON.stringify(pidFile)}, String(process.pid))`,
      'setInterval(() => undefined, 1_000)',
    ].join(';');
    const stopping = new AbortController();
    const isRunning = (): boolean => existsSync(pidFile) && readFileSync(pidFile, 'utf8') !== '';
    const attempt = connectOrStart(
      () => {
        if (isRunning()) stopping.abort();
        return Promise.reject(new CloudlessError('unavailable', 'connect ENOENT'));
      },
      {
        ...{ title: 'network proxy', directory, errorFile: 'proxy.err' },
        command: [process.execPath, '-e', program],
      },
      createClock(() => false),
      stopping.signal,
    );
    await expect(attempt).rejects.toBeInstanceOf(StoppedError);
    const pid = Number(readFileSync(pidFile, 'utf8'));
    while (readStartToken(pid) !== undefined) await new Promise((resolve) => setImmediate(resolve));
  });
});
