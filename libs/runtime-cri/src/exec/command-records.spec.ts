import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { systemClock } from '@cloudless/app-kit';
import { readProcess } from '../system/host-processes.js';
import { CommandRecords } from './command-records.js';
import { toCommandLine } from './command-line.js';

describe('CommandRecords.endAll', () => {
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

  it('ends the running commands that another agent has recorded, and removes their records', async () => {
    const ended = new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal)));
    new CommandRecords(directory, systemClock).add(readProcess(child.pid ?? 0)!);
    expect(await new CommandRecords(directory, systemClock).endAll()).toBe(1);
    expect(await ended).toBe('SIGTERM');
    expect(readdirSync(directory)).toEqual([]);
  });

  it('removes the record of an ended command, and spares another process with the same id', async () => {
    writeFileSync(path.join(directory, `${child.pid}-1`), '');
    writeFileSync(path.join(directory, 'no command'), '');
    expect(await new CommandRecords(directory, systemClock).endAll()).toBe(0);
    expect(readProcess(child.pid ?? 0)).toBeDefined();
    expect(readdirSync(directory)).toEqual([]);
  });
});

describe('toCommandLine', () => {
  it('returns the requested command, and puts env with the variables before it', () => {
    expect(toCommandLine({ command: ['ls', '-l'] })).toEqual(['ls', '-l']);
    expect(toCommandLine({ command: ['ls'], env: {} })).toEqual(['ls']);
    expect(toCommandLine({ command: ['ls'], env: { A: 'b c', D: '' } })).toEqual([
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
  ])('refuses an invalid $field: $request', ({ request, field }) => {
    expect(() => toCommandLine(request)).toThrow(
      expect.objectContaining({ kind: 'invalid', message: expect.stringContaining(field) }),
    );
  });
});
