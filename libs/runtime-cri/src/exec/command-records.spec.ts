import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { readProcess } from '../system/host-processes.js';
import { realClock } from '../testing/system.js';
import { CommandRecords } from './command-records.js';
import { commandLineFor } from './command-line.js';

describe('commands of an agent that was killed', () => {
  let directory: string;
  let child: ChildProcess;
  beforeEach(() => {
    directory = mkdtempSync(path.join(tmpdir(), 'cloudless-commands-'));
    child = spawn('/bin/sleep', ['3600'], { detached: true, stdio: 'ignore' });
  });
  afterEach(() => {
    child.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  });

  it('are ended by the next one, and forgotten', async () => {
    const ended = new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal)));
    new CommandRecords(directory, realClock).add(readProcess(child.pid ?? 0)!);
    expect(await new CommandRecords(directory, realClock).endAll()).toBe(1);
    expect(await ended).toBe('SIGTERM');
    expect(readdirSync(directory)).toEqual([]);
  });

  it('are left alone when they ended, or their id is that of another process now', async () => {
    writeFileSync(path.join(directory, `${child.pid}-1`), '');
    writeFileSync(path.join(directory, 'no command'), '');
    expect(await new CommandRecords(directory, realClock).endAll()).toBe(0);
    expect(readProcess(child.pid ?? 0)).toBeDefined();
    expect(readdirSync(directory)).toEqual([]);
  });
});

describe('the command line', () => {
  it('is as asked, and sets variables by env', () => {
    expect(commandLineFor({ command: ['ls', '-l'] })).toEqual(['ls', '-l']);
    expect(commandLineFor({ command: ['ls'], env: {} })).toEqual(['ls']);
    expect(commandLineFor({ command: ['ls'], env: { A: 'b c', D: '' } })).toEqual([
      'env',
      'A=b c',
      'D=',
      'ls',
    ]);
  });

  it.each([
    { request: { command: [] }, field: 'command' },
    { request: { command: [''] }, field: 'command' },
    { request: { command: ['a=b'], env: { A: '1' } }, field: 'command' },
    { request: { command: ['ls'], env: { 'A=B': '1' } }, field: 'env' },
  ])('refuses a wrong $field: $request', ({ request, field }) => {
    expect(() => commandLineFor(request)).toThrow(
      expect.objectContaining({ kind: 'invalid', message: expect.stringContaining(field) }),
    );
  });
});
