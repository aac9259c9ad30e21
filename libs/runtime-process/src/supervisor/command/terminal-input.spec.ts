import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import { TerminalInput } from './terminal-input.js';

it('TerminalInput calls every close callback after the pending write, and not before', async () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'cloudless-terminal-'));
  const fd = openSync(path.join(directory, 'terminal'), 'w');
  const done: string[] = [];
  const input = new TerminalInput(fd, new ManualClock(), () => undefined);
  input.write(Uint8Array.of(1));
  await new Promise<void>((resolve) => {
    input.close(() => done.push('output'));
    input.close(() => {
      done.push('input');
      resolve();
    });
    expect(done).toEqual([]);
  });
  expect(done).toEqual(['output', 'input']);
  closeSync(fd);
  rmSync(directory, { recursive: true });
});
