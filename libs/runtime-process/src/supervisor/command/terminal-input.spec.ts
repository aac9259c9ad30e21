import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import { TerminalInput } from './terminal-input.js';

describe('TerminalInput', () => {
  it('calls every close callback after the pending write, and not before', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'cloudless-terminal-'));
    const fd = openSync(path.join(directory, 'terminal'), 'w');
    const closed: string[] = [];
    const input = new TerminalInput(fd, new ManualClock(), () => undefined);
    input.write(Uint8Array.of(1));
    await new Promise<void>((resolve) => {
      input.close(() => closed.push('output'));
      input.close(() => {
        closed.push('input');
        resolve();
      });
      expect(closed).toEqual([]);
    });
    expect(closed).toEqual(['output', 'input']);
    closeSync(fd);
    rmSync(directory, { recursive: true });
  });

  it('returns false from write when 16 KiB or more are queued, and reports when more may be written', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'cloudless-terminal-'));
    const fd = openSync(path.join(directory, 'terminal'), 'w');
    let drained = 0;
    const input = new TerminalInput(fd, new ManualClock(), () => (drained += 1));
    expect(input.write(new Uint8Array(10))).toBe(true);
    expect(input.write(new Uint8Array(16 * 1024))).toBe(false);
    expect(drained).toBe(0);
    while (drained === 0) await new Promise((resolve) => setImmediate(resolve));
    await new Promise<void>((resolve) => input.close(resolve));
    expect(drained).toBe(1);
    closeSync(fd);
    rmSync(directory, { recursive: true });
  });
});
