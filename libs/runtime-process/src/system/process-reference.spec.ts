import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import { isAlive, readStartToken } from '@cloudless/app-kit/background';
import { waitUntil } from '../testing/real-machine.js';
import { killProcesses } from './process-reference.js';

const describeLinux = process.platform === 'linux' ? describe : describe.skip;

describeLinux('readStartToken', () => {
  it('returns undefined for a zombie', async () => {
    // The program that replaces the shell never waits for the child of the shell.
    const parent = spawn('/bin/sh', ['-c', 'sleep 0.01 & echo $!; exec sleep 3600']);
    const pid = await new Promise<number>((resolve) =>
      parent.stdout.once('data', (chunk: Buffer) => resolve(Number(chunk))),
    );
    await waitUntil(() => readStartToken(pid) === undefined);
    expect(existsSync(`/proc/${pid}`)).toBe(true);
    parent.kill('SIGKILL');
  });

  it('returns the token by which isAlive distinguishes processes with the same id', () => {
    const token = readStartToken(process.pid) ?? '';
    expect([isAlive(process.pid, token), isAlive(process.pid, '0')]).toEqual([true, false]);
  });
});

describeLinux('killProcesses', () => {
  it('does not kill a later process with the same id', async () => {
    const child = spawn('sleep', ['3600']);
    killProcesses([{ pid: child.pid ?? 0, startToken: 'earlier' }]);
    const ended = new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal)));
    child.kill('SIGTERM');
    expect(await ended).toBe('SIGTERM');
  });
});
