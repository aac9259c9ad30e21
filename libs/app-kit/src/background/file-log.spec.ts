import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { ManualClock } from '@cloudless/base/testing';
import { createFileLog } from './file-log.js';

const MIB = 1024 * 1024;
let directory: string;
let file: string;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-log-'));
  file = path.join(directory, 'supervisor.log');
});
afterEach(() => rmSync(directory, { recursive: true }));

describe('createFileLog', () => {
  it('writes one JSON object per line to a file of mode 0600, and no debug messages', () => {
    const log = createFileLog(file, new ManualClock(0), { component: 'supervisor' });
    log.info('began', { pid: 7 });
    log.debug('detail');
    log.child({ containerId: 'c' }).error('failed');
    const entries = readFileSync(file, 'utf8').trimEnd().split('\n');
    expect(entries.map((line) => JSON.parse(line) as unknown)).toEqual([
      {
        ...{ time: '1970-01-01T00:00:00.000Z', level: 'info', message: 'began' },
        ...{ component: 'supervisor', pid: 7 },
      },
      {
        ...{ time: '1970-01-01T00:00:00.000Z', level: 'error', message: 'failed' },
        ...{ component: 'supervisor', containerId: 'c' },
      },
    ]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it('renames the file to .1 and begins a new file when the log is larger than 1 MiB', () => {
    const log = createFileLog(file, new ManualClock());
    log.info('x'.repeat(MIB));
    expect(existsSync(`${file}.1`)).toBe(false);
    log.info('next');
    expect(statSync(`${file}.1`).size).toBeGreaterThan(MIB);
    expect(statSync(file).size).toBeLessThan(200);
  });

  it('ignores the error when the file cannot be written', () => {
    createFileLog('/dev/null/supervisor.log', new ManualClock()).info('lost');
  });
});
